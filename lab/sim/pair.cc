#include "lab/sim/pair.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "lab/sim/simulated_task.h"
#include "policy/task.h"

namespace flash {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
/// Of the reference core while it does not stall.
constexpr double kInstructionsPerCycle = 2.0;
/// The system's own, not for the target.
constexpr double kReservedMemory = 0.1;
constexpr double kMinCores = 0.1;

constexpr std::array<std::string_view, kTrueParameters> kNames = {"frequency_sensitivity",
                                                                  "service_time",
                                                                  "slo_to_service",
                                                                  "off_cpu_share",
                                                                  "service_cv",
                                                                  "burst",
                                                                  "workers",
                                                                  "resident",
                                                                  "hot_share",
                                                                  "per_request",
                                                                  "noise",
                                                                  "interference",
                                                                  "demand",
                                                                  "idle_power",
                                                                  "power_exponent",
                                                                  "lowest_frequency"};

double log_between(double value, double low, double high) {
  return 2 * std::log(std::max(value, 1e-12) / low) / std::log(high / low) - 1;
}

}  // namespace

std::span<const std::string_view> true_parameter_names() {
  return kNames;
}

Result<Pair> Pair::make(Application application, const RequestCost& cost, Environment environment,
                        const PairOptions& options) {
  Pair pair;
  auto trace = Trace::parse(application.trace);
  if (const auto* error = std::get_if<UsageError>(&trace))
    return Error(std::errc::invalid_argument, application.name + ": trace: " + error->message);
  if (!(cost.cycles > 0) || !(cost.stall_s >= 0) || !(cost.off_cpu_s >= 0))
    return Error(std::errc::invalid_argument, application.name + ": a request costs no work");
  if (environment.frequencies_khz.empty() || environment.cores < 1 || application.workers < 1)
    return Error(std::errc::invalid_argument,
                 application.name + " on " + environment.name + ": no CPU to run on");
  pair.trace_ = std::get<Trace>(std::move(trace));
  pair.application_ = std::move(application);
  pair.environment_ = std::move(environment);
  pair.options_ = options;
  const Application& app = pair.application_;
  const Environment& env = pair.environment_;

  pair.cpus_ = std::min(app.workers, env.cores);
  pair.node_.cores = env.cores;
  pair.node_.memory_bytes = env.memory_mib * kMiB;
  pair.node_.reserve_memory_bytes = kReservedMemory * pair.node_.memory_bytes;

  Rule& rule = pair.rule_;
  rule.name = app.name;
  rule.application = app.name;
  rule.task = options.task;
  rule.mode = Mode::Control;
  rule.reward.kind = options.reward;
  rule.slo.latency_p99_ms = app.slo_p99_ms;
  rule.limits[KnobKind::CpuLimit].min = kMinCores;

  pair.scales_.assign(kKnobs.size(), KnobRange{});
  for (const SimulatedKnob& row : kSimulatedKnobs) {
    KnobView view;
    view.kind = row.knob;
    row.offered(env, view);
    pair.scales_[static_cast<std::size_t>(row.knob)] = knob_range(rule, view, pair.node_);
  }

  NodeParameters& p = pair.parameters_;
  p.kilocycles = cost.cycles * env.cycles_factor / 1000;
  p.stall_s = cost.stall_s * env.stall_factor;
  p.off_cpu_s = cost.off_cpu_s;
  p.cv = app.service_cv;
  p.burst = std::max(1.0, app.burst);
  p.workers = app.workers;
  p.cores = task_spec(options.task).target == TargetKind::CpuSet ? pair.cpus_ : env.cores;
  p.instructions = cost.cycles * kInstructionsPerCycle;
  p.resident_bytes = app.memory_mib * kMiB;
  p.hot_bytes = p.resident_bytes * std::clamp(app.hot_share, 0.0, 1.0);
  p.per_request_bytes = app.memory_per_request_kib * 1024;
  p.interference = env.interference;
  pair.fill_true_params();
  return pair;
}

void Pair::fill_true_params() {
  const NodeParameters& p = parameters_;
  const double top = environment_.top_khz();
  const double cycles_s = p.kilocycles / top, service = service_s(top);
  double demand = 0;
  constexpr int kSamples = 60;
  for (int i = 0; i < kSamples; ++i) demand += rate_at(i * 60.0) / kSamples;
  const double values[kTrueParameters] = {
      2 * cycles_s / service - 1,
      log_between(service, 1e-4, 1),
      log_between(application_.slo_p99_ms / 1000 / service, 1, 1000),
      2 * p.off_cpu_s / (service + p.off_cpu_s) - 1,
      2 * p.cv - 1,
      log_between(p.burst, 1, 32),
      log_between(p.workers, 1, 64),
      log_between(p.resident_bytes, 8 * kMiB, 16384 * kMiB),
      2 * application_.hot_share - 1,
      log_between(p.per_request_bytes + 1024, 1024, 64 * kMiB),
      environment_.noise / 0.02 - 1,
      environment_.interference / 0.25 - 1,
      log_between(demand * service + 0.01, 0.01, 16),
      environment_.power.max_w > 0 ? 2 * environment_.power.idle_w / environment_.power.max_w - 1 : 0,
      environment_.power.exponent - 2.5,
      2 * environment_.frequencies_khz.front() / top - 1,
  };
  for (int i = 0; i < kTrueParameters; ++i)
    true_params_[i] = static_cast<float>(std::clamp(values[i], -2.0, 2.0));
}

}  // namespace flash
