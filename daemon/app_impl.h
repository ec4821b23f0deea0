// Purpose: the running daemon's insides, for app.cc (composition, bus, start, reload and stop) and app_events.cc (what happens
// while the loop runs).
// Ownership: owns node, peers, bus and event loop.
// Thread rule: one thread, one sd-event loop.
#pragma once

#include <systemd/sd-bus.h>
#include <systemd/sd-event.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/command_line.h"
#include "daemon/config.h"
#include "daemon/dbus_service.h"
#include "daemon/event_log.h"
#include "daemon/hurt_records.h"
#include "daemon/journal.h"
#include "daemon/node.h"
#include "daemon/overhead_guard.h"
#include "daemon/own_metrics.h"
#include "daemon/peers.h"

namespace flash {

// As metrics and the D-Bus properties have them.
Counters counters(const JournalCounters& c);
/// Percent of one core by part.
Shares overhead(const OverheadGuard& guard);

class App {
 public:
  App(const CommandLine& line, DaemonConfig config) : line_(line), config_(std::move(config)) {}
  ~App();
  int run();

 private:
  Result<void> start();
  void connect_bus();
  Result<void> offer_service();
  Result<void> open_service();
  void allow_writes();
  void disconnect_bus();
  void take_over();
  void recall_hurts();
  void keep_hurts();
  void restore_previous(const std::string& directory);
  Result<void> reload();
  void on_tick();
  void on_changed(TargetId id, AgentChange change);
  std::vector<Degraded> degraded() const;
  Duration period() const { return config_.period * guard_->stretch(); }
  void keep_budget(Duration now);
  void apply_guard();
  void record(Now now);
  void configure_journal();
  const LearnerLink* learner() const { return peers_->learner(); }
  const SyncLink* sync() const { return peers_->sync(); }
  std::vector<link::sync::Family> own_metrics() const;
  void on_decided(const Target& target, const Decision& decision);
  void say_degraded();
  void say_status();
  void stop();

  static int timer_event(sd_event_source*, std::uint64_t, void* app) noexcept;
  static int signal_event(sd_event_source*, const signalfd_siginfo* info, void* app) noexcept;
  static int cgroup_event(sd_event_source*, int, std::uint32_t, void* app) noexcept;
  static int metrics_event(sd_event_source*, int, std::uint32_t, void* app) noexcept;
  static int before_metrics(sd_event_source*, void* app) noexcept;
  static int metrics_again(sd_event_source*, std::uint64_t, void* app) noexcept;
  void read_metrics();
  void listen(bool on);

  CommandLine line_;
  DaemonConfig config_;
  sd_event* event_ = nullptr;
  sd_event_source* timer_ = nullptr;
  std::vector<sd_event_source*> metrics_;     // sockets of applications' metrics
  sd_event_source* metrics_timer_ = nullptr;  // when they are listened to again
  bool listening_ = true;
  Duration woke_{};        // this thread's CPU time before the event loop waited
  bool has_read_ = false;  // metrics, since then
  sd_bus* bus_ = nullptr;
  Duration bus_retry_at_{};
  std::string bus_trouble_;
  std::string state_directory_;
  std::vector<HurtRecord> hurts_;  // as they were written last
  std::unique_ptr<Node> node_;
  DecisionJournal journal_;
  std::unique_ptr<Peers> peers_;
  std::unique_ptr<DbusService> service_;
  Duration next_tick_{};
  std::uint64_t ticks_ = 0;
  std::uint64_t late_ticks_ = 0;
  Duration tick_duration_{}, ticks_busy_{};
  std::optional<OverheadGuard> guard_;
  DegradedLog degraded_log_;
  CallLog call_log_;
  std::string said_status_;
};

}  // namespace flash
