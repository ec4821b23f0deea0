#include "host/cgroup_watch.h"

#include <dirent.h>
#include <limits.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

namespace flash {
namespace {

constexpr std::uint32_t kMask =
    IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ONLYDIR | IN_DONT_FOLLOW | IN_EXCL_UNLINK;

std::vector<std::string> subdirectories(const std::string& directory) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(directory.c_str()), ::closedir);
  if (!dir) return names;
  while (const dirent* entry = ::readdir(dir.get())) {  // NOLINT(concurrency-mt-unsafe): own stream
    if (entry->d_type != DT_DIR || entry->d_name[0] == '\0') continue;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  return names;
}

bool below(std::string_view path, std::string_view parent) {
  return path.size() > parent.size() && path.starts_with(parent) && path[parent.size()] == '/';
}

}  // namespace

CgroupWatch::CgroupWatch(std::string base, CgroupWatchOptions options, Fd inotify)
    : base_(std::move(base)), options_(options), inotify_(std::move(inotify)) {}

Result<CgroupWatch> CgroupWatch::open(const CgroupLayout& layout, CgroupWatchOptions options) {
  const auto& base = layout.reference_mount();
  FLASH_TRY([[maybe_unused]] const auto inode, inode_of(base));
  Fd inotify(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!inotify) return Error::from_errno(errno, "inotify");
  CgroupWatch watch(base, options, std::move(inotify));
  // The root's watch is there before the first scan, so that fd() wakes up for what comes after open().
  watch.root_watch_ = watch.add_watch("");
  return watch;
}

int CgroupWatch::add_watch(const std::string& path) {
  if (watches_.size() >= options_.max_watches) {
    if (degraded_.empty())
      degraded_ = "more than " + std::to_string(options_.max_watches) +
                  " cgroups: some changes are found by " + "scanning only";
    return -1;
  }
  const int watch = ::inotify_add_watch(inotify_.get(), directory(path).c_str(), kMask);
  if (watch < 0) {
    if (errno != ENOENT && errno != ENOTDIR && degraded_.empty())
      degraded_ =
          Error::from_errno(errno, "inotify watch on a cgroup (fs.inotify.max_user_watches?)").message();
    return -1;
  }
  watches_[watch] = path;
  return watch;
}

void CgroupWatch::drop_watch(int watch, std::string_view path) {
  const auto known = watches_.find(watch);
  // A renamed directory keeps its descriptor, which then belongs to the new path.
  if (known == watches_.end() || known->second != path) return;
  // EINVAL: the kernel dropped it with the directory.
  ::inotify_rm_watch(inotify_.get(), watch);
  watches_.erase(known);
}

void CgroupWatch::take_in(const std::string& path, int depth, std::vector<CgroupEvent>& events) {
  if (depth > options_.max_depth || base_.size() + path.size() >= PATH_MAX) return;
  auto inode = inode_of(directory(path));
  const auto known = entries_.find(path);
  if (known != entries_.end()) {
    if (inode && known->second.inode == *inode) {
      known->second.seen = scan_;
      if (known->second.watch < 0) known->second.watch = add_watch(path);
      scan_children(path, depth, events);
      return;
    }
    drop(path, events);
  }
  // First the watch, then the scan: a child made in between is seen twice, never not at all. The directory
  // can be replaced under its name meanwhile; equal inodes before and after prove what the watch is on.
  for (int attempt = 0; inode && attempt < 8; ++attempt) {
    const int watch = add_watch(path);
    const auto after = inode_of(directory(path));
    if (after && *after == *inode) {
      entries_[path] = {*inode, watch, depth, scan_};
      events.push_back({CgroupEvent::Kind::Added, path, *inode, depth});
      scan_children(path, depth, events);
      return;
    }
    drop_watch(watch, path);
    inode = after;
  }
}

void CgroupWatch::scan_children(const std::string& path, int depth, std::vector<CgroupEvent>& events) {
  for (const auto& name : subdirectories(directory(path))) take_in(path + "/" + name, depth + 1, events);
}

void CgroupWatch::drop(const std::string& path, std::vector<CgroupEvent>& events) {
  if (!entries_.contains(path)) return;
  std::vector<std::string> gone = {path};
  for (const auto& [name, entry] : entries_)
    if (below(name, path)) gone.push_back(name);
  std::sort(gone.begin(), gone.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  for (const auto& name : gone) {
    const auto it = entries_.find(name);
    drop_watch(it->second.watch, name);
    events.push_back({CgroupEvent::Kind::Removed, name, it->second.inode, it->second.depth});
    entries_.erase(it);
  }
}

void CgroupWatch::rescan(std::vector<CgroupEvent>& events) {
  ++scan_;
  degraded_.clear();  // add_watch() says again if it still is
  if (root_watch_ < 0) root_watch_ = add_watch("");
  scan_children("", 0, events);
  std::vector<std::string> unseen;
  for (const auto& [name, entry] : entries_)
    if (entry.seen != scan_) unseen.push_back(name);
  for (const auto& name : unseen) drop(name, events);
}

std::vector<CgroupEvent> CgroupWatch::drain(Now now) {
  std::vector<CgroupEvent> events;
  bool lost = !started_;
  // Aligned as inotify(7) asks.
  alignas(inotify_event) std::array<char, 64 * 1024> buffer;
  for (;;) {
    const ssize_t n = ::read(inotify_.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    for (const char* at = buffer.data(); at < buffer.data() + n;) {
      const auto* event = reinterpret_cast<const inotify_event*>(at);
      at += sizeof(inotify_event) + event->len;
      if (event->mask & IN_Q_OVERFLOW) {
        lost = true;
        continue;
      }
      const auto watch = watches_.find(event->wd);
      if (watch == watches_.end()) continue;
      if (event->mask & IN_IGNORED) {
        // The directory is gone; its parent's event reports it.
        const auto entry = entries_.find(watch->second);
        if (entry != entries_.end() && entry->second.watch == event->wd) entry->second.watch = -1;
        watches_.erase(watch);
        continue;
      }
      if (!(event->mask & IN_ISDIR) || event->len == 0 || lost) continue;
      const std::string path = watch->second + "/" + event->name;
      if (event->mask & (IN_CREATE | IN_MOVED_TO)) {
        ++scan_;
        take_in(path, 1 + static_cast<int>(std::count(watch->second.begin(), watch->second.end(), '/')),
                events);
      } else {
        const auto entry = entries_.find(path);
        if (entry == entries_.end()) continue;
        // An older removal of the same name, already overtaken by what take_in() found.
        const auto inode = inode_of(directory(path));
        if (inode && *inode == entry->second.inode) continue;
        drop(path, events);
      }
    }
  }
  const bool late = !degraded_.empty() && now.mono - last_scan_ >= options_.rescan_every;
  if (lost || late) {
    rescan(events);
    started_ = true;
    last_scan_ = now.mono;
  }
  return events;
}

}  // namespace flash
