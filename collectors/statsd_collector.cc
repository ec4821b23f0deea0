#include "collectors/statsd_collector.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/glob.h"

namespace flash {
namespace {

// The largest datagram: 65,507 bytes over UDP; clients on a UNIX socket keep to 8 KiB.
constexpr std::size_t kDatagramMax = 65536;
constexpr int kReceiveBufferBytes = 4 << 20;
/// So many ticks it is said that strangers were heard, or lines dropped.
constexpr int kTold = 60;
/// Cgroups at the door beside targets' own.
constexpr std::size_t kMostNamed = 256;

/// SO_PASSRIGHTS, newer than the headers of the oldest system that this is built on.
constexpr int kPassRights = 83;

bool matches_any(const std::vector<std::string>& patterns, std::string_view name) {
  char text[kStatsdNameMax + 1];
  if (name.size() > kStatsdNameMax) return false;
  std::memcpy(text, name.data(), name.size());
  text[name.size()] = '\0';
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return glob_matches_any_case(pattern.c_str(), text);
  });
}

constexpr Signal kSignals[] = {Signal::LatencyP50, Signal::LatencyP99, Signal::RequestRate,
                               Signal::ErrorRate};

/// `given`: what the application's rules say. A timer's type is its unit.
double to_ms(const StatsdLine& line, TimeUnit given) {
  if (given != TimeUnit::Auto) return milliseconds_in(given);
  if (line.type == StatsdType::Timer) return 1;
  const TimeUnit named = unit_of_name(line.name);
  return milliseconds_in(named == TimeUnit::Auto ? TimeUnit::Milliseconds : named);
}

Result<int> open_datagram(int family) {
  const int fd = ::socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return Error::from_errno(errno, "StatsD socket");
  // Best effort: the kernel bounds it by net.core.rmem_max.
  ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kReceiveBufferBytes, sizeof kReceiveBufferBytes);
  return fd;
}

struct LoopbackAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

Result<LoopbackAddress> parse_loopback(const std::string& text) {
  const Error bad(std::errc::invalid_argument,
                  "StatsD UDP address '" + text + "': expected 127.x.x.x:PORT or [::1]:PORT");
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return bad;
  std::string host = text.substr(0, colon);
  std::uint16_t port = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + colon + 1, end, port);
  if (parsed.ec != std::errc() || parsed.ptr != end) return bad;
  LoopbackAddress address;
  if (host == "[::1]") {
    auto& in6 = reinterpret_cast<sockaddr_in6&>(address.storage);
    in6.sin6_family = AF_INET6;
    in6.sin6_addr = in6addr_loopback;
    in6.sin6_port = htons(port);
    address.length = sizeof in6;
    return address;
  }
  auto& in = reinterpret_cast<sockaddr_in&>(address.storage);
  if (::inet_pton(AF_INET, host.c_str(), &in.sin_addr) != 1) return bad;
  if (ntohl(in.sin_addr.s_addr) >> 24 != 127) return bad;
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  address.length = sizeof in;
  return address;
}

}  // namespace

StatsdCollector::StatsdCollector(StatsdOptions options, std::optional<StatsdSenders> senders)
    : options_(std::move(options)), senders_(std::move(senders)), buffer_(kDatagramMax) {}

Result<std::unique_ptr<StatsdCollector>> StatsdCollector::open(StatsdOptions options,
                                                               std::optional<StatsdSenders> senders) {
  std::unique_ptr<StatsdCollector> collector(new StatsdCollector(std::move(options), std::move(senders)));
  collector->open_door();
  if (!collector->options_.socket.empty()) {
    FLASH_TRY(const int fd, collector->open_socket());
    collector->fds_.push_back(fd);
  }
  if (!collector->options_.udp.empty()) FLASH_CHECK(collector->open_udp());
  return collector;
}

StatsdCollector::~StatsdCollector() {
  close();
}

