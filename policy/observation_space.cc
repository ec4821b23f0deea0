#include "policy/observation_space.h"

#include <algorithm>
#include <cmath>

#include "core/policy_snapshot.h"
#include "policy/idle.h"

namespace flash {
namespace {

constexpr std::array<StateEntry, kLimitsStateDim> kLimits = {{
    {"cpu_limit", "cores", "place in the knob's range on a log scale, [0,1]; no limit is 1"},
    {"memory_limit", "bytes", "place in the knob's range on a log scale, [0,1]; no limit is 1"},
    {"cpu_utilization", "cores", "use / limit, at most 2"},
    {"memory_utilization", "bytes", "working set / limit, at most 2"},
    {"sp_latency", "ms", "SLO preservation of latency, [0,1], 1 without an SLO"},
    {"sp_throughput", "1/s", "SLO preservation of throughput, [0,1], 1 without an SLO"},
    {"load_change", "1/s", "(load - previous) / greater of both, [-1,1]; request rate, else CPU use"},
    {"cpu_use", "cores", "place in the range of the CPU limit on a log scale, [-1,2]"},
    {"memory_use", "bytes",
     "place of the working set in the range of the memory limit on a log scale, [-1,2]"},
}};

constexpr std::array<StateEntry, kFrequencyStateDim> kFrequency = {{
    {"ips", "1/s", "instructions per second and CPU, in units of 1e10 (about 4 GHz at 2.5 IPC); 0: unknown"},
    {"ips_known", "1", "1 if the machine counts instructions, else 0"},
    {"cpu_usage", "cores", "share of the set's CPUs"},
    {"frequency", "kHz", "place in the range, [0,1]"},
    {"sp_latency", "ms", "SLO preservation of latency, [0,1], 1 without an SLO"},
    {"sp_throughput", "1/s", "SLO preservation of throughput, [0,1], 1 without an SLO"},
    {"ips_gain", "1", "speed gained per frequency, e of the default reward, [0,1]; 0.5: not known"},
    {"cpu_usage_3", "cores", "share of the set's CPUs, mean of about 3 steps"},
    {"cpu_usage_8", "cores", "share of the set's CPUs, mean of about 8 steps"},
    {"cpu_usage_64", "cores", "share of the set's CPUs, mean of about 64 steps"},
    {"cpu_usage_peak", "cores", "share of the set's CPUs, the highest of about 128 steps"},
    {"latency", "ms", "ln(p99 / objective) / 3, [-2,2], -1 without an SLO or a request"},
    {"latency_8", "ms", "the same, mean of about 8 steps"},
    {"latency_64", "ms", "the same, mean of about 64 steps"},
}};

static_assert(kFrequency[kPlaceInForce].name == "frequency");

constexpr double kIpsUnit = 1e10;

class Builder {
 public:
  void add(double value, bool trusted, bool sensible) {
    const std::uint32_t bit = 1U << v_.size;
    if (!std::isfinite(value)) {
      value = 0;
      trusted = sensible = false;
    }
    if (!trusted) v_.not_trusted |= bit;
    if (!sensible) v_.not_sensible |= bit;
    v_.values[static_cast<std::size_t>(v_.size++)] = static_cast<float>(value);
  }
  void add(double value, const Sample& source) {
    add(value, source.trusted(), source.validity == Validity::Good || source.validity == Validity::Degraded);
  }
  StateVector take() const { return v_; }

