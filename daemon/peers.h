// Purpose: flashd's two peers behind sockets, the learner and flash-sync: what they are told of
// configuration, agents and decisions, and where in the node what they say arrives.
// Ownership: owns both links and their event sources; borrows event loop and node.
// Thread rule: the event loop's.
#pragma once

#include <systemd/sd-event.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/config.h"
#include "daemon/episode_summaries.h"
#include "daemon/learner_link.h"
#include "daemon/node.h"
#include "daemon/sync_link.h"

namespace flash {

class Peers {
 public:
  using OwnMetrics = std::function<std::vector<link::sync::Family>()>;

  /// Neither is there before configure(). `metrics`: what flash-sync is handed of flashd itself.
  Peers(sd_event* event, Node& node, OwnMetrics metrics);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  /// At the start and after each reload, when the node has the configuration already: a peer is switched on
  /// or off, told again, or both stay as they are. A dry run teaches no learner: nothing of it is executed.
  void configure(Now now, const DaemonConfig& config, bool dry_run);
  /// Once per tick, after the node's.
  void tick(Now now);

  /// Wire to LoopEvents.
  void changed(TargetId id, AgentChange change);
  void decided(const Target& target, const Decision& decision);

  /// nullptr: switched off.
  const LearnerLink* learner() const { return learner_.get(); }
  const SyncLink* sync() const { return sync_.get(); }

 private:
  void configure_learner(Now now, const DaemonConfig& config, bool wanted);
  void configure_sync(Now now, const DaemonConfig& config);
  LearnerCallbacks learner_callbacks();
  std::string target_around(std::string_view cgroup) const;
  SyncCallbacks sync_callbacks();
  sd_event_source* listen(int fd, sd_event_io_handler_t handler, const char* what);

  static int learner_event(sd_event_source*, int, std::uint32_t, void* peers) noexcept;
  static int sync_event(sd_event_source*, int, std::uint32_t, void* peers) noexcept;

  sd_event* event_;
  Node& node_;
  OwnMetrics metrics_;
  std::uint64_t epoch_;  // one per start: the learner tells by it which steps it knows already
  std::unique_ptr<LearnerLink> learner_;
  sd_event_source* learner_source_ = nullptr;
  std::unique_ptr<SyncLink> sync_;
  sd_event_source* sync_source_ = nullptr;
  EpisodeSummaries episodes_;
};

}  // namespace flash
