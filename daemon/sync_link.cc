#include "daemon/sync_link.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace flash {

namespace wire = link::sync;

namespace {

constexpr Duration kListenRetry = std::chrono::seconds(5);
constexpr Duration kRefusalPause = std::chrono::seconds(10);

}  // namespace

std::vector<std::pair<std::string, std::uint64_t>> to_list(const SyncCounters& c) {
  return {{"connections", c.connections},     {"refused_peers", c.refused_peers},
          {"readings", c.readings},           {"unknown_readings", c.unknown_readings},
          {"episodes", c.episodes},           {"episodes_dropped", c.episodes_dropped},
          {"nearest_pairs", c.nearest_pairs}, {"unknown_pairs", c.unknown_pairs},
          {"metrics_sent", c.metrics_sent},   {"protocol_errors", c.protocol_errors},
          {"flood_closes", c.flood_closes}};
}

SyncLink::SyncLink(SyncOptions options, std::string software, std::uint64_t epoch, SyncCallbacks callbacks,
                   SyncBounds bounds)
    : options_(std::move(options)),
      software_(std::move(software)),
      callbacks_(std::move(callbacks)),
      bounds_(bounds),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      epoch_(epoch) {}

SyncLink::~SyncLink() {
  if (epoll_ >= 0) close(epoll_);
}

void SyncLink::watch(int fd, int op, std::uint32_t events) const {
  epoll_event e = {};
  e.events = events;
  e.data.fd = fd;
  (void)epoll_ctl(epoll_, op, fd, &e);
}

void SyncLink::rearm() {
  if (!connection_.open()) return;
  const std::uint32_t events = EPOLLIN | (anything_to_say() ? static_cast<std::uint32_t>(EPOLLOUT) : 0u);
  if (events == watched_) return;
  watch(connection_.fd(), EPOLL_CTL_MOD, events);
  watched_ = events;
}

// --- connections ----------------------------------------------------------------------------------------

void SyncLink::listen(Now now) {
  if (listener_ || now.mono < listen_at_) return;
  listen_at_ = now.mono + kListenRetry;
  std::optional<gid_t> group;
  user_ = uid_of(options_.user, group);
  auto opened = link::Listener::listen(options_.socket, group);
  if (!opened) {
    if (listen_trouble_ != opened.error().message()) {
      listen_trouble_ = opened.error().message();
      callbacks_.log(true, "not listening for flash-sync: " + listen_trouble_);
    }
    return;
  }
  listen_trouble_.clear();
  listener_ = std::move(*opened);
  deaf_ = false;
  watch(listener_->fd(), EPOLL_CTL_ADD, EPOLLIN);
}

std::string SyncLink::why_not(Now now, const link::Connection& peer) const {
  const PeerRole role{options_.user, user_, "flash-sync.service"};
  if (auto why = why_refused(peer, role, callbacks_.target_around); !why.empty()) return why;
  if (connection_.open()) {
    const auto who = peer.peer();
    return "one is connected already; pid " + std::to_string(who ? who->pid : 0) + " is one too many";
  }
  if (now.mono < refuse_until_) return "back-off after a broken protocol";
  return {};
}