void StatsdCollector::close() {
  for (int fd : fds_) ::close(fd);
  fds_.clear();
  if (socket_inode_ == 0) return;
  struct stat now {};
  if (::lstat(options_.socket.c_str(), &now) == 0 && now.st_dev == socket_device_ &&
      now.st_ino == socket_inode_)
    ::unlink(options_.socket.c_str());
  socket_inode_ = 0;
}

void StatsdCollector::open_door() {
  if (!senders_ || options_.socket.empty() || !options_.clocks) return;
  const CgroupLayout* layout = senders_->layout();
  if (!layout) return;
  const CgroupController c = layout->reference();
  if (auto door = StatsdDoor::open(c, layout->version(c)))
    door_ = *std::move(door);
  else
    no_door_ = door.error().message();
}

/// Budgets and named cgroups as the rules have them by now.
void StatsdCollector::follow_door() {
  if (!door_ || door_generation_ == senders_->generation()) return;
  door_generation_ = senders_->generation();
  door_->set(senders_->budgets());
  std::erase_if(named_at_door_, [&](const auto& known) {
    if (senders_->names(known.first)) return false;
    dismiss(known.second);
    return true;
  });
  for (const std::string& cgroup : senders_->spelled_out()) admit(cgroup);
}

void StatsdCollector::dismiss(std::uint64_t id) {
  if (at_door_.of(id).empty()) door_->dismiss(id);
}

/// Who is named by a pattern is known to the door from its first datagram on.
void StatsdCollector::admit(const std::string& cgroup) {
  if (!door_ || named_at_door_.contains(cgroup) || named_at_door_.size() >= kMostNamed) return;
  const auto id = inode_of(senders_->directory_of(cgroup));
  if (!id) return;
  named_at_door_[cgroup] = *id;
  static_cast<void>(door_->admit(*id));  // a full door: it has a stranger's budget
}

Result<int> StatsdCollector::open_socket() {
  const std::string& path = options_.socket;
  const std::string what = "StatsD socket " + path;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return Error(std::errc::invalid_argument, what + ": path is too long");
  std::memcpy(address.sun_path, path.data(), path.size());
  const auto* raw = reinterpret_cast<const sockaddr*>(&address);

  struct stat seen {};
  if (::lstat(path.c_str(), &seen) == 0) {
    if (!S_ISSOCK(seen.st_mode)) return Error(std::errc::file_exists, what + ": exists and is no socket");
    FLASH_TRY(const int probe, open_datagram(AF_UNIX));
    const bool answered = ::connect(probe, raw, sizeof address) == 0;
    const int why = errno;
    ::close(probe);
    if (answered) return Error(std::errc::address_in_use, what + ": another process listens on it");
    if (why != ECONNREFUSED) return Error::from_errno(why, what);
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return Error::from_errno(errno, what + ": unlink");
  }
  FLASH_TRY(const int opened, open_datagram(AF_UNIX));
  Fd fd(opened);
  if (senders_) {
    // Before anybody can send.
    const int on = 1;
    if (::setsockopt(fd.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
        ::setsockopt(fd.get(), SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) != 0)
      return Error::from_errno(errno, what);
    // Descriptors sent along are refused to their sender, where the kernel can (Linux 6.16).
    const int off = 0;
    ::setsockopt(fd.get(), SOL_SOCKET, kPassRights, &off, sizeof off);
    follow_door();
    if (door_)
      if (auto attached = door_->attach(fd.get()); !attached) {
        no_door_ = attached.error().message();
        door_.reset();
      }
  }
  if (::bind(fd.get(), raw, sizeof address) != 0) return Error::from_errno(errno, what);
  if (::lstat(path.c_str(), &seen) != 0) return Error::from_errno(errno, what);
  socket_device_ = seen.st_dev;
  socket_inode_ = seen.st_ino;
  // After bind, because bind applies the umask.
  if (::chmod(path.c_str(), options_.socket_mode) != 0) return Error::from_errno(errno, what + ": chmod");
  return fd.release();
}

/// A socket whose file was removed or replaced hears nobody any more, and says nothing of it.
void StatsdCollector::follow_socket() {
  if (options_.socket.empty() || fds_.empty()) return;
  struct stat now {};
  if (::lstat(options_.socket.c_str(), &now) == 0 && now.st_dev == socket_device_ &&
      now.st_ino == socket_inode_) {
    socket_trouble_.clear();
    again_.reset();
    return;
  }
  if (!again_.due()) return;
  const auto opened = open_socket();
  if (!opened) {
    socket_trouble_ = opened.error().message();
    return;
  }
  // Under the old number, which whoever polls knows. (epoll forgets it nevertheless: each tick drains.)
  ::dup3(*opened, fds_.front(), O_CLOEXEC);
  ::close(*opened);
  socket_trouble_.clear();
  again_.reset();
}

Result<void> StatsdCollector::open_udp() {
  FLASH_TRY(const LoopbackAddress address, parse_loopback(options_.udp));
  FLASH_TRY(const int fd, open_datagram(address.storage.ss_family));
  fds_.push_back(fd);
  // UDP drops silently; with this the kernel tells how many.
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_RXQ_OVFL, &on, sizeof on);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0)
    return Error::from_errno(errno, "StatsD UDP " + options_.udp);
  return {};
}

