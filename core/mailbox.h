// Purpose: a bounded queue between two threads, the only thing that threads of the project share; its reader
// waits on a descriptor, so that it fits any loop.
// Ownership: owns what lies in it.
// Thread rule: any thread puts, one thread takes.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace flash {

template <class T>
class Mailbox {
 public:
  explicit Mailbox(std::size_t capacity)
      : capacity_(capacity), event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~Mailbox() {
    if (event_ >= 0) close(event_);
  }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  /// false: it is full, nothing was put.
  bool put(T item) {
    {
      const std::lock_guard lock(mutex_);
      if (items_.size() >= capacity_) return false;
      items_.push_back(std::move(item));
    }
    const std::uint64_t one = 1;
    (void)!write(event_, &one, sizeof one);
    return true;
  }
  /// All there is, in order.
  std::vector<T> take() {
    std::uint64_t count = 0;
    (void)!read(event_, &count, sizeof count);
    const std::lock_guard lock(mutex_);
    return std::exchange(items_, {});
  }
  /// Readable while something may be in it.
  int fd() const { return event_; }

 private:
  const std::size_t capacity_;
  const int event_;
  std::mutex mutex_;
  std::vector<T> items_;
};

}  // namespace flash