void SyncLink::accept(Now now) {
  if (!listener_ || deaf_) return;
  if (!peer_tokens_.has(now, bounds_.peers_per_s)) {
    deaf_ = true;
    watch(listener_->fd(), EPOLL_CTL_MOD, 0);
    return;
  }
  auto accepted = listener_->accept();
  if (!accepted) {
    // Without descriptors accept() fails while the peer waits: closing the listener ends the busy loop.
    callbacks_.log(true, "flash-sync's socket: " + accepted.error().message());
    listener_.reset();
    listen_at_ = now.mono + kListenRetry;
    return;
  }
  if (!*accepted) return;
  (void)peer_tokens_.take(now, bounds_.peers_per_s);
  if (const std::string why = why_not(now, **accepted); !why.empty()) {
    ++counters_.refused_peers;
    if (!connection_.open() && last_state_ != "refused: " + why) {
      last_state_ = "refused: " + why;
      // It names a process, so that somebody who tries again and again would fill the log.
      if (now.mono >= say_refusal_at_) callbacks_.log(true, "flash-sync was refused: " + why);
      if (now.mono >= say_refusal_at_) say_refusal_at_ = now.mono + kRefusalPause;
    }
    return;
  }
  connection_ = std::move(**accepted);
  ++counters_.connections;
  connected_at_ = now.mono;
  message_tokens_.reset();
  peer_software_.clear();
  metrics_.clear();
  hello_due_ = scrapes_due_ = true;
  episodes_said_ = 0;
  watched_ = EPOLLIN;
  watch(connection_.fd(), EPOLL_CTL_ADD, watched_);
}

void SyncLink::disconnect(const std::string& why) {
  if (!connection_.open()) return;
  connection_.close();  // leaves the epoll set with it
  metrics_.clear();
  last_state_ = why;
  if (!peer_software_.empty()) callbacks_.changed(false, "flash-sync is " + why);
  peer_software_.clear();
  callbacks_.log(true, "flash-sync " + why);
}

void SyncLink::break_off(Now now, const std::string& why, Duration backoff) {
  refuse_until_ = now.mono + backoff;
  disconnect("closed: " + why);
}

// --- what flash-sync says -------------------------------------------------------------------------------

void SyncLink::read(Now now) {
  for (int i = 0; i < bounds_.receive_batch && connection_.open(); ++i) {
    auto received = connection_.receive();
    if (!received) {
      if (!received.error().is(std::errc::message_size))
        return disconnect("absent: it closed the connection");
      ++counters_.protocol_errors;
      return break_off(now, received.error().message(), bounds_.error_backoff);
    }
    if (!*received) return;
    const double rate =
        bounds_.messages_per_s + bounds_.messages_per_s_and_scrape * static_cast<double>(scrapes_.size());
    if (!message_tokens_.take(now, rate)) {
      ++counters_.flood_closes;
      return break_off(now, "flood: too many messages per second", bounds_.flood_backoff);
    }
    auto message = wire::decode_up(**received);
    auto done = message ? handle(now, *message) : Result<void>(std::move(message).error());
    if (!done) {
      ++counters_.protocol_errors;
      return break_off(now, done.error().message(), bounds_.error_backoff);
    }
  }
}

Result<void> SyncLink::handle(Now now, const wire::Up& message) {
  if (const auto* hello = std::get_if<wire::HelloUp>(&message)) {
    if (!peer_software_.empty()) return Error(std::errc::protocol_error, "a second Hello");
    peer_software_ = hello->software;
    last_state_ = "connected: " + hello->software;
    episodes_wanted_ = hello->wants_episodes;
    if (!episodes_wanted_) episodes_.clear();
    callbacks_.changed(true, "");
    callbacks_.log(false, "flash-sync " + last_state_ + ", pid " + std::to_string(hello->pid));
    return {};
  }
  if (peer_software_.empty()) return Error(std::errc::protocol_error, "a message before the Hello");
  if (const auto* reading = std::get_if<wire::Reading>(&message)) {
    ++counters_.readings;
    if (!callbacks_.reading(now, *reading)) ++counters_.unknown_readings;
  } else if (const auto* done = std::get_if<wire::EpisodesStored>(&message)) {
    return stored(done->number);
  } else if (const auto* pair = std::get_if<wire::NearestPair>(&message)) {
    ++counters_.nearest_pairs;
    if (!callbacks_.nearest || !callbacks_.nearest(now, *pair)) ++counters_.unknown_pairs;
  } else {
    answer_metrics();
  }
  return {};
}

