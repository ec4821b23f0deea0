// Purpose: which cgroups exist, followed by inotify on their directories rather than by scanning each second.
// On v1 the reference hierarchy (CgroupLayout::reference) stands for all: a cgroup that exists only in others
// is not seen.
// Ownership: owns its inotify descriptor and watches. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/time.h"
#include "host/cgroup_layout.h"
#include "host/file_io.h"

namespace flash {

struct CgroupWatchOptions {
  /// Watches cost about 1 KiB of kernel memory each and count against fs.inotify.max_user_watches.
  std::size_t max_watches = 16384;
  /// Deeper cgroups are not followed.
  int max_depth = 32;
  /// While there are too few watches: how often the tree is scanned instead.
  Duration rescan_every = std::chrono::seconds(5);
};

struct CgroupEvent {
  enum class Kind : std::uint8_t { Added, Removed };
  Kind kind = Kind::Added;
  std::string path;         // "/system.slice/web.service"
  std::uint64_t inode = 0;  // of the directory in the reference hierarchy
  int depth = 0;            // 1 for a child of the root
  bool operator==(const CgroupEvent&) const = default;
};

class CgroupWatch {
 public:
  /// Nothing is reported before the first drain(). EMFILE: no inotify instance left; ENOENT: no hierarchy.
  static Result<CgroupWatch> open(const CgroupLayout& layout, CgroupWatchOptions options = {});

  /// Readable when drain() has something to do.
  int fd() const { return inotify_.get(); }

  /// What changed since the last call; the first call reports every cgroup below the root. Parents come
  /// before children when added, after them when removed. A cgroup that was removed and created again appears
  /// as Removed with the old inode, then Added with the new one. After a lost event (queue overflow) and,
  /// while degraded, every rescan_every, the whole tree is compared.
  std::vector<CgroupEvent> drain(Now now);

  /// Empty, or why changes may be seen late.
  const std::string& degraded_reason() const { return degraded_; }
  /// Cgroups below the root now.
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::uint64_t inode = 0;
    int watch = -1;
    int depth = 0;
    std::uint64_t seen = 0;  // scan that met it last
  };

  CgroupWatch(std::string base, CgroupWatchOptions options, Fd inotify);
  std::string directory(std::string_view path) const { return base_ + std::string(path); }
  int add_watch(const std::string& path);
  void drop_watch(int watch, std::string_view path);
  /// Takes in the cgroup and all below it, reporting what is new.
  void take_in(const std::string& path, int depth, std::vector<CgroupEvent>& events);
  void scan_children(const std::string& path, int depth, std::vector<CgroupEvent>& events);
  /// Reports the cgroup and all below it as removed.
  void drop(const std::string& path, std::vector<CgroupEvent>& events);
  void rescan(std::vector<CgroupEvent>& events);

  std::string base_;  // directory of the reference hierarchy's root
  CgroupWatchOptions options_;
  Fd inotify_;
  std::unordered_map<std::string, Entry> entries_;  // by path; the root is not among them
  std::unordered_map<int, std::string> watches_;    // watch descriptor to path, "" is the root
  int root_watch_ = -1;
  std::uint64_t scan_ = 0;
  bool started_ = false;
  Duration last_scan_{};
  std::string degraded_;
};

}  // namespace flash
