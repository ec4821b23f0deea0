// Purpose: an (application, environment) pair of FLASH, prepared for simulation of one task: the node model's
// constants, the rule, the knobs' ranges, the hidden parameters.
// Ownership: a pair owns what it was made of; worlds keep a pointer to it.
// Thread rule: immutable once made.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"
#include "core/rule.h"
#include "lab/sim/environment.h"
#include "lab/sim/node_model.h"
#include "lab/workloads/application.h"
#include "lab/workloads/trace.h"
#include "policy/action_space.h"
#include "policy/node_capacity.h"

namespace flash {

struct PairOptions {
  Task task = Task::ResourceLimits;
  RewardKind reward = RewardKind::Default;
  double load = 1;                  // factor on the trace's rate
  bool instruction_counter = true;  // false: a guest without a PMU
  bool rapl = true;                 // where the environment has a power curve
  bool pressure = true;             // PSI per cgroup (v2); v1 has none
};

/// Hidden from the instantaneous state, each about in [-1,1]; for policies "conditioned on the true
/// parameters".
inline constexpr int kTrueParameters = 16;
std::span<const std::string_view> true_parameter_names();

class Pair {
 public:
  /// Errors: a trace that cannot be parsed, an application without work.
  static Result<Pair> make(Application application, const RequestCost& cost, Environment environment,
                           const PairOptions& options);
  static Result<Pair> make(const Application& application, const Environment& environment,
                           const PairOptions& options) {
    return make(application, request_cost(application), environment, options);
  }

  Task task() const { return options_.task; }
  const Application& application() const { return application_; }
  const Environment& environment() const { return environment_; }
  const PairOptions& options() const { return options_; }
  const Rule& rule() const { return rule_; }
  const NodeCapacity& node() const { return node_; }
  const NodeParameters& parameters() const { return parameters_; }
  int cpus() const { return cpus_; }  // of the target's CPU set
  KnobRange range(KnobKind kind) const { return scale(kind).range; }
  const KnobScale& scale(KnobKind kind) const { return scales_[static_cast<std::size_t>(kind)]; }
  std::span<const double> steps() const { return environment_.frequencies_khz; }
  /// Demanded requests per second.
  double rate_at(double t_s) const { return options_.load * trace_.rate_at(t_s); }
  /// CPU seconds of a request at a frequency.
  double service_s(double khz) const { return parameters_.kilocycles / khz + parameters_.stall_s; }
  std::span<const float, kTrueParameters> true_params() const { return true_params_; }

 private:
  Pair() = default;
  void fill_true_params();

  Application application_;
  Environment environment_;
  PairOptions options_;
  Trace trace_;
  Rule rule_;
  NodeCapacity node_;
  NodeParameters parameters_;
  std::vector<KnobScale> scales_;  // by KnobKind
  int cpus_ = 1;
  std::array<float, kTrueParameters> true_params_{};
};

}  // namespace flash
