#include "sync/session.h"

#include <syslog.h>
#include <unistd.h>

#include <limits>
#include <utility>

namespace flash::sync {

using link::SendStatus;
namespace wire = link::sync;

namespace {

constexpr int kMessagesPerCall = 64;
constexpr Duration kHelloTimeout = std::chrono::seconds(10);
constexpr Duration kNothingToDo = std::chrono::seconds(60);

}  // namespace

Session::Session(SessionOptions options, SessionCallbacks callbacks, Random random)
    : options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      client_({.socket = options_.socket,
               .listener = options_.flashd_uid,
               .retry_first = options_.retry_first,
               .retry_longest = options_.retry_longest,
               .hello_timeout = kHelloTimeout},
              random) {}

std::string Session::state() const {
  if (hello_) return "connected to " + software_;
  return last_trouble_.empty() ? "waiting for flashd" : "waiting for flashd: " + last_trouble_;
}

void Session::connect(Now now) {
  using Way = link::Client::Way;
  const auto [way, why] = client_.connect(now);
  if (way == Way::NotYet) return;
  if (way == Way::Connected) {
    said_hello_ = false;
    return;
  }
  const std::string reason =
      way == Way::Unreachable ? "flashd cannot be reached: " + why : options_.socket + " is not used: " + why;
  if (reason != last_trouble_) callbacks_.say(way == Way::Unreachable ? LOG_INFO : LOG_WARNING, reason);
  last_trouble_ = reason;
}

void Session::close(Now now, const std::string& reason, int priority) {
  client_.close(now);
  const bool had = std::exchange(hello_, false);
  said_hello_ = want_metrics_ = false;
  stored_.reset();
  readings_.clear();
  families_.clear();
  if (reason != last_trouble_ || priority < LOG_INFO)
    callbacks_.say(priority, "connection closed: " + reason);
  last_trouble_ = reason;
  if (had) callbacks_.scrapes({});
}

void Session::receive(Now now) {
  for (int i = 0; i < kMessagesPerCall && client_.open(); ++i) {
    auto received = client_.connection().receive();
    if (!received) {
      const bool gone = received.error().is(std::errc::connection_reset);
      return close(now, gone ? "flashd closed it" : received.error().message(),
                   gone ? LOG_INFO : LOG_WARNING);
    }
    if (!*received) return;
    if (auto done = handle(**received); !done) return close(now, done.error().message(), LOG_WARNING);
  }
}

Result<void> Session::handle(const std::string& bytes) {
  FLASH_TRY(wire::Down message, wire::decode_down(bytes));
  if (const auto* hello = std::get_if<wire::HelloDown>(&message)) {
    if (hello_) return Error(std::errc::protocol_error, "a second Hello");
    hello_ = true;
    software_ = hello->software;
    epoch_ = hello->epoch;
    last_trouble_.clear();
    callbacks_.say(LOG_INFO, "connected to " + software_);
    return {};
  }
  if (!hello_) return Error(std::errc::protocol_error, "a message before Hello");
  if (const auto* scrapes = std::get_if<wire::Scrapes>(&message)) {
    callbacks_.scrapes(scrapes->scrapes);
  } else if (auto* family = std::get_if<wire::Family>(&message)) {
    if (families_.size() == wire::kMaxFamilies)
      return Error(std::errc::protocol_error, "metrics without an end");
    families_.push_back(std::move(*family));
  } else if (const auto* episode = std::get_if<wire::EpisodeEnd>(&message)) {
    if (!callbacks_.episode) return Error(std::errc::protocol_error, "an episode that nobody wants");
    if (!callbacks_.episode(epoch_, *episode))
      return Error(std::errc::no_buffer_space, "more episodes than can be stored");
  } else {
    callbacks_.metrics(std::exchange(families_, {}));
  }
  return {};
}

void Session::send(const wire::Reading& reading) {
  if (client_.open()) readings_[reading.rule] = reading;
}

void Session::send(const wire::NearestPair& pair) {
  nearest_[pair.agent] = pair.neighbour;
}

Result<SendStatus> Session::say_next() {
  if (!said_hello_) {
    const wire::HelloUp hello{options_.software, static_cast<std::uint64_t>(getpid()),
                              static_cast<bool>(callbacks_.episode)};
    FLASH_TRY(const SendStatus status, client_.connection().send(wire::encode(wire::Up(hello))));
    said_hello_ = status == SendStatus::Sent;
    return status;
  }
  if (!readings_.empty()) {
    FLASH_TRY(const SendStatus status,
              client_.connection().send(wire::encode(wire::Up(readings_.begin()->second))));
    if (status == SendStatus::Sent) readings_.erase(readings_.begin());
    return status;
  }
  if (stored_) {
    FLASH_TRY(const SendStatus status,
              client_.connection().send(wire::encode(wire::Up(wire::EpisodesStored{*stored_}))));
    if (status == SendStatus::Sent) stored_.reset();
    return status;
  }
  if (!nearest_.empty()) {
    const auto& [agent, neighbour] = *nearest_.begin();
    FLASH_TRY(const SendStatus status,
              client_.connection().send(wire::encode(wire::Up(wire::NearestPair{agent, neighbour}))));
    if (status == SendStatus::Sent) nearest_.erase(nearest_.begin());
    return status;
  }
  FLASH_TRY(const SendStatus status, client_.connection().send(wire::encode(wire::Up(wire::WantMetrics{}))));
  if (status == SendStatus::Sent) want_metrics_ = false;
  return status;
}

void Session::episodes_stored(std::uint64_t epoch, std::uint64_t number) {
  if (hello_ && epoch == epoch_) stored_ = number;
}

void Session::flush(Now now) {
  const auto said_all = link::say_all(
      client_.connection(), std::numeric_limits<int>::max(), [this] { return wants_to_write(); },
      [this] { return say_next(); });
  if (!said_all) close(now, said_all.error().message(), LOG_INFO);
}

Duration Session::run(Now now) {
  connect(now);
  if (client_.open()) receive(now);
  if (client_.hello_late(now, hello_)) close(now, "flashd does not say Hello", LOG_INFO);
  if (client_.open()) client_.settle(now);
  flush(now);
  if (!client_.open()) return client_.until_retry(now);
  return hello_ ? kNothingToDo : kHelloTimeout;
}

}  // namespace flash::sync
