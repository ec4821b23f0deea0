#include "sync/page_buffer.h"

#include <sys/mman.h>

#include <cassert>
#include <cstring>

namespace flash::sync {

bool PageBuffer::open(std::size_t most) {
  clear();
  void* at = mmap(nullptr, most, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return false;
  // A huge page would take 2 MiB for the first byte.
  (void)madvise(at, most, MADV_NOHUGEPAGE);
  data_ = static_cast<char*>(at);
  most_ = most;
  return true;
}

void PageBuffer::append(std::string_view bytes) {
  assert(size_ + bytes.size() <= most_);
  if (!bytes.empty()) std::memcpy(data_ + size_, bytes.data(), bytes.size());
  size_ += bytes.size();
}

void PageBuffer::clear() {
  if (data_) munmap(data_, most_);
  data_ = nullptr;
  size_ = most_ = 0;
}

}  // namespace flash::sync
