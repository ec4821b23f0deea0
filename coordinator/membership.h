// Purpose: which nodes live, by their heartbeats. Silence counts only while somebody listens: after an outage
// of the coordinator or of its server no node is dead before it had time to speak.
// Ownership: value.
// Thread rule: one thread. No clock: every call that needs one takes it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/messages_fleet.h"
#include "coordinator/store.h"

namespace flash::coordinator {

inline constexpr std::int64_t kSuspectUs = 15'000'000, kDeadUs = 30'000'000;

enum class Liveness : std::uint8_t { Unknown, Alive, Suspect, Dead };
std::string_view to_string(Liveness l);  // "unknown", "alive", "suspect", "dead"

/// As of watch.until_us. Unknown: it has never sent a heartbeat.
Liveness liveness_of(const FleetNode& node, const Watch& watch);

class Membership {
 public:
  static constexpr std::size_t kMostNodes = 200'000;  // further ones are not remembered

  /// As the store knows them.
  explicit Membership(std::vector<FleetNode> nodes = {});

  /// From now on somebody listens.
  void listening(std::int64_t now_us) { watch_ = {now_us, now_us}; }
  void beat(const Origin& origin, const Heartbeat& heartbeat, std::int64_t now_us);
  /// To be called often: says which nodes became suspect or dead, or came back, since the last call.
  struct Change {
    std::string node;
    Liveness now = Liveness::Alive;
  };
  std::vector<Change> tick(std::int64_t now_us);

  /// What has changed since the last call, to be stored.
  std::vector<FleetNode> take_changed();
  /// In words, by node, as of the last tick.
  std::map<std::string, std::string> states() const;
  const Watch& watch() const { return watch_; }
  std::size_t size() const { return nodes_.size(); }

 private:
  struct Known {
    FleetNode node;
    Liveness said = Liveness::Unknown;
  };
  std::map<std::string, Known> nodes_;
  std::set<std::string> changed_;
  Watch watch_;
};

}  // namespace flash::coordinator