void StatsdCollector::track(const Target& target) {
  // A target that is only described again keeps what its application has sent.
  if (const auto known = targets_.find(target.id);
      known != targets_.end() && known->second.application == target.application &&
      known->second.unit == target.statsd_unit && known->second.senders == target.statsd_senders)
    return;
  untrack(target.id);
  if (target.application.empty()) return;
  targets_[target.id] = {target.application, target.statsd_unit, target.name, target.statsd_senders};
  if (senders_) senders_->track(target);
  if (door_ && target.id.kind == TargetKind::Cgroup && at_door_.add(target.id.value, target.id)) {
    static_cast<void>(door_->admit(target.id.value));  // a full door: it has a stranger's budget
    cut_at_door_[target.id.value] = door_->dropped(target.id.value);
  }
  auto known = applications_.find(target.application);
  if (known == applications_.end()) {
    if (applications_.size() >= options_.max_applications) {
      refused_[target.application].add(target.statsd_unit);
      return;
    }
    known = applications_.try_emplace(target.application).first;
  }
  known->second.named.add(target.statsd_unit);
}

void StatsdCollector::untrack(TargetId id) {
  const auto target = targets_.find(id);
  if (target == targets_.end()) return;
  const std::string& name = target->second.application;
  const TimeUnit unit = target->second.unit;
  if (const auto app = applications_.find(name); app != applications_.end()) {
    app->second.named.remove(unit);
    if (app->second.named.targets == 0) {
      applications_.erase(app);
      admit_refused();
    }
  } else if (const auto refused = refused_.find(name); refused != refused_.end()) {
    refused->second.remove(unit);
    if (refused->second.targets == 0) refused_.erase(refused);
  }
  targets_.erase(target);
  if (senders_) senders_->untrack(id);
  if (!door_ || id.kind != TargetKind::Cgroup || !at_door_.remove(id.value, id)) return;
  cut_at_door_.erase(id.value);
  const auto is_named = [&](const auto& known) { return known.second == id.value; };
  if (std::none_of(named_at_door_.begin(), named_at_door_.end(), is_named)) door_->dismiss(id.value);
}

void StatsdCollector::admit_refused() {
  if (refused_.empty() || applications_.size() >= options_.max_applications) return;
  const auto next = refused_.begin();
  applications_.try_emplace(next->first).first->second.named = next->second;
  refused_.erase(next);
}

