#include "policy/contention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "policy/explain.h"
#include "policy/reward.h"

namespace flash {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
/// So near to the memory limit, running into it means that the limit is too low and not that the page cache
/// is full (as in the rules).
constexpr double kNearLimit = 0.90;
/// What running into the memory limit counts for where there is no pressure to tell how bad it is.
constexpr double kMemoryHit = 0.5;
/// Pressure with less throttling than this is that of a busy machine: neighbours must not be able to take a
/// policy out.
constexpr double kThrottledAtAll = 0.05;
constexpr std::size_t kRulesSteps = 300;  // about so many say what is usual under the rules
/// Rules under which there is that much leave no room to see more by the shares alone; then what is taken of
/// the cores tells.
constexpr double kMostUsual = 0.8;
constexpr double kForgivenAfter = 8;  // times the backoff

double share(const Sample& s) {
  return s.usable() ? std::clamp(s.value, 0.0, 1.0) : kNaN;
}

}  // namespace

Contention contention(const Rule& rule, const NodeCapacity& node, const Observation& o,
                      const Action& in_force) {
  Contention c;
  c.throttled = share(o[Signal::CpuThrottled]);
  c.cpu_pressure = share(o[Signal::CpuPressureSome]);
  if (c.throttled < kThrottledAtAll && !std::isnan(c.cpu_pressure)) c.cpu_pressure = 0;
  c.memory_pressure = share(o[Signal::MemoryPressureFull]);
  const Sample& usage = o[Signal::CpuUsage];
  if (std::isnan(c.throttled) && std::isnan(c.cpu_pressure) && usage.usable() &&
      in_force.has(KnobKind::CpuLimit)) {
    c.by_use = true;
    const double cores = effective_cores(in_force[KnobKind::CpuLimit], node);
    c.throttled = usage.value >= kSaturation * cores ? 1 : 0;
  }
  const Sample& used = o[Signal::MemoryWorkingSet];
  const Sample& hits = o[Signal::MemoryHighEvents];
  if (in_force.has(KnobKind::MemoryLimit))
    c.memory_hit = hits.value_or(0) > 0 && used.usable() &&
                   used.value >= kNearLimit * effective_memory(in_force[KnobKind::MemoryLimit], node);
  c.out_of_memory = o[Signal::MemoryOomKills].value_or(0) > 0;
  c.known = !std::isnan(c.throttled) || !std::isnan(c.cpu_pressure) || !std::isnan(c.memory_pressure) ||
            hits.usable() || c.out_of_memory;
  const ContentionOptions& b = rule.contention;
  // What is not measured compares false.
  c.violation = c.throttled > b.throttled || c.cpu_pressure > b.cpu_pressure ||
                c.memory_pressure > b.memory_pressure || c.memory_hit || c.out_of_memory;
  return c;
}

void ContentionTrip::rules(const Contention& c) {
  const double values[kParts] = {c.throttled, c.cpu_pressure, c.memory_pressure};
  for (std::size_t i = 0; i < kParts; ++i)
    if (!std::isnan(values[i])) rules_[i].add(values[i], kRulesSteps);
}

bool ContentionTrip::policy(const Contention& c, const ContentionOptions& bounds, const Blame& blame,
                            double seconds) {
  double most = 0;
  Part part = kParts;
  const auto look = [&](Part p, double value, double bound, bool blamed) {
    if (!blamed || !(value > bound)) return;
    const double more = value - std::min(rules_[p].mean(), kMostUsual);
    if (more > most) {
      most = more;
      part = p;
    }
  };
  look(kThrottled, c.throttled, bounds.throttled, blame.cpu);
  look(kCpuPressure, c.cpu_pressure, bounds.cpu_pressure, blame.cpu);
  look(kMemoryPressure, c.memory_pressure, bounds.memory_pressure, blame.memory);
  const bool short_of_cpu = c.throttled > bounds.throttled || c.cpu_pressure > bounds.cpu_pressure;
  const bool taken = blame.cpu && short_of_cpu && blame.cores_taken > most;
  if (taken) most = blame.cores_taken;
  const bool hit = blame.memory && c.memory_hit && kMemoryHit > most;
  if (hit) most = kMemoryHit;
  sum_ = std::max(0.0, sum_ + (most - kAllowance) * std::clamp(seconds, 0.0, kLongestStep));
  const bool killed = blame.memory && c.out_of_memory;
  if (killed) sum_ = std::max(sum_, kTrip);
  if (sum_ < kTrip) return false;

  words_.clear();
  if (killed) {
    words_ = "a task was killed for lack of memory";
  } else if (hit) {
    words_ = "the memory limit was run into";
  } else if (taken || part == kParts) {
    if (c.by_use)
      words_ = "all that the CPU limit allowed was used";
    else if (c.throttled > bounds.throttled)
      appendf(words_, "throttled in %.0f %% of the periods", 100 * c.throttled);
    else
      appendf(words_, "tasks waited for CPU in %.0f %% of the time", 100 * c.cpu_pressure);
    appendf(words_, " with %.0f %% of the rules' cores taken away", 100 * blame.cores_taken);
  } else if (part == kThrottled && c.by_use) {
    words_ = "all that the CPU limit allowed was used";
  } else if (part == kThrottled) {
    appendf(words_, "throttled in %.0f %% of the periods, %.0f %% under the rules", 100 * c.throttled,
            100 * rules_[kThrottled].mean());
  } else {
    const bool cpu = part == kCpuPressure;
    appendf(words_, "tasks waited for %s in %.0f %% of the time, %.0f %% under the rules",
            cpu ? "CPU" : "memory", 100 * (cpu ? c.cpu_pressure : c.memory_pressure),
            100 * rules_[part].mean());
  }
  return true;
}

double backoff_s(std::uint64_t times, double first) {
  if (times == 0) return 0;
  const double doubled = std::ldexp(first, static_cast<int>(std::min<std::uint64_t>(times - 1, 64)));
  return std::min(doubled, std::max(first, kMostBackoff_s));
}

double forgiven_after_s(std::uint64_t times, double first) {
  return kForgivenAfter * backoff_s(times, first);
}

}  // namespace flash
