// The simulator's rows of resource-limits and its knobs.
#include "lab/sim/tasks/resource_limits.h"

#include <algorithm>
#include <cmath>

#include "lab/sim/managed_world.h"
#include "lab/sim/noise.h"
#include "lab/sim/world.h"
#include "lab/workloads/application.h"

namespace flash {
namespace {

constexpr int kSeen_s = 8;
constexpr double kCpuFactors[] = {1.0, 0.80, 0.87, 0.94, 1.07, 1.15, 1.25, 1.4, 1.6, 2.0};
constexpr double kMemoryFactors[] = {1.05, 1.10, 1.15, 1.22, 1.35, 1.6};

double starting_cores(const Pair& pair, double offset_s, Random& random) {
  const KnobRange range = pair.range(KnobKind::CpuLimit);
  const double busy = pair.rate_at(offset_s) * pair.service_s(pair.environment().top_khz());
  return whole_percent(std::clamp(busy * std::exp(random.uniform(0.0, 1.6)), range.lower, range.upper),
                       range.upper, range);
}

double starting_bytes(const Pair& pair, double, Random& random) {
  const KnobRange range = pair.range(KnobKind::MemoryLimit);
  return std::clamp(pair.parameters().hot_bytes * std::exp(random.uniform(0.1, 1.6)), range.lower,
                    range.upper);
}

/// CPU is searched first with the memory that the working set asks for, then memory with the CPU found.
void plans(const WorldCore& world, const std::function<KnobValues(const KnobValues&)>& consider) {
  const Pair& pair = world.pair();
  const KnobRange cpu = pair.range(KnobKind::CpuLimit), memory = pair.range(KnobKind::MemoryLimit);
  const double used = world.observation()[Signal::MemoryWorkingSet].value;
  const double margin = 1 + pair.rule().limits[KnobKind::MemoryLimit].safety_margin;
  const double bytes = std::clamp(used * margin, memory.lower, memory.upper);
  KnobValues best{};
  for (double factor : kCpuFactors)
    best = consider({std::clamp(world.in_force()[0] * factor, cpu.lower, cpu.upper), bytes});
  // What the load ahead asks for, if a step may go there: of the next second, and of the highest of the next
  // ones.
  const double per_request = pair.service_s(pair.environment().top_khz()) /
                             pair.rule().limits[KnobKind::CpuLimit].target_utilization;
  const double next = world.rate_ahead(0) * per_request;
  double highest = next;
  for (int t = 1; t < kSeen_s; ++t) highest = std::max(highest, world.rate_ahead(t) * per_request);
  for (double asked : {0.9 * next, next, 1.15 * next, highest, 1.4 * highest, 2 * highest})
    best = consider({std::clamp(asked, cpu.lower, cpu.upper), bytes});
  const double cores = best[0];
  for (double factor : kMemoryFactors)
    if (factor != margin) consider({cores, std::clamp(used * factor, memory.lower, memory.upper)});
}

void fixed_plans(const Pair& pair, const std::function<KnobValues(const KnobValues&)>& run) {
  const KnobRange cpu = pair.range(KnobKind::CpuLimit), memory = pair.range(KnobKind::MemoryLimit);
  constexpr int kPoints = 25;
  const auto at = [](int i, KnobRange range) { return from_unit(2.0 * i / (kPoints - 1) - 1, range); };
  KnobValues best{};
  for (int i = 0; i < kPoints; ++i) best = run({at(i, cpu), memory.upper});
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < kPoints; ++i) {
      const double middle = best[1];
      best =
          run({best[0], round == 0 ? at(i, memory)
                                   : std::clamp(middle * (0.85 + 0.0125 * i), memory.lower, memory.upper)});
    }
    const double centre = best[0];
    for (int i = 0; i < kPoints; ++i)
      best = run({std::clamp(centre * (0.76 + 0.02 * i), cpu.lower, cpu.upper), best[1]});
  }
}

std::string hidden_load(double most, Random& random) {
  const double least = most / random.uniform(1.1, 1.8), period_s = log_uniform(random, 40, 300);
  return "sine:" + number_text(least) + "," + number_text(most) + "," + number_text(period_s);
}

}  // namespace

constexpr SimulatedKnob kSimulatedCpuLimit = {
    .knob = KnobKind::CpuLimit,
    .offered = [](const Environment&, KnobView& view) { view.lower = 0.01; },
    .start = starting_cores,
    .apply = [](double cores, NodeSettings& settings) { settings.cpu_limit = cores; },
    .report = [](const WorldCore& world, double cores,
                 StepStats& stats) { stats.cpu = world.observation()[Signal::CpuUsage].value / cores; },
};

constexpr SimulatedKnob kSimulatedMemoryLimit = {
    .knob = KnobKind::MemoryLimit,
    .offered = [](const Environment&, KnobView&) {},
    .start = starting_bytes,
    .apply = [](double bytes, NodeSettings& settings) { settings.memory_limit = bytes; },
    .report =
        [](const WorldCore& world, double bytes, StepStats& stats) {
          stats.memory = world.observation()[Signal::MemoryWorkingSet].value / bytes;
        },
};

constexpr SimulatedTask kSimulatedResourceLimits = {
    .task = Task::ResourceLimits,
    .plans = plans,
    .fixed_plans = fixed_plans,
    .widest_stall = 2.5,
    .least_slo_room = 1.2,
    .most_slo_room = 8,
    .hidden_load = hidden_load,
};

}  // namespace flash
