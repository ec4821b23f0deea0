#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "lab/workloads/segment.h"
#include "lab/workloads/working_set.h"

namespace flash {

namespace {

constexpr std::size_t kPiece = 16 * 1024;

// Without a disk to write to, a file in memory: the same calls, nothing to wait for.
int file_of(SegmentScratch& scratch) {
  if (!scratch.file) {
    scratch.file = UniqueFd(open_unlinked_file());
    if (!scratch.file) {
      scratch.file = UniqueFd(::memfd_create("flash-workload", MFD_CLOEXEC));
    }
  }
  return scratch.file.get();
}

void write_file(int file, std::span<const std::uint8_t> bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const auto size = ::pwrite(file, bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
    if (size < 0 && errno != EINTR) {
      return;  // a full disk: the request is answered all the same
    }
    at += size > 0 ? static_cast<std::size_t>(size) : 0;
  }
  ::fdatasync(file);
}

std::uint64_t sum_of(std::span<const std::uint8_t> bytes) {
  std::uint64_t sum = 0;
  for (const std::uint8_t byte : bytes) {
    sum += byte;
  }
  return sum;
}

}  // namespace

std::uint64_t run_file_read(SegmentScratch& scratch, std::uint64_t bytes) {
  const int file = file_of(scratch);
  struct stat status {};
  if (::fstat(file, &status) != 0 || static_cast<std::uint64_t>(status.st_size) < bytes) {
    extend_with_words(scratch.input, bytes);
    write_file(file, scratch.input);
  }
  ::posix_fadvise(file, 0, static_cast<off_t>(bytes), POSIX_FADV_DONTNEED);
  auto& buffer = scratch.output;
  buffer.resize(kPiece);
  std::uint64_t sum = 0;
  for (std::uint64_t at = 0; at < bytes;) {
    const auto size =
        ::pread(file, buffer.data(), std::min<std::uint64_t>(kPiece, bytes - at), static_cast<off_t>(at));
    if (size <= 0) {
      break;
    }
    sum += sum_of({buffer.data(), static_cast<std::size_t>(size)});
    at += static_cast<std::uint64_t>(size);
  }
  return sum;
}

std::uint64_t run_file_write(SegmentScratch& scratch, std::uint64_t bytes) {
  const int file = file_of(scratch);
  auto& input = scratch.input;
  extend_with_words(input, bytes);
  ++input[scratch.seed % bytes];
  write_file(file, std::span(input).first(bytes));
  return ++scratch.seed;
}

std::uint64_t run_stream(SegmentScratch& scratch, std::uint64_t bytes) {
  if (!scratch.stream_in) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
      return 0;
    }
    scratch.stream_in = UniqueFd(ends[0]);
    scratch.stream_out = UniqueFd(ends[1]);
  }
  auto& buffer = scratch.output;
  buffer.resize(kPiece);
  buffer[0] = static_cast<std::uint8_t>(++scratch.seed);
  std::uint64_t sum = 0;
  for (std::uint64_t left = bytes; left > 0;) {
    const auto sent =
        ::send(scratch.stream_in.get(), buffer.data(), std::min<std::uint64_t>(kPiece, left), MSG_NOSIGNAL);
    if (sent <= 0) {
      break;
    }
    left -= static_cast<std::uint64_t>(sent);
    for (auto unread = sent; unread > 0;) {
      const auto size = ::recv(scratch.stream_out.get(), buffer.data(), kPiece, 0);
      if (size <= 0) {
        return sum;
      }
      sum += sum_of({buffer.data(), static_cast<std::size_t>(size)});
      unread -= size;
    }
  }
  return sum;
}

std::uint64_t run_remote_call(SegmentScratch& scratch, std::uint64_t microseconds) {
  const timespec wait{static_cast<time_t>(microseconds / 1'000'000),
                      static_cast<long>(microseconds % 1'000'000 * 1000)};
  ::clock_nanosleep(CLOCK_MONOTONIC, 0, &wait, nullptr);
  return ++scratch.seed;
}

}  // namespace flash
