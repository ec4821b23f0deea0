#include "policy/reward.h"

#include <algorithm>
#include <cmath>

#include "policy/explain.h"
#include "policy/idle.h"

namespace flash {
namespace {

constexpr double kSmallestChange = 0.02;   // of the frequency, below it a change of speed is noise
constexpr double kLeastBusy = 0.05;        // CPUs; below it speed is the idle process's
constexpr double kElasticityWeight = 0.1;  // exponential smoothing of e where a change tells much
constexpr double kSpeedNoise = 0.15;       // of ln(speed), against which what a change tells is weighed
constexpr double kMostSurprise = 0.5;      // of ln(speed): a program that does something else now

double ratio(double a, double b) {
  return b > 0 ? std::clamp(a / b, 0.0, 1.0) : 0.0;
}

/// Default's U(u).
double utilization_score(double u, double target) {
  u = std::clamp(u, 0.0, 1.0);
  target = std::clamp(target, 0.01, 0.99);
  return u <= target ? u / target : (1 - u) / (1 - target);
}

bool at_lower_bound(KnobKind kind, double limit, KnobRange range) {
  return limit <= range.lower || same_setting(kind, limit, range.lower);
}

}  // namespace

SloPreservation slo_preservation(const Slo& slo, const Observation& o, bool saturated) {
  SloPreservation sp;
  const Sample& rate = o[Signal::RequestRate];
  if (slo.latency_p99_ms) {
    const Sample& p99 = o[Signal::LatencyP99];
    if (p99.usable()) {
      sp.latency = p99.value > *slo.latency_p99_ms ? *slo.latency_p99_ms / p99.value : 1.0;
      sp.trusted = sp.trusted && p99.trusted();
      sp.measured = true;
    } else {
      sp.known = sp.trusted = idle(o);
    }
  }
  if (slo.throughput_rps) {
    if (rate.usable()) {
      sp.throughput = saturated ? ratio(rate.value, *slo.throughput_rps) : 1.0;
      sp.measured = true;
    } else {
      sp.known = false;
    }
    sp.trusted = sp.trusted && rate.trusted();
  }
  sp.value = std::min(sp.latency, sp.throughput);
  return sp;
}

bool cpu_saturated(const Observation& o, double cores, double throttled_floor) {
  const Sample& throttled = o[Signal::CpuThrottled];
  if (throttled.usable() && throttled.value >= throttled_floor) return true;
  const Sample& usage = o[Signal::CpuUsage];
  return !usage.usable() || usage.value >= kSaturation * cores;
}

Reward limits_reward(const Rule& rule, const NodeCapacity& node, const LimitsStep& step) {
  const Observation& o = *step.now;
  const bool paper = rule.reward.kind == RewardKind::Paper;
  Reward r;
  r.given = true;
  r.trusted = true;
  double sum = 0;
  int resources = 0;
  double cores = node.cores;

  if (step.in_force.has(KnobKind::CpuLimit)) {
    const double limit = step.in_force[KnobKind::CpuLimit];
    cores = effective_cores(limit, node);
    if (manages(rule, KnobKind::CpuLimit)) {
      const Sample& usage = o[Signal::CpuUsage];
      r.trusted = r.trusted && usage.trusted();
      ++resources;
      const double u = ratio(usage.value_or(0), cores);
      if (paper) {
        sum += u;
      } else {
        double score = utilization_score(u, rule.limits[KnobKind::CpuLimit].target_utilization);
        if (u < rule.limits[KnobKind::CpuLimit].target_utilization &&
            at_lower_bound(KnobKind::CpuLimit, limit, step.cpu_range))
          score = 1;
        sum += score * (1 - std::clamp(o[Signal::CpuThrottled].value_or(0), 0.0, 1.0));
      }
    }
  }
  if (step.in_force.has(KnobKind::MemoryLimit) && manages(rule, KnobKind::MemoryLimit)) {
    const double limit = step.in_force[KnobKind::MemoryLimit];
    const Sample& used = o[Signal::MemoryWorkingSet];
    r.trusted = r.trusted && used.trusted();
    ++resources;
    const double bytes = effective_memory(limit, node);
    const double u = std::isfinite(bytes) ? ratio(used.value_or(0), bytes) : 0.0;
    if (paper) {
      sum += u;
    } else {
      const double target = 1 / (1 + rule.limits[KnobKind::MemoryLimit].safety_margin);
      double score = utilization_score(u, target);
      if (u < target && at_lower_bound(KnobKind::MemoryLimit, limit, step.memory_range)) score = 1;
      score *= 1 - std::clamp(o[Signal::MemoryPressureFull].value_or(0), 0.0, 1.0);
      if (o[Signal::MemoryOomKills].value_or(0) > 0) score = 0;
      sum += score;
    }
  }

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

double speed_elasticity(double e, double khz_before, double khz_now, double khz_upper, double speed_before,
                        double speed_now) {
  const double more_before = khz_upper / khz_before - 1, more_now = khz_upper / khz_now - 1;
  const double t_before = 1 + e * more_before, t_now = 1 + e * more_now;  // T(f) of the same work
  const double surprise = std::clamp(std::log(speed_now / speed_before) - std::log(t_before / t_now),
                                     -kMostSurprise, kMostSurprise);
  const double slope = more_before / t_before - more_now / t_now;  // of ln(T(before) / T(now)) along e
  const double gain = kElasticityWeight * slope / (slope * slope + kSpeedNoise * kSpeedNoise);
  return std::clamp(e + gain * surprise, 0.0, 1.0);
}

Reward frequency_reward(const Rule& rule, const FrequencyStep& step) {
  const Observation& o = *step.now;
  const bool paper = rule.reward.kind == RewardKind::Paper;
  const double alpha = rule.reward.alpha;
  Reward r;
  r.given = true;
  const bool saturated = paper || cpu_saturated(o, step.cpus, rule.guards.throttled_floor);
  const SloPreservation sp = slo_preservation(rule.slo, o, saturated);
  r.slo_preservation = sp.value;
  r.slo_known = sp.known;

  const Sample& ips = o[Signal::Instructions];
  const Sample ips_before = step.before ? (*step.before)[Signal::Instructions] : Sample::missing();
  const bool both_trusted = ips.trusted() && ips_before.trusted() && ips.value > 0 && ips_before.value > 0;
  const bool khz_known = step.khz_now > 0 && step.khz_before > 0;
  const double rise = khz_known ? (step.khz_now - step.khz_before) / step.khz_before : 0;

  if (paper) {
    r.ips_gain = rise > 0 && both_trusted ? (ips.value - ips_before.value) / ips.value : 0;
    r.value = alpha * r.ips_gain + (1 - alpha) * sp.value;
    r.trusted = sp.trusted && both_trusted && khz_known;
    return r;
  }

  const Sample& usage = o[Signal::CpuUsage];
  const Sample usage_before = step.before ? (*step.before)[Signal::CpuUsage] : Sample::missing();
  const bool busy = usage.trusted() && usage_before.trusted() && usage.value >= kLeastBusy &&
                    usage_before.value >= kLeastBusy;
  const double highest = std::max({step.range.upper, step.khz_now, step.khz_before});
  double e = step.gain_before;
  if (both_trusted && busy && std::isfinite(highest) && std::abs(rise) >= kSmallestChange)
    e = speed_elasticity(std::isnan(e) ? kUnknownElasticity : e, step.khz_before, step.khz_now, highest,
                         ips_before.value / usage_before.value, ips.value / usage.value);
  r.ips_gain = e;

  const Sample& watts = o[Signal::Power];
  if (watts.usable() && step.highest_power > 0)
    r.power_cost = ratio(watts.value, step.highest_power);
  else if (step.khz_now > 0 && step.range.upper > 0 && std::isfinite(step.range.upper))
    r.power_cost = std::pow(std::clamp(step.khz_now / step.range.upper, 0.0, 1.0), 3);

  const bool no_counter = ips.validity == Validity::Missing || ips.validity == Validity::Proxy;
  const double price = rule.reward.power_price;
  const double x = relative_position(step.khz_now, step.range);
  const double use = std::clamp(usage.value_or(0) / std::max(step.cpus, 1), 0.0, 1.0);
  const double gain = use * (std::isnan(e) ? kUnknownElasticity : e);
  const double benefit = gain * x + (1 - gain) * (1 - x);
  const double merit = no_counter ? sp.value : alpha * benefit + (1 - alpha) * sp.value;
  r.value = (merit + price * (1 - r.power_cost)) / (1 + price);
  r.trusted =
      sp.trusted && step.khz_now > 0 && (no_counter ? rule.slo.given() : ips.trusted() && usage.trusted());
  return r;
}

std::string reward_words(const RewardOptions& o, Task task) {
  std::string words = o.kind == RewardKind::Paper ? "paper" : "default";
  appendf(words, ", alpha %g", o.alpha);
  if (o.kind == RewardKind::Default && task == Task::CpuFrequency)
    appendf(words, ", power price %g", o.power_price);
  return words;
}

}  // namespace flash
