#include "daemon/sync_link.h"

#include "daemon/local_peer.h"

namespace flash {

namespace wire = link::sync;

namespace {

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
      server_({bounds.peers_per_s, bounds.hello_timeout}),
      epoch_(epoch) {}

// --- connections ----------------------------------------------------------------------------------------

void SyncLink::listen(Now now) {
  if (!server_.listen_due(now)) return;
  std::optional<gid_t> group;
  user_ = uid_of(options_.user, group);
  if (!server_.listen(now, options_.socket, group))
    callbacks_.log(true, "not listening for flash-sync: " + server_.trouble());
}

void SyncLink::accept(Now now) {
  using Door = link::Server::Door;
  auto [door, why] = server_.accept(now, [this](const link::Connection& peer) {
    return why_refused(peer, {options_.user, user_, "flash-sync.service"}, callbacks_.target_around);
  });
  switch (door) {
    case Door::Nobody:
      return;
    case Door::Trouble:
      return callbacks_.log(true, "flash-sync's socket: " + why);
    case Door::Refused:
      return refused(now, why);
    case Door::OneTooMany:
      return refused(now, "one is connected already; pid " + why + " is one too many");
    case Door::TooEarly:
      return refused(now, "back-off after a broken protocol");
    case Door::In:
      break;
  }
  ++counters_.connections;
  peer_software_.clear();
  metrics_.clear();
  hello_due_ = scrapes_due_ = true;
  episodes_said_ = 0;
}

void SyncLink::refused(Now now, const std::string& why) {
  ++counters_.refused_peers;
  if (server_.open() || last_state_ == "refused: " + why) return;
  last_state_ = "refused: " + why;
  // It names a process, so that somebody who tries again and again would fill the log.
  if (now.mono < say_refusal_at_) return;
  callbacks_.log(true, "flash-sync was refused: " + why);
  say_refusal_at_ = now.mono + kRefusalPause;
}

void SyncLink::disconnect(const std::string& why) {
  if (!server_.open()) return;
  server_.close();
  metrics_.clear();
  last_state_ = why;
  if (!peer_software_.empty()) callbacks_.changed(false, "flash-sync is " + why);
  peer_software_.clear();
  callbacks_.log(true, "flash-sync " + why);
}

void SyncLink::break_off(Now now, const std::string& why, Duration backoff) {
  server_.back_off(now, backoff);
  disconnect("closed: " + why);
}

// --- what flash-sync says -------------------------------------------------------------------------------

void SyncLink::read(Now now) {
  for (int i = 0; i < bounds_.receive_batch && server_.open(); ++i) {
    auto received = server_.connection().receive();
    if (!received) {
      if (!received.error().is(std::errc::message_size))
        return disconnect("absent: it closed the connection");
      ++counters_.protocol_errors;
      return break_off(now, received.error().message(), bounds_.error_backoff);
    }
    if (!*received) return;
    const double rate =
        bounds_.messages_per_s + bounds_.messages_per_s_and_scrape * static_cast<double>(scrapes_.size());
    if (!server_.may_say(now, rate)) {
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
              server_.connection().send(wire::encode(wire::Down(wire::HelloDown{plain(software_), epoch_}))));
    hello_due_ = status != SendStatus::Sent;
    return status;
  }
  if (scrapes_due_) {
    FLASH_TRY(const SendStatus status,
              server_.connection().send(wire::encode(wire::Down(wire::Scrapes{scrapes_}))));
    scrapes_due_ = status != SendStatus::Sent;
    return status;
  }
  if (metrics_.empty()) {
    FLASH_TRY(const SendStatus status,
              server_.connection().send(wire::encode(wire::Down(episodes_[episodes_said_]))));
    if (status == SendStatus::Sent) ++episodes_said_;
    return status;
  }
  FLASH_TRY(const SendStatus status, server_.connection().send(metrics_.front()));
  if (status == SendStatus::Full) return status;
  metrics_.pop_front();
  if (metrics_.empty()) ++counters_.metrics_sent;
  return status;
}

void SyncLink::flush() {
  const auto said_all = link::say_all(
      server_.connection(), bounds_.send_batch, [this] { return anything_to_say(); },
      [this] { return say_next(); });
  if (!said_all) disconnect("absent: " + said_all.error().message());
}

void SyncLink::process(Now now) {
  accept(now);
  if (server_.open()) read(now);
  flush();
  rearm();
}

void SyncLink::tick(Now now) {
  listen(now);
  if (server_.hello_late(now, !peer_software_.empty())) {
    ++counters_.protocol_errors;
    break_off(now, "no Hello in time", bounds_.error_backoff);
  }
  server_.hear_again();
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
  server_.stop_listening();
}

std::string SyncLink::state() const {
  if (server_.open() && peer_software_.empty()) return "connecting: no Hello yet";
  if (!server_.open() && !server_.trouble().empty()) return "not listening: " + server_.trouble();
  return last_state_;
}

}  // namespace flash