/// The first one is told of, until no stranger was heard for a while: whoever sends does not write our log.
void StatsdCollector::note_stranger(const StatsdSenders::Sender& sender, bool udp,
                                    std::string_view application) {
  strangers_ago_ = 0;
  if (!stranger_.empty()) return;
  stranger_ = udp                     ? "what comes over UDP, which does not say who sent it,"
              : sender.cgroup.empty() ? "what processes send that end at once, or cannot be seen from here,"
                                      : "what processes in " + sender.cgroup + " send";
  if (!application.empty()) stranger_ += " of application " + std::string(application);
  stranger_ += " is not believed: ";
  stranger_ += application.empty() ? "no target lives there" : "its targets live elsewhere";
  stranger_ += ", and no rule names them (slo.statsd.senders)";
}

void StatsdCollector::note_cut(std::string_view who) {
  cut_ago_ = 0;
  if (cut_.empty()) cut_ = who;
}

/// What the door dropped since the last tick, and of whom.
void StatsdCollector::look_at_door() {
  if (!door_) return;
  // A cgroup that was created again has another number.
  std::erase_if(named_at_door_, [&](const auto& known) {
    const auto id = inode_of(senders_->directory_of(known.first));
    if (id && *id == known.second) return false;
    dismiss(known.second);
    return true;
  });
  for (const std::string& cgroup : senders_->spelled_out()) admit(cgroup);
  const flash_door_counts counts = door_->counts();
  counters_.strangers_at_door = counts.dropped_strangers;
  if (counts.dropped_members == counters_.over_budget_at_door) return;
  counters_.over_budget_at_door = counts.dropped_members;
  bool whose = false;
  for (auto& [id, was] : cut_at_door_) {
    const std::uint64_t dropped = door_->dropped(id);
    if (dropped == was) continue;
    was = dropped;
    const auto sharers = at_door_.of(id);
    if (sharers.empty()) continue;
    whose = true;
    note_cut(targets_.at(sharers.front()).target);
    for (const TargetId sharer : sharers)
      if (const auto app = applications_.find(targets_.at(sharer).application); app != applications_.end())
        app->second.cut = true;
  }
  if (whose) return;
  // Somebody's who was named. For whom it spoke is not known at the door.
  note_cut("senders that rules name");
  for (auto& [name, app] : applications_) app.cut = true;
}

void StatsdCollector::ingest(std::string_view datagram) {
  ++counters_.datagrams;
  counters_.bytes += datagram.size();
  while (!datagram.empty()) {
    const std::size_t end = datagram.find('\n');
    std::string_view line = datagram.substr(0, end);
    datagram.remove_prefix(end == std::string_view::npos ? datagram.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) ingest_line(line);
  }
}

void StatsdCollector::ingest_line(std::string_view text) {
  ++counters_.lines;
  switch (parse_statsd_line(text, line_)) {
    case StatsdVerdict::Malformed:
      ++counters_.malformed;
      return;
    case StatsdVerdict::Event:
      ++counters_.events;
      return;
    case StatsdVerdict::Metric:
      break;
  }
  StatsdApplication* app = application_of(line_);
  if (!app) return;
  const double weight = 1 / line_.rate;
  switch (line_.type) {
    case StatsdType::Timer:
    case StatsdType::Histogram:
    case StatsdType::Distribution:
      if (matches_any(options_.latency_metrics, line_.name)) {
        const TimeUnit given = app->named.unit();
        const double factor = to_ms(line_, given);
        if (given == TimeUnit::Auto && unit_of_name(line_.name) != TimeUnit::Auto &&
            milliseconds_in(unit_of_name(line_.name)) != factor)
          app->names_another_unit = true;
        for (double value : line_.values) app->add(value * factor, weight, tick_);
        ++counters_.used;
        return;
      }
      break;
    case StatsdType::Counter: {
      const bool error = matches_any(options_.error_metrics, line_.name);
      if (error || matches_any(options_.request_metrics, line_.name)) {
        double& sum = error ? app->errors : app->requests;
        for (double value : line_.values) sum += value * weight;
        (error ? app->counts_errors : app->counts_requests) = true;
        app->counted = true;
        ++counters_.used;
        return;
      }
      break;
    }
    case StatsdType::Gauge:
    case StatsdType::Set:
      break;
  }
  ++counters_.unused;
}

