// Purpose: what the operator asked for: one rule selects targets and says how they are managed. Filled by
// daemon/config from files, by tests by hand. Every field documents its default by its initialiser.
// Ownership: values; running agents share a rule as shared_ptr<const Rule>.
// Thread rule: immutable once built.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/knob.h"
#include "core/target.h"
#include "core/time_unit.h"

namespace flash {

/// observe: sense and record only. recommend: decide and record, write nothing. control: write.
enum class Mode : std::uint8_t { Observe, Recommend, Control };
std::string_view to_string(Mode m);
std::optional<Mode> mode_from_name(std::string_view name);

/// Where the application shows its metrics, and which of them count; flash-sync reads them (flash-sync(8)).
struct PrometheusOptions {
  std::string url;  // http or https; empty: none
  double interval_s = 1;
  double timeout_s = 0.5;
  std::string latency = "http_request_duration_seconds";  // selector of a histogram or summary; may be empty
  std::string requests;                                   // of a counter; empty: the latency metric's count
  std::string errors;                                     // of a counter; empty: not known
  TimeUnit unit = TimeUnit::Auto;                         // of the latency metric
};

/// How the application's StatsD lines are read.
struct StatsdReading {
  TimeUnit unit = TimeUnit::Auto;    // of its latencies
  std::vector<std::string> senders;  // globs of cgroups whose processes may send them beside the target's own
};

/// Service-level objective; an absent part is not judged. SP = 1 when neither is given (FLASH A.3).
struct Slo {
  std::optional<double> latency_p99_ms;
  std::optional<double> throughput_rps;
  SloSource source = SloSource::Statsd;
  StatsdReading statsd;
  PrometheusOptions prometheus;
  bool given() const { return latency_p99_ms || throughput_rps; }
};

/// AWARE Alg. 1's user profile P. Rewards are per step.
struct UserProfile {
  bool bootstrap = true;
  double t_online = 0.65;   // avg(R) >= t_online: OFFLINE -> ONLINE (AWARE's 130 of 200 per episode = 65 %)
  double t_serving = 0.75;  // avg(R) >= t_serving and std(R) <= t_var: ONLINE -> SERVING
  double t_var = 0.20;
  int window_episodes = 5;  // how many recent episodes R holds
  /// Not in Alg. 1: ONLINE or SERVING that earns less than the fallback did in the OFFLINE stage, by more
  /// than this, goes back to OFFLINE.
  double worse_than_fallback = 0.10;
};

enum class RewardKind : std::uint8_t { Default, Paper };

struct RewardOptions {
  RewardKind kind = RewardKind::Default;
  // FLASH Tables 7 and 9: weight of SLO preservation (limits) or of the IPS gain (frequency).
  double alpha = 0.5;
  double power_price = 0.25;  // Default only: weight of relative power, cpu-frequency task
};

/// Which targets. All given parts must match; at least one is given. Globs as in core/glob.h.
struct Selector {
  std::string cgroup;             // glob on the path below the hierarchy root
  std::string unit;               // glob on the systemd unit
  std::string container;          // glob on the container's name or id
  std::string container_runtime;  // exact: docker, podman, containerd, crio, lxc
  std::string pod_uid;            // glob
  std::vector<int> cpus;          // cpu-frequency: the CPU set ("0-3,8"); empty = all CPUs
};

/// What a rule says of a limit, in the limit's natural unit. `manage`, `min` and `max` are of every kind; of the
/// rest a kind has what its fallback looks at (daemon/config_limits.h: its keys).
struct LimitOptions {
  bool manage = true;
  double min = 0;                    // of kKnobs' row
  double max = kUnlimited;           // also bounded by the node
  double target_utilization = 0.70;  // HPA: desired usage / limit
  double tolerance = 0.10;           // HPA: no change while |ratio - 1| is below
  double down_stabilization_s = 60;  // HPA: scale down to the highest recommendation of this window
  double percentile = 0.95;          // VPA: of the decaying histogram of peaks
  double safety_margin = 0.15;       // VPA: on top of the percentile
  double half_life_s = 24 * 3600;    // VPA: decay of the histogram
};

/// By kind, also of kinds that are no limits and of those whose row is added later.
class LimitsOptions {
 public:
  LimitsOptions() {
    for (const KnobTraits& row : kKnobs) (*this)[row.kind].min = row.min;
  }
  LimitOptions& operator[](KnobKind kind) { return by_kind_[static_cast<std::size_t>(kind)]; }
  const LimitOptions& operator[](KnobKind kind) const { return by_kind_[static_cast<std::size_t>(kind)]; }