 private:
  StateVector v_;
};

void add_slo(Builder& b, const Slo& slo, const Observation& o, bool saturated) {
  const SloPreservation sp = slo_preservation(slo, o, saturated);
  const Sample& rate = o[Signal::RequestRate];
  if (!slo.latency_p99_ms)
    b.add(1, true, true);
  else if (idle(o))
    b.add(1, rate);
  else
    b.add(sp.latency, o[Signal::LatencyP99]);
  if (!slo.throughput_rps)
    b.add(1, true, true);
  else
    b.add(sp.throughput, rate);
}

/// Without a request, and before the first one, latency is far below the objective.
void add_latency(Builder& b, const Slo& slo, const Observation& o, const RecentLatency& late) {
  constexpr double kFarBelow = -1;
  if (!slo.latency_p99_ms) {
    for (int i = 0; i < 3; ++i) b.add(kFarBelow, true, true);
    return;
  }
  const Sample& p99 = o[Signal::LatencyP99];
  if (idle(o))
    b.add(kFarBelow, o[Signal::RequestRate]);
  else
    b.add(p99.usable() ? latency_distance(p99.value, *slo.latency_p99_ms) : 0, p99);
  for (std::size_t i = 0; i < 2; ++i)
    b.add(late.distances() != nullptr ? (*late.distances())[i] : kFarBelow, true, true);
}

}  // namespace

std::span<const StateEntry> state_entries(Task task) {
  if (task == Task::ResourceLimits) return kLimits;
  return kFrequency;
}

/// The scale of from_unit(), so that the action in force is an entry of the state.
static double place(const LimitInForce& limit) {
  if (std::isnan(limit.value) || !std::isfinite(limit.scale.range.upper)) return 1;
  return (to_unit(limit.value, limit.scale) + 1) / 2;
}
static double place_of_use(const Sample& use, const KnobScale& scale) {
  return std::isfinite(scale.range.upper) ? log_place(use.value_or(0), scale) : 0;
}

StateVector limits_state(const Rule& rule, const NodeCapacity& node, const Observation* before,
                         const Observation& now, const LimitInForce& cpu, const LimitInForce& memory) {
  Builder b;
  const double cores = effective_cores(std::isnan(cpu.value) ? kUnlimited : cpu.value, node);
  const double bytes = effective_memory(std::isnan(memory.value) ? kUnlimited : memory.value, node);
  const Sample& usage = now[Signal::CpuUsage];
  const Sample& used = now[Signal::MemoryWorkingSet];
  b.add(place(cpu), true, true);
  b.add(place(memory), true, true);
  b.add(std::min(2.0, usage.value_or(0) / cores), usage);
  b.add(std::isfinite(bytes) ? std::min(2.0, used.value_or(0) / bytes) : 0, used);
  add_slo(b, rule.slo, now, cpu_saturated(now, cores, rule.guards.throttled_floor));
  // A rate that is late, or of several ticks, says nothing of a change from one to the next.
  const bool counted =
      before != nullptr && (*before)[Signal::RequestRate].trusted() && now[Signal::RequestRate].trusted();
  const Signal load = counted ? Signal::RequestRate : Signal::CpuUsage;
  if (before == nullptr || !(*before)[load].usable() || !now[load].usable()) {
    b.add(0, false, true);
  } else {
    const Sample& was = (*before)[load];
    const double greater = std::max(was.value, now[load].value);
    const double change = greater > 0 ? (now[load].value - was.value) / greater : 0;
    b.add(change, was.trusted() && now[load].trusted(), true);
  }
  b.add(place_of_use(usage, cpu.scale), usage);
  b.add(place_of_use(used, memory.scale), used);
  return b.take();
}

void RecentUse::add(const Sample& usage, int cpus) {
  if (!usage.trusted() || !std::isfinite(usage.value)) return;
  constexpr double kSteps[] = {3, 8, 64}, kMost = 2;
  static const double kHighestKept = std::exp(-1.0 / 128);
  const double share = std::clamp(usage.value / std::max(cpus, 1), 0.0, kMost);
  if (!any_) shares_.fill(share);
  any_ = true;
  for (std::size_t i = 0; i < std::size(kSteps); ++i) shares_[i] += (share - shares_[i]) / kSteps[i];
  shares_[3] = std::max(share, shares_[2] + (shares_[3] - shares_[2]) * kHighestKept);
}

double latency_distance(double p99_ms, double objective_ms) {
  constexpr double kUnit = 3;  // e^3: about twenty times
  if (!(p99_ms > 0)) return -kFurthestLatency;
  return std::clamp(std::log(p99_ms / objective_ms) / kUnit, -kFurthestLatency, kFurthestLatency);
}

void RecentLatency::add(const Slo& slo, const Sample& p99) {
  if (!slo.latency_p99_ms || !p99.trusted() || !std::isfinite(p99.value)) return;
  constexpr double kSteps[] = {8, 64};
  const double distance = latency_distance(p99.value, *slo.latency_p99_ms);
  if (!any_) distances_.fill(distance);
  any_ = true;
  for (std::size_t i = 0; i < std::size(kSteps); ++i) distances_[i] += (distance - distances_[i]) / kSteps[i];
}

StateVector frequency_state(const Rule& rule, const Observation& now, double khz, KnobRange range, int cpus,
                            double gain, const FrequencyPast& past) {
  Builder b;
  const Sample& ips = now[Signal::Instructions];
  const int n = std::max(cpus, 1);
  if (ips.validity == Validity::Missing || ips.validity == Validity::Proxy) {
    b.add(0, true, true);
    b.add(0, true, true);
  } else {
    b.add(ips.value_or(0) / n / kIpsUnit, ips);
    b.add(1, true, true);
  }
  const Sample& usage = now[Signal::CpuUsage];
  b.add(usage.value_or(0) / n, usage);
  const bool known = khz > 0 && std::isfinite(range.upper);
  b.add(known ? relative_position(khz, range) : 0, known, known);
  add_slo(b, rule.slo, now, cpu_saturated(now, n, rule.guards.throttled_floor));
  b.add(std::isfinite(gain) ? gain : kUnknownElasticity, true, true);
  for (std::size_t i = 0; i < 4; ++i)
    b.add(past.use.shares() != nullptr ? (*past.use.shares())[i] : usage.value_or(0) / n, usage);
  add_latency(b, rule.slo, now, past.latency);
  return b.take();
}

}  // namespace flash