StatsdApplication* StatsdCollector::application_of(const StatsdLine& line) {
  std::string_view name = statsd_tag(line.tags, options_.application_tags);
  if (name.empty()) name = line.name.substr(0, line.name.find('.'));
  if (const auto app = applications_.find(name); app != applications_.end()) {
    if (speaker_ && !speaker_->may_speak_for(app->first)) {
      ++counters_.foreign;
      note_stranger(*speaker_, speaker_over_udp_, app->first);
      return nullptr;
    }
    return &app->second;
  }
  ++(refused_.find(name) != refused_.end() ? counters_.refused : counters_.unassigned);
  return nullptr;
}

void StatsdCollector::collect(Now now, ObservationTable& table) {
  drain();
  follow_socket();
  dropped_in_tick_ = counters_.dropped - dropped_before_;
  dropped_before_ = counters_.dropped;
  look_at_door();
  if (senders_) senders_->end_tick();
  if (++strangers_ago_ > kTold) stranger_.clear();
  if (++cut_ago_ > kTold) cut_.clear();
  rested_ = rested_ && ++rested_ago_ <= kTold;
  const auto enough = static_cast<std::uint64_t>(std::clamp(options_.few_requests, 0, 64));
  const auto look_back = static_cast<std::uint64_t>(std::max(options_.look_back, 0));
  const Duration tick = collected_ ? now.mono - last_collect_ : Duration{};
  for (auto& [name, app] : applications_) {
    app.judge_latency(enough, tick_, tick_ - std::min(tick_, look_back));
    app.say(now.mono, tick, left_ || dropped_in_tick_ > 0 || app.cut);
    app.clear_tick();
  }
  for (const auto& [id, naming] : targets_) {
    const auto row = table.find(id);
    if (row == table.end()) continue;
    const auto app = applications_.find(naming.application);
    for (const Signal s : kSignals)
      row->second[s] = app == applications_.end() ? Sample::missing() : app->second.says[s];
  }
  last_collect_ = now.mono;
  collected_ = true;
  ++tick_;
}

std::vector<Degraded> StatsdCollector::degraded() const {
  std::vector<Degraded> all;
  if (!socket_trouble_.empty()) all.push_back({"statsd", "nobody is heard: " + socket_trouble_});
  if (!refused_.empty())
    all.push_back({"statsd", std::to_string(refused_.size()) + " applications beyond the limit of " +
                                 std::to_string(options_.max_applications) + " are not measured"});
  for (const auto& [name, app] : applications_) {
    if (app.named.contradicted())
      all.push_back({"statsd", "rules of application " + name +
                                   " do not agree in slo.statsd.unit: its latencies are read in " +
                                   std::string(to_string(app.named.unit()))});
    if (app.names_another_unit)
      all.push_back({"statsd", "application " + name +
                                   " sends timers, which are in ms, under a name that ends in another unit: "
                                   "nothing is learned from them until slo.statsd.unit says which it is"});
  }
  if (!stranger_.empty()) all.push_back({"statsd", stranger_});
  if (!cut_.empty())
    all.push_back({"statsd", "lines of " + cut_ +
                                 " were dropped, and its rates read low: its processes sent more than " +
                                 std::to_string(kMemberBudget.per_s >> 20) +
                                 " MiB per second, each datagram counting " +
                                 std::to_string(FLASH_DATAGRAM_COST) + " bytes more than it has"});
  if (rested_)
    all.push_back(
        {"statsd",
         "reading what is sent would take more than a tenth of one core, so some of it waits or is lost" +
             (no_door_.empty() ? std::string()
                               : ": the kernel does not hold floods off (" + no_door_ + ")")});
  if (dropped_in_tick_ > 0)
    all.push_back({"statsd", std::to_string(dropped_in_tick_) +
                                 " UDP datagrams were dropped in the last tick: rates read low"});
  return all;
}

}  // namespace flash
