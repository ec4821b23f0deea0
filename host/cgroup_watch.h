// Purpose: which cgroups exist, followed by inotify on their directories rather than by scanning each second.
// On v1 the reference hierarchy (CgroupLayout::reference) stands for all: a cgroup that exists only in others
// is not seen. Whoever may create cgroups decides how many there are; what one drain() does is bounded all
// the same, and what is left is done by the next.
// Ownership: owns its descriptors and watches.
// Thread rule: one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
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
  /// After lost events: the tree is compared at most so often.
  Duration rescan_after_loss = std::chrono::seconds(1);
};

struct CgroupEvent {
  enum class Kind : std::uint8_t { Added, Removed };
  Kind kind = Kind::Added;
  std::string path;         // "/system.slice/web.service"
  std::uint64_t inode = 0;  // of the directory in the reference hierarchy
  int depth = 0;            // 1 for a child of the root
  /// Somebody other than root may have given it its name: a directory above it belongs to another user or is
  /// writable by others. The name proves nothing then.
  bool foreign = false;
  bool operator==(const CgroupEvent&) const = default;
};

class CgroupWatch {
 public:
  /// Nothing is reported before the first drain(). EMFILE: no inotify instance left; ENOENT: no hierarchy.
  static Result<CgroupWatch> open(const CgroupLayout& layout, CgroupWatchOptions options = {});

  /// Readable when drain() has something to do.
  int fd() const { return ready_.get(); }

  /// Which cgroups in which others may create more are looked into; of the rest only they themselves are
  /// known. Without it all are. Takes effect with the next drain(), which compares the whole tree.
  using Follow = std::function<bool(std::string_view path)>;
  void follow_in_open(Follow follow);

  static constexpr std::size_t kUnbounded = static_cast<std::size_t>(-1);
  /// What changed since the last call; the first call reports every cgroup below the root. Parents come
  /// before children when added, after them when removed. A cgroup that was removed and created again appears
  /// as Removed with the old inode, then Added with the new one; one that changed hands (`foreign`) as Added
  /// again with the same inode. After a lost event (queue overflow) and, while degraded, every rescan_every,
  /// the whole tree is compared. Looks at about `budget` directories and events and leaves the rest for
  /// later.
  std::vector<CgroupEvent> drain(Now now, std::size_t budget = kUnbounded);

  /// Empty, or why changes may be seen late.
  const std::string& degraded_reason() const { return degraded_; }
  /// Cgroups below the root that are known now.
  std::size_t size() const { return entries_.size(); }

 private:
  struct Directory {
    std::uint64_t inode = 0;
    bool open = false;  // others may create cgroups in it
    bool operator==(const Directory&) const = default;
  };
  struct Hands {
    bool foreign = false;   // as in CgroupEvent
    bool open = false;      // others may create cgroups in it, or above
    bool followed = false;  // looked into
    bool operator==(const Hands&) const = default;
  };
  struct Entry {
    std::uint64_t inode = 0;
    int watch = -1;
    int depth = 0;
    Hands hands;
    std::uint64_t seen = 0;  // scan that met it last
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

  CgroupWatch(std::string base, CgroupWatchOptions options);
  std::string directory(std::string_view path) const { return base_ + std::string(path); }
  Result<Directory> look(std::string_view path) const;
  /// nullptr: the root, or not known.
  const Entry* parent_of(std::string_view path) const;
  Hands hands(const std::string& path, const Directory& now) const;
  int add_watch(const std::string& path);
  void drop_watch(int watch, std::string_view path);
  /// Takes in one cgroup, reporting it if it is new; its children come later.
  void take_in(const std::string& path, std::vector<CgroupEvent>& events);
  void take_in_children_later(const std::string& path);
  /// Reports what is below the cgroup as removed, or the cgroup as well. Returns how many there were.
  std::size_t drop_below(const std::string& path, std::vector<CgroupEvent>& events);
  std::size_t drop(const std::string& path, std::vector<CgroupEvent>& events);
  void forget(Entries::iterator at, std::vector<CgroupEvent>& events);
  void begin_scan(Now now);
  void end_scan();
  /// One read of the kernel's queue. Returns the events taken; 0: none waits.
  std::size_t read_events(std::vector<CgroupEvent>& events);
  void say_pending(bool pending);

  std::string base_;  // directory of the reference hierarchy's root
  CgroupWatchOptions options_;
  Fd ready_;  // epoll of the two below
  Fd inotify_;
  Fd pending_;  // eventfd: there is work left of an earlier drain()
  bool pending_said_ = false;
  Follow follow_;
  uid_t base_owner_ = 0;
  gid_t base_group_ = 0;
  Entries entries_;  // by path, so that what is below one is a range; the root is not among them
  std::unordered_map<int, std::string> watches_;  // watch descriptor to path, "" is the root
  int root_watch_ = -1;
  std::vector<std::string> to_take_in_;  // last in, first out
  std::vector<std::string> to_drop_;     // not met by the last scan
  std::uint64_t scan_ = 0;
  bool scanning_ = false;
  bool scan_wanted_ = true;
  bool started_ = false;
  Duration last_scan_{};
  Duration scan_not_before_{};  // for one that is wanted
  std::string degraded_;
};

}  // namespace flash
