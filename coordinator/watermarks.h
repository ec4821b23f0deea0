// Purpose: which watermarks may be said to nodes, which then forget their records: those of commits that
// every other coordinator in step has on its disk too, or that waited for it long enough (the stream still
// keeps them).
// Ownership: value.
// Thread rule: one thread. No clock: every call that needs one takes it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "coordinator/messages_fleet.h"
#include "coordinator/store.h"
#include "core/time.h"

namespace flash::coordinator {

struct WatermarksOptions {
  Duration peer_lives = std::chrono::seconds(5);  // after its last word
  Duration wait = std::chrono::seconds(5);        // for a peer that is behind
  Duration remember = std::chrono::seconds(10);   // while another coordinator speaks: it may end
  std::size_t commits = 4096;
};

class Watermarks {
 public:
  struct Peer {
    CoordinatorBeat beat;
    Duration heard_at{};
    std::int64_t heard_us = 0;
  };

  explicit Watermarks(WatermarksOptions options = {}) : options_(options) {}

  void committed(const Position& at, std::vector<Committed::NodeWatermark> watermarks, Duration now);
  /// Of another coordinator.
  void heard(const std::string& name, const CoordinatorBeat& beat, Duration now, std::int64_t now_us);
  /// To be said now; empty unless `speaker`.
  std::vector<Committed::NodeWatermark> due(Duration now, bool speaker);

  /// Those that live.
  std::map<std::string, Peer> peers(Duration now) const;
  /// Commits whose watermarks were said though a peer in step was behind.
  std::uint64_t not_waited() const { return not_waited_; }

 private:
  struct Waiting {
    Position at;
    Duration since{};
    std::vector<Committed::NodeWatermark> watermarks;
  };
  bool all_have(const Waiting& waiting, Duration now) const;

  WatermarksOptions options_;
  std::deque<Waiting> waiting_;  // oldest first
  std::map<std::string, Peer> peers_;
  std::uint64_t not_waited_ = 0;
};

}  // namespace flash::coordinator
