#include "policy/tasks/resource_limits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "policy/explain.h"
#include "policy/fallback_limits.h"
#include "policy/knob_policy.h"
#include "policy/task.h"

namespace flash {
namespace {

constexpr std::array<StateEntry, kLimitsStateDim> kEntries = {{
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

/// Default's U(u).
double utilization_score(double u, double target) {
  u = std::clamp(u, 0.0, 1.0);
  target = std::clamp(target, 0.01, 0.99);
  return u <= target ? u / target : (1 - u) / (1 - target);
}

bool at_lower_bound(const KnobId& knob, double limit, std::span<const KnobNow> knobs) {
  const KnobNow* k = find_knob(knobs, knob);
  const double lower = k ? k->scale.range.lower : 0;
  return limit <= lower || same_setting(knob, limit, lower);
}

/// The scale of from_unit(), so that the action in force is an entry of the state.
double place(const LimitInForce& limit) {
  if (std::isnan(limit.value) || !std::isfinite(limit.scale.range.upper)) return 1;
  return (to_unit(limit.value, limit.scale) + 1) / 2;
}
double place_of_use(const Sample& use, const KnobScale& scale) {
  return std::isfinite(scale.range.upper) ? log_place(use.value_or(0), scale) : 0;
}

}  // namespace

StateVector limits_state(const Rule& rule, const NodeCapacity& node, const Observation* before,
                         const Observation& now, const LimitInForce& cpu, const LimitInForce& memory) {
  StateBuilder b;
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

Reward limits_reward(const Rule& rule, const NodeCapacity& node, const LimitsStep& step) {
  const Observation& o = *step.now;
  const bool paper = rule.reward.kind == RewardKind::Paper;
  Reward r;
  r.given = true;
  r.trusted = true;
  double sum = 0;
  int resources = 0;
  step.in_force.each([&](const KnobId& knob, double limit) {
    const LimitedResource* const row = limited_resource(knob);
    if (!row || !row->target || !manages(rule, knob)) return;
    const Sample& used = o[row->used];
    r.trusted = r.trusted && used.trusted();
    ++resources;
    const double all = row->effective(limit, node);
    const double u = std::isfinite(all) ? share_of(used.value_or(0), all) : 0.0;
    if (paper) {
      sum += u;
      return;
    }
    const double target = row->target(rule.limits[knob.kind]);
    double score = utilization_score(u, target);
    if (u < target && at_lower_bound(knob, limit, step.knobs)) score = 1;
    sum += score * row->unharmed(o);
  });

  // A rate below its objective is lack of demand where there was CPU to spare.
  const double cores = step.in_force.has(KnobKind::CpuLimit)
                           ? effective_cores(step.in_force[KnobKind::CpuLimit], node)
                           : node.cores;
  const SloPreservation sp =
      slo_preservation(rule.slo, o, paper || cpu_saturated(o, cores, rule.guards.throttled_floor));
  r.slo_preservation = sp.value;
  r.slo_known = sp.known;
  r.trusted = r.trusted && sp.trusted && resources > 0;
  r.utilization = resources > 0 ? sum / resources : 0;
  const double alpha = rule.reward.alpha;
  r.value = alpha * sp.value + (1 - alpha) * r.utilization;
  return r;
}

namespace {

/// What an agent remembers.
struct LimitsMemory {
  GrowthRoom growth;
};

LimitInForce limit_in_force(const TaskStep& step, KnobKind kind, double above) {
  const KnobNow* k = find_knob(step.knobs, kind);
  if (k == nullptr) return {std::min(std::numeric_limits<double>::quiet_NaN(), above), KnobRange{}};
  return {std::min(k->value, above), k->scale};
}

StateVector state_of(const TaskStep& step, TaskMemory& memory) {
  const Sample& used = (*step.now)[Signal::MemoryWorkingSet];
  if (used.usable()) memory.as<LimitsMemory>().growth.add(step.at, used.value);
  const NodeCapacity::Ceiling& above = step.node->in_force;
  return limits_state(*step.rule, *step.node, step.before, *step.now,
                      limit_in_force(step, KnobKind::CpuLimit, above.cores),
                      limit_in_force(step, KnobKind::MemoryLimit, above.memory_bytes));
}

Reward reward(const TaskStep& step, TaskMemory&) {
  LimitsStep limits;
  limits.now = step.now;
  limits.in_force = *step.in_force;
  limits.knobs = step.knobs;
  return limits_reward(*step.rule, *step.node, limits);
}

double cores(const TaskStep& step) {
  const KnobNow* k = find_knob(step.knobs, KnobKind::CpuLimit);
  return effective_cores(k != nullptr && !std::isnan(k->value) ? k->value : kUnlimited, *step.node);
}

TaskFallback fallback() {
  // Of the growth it knows what it has seen itself, which in the simulator is less than the world's memory has.
  return [rules = LimitsFallback(), growth = GrowthRoom()](const TaskStep& step, bool words,
                                                           Proposal& proposal) mutable {
    const Sample& used = (*step.now)[Signal::MemoryWorkingSet];
    if (used.usable()) growth.add(step.at, used.value);
    LimitsInput in;
    in.now = step.at;
    in.rule = step.rule;
    in.observation = step.now;
    in.node_cores = effective_cores(kUnlimited, *step.node);
    in.words = words;
    in.growth_room = growth.room(step.at);
    in.knobs = step.knobs;
    if (const KnobNow* k = find_knob(step.knobs, KnobKind::CpuLimit)) {
      in.cpu_limit = k->own_view;
      in.cpu_range = k->scale.range;
    }
    if (const KnobNow* k = find_knob(step.knobs, KnobKind::MemoryLimit)) {
      in.memory_limit = k->own_view;
      in.memory_range = k->scale.range;
    }
    rules.decide(in, proposal.action, proposal.explanation);
  };
}

}  // namespace

constexpr TaskSpec kResourceLimits = {
    .task = Task::ResourceLimits,
    .target = TargetKind::Cgroup,
    .state = kEntries,
    .knobs = kLimitsActions,
    .contention = true,
    .objective_slack = 3,
    // On limits, measuring what the rules miss gained nothing beyond chance (docs/ablations/15-rules-measured-again.md).
    .objective_known = 0,
    .start = [](TaskMemory& memory) { memory.start<LimitsMemory>(); },
    .state_of = state_of,
    .reward = reward,
    .growth_room = [](TaskMemory& memory,
                      Duration now) { return memory.as<LimitsMemory>().growth.room(now); },
    .cores = cores,
    .fallback = fallback,
    .explain_reward =
        [](const Reward& r, std::string& out) {
          appendf(out, ", use of the limits scored %.2f", r.utilization);
        },
};

}  // namespace flash