Result<void> SyncLink::stored(std::uint64_t number) {
  while (!episodes_.empty() && episodes_.front().number <= number) {
    if (episodes_said_ == 0) return Error(std::errc::protocol_error, "stored an episode that was not said");
    episodes_.pop_front();
    --episodes_said_;
    ++counters_.episodes;
  }
  return {};
}

void SyncLink::episode_ended(link::Episode episode) {
  if (!episodes_wanted_) return;
  if (episodes_.size() >= bounds_.episodes) {
    episodes_.pop_front();
    if (episodes_said_ > 0) --episodes_said_;
    ++counters_.episodes_dropped;
  }
  episodes_.push_back({++last_episode_, std::move(episode)});
}

void SyncLink::answer_metrics() {
  if (!metrics_.empty()) return;  // the answer is on its way
  for (const wire::Family& family : callbacks_.metrics()) {
    if (metrics_.size() == wire::kMaxFamilies) break;
    metrics_.push_back(wire::encode(wire::Down(family)));
  }
  metrics_.push_back(wire::encode(wire::Down(wire::MetricsEnd{})));
}

// --- what flashd says -----------------------------------------------------------------------------------

/// One message; REQUIRES anything_to_say().
Result<link::SendStatus> SyncLink::say_next() {
  using link::SendStatus;
  if (hello_due_) {
    FLASH_TRY(const SendStatus status,
              connection_.send(wire::encode(wire::Down(wire::HelloDown{plain(software_), epoch_}))));
    hello_due_ = status != SendStatus::Sent;
    return status;
  }
  if (scrapes_due_) {
    FLASH_TRY(const SendStatus status, connection_.send(wire::encode(wire::Down(wire::Scrapes{scrapes_}))));
    scrapes_due_ = status != SendStatus::Sent;
    return status;
  }
  if (metrics_.empty()) {
    FLASH_TRY(const SendStatus status, connection_.send(wire::encode(wire::Down(episodes_[episodes_said_]))));
    if (status == SendStatus::Sent) ++episodes_said_;
    return status;
  }
  FLASH_TRY(const SendStatus status, connection_.send(metrics_.front()));
  if (status == SendStatus::Full) return status;
  metrics_.pop_front();
  if (metrics_.empty()) ++counters_.metrics_sent;
  return status;
}

void SyncLink::flush() {
  for (int i = 0; i < bounds_.send_batch && connection_.open() && anything_to_say(); ++i) {
    const auto status = say_next();
    if (!status) return disconnect("absent: " + status.error().message());
    if (*status == link::SendStatus::Full) return;
  }
}

void SyncLink::process(Now now) {
  accept(now);
  if (connection_.open()) read(now);
  flush();
  rearm();
}

void SyncLink::tick(Now now) {
  listen(now);
  if (connection_.open() && peer_software_.empty() && now.mono - connected_at_ > bounds_.hello_timeout) {
    ++counters_.protocol_errors;
    break_off(now, "no Hello in time", bounds_.error_backoff);
  }
  if (deaf_ && listener_) {
    deaf_ = false;
    watch(listener_->fd(), EPOLL_CTL_MOD, EPOLLIN);
  }
  flush();
  rearm();
}

void SyncLink::set_scrapes(std::vector<wire::Scrape> scrapes) {
  if (scrapes == scrapes_) return;
  scrapes_ = std::move(scrapes);
  scrapes_due_ = true;
  rearm();
}

void SyncLink::reconfigure(Now, SyncOptions options) {
  const bool elsewhere = !(options == options_) || !user_;
  options_ = std::move(options);
  if (!elsewhere) return;
  disconnect("absent: the configuration changed");
  listener_.reset();
  listen_at_ = {};
}

std::string SyncLink::state() const {
  if (connection_.open() && peer_software_.empty()) return "connecting: no Hello yet";
  if (!connection_.open() && !listen_trouble_.empty()) return "not listening: " + listen_trouble_;
  return last_state_;
}

}  // namespace flash
