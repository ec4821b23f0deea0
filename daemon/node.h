// Purpose: one machine under control, without event loop, bus service or log: collectors, knobs, control loop
// and the targets that the rules select. The daemon drives it, flash-bench measures it, flashd --once prints
// it.
// Ownership: owns every room it builds; borrows the bus.
// Thread rule: one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectors/signal_source.h"
#include "core/ports.h"
#include "core/result.h"
#include "daemon/config.h"
#include "host/host_root.h"
#include "policy/control_loop.h"

struct sd_bus;

namespace flash {

class KernelProbe;
class Ledger;
class PrometheusCollector;

struct NodeOptions {
  HostRoot root;
  std::string state_directory;  // the ledger's
  sd_bus* bus = nullptr;        // for units that systemd owns and to see other tuning daemons; may be absent
  bool dry_run = false;         // write no knob; the ledger is not touched
  bool metrics = true;          // open the StatsD sockets
  std::string lock;             // that only one flashd per host can have; empty: host_lock_path()
};

/// <root>/run/flashd/lock
std::string host_lock_path(const HostRoot& root);

class Node {
 public:
  /// Builds everything, looks for no target yet, writes nothing. EWOULDBLOCK: another flashd controls this
  /// host or has the ledger. A ledger that cannot be written is no error: no knob is written until it can be,
  /// and degraded() says why.
  static Result<std::unique_ptr<Node>> open(NodeOptions options, const DaemonConfig& config,
                                            LoopEvents events);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  /// Finds the targets. What an earlier daemon kept for targets that no rule selects any more is put back;
  /// the report names it.
  RestoreReport start(Now now);
  /// The bus came (back) or went.
  void set_bus(sd_bus* bus);

  ControlLoop& loop();
  Actuator& actuator();
  Ledger& ledger();
  /// Where the flashd before this one on this host had its ledger; empty: there was none.
  std::string previous_state_directory() const;
  const std::vector<KnobDriver*>& drivers() const;

  /// Descriptors that become readable: cgroups came or went (-1: none); metrics arrived.
  int cgroup_events_fd() const;
  std::vector<int> metrics_fds() const;
  void drain_cgroup_events(Now now);
  /// `woke`: this thread's CPU time when it was woken for that. Returns how long to let them wait from here
  /// on.
  Duration drain_metrics(std::optional<Duration> woke = std::nullopt);
  /// Stops listening to StatsD senders.
  void close_metrics();
  /// Of the StatsD sockets; empty without them.
  std::vector<std::pair<std::string, std::uint64_t>> metrics_counters() const;
  /// CPU time that reading them took, and of it for what was believed.
  std::pair<Duration, Duration> metrics_cost() const;

  TickReport tick(Now now);

  /// What applications' metrics pages say; nullptr never.
  PrometheusCollector* metrics_pages();

  /// What runs in the kernel for the collectors, always in the same order.
  const std::vector<KernelProbe*>& probes() const;

  /// New rules and options for the same machine, in one go.
  void reconfigure(Now now, const DaemonConfig& config);

  std::vector<Degraded> degraded() const;
  /// Where signals come from that have several possible sources.
  std::vector<SignalSource> sources() const;

 private:
  struct Impl;
  explicit Node(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flash
