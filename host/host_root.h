// Purpose: where the machine is: "/" or, for tests, captured hosts and --root DIR, a directory that looks
// like it. Every reader and writer takes its paths from here.
// Ownership: value.
// Thread rule: immutable.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace flash {

class HostRoot {
 public:
  explicit HostRoot(std::string directory = "/") : prefix_(std::move(directory)) {
    while (!prefix_.empty() && prefix_.back() == '/') prefix_.pop_back();
  }

  /// Is this the running machine? Only then does a file's absence say something about the kernel.
  bool real() const { return prefix_.empty(); }
  /// "/proc/stat" as a path that can be opened.
  std::string path(std::string_view absolute) const { return prefix_ + std::string(absolute); }
  /// path() of a sub-path below /proc or /sys.
  std::string proc(std::string_view below) const { return prefix_ + "/proc/" + std::string(below); }
  std::string sys(std::string_view below) const { return prefix_ + "/sys/" + std::string(below); }

 private:
  std::string prefix_;  // "" for "/"
};

}  // namespace flash
