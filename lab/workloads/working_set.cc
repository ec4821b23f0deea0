#include "lab/workloads/working_set.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <new>

namespace flash {

namespace {

std::size_t whole_pages(std::uint64_t bytes) {
  return static_cast<std::size_t>(bytes) / kPageBytes * kPageBytes;
}

std::uint8_t* map(std::size_t size, int fd) {
  if (size == 0) {
    return nullptr;
  }
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED) {
    throw std::bad_alloc();
  }
  return static_cast<std::uint8_t*>(memory);
}

}  // namespace

int open_unlinked_file() {
  const char* directory = std::getenv("TMPDIR");
  return ::open(directory != nullptr && *directory != '\0' ? directory : "/var/tmp",
                O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

WorkingSet::WorkingSet(std::uint64_t hot_bytes, std::uint64_t cold_bytes)
    : hot_size_(whole_pages(hot_bytes)), cold_size_(whole_pages(cold_bytes)) {
  hot_ = map(hot_size_, -1);
  for (std::size_t i = 0; i < hot_size_; i += kPageBytes) {
    hot_[i] = static_cast<std::uint8_t>(i / kPageBytes + 1);
  }
  int file = cold_size_ > 0 ? open_unlinked_file() : -1;
  if (file >= 0 && ::ftruncate(file, static_cast<off_t>(cold_size_)) != 0) {
    ::close(file);
    file = -1;
  }
  cold_ = map(cold_size_, file);
  for (std::size_t i = 0; i < cold_size_; i += kPageBytes) {
    if (file >= 0) {
      // Reading a hole puts a clean page into the page cache: nothing has to go to the disk first.
      static_cast<void>(*static_cast<const volatile std::uint8_t*>(cold_ + i));
    } else {
      cold_[i] = 1;
    }
  }
  if (file >= 0) {
    ::close(file);
  }
}

WorkingSet::~WorkingSet() {
  if (hot_ != nullptr) {
    ::munmap(hot_, hot_size_);
  }
  if (cold_ != nullptr) {
    ::munmap(cold_, cold_size_);
  }
}

void WorkingSet::touch() {
  const std::size_t pages = hot_size_ / kPageBytes;
  const std::size_t share = (pages + kCallsPerRound - 1) / kCallsPerRound;
  const std::size_t first = next_.fetch_add(share, std::memory_order_relaxed);
  for (std::size_t i = first; i < first + share; ++i) {
    std::atomic_ref<std::uint8_t>(hot_[i % pages * kPageBytes])
        .store(static_cast<std::uint8_t>(i), std::memory_order_relaxed);
  }
}

}  // namespace flash
