#include "host/cgroup_watch.h"

#include <dirent.h>
#include <limits.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

namespace flash {
namespace {

constexpr std::uint32_t kMask = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB | IN_ONLYDIR |
                                IN_DONT_FOLLOW | IN_EXCL_UNLINK;

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

int depth_of(std::string_view path) {
  return static_cast<int>(std::count(path.begin(), path.end(), '/'));
}

}  // namespace

CgroupWatch::CgroupWatch(std::string base, CgroupWatchOptions options)
    : base_(std::move(base)), options_(options) {}

Result<CgroupWatch> CgroupWatch::open(const CgroupLayout& layout, CgroupWatchOptions options) {
  CgroupWatch watch(layout.reference_mount(), options);
  struct stat base {};
  if (::stat(watch.base_.c_str(), &base) != 0) return Error::from_errno(errno, watch.base_);
  watch.base_owner_ = base.st_uid;
  watch.base_group_ = base.st_gid;
  watch.inotify_ = Fd(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!watch.inotify_) return Error::from_errno(errno, "inotify");
  watch.pending_ = Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  watch.ready_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!watch.pending_ || !watch.ready_) return Error::from_errno(errno, "descriptor for cgroup events");
  for (const Fd* fd : {&watch.inotify_, &watch.pending_}) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (::epoll_ctl(watch.ready_.get(), EPOLL_CTL_ADD, fd->get(), &event) != 0)
      return Error::from_errno(errno, "descriptor for cgroup events");
  }
  // The root's watch is there before the first scan, so that fd() wakes up for what comes after open().
  watch.root_watch_ = watch.add_watch("");
  return watch;
}

void CgroupWatch::follow_in_open(Follow follow) {
  follow_ = std::move(follow);
  scan_wanted_ = true;
  scan_not_before_ = {};
  if (started_) say_pending(true);
}

Result<CgroupWatch::Directory> CgroupWatch::look(std::string_view path) const {
  struct stat seen {};
  if (::stat(directory(path).c_str(), &seen) != 0) return Error::from_errno(errno, "cgroup");
  const bool owned = seen.st_uid == 0 || seen.st_uid == base_owner_;
  const bool others_write = (seen.st_mode & S_IWOTH) != 0 ||
                            ((seen.st_mode & S_IWGRP) != 0 && seen.st_gid != 0 && seen.st_gid != base_group_);
  return Directory{seen.st_ino, !owned || others_write};
}

const CgroupWatch::Entry* CgroupWatch::parent_of(std::string_view path) const {
  const auto parent = entries_.find(path.substr(0, path.rfind('/')));
  return parent == entries_.end() ? nullptr : &parent->second;
}

CgroupWatch::Hands CgroupWatch::hands(const std::string& path, const Directory& now) const {
  const Entry* parent = parent_of(path);
  Hands hands;
  hands.foreign = parent != nullptr && parent->hands.open;
  hands.open = hands.foreign || now.open;
  hands.followed = !hands.open || !follow_ || follow_(path);
  return hands;
}