 private:
  std::array<LimitOptions, Registry<KnobTraits>::kMost> by_kind_;
};

struct FrequencyOptions {
  double min_khz = 0;           // 0: the hardware's lowest
  double max_khz = kUnlimited;  // the hardware's highest
  double step_khz = 0;          // Alg. 6.3's STEP; 0: one step of the frequency table (else 100 MHz)
  double slack_threshold = 0.05;
  double target_utilization = 0.80;  // used where no SLO is given
  bool claim = false;                // control even though another tuning daemon owns CPU frequency
};

/// Guards of policy/guard.h.
struct GuardOptions {
  double max_step_up = 1.0;  // slew: a knob grows at most by this share of its value per step (1.0 = doubles)
  double max_step_down = 0.20;       // slew: and shrinks at most by this share
  int flap_budget = 6;               // direction reversals allowed per knob ...
  int flap_window_steps = 60;        // ... in this many steps; beyond it the knob keeps still
  double cpu_pressure_floor = 0.20;  // PSI some: a target at or above is starving, its CPU limit is not cut
  double memory_pressure_floor = 0.05;  // PSI full: the same for memory
  double throttled_floor = 0.20;        // share of throttled periods: the same for CPU where PSI is missing
};

enum class ForeignWrite : std::uint8_t {
  Yield,     // keep hands off for hold_s, take the foreign value as the new original (default)
  Reassert,  // write ours again up to reassert_limit times, then yield
  Leave,     // give the knob up until the daemon restarts
};
std::string_view to_string(ForeignWrite f);

struct LeaseOptions {
  ForeignWrite on_foreign_write = ForeignWrite::Yield;
  int reassert_limit = 3;
  double hold_s = 600;  // how long a foreign (operator's) value is respected
};

/// How far a decision may stray so that there is something to learn from. Never while the target starves, its
/// SLO is missed, its state is not trusted, or the knob is not ours to write.
struct ExplorationOptions {
  double fallback_share = 0.10;  // share of steps in which the fallback's decision is varied (0: never)
  double online_share = 0.10;    // ONLINE: upper bound on what the learned policy's schedule asks for
  double max_step = 0.15;  // largest variation, as share of the limit's value (frequency: of the range, at
                           // least a level)
  int hold_steps = 3;      // a variation lasts so long: an effect needs more than one step to show
};

/// What stands for the objective of resource-limits where `slo` gives none: beyond how much it is too much
/// (1: never), and how long policies are out of the seat after one that hurt (policy/contention.h).
struct ContentionOptions {
  double throttled = 0.25;        // share of the CFS periods
  double cpu_pressure = 0.40;     // PSI some
  double memory_pressure = 0.10;  // PSI full
  double backoff_s = 600;         // the first time; twice as long each time, at most a day
};

struct Rule {
  std::string name;
  Task task = Task::ResourceLimits;
  int priority = 0;  // the highest priority wins where several rules match, then the name
  Mode mode = Mode::Recommend;
  bool mode_given = false;  // false: follows the global mode
  Selector select;
  std::string application;
  std::string group;               // of agents of the task that see each other (policy/group.h); empty: none
  bool parameter_sharing = false;  // the group's agents learn together, one policy for all; REQUIRES a group
  Slo slo;
  UserProfile profile;
  RewardOptions reward;
  LimitsOptions limits;
  FrequencyOptions frequency;
  GuardOptions guards;
  ContentionOptions contention;
  ExplorationOptions exploration;
  LeaseOptions lease;
  bool allow_kubelet = false;  // write directly what is the kubelet's

  /// Whose agents learn together with this rule's; empty: each alone.
  std::string learning_group() const { return parameter_sharing ? group : std::string(); }
};

}  // namespace flash
