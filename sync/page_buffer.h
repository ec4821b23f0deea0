// Purpose: the bytes of one page while it comes, in one piece. They take the memory that they fill, to the
// next 4 KiB, however it grows, and all of it goes back at once: nothing stays with the allocator.
// Ownership: owns its mapping.
// Thread rule: none needed.
#pragma once

#include <cstddef>
#include <string_view>

namespace flash::sync {

class PageBuffer {
 public:
  PageBuffer() = default;
  ~PageBuffer() { clear(); }
  PageBuffer(const PageBuffer&) = delete;
  PageBuffer& operator=(const PageBuffer&) = delete;

  /// Sets aside addresses for so many bytes. False: there are none.
  bool open(std::size_t most);
  /// REQUIRES: open() was called, and all of it fits.
  void append(std::string_view bytes);
  std::string_view text() const { return {data_, size_}; }
  std::size_t size() const { return size_; }
  void clear();

 private:
  char* data_ = nullptr;
  std::size_t size_ = 0, most_ = 0;
};

}  // namespace flash::sync