int CgroupWatch::add_watch(const std::string& path) {
  if (watches_.size() >= options_.max_watches) {
    if (degraded_.empty())
      degraded_ = "more than " + std::to_string(options_.max_watches) +
                  " cgroups: some changes are found by scanning only";
    return -1;
  }
  const int watch = ::inotify_add_watch(inotify_.get(), directory(path).c_str(), kMask);
  if (watch < 0) {
    // A directory that is gone is nothing, unless it is the one that all are in.
    if (((errno != ENOENT && errno != ENOTDIR) || path.empty()) && degraded_.empty())
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

void CgroupWatch::take_in(const std::string& path, std::vector<CgroupEvent>& events) {
  const int depth = depth_of(path);
  if (depth > options_.max_depth || base_.size() + path.size() >= PATH_MAX) return;
  // A parent that is not known (any more) brings its children when it is taken in.
  if (const Entry* parent = parent_of(path); depth > 1 && (parent == nullptr || !parent->hands.followed))
    return;
  auto now = look(path);
  const auto known = entries_.find(path);
  if (known != entries_.end()) {
    Entry& entry = known->second;
    if (now && entry.inode == now->inode) {
      const Hands before = std::exchange(entry.hands, hands(path, *now));
      if (entry.hands == before && entry.seen == scan_ && (entry.watch >= 0 || !before.followed)) return;
      if (entry.hands.foreign != before.foreign)
        events.push_back({CgroupEvent::Kind::Added, path, entry.inode, depth, entry.hands.foreign});
      entry.seen = scan_;
      if (!entry.hands.followed) {
        drop_watch(entry.watch, path);
        entry.watch = -1;
        drop_below(path, events);
        return;
      }
      if (entry.watch < 0) entry.watch = add_watch(path);
      take_in_children_later(path);
      return;
    }
    drop(path, events);
  }
  // First the watch, then the children: one that is made in between is met twice and counts once. The
  // directory can be replaced under its name meanwhile; an equal look before and after proves what the watch
  // is on.
  for (int attempt = 0; now && attempt < 8; ++attempt) {
    const Hands in = hands(path, *now);
    const int watch = in.followed ? add_watch(path) : -1;
    const auto after = look(path);
    if (after && *after == *now) {
      entries_[path] = {now->inode, watch, depth, in, scan_};
      events.push_back({CgroupEvent::Kind::Added, path, now->inode, depth, in.foreign});
      if (in.followed) take_in_children_later(path);
      return;
    }
    drop_watch(watch, path);
    now = after;
  }
}

void CgroupWatch::take_in_children_later(const std::string& path) {
  for (const auto& name : subdirectories(directory(path))) to_take_in_.push_back(path + "/" + name);
}

std::size_t CgroupWatch::drop_below(const std::string& path, std::vector<CgroupEvent>& events) {
  std::vector<Entries::iterator> gone;
  for (auto it = entries_.lower_bound(path + "/"); it != entries_.end() && below(it->first, path); ++it)
    gone.push_back(it);
  // In the order of names a cgroup comes before all that is below it.
  for (auto it = gone.rbegin(); it != gone.rend(); ++it) forget(*it, events);
  return gone.size();
}

std::size_t CgroupWatch::drop(const std::string& path, std::vector<CgroupEvent>& events) {
  const auto entry = entries_.find(path);
  if (entry == entries_.end()) return 0;
  const std::size_t gone = drop_below(path, events);
  forget(entry, events);
  return gone + 1;
}

void CgroupWatch::forget(Entries::iterator at, std::vector<CgroupEvent>& events) {
  const auto& [path, entry] = *at;
  drop_watch(entry.watch, path);
  events.push_back({CgroupEvent::Kind::Removed, path, entry.inode, entry.depth, entry.hands.foreign});
  entries_.erase(at);
}

void CgroupWatch::begin_scan(Now now) {
  ++scan_;
  scanning_ = started_ = true;
  scan_wanted_ = false;
  last_scan_ = now.mono;
  scan_not_before_ = now.mono + options_.rescan_after_loss;
  degraded_.clear();  // add_watch() says again if it still is
  to_take_in_.clear();
  to_drop_.clear();
  if (root_watch_ < 0) root_watch_ = add_watch("");
  take_in_children_later("");
}

void CgroupWatch::end_scan() {
  scanning_ = false;
  for (const auto& [name, entry] : entries_)
    if (entry.seen != scan_) to_drop_.push_back(name);
}

std::size_t CgroupWatch::read_events(std::vector<CgroupEvent>& events) {
  // Aligned as inotify(7) asks. Its size bounds what one call does.
  alignas(inotify_event) std::array<char, 16 * 1024> buffer;
  const ssize_t n = ::read(inotify_.get(), buffer.data(), buffer.size());
  if (n < 0 && errno == EINTR) return 1;
  if (n <= 0) return 0;
  std::size_t taken = 0;
  for (const char* at = buffer.data(); at < buffer.data() + n;) {
    const auto* event = reinterpret_cast<const inotify_event*>(at);
    at += sizeof(inotify_event) + event->len;
    ++taken;
    if (event->mask & IN_Q_OVERFLOW) {
      scan_wanted_ = true;
      continue;
    }
    const auto watch = watches_.find(event->wd);
    if (watch == watches_.end()) continue;
    if (event->mask & IN_IGNORED) {
      // The directory is gone; its parent's event reports it.
      const auto entry = entries_.find(watch->second);
      if (entry != entries_.end() && entry->second.watch == event->wd) entry->second.watch = -1;
      if (event->wd == root_watch_) {
        // The file system was unmounted or created again: nobody's event reports that.
        root_watch_ = -1;
        scan_wanted_ = true;
      }
      watches_.erase(watch);
      continue;
    }
    // The first scan, which is still to come, finds what was there before.
    if (!(event->mask & IN_ISDIR) || event->len == 0 || !started_) continue;
    const std::string path = watch->second + "/" + event->name;
    if (event->mask & (IN_CREATE | IN_MOVED_TO)) {
      take_in(path, events);
      continue;
    }
    const auto entry = entries_.find(path);
    if (entry == entries_.end()) continue;
    const auto now = look(path);
    if (event->mask & IN_ATTRIB) {
      // It may have changed hands, and with it all below.
      if (!now || hands(path, *now) == entry->second.hands) continue;
      take_in(path, events);
      continue;
    }
    // An older removal of the same name, already overtaken by what take_in() found.
    if (now && now->inode == entry->second.inode) continue;
    taken += drop(path, events);
  }
  return taken;
}

void CgroupWatch::say_pending(bool pending) {
  if (pending == pending_said_) return;
  pending_said_ = pending;
  std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n =
      pending ? ::write(pending_.get(), &one, sizeof one) : ::read(pending_.get(), &one, sizeof one);
}

std::vector<CgroupEvent> CgroupWatch::drain(Now now, std::size_t budget) {
  std::vector<CgroupEvent> events;
  const auto due = [&] {
    if (!started_ || (scan_wanted_ && now.mono >= scan_not_before_)) return true;
    return !degraded_.empty() && now.mono - last_scan_ >= options_.rescan_every;
  };
  bool more = true;
  for (std::size_t work = 0; more && work < budget;) {
    // What is half done first, so that a flood of events cannot hold it up.
    if (!to_take_in_.empty()) {
      const std::string path = std::move(to_take_in_.back());
      to_take_in_.pop_back();
      take_in(path, events);
      ++work;
    } else if (scanning_) {
      end_scan();
    } else if (!to_drop_.empty()) {
      const auto entry = entries_.find(to_drop_.back());
      if (entry != entries_.end() && entry->second.seen != scan_) work += drop(to_drop_.back(), events);
      to_drop_.pop_back();
      ++work;
    } else if (const std::size_t taken = read_events(events); taken > 0) {
      work += taken;
    } else if (due()) {
      begin_scan(now);
    } else {
      more = false;
    }
  }
  say_pending(!to_take_in_.empty() || !to_drop_.empty() || scanning_);
  return events;
}

}  // namespace flash
