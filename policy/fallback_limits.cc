#include "policy/fallback_limits.h"

#include <algorithm>
#include <cmath>

#include "policy/explain.h"
#include "policy/guard.h"
#include "policy/knob_policy.h"

namespace flash {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// The first limit of a target that had none: after so many measured steps, and so much above what was seen.
constexpr int kFirstSteps = 5;
constexpr double kFirstHeadroom = 1.25;

/// VPA's OOMMinBumpUp and OOMBumpUpRatio.
constexpr double kOomMinBump = 100e6;
constexpr double kOomBumpRatio = 1.2;

/// Above the working set there is room for so many seconds of the fastest growth of the last minutes: a
/// decision comes once per period, and on cgroup v1 running into the limit kills.
constexpr double kGrowthSeconds = 5;
constexpr double kGrowthWindow_s = 600;
/// A memory limit is moved only by more than this share.
constexpr double kMemoryTolerance = 0.10;
/// So near to the limit, running into it means that the limit is too low and not that the page cache is full.
constexpr double kNearLimit = 0.90;

double round_up(double value, double quantum) {
  // 1e-9: 0.83 / 0.7 must not become one quantum more by the last bit of a double.
  return std::ceil(value / quantum - 1e-9) * quantum;
}

}  // namespace

double hpa_desired(double limit, double usage, double target, double tolerance) {
  target = std::max(target, 0.01);
  if (std::isinf(limit)) return usage / target;
  const double ratio = usage / (limit * target);
  return std::abs(ratio - 1) <= tolerance ? limit : limit * ratio;
}

std::int64_t WindowMax::number_of(Duration now, double window_s) {
  return static_cast<std::int64_t>(std::floor(seconds(now) / (window_s / kBuckets)));
}

void WindowMax::add(Duration now, double window_s, double value) {
  if (window_s <= 0) return;
  const std::int64_t n = number_of(now, window_s);
  Bucket& b = buckets_[static_cast<std::size_t>(n % kBuckets)];
  if (b.number != n) b = {n, value};
  b.max = std::max(b.max, value);
}

double WindowMax::max(Duration now, double window_s) const {
  double best = -kInf;
  if (window_s <= 0) return best;
  const std::int64_t n = number_of(now, window_s);
  for (const Bucket& b : buckets_)
    if (b.number >= 0 && b.number > n - kBuckets && b.number <= n) best = std::max(best, b.max);
  return best;
}

int DecayingHistogram::bucket_of(double value) {
  if (!(value > kFirstBucket)) return 0;
  // The upper edge of bucket i is first * (growth^(i+1) - 1) / (growth - 1), as in VPA.
  const double i = std::log(value / kFirstBucket * (kGrowth - 1) + 1) / std::log(kGrowth);
  return std::min(static_cast<int>(i), kBuckets - 1);
}

double DecayingHistogram::upper_edge(int bucket) {
  return kFirstBucket * (std::pow(kGrowth, bucket + 1) - 1) / (kGrowth - 1);
}

double DecayingHistogram::decay(Duration at, double half_life_s) {
  if (!started_) {
    reference_ = at;
    started_ = true;
  }
  half_life_s = std::max(half_life_s, 1.0);
  double exponent = seconds(at - reference_) / half_life_s;
  if (exponent > 64) {
    // Weights are relative: move the reference before 2^exponent leaves the range of a float.
    const auto scale = static_cast<float>(std::exp2(-exponent));
    total_ = 0;
    for (float& w : weights_) {
      w *= scale;
      total_ += w;
    }
    reference_ = at;
    exponent = 0;
  }
  return std::exp2(exponent);
}

void DecayingHistogram::add(Duration at, double half_life_s, double value, double weight) {
  const double w = weight * decay(at, half_life_s);
  float& bucket = weights_[static_cast<std::size_t>(bucket_of(value))];
  const double before = bucket;
  bucket = static_cast<float>(std::max(0.0, before + w));
  total_ = std::max(0.0, total_ + bucket - before);
}

double DecayingHistogram::percentile(double p) const {
  if (empty()) return 0;
  const double threshold = std::clamp(p, 0.0, 1.0) * total_;
  double sum = 0;
  int last = 0;
  for (int i = 0; i < kBuckets; ++i) {
    const double w = weights_[static_cast<std::size_t>(i)];
    if (w <= 0) continue;
    last = i;
    sum += w;
    if (sum >= threshold * (1 - 1e-6)) break;
  }
  return upper_edge(last);
}

void MemoryPeaks::add(Duration now, double half_life_s, double bytes) {
  if (histogram_.empty()) {
    first_ = interval_start_ = now;
    peak_ = 0;
  } else if (seconds(now - interval_start_) >= kInterval_s) {
    interval_start_ = now;
    peak_ = 0;
  }
  if (bytes <= peak_) return;
  // The interval's sample moves up with its peak; weighed by the interval's start, so that what is taken out
  // is exactly what was put in.
  if (peak_ > 0) histogram_.add(interval_start_, half_life_s, peak_, -1);
  histogram_.add(interval_start_, half_life_s, bytes);
  peak_ = bytes;
}

void GrowthRoom::add(Duration now, double used) {
  if (last_used_ && now > last_used_at_)
    growth_.add(now, kGrowthWindow_s, (used - *last_used_) / seconds(now - last_used_at_));
  last_used_ = used;
  last_used_at_ = now;
}

double GrowthRoom::room(Duration now) const {
  return kGrowthSeconds * std::max(0.0, growth_.max(now, kGrowthWindow_s));
}

void LimitsFallback::decide(const LimitsInput& in, Action& proposed, std::string& explanation) {
  for (std::size_t i = 0; i < limited_resources.size(); ++i) {
    const LimitedResource& row = limited_resources[i];
    if (!row.fallback || !manages(*in.rule, row.knob)) continue;
    if (i > 0 && !explanation.empty() && explanation.back() != ' ') explanation += ' ';
    row.fallback(*this, in, proposed, explanation);
  }
}

void LimitsFallback::cpu(LimitsFallback& rules, const LimitsInput& in, Action& proposed, std::string& out) {
  constexpr KnobKind kKnob = KnobKind::CpuLimit;
  int& samples = rules.cpu_samples_;
  WindowMax& recommendations = rules.recommendations_;
  const LimitOptions& opt = in.rule->limits[kKnob];
  const Observation& o = *in.observation;
  const Sample& usage = o[Signal::CpuUsage];
  const double limit = in.cpu_limit;
  if (std::isnan(limit)) {
    out += "The target has no CPU limit that can be read.";
    return;
  }
  if (!usage.usable()) {
    out += "CPU use is not measured: the CPU limit stays.";
    proposed.set(kKnob, limit);
    return;
  }
  const double target = std::max(opt.target_utilization, 0.01);
  const bool unlimited = std::isinf(limit);
  ++samples;
  if (in.words && unlimited)
    appendf(out, "CPU use %.2f cores of %.4g, no limit", usage.value, in.node_cores);
  else if (in.words)
    appendf(out, "CPU use %.2f of %.2f cores (%.0f %%, target %.0f %%)", usage.value, limit,
            limit > 0 ? 100 * usage.value / limit : 0.0, 100 * target);

  double recommendation = hpa_desired(limit, usage.value, target, opt.tolerance);
  const Sample& throttled = o[Signal::CpuThrottled];
  const bool is_throttled =
      !unlimited && throttled.usable() && throttled.value >= in.rule->guards.throttled_floor;
  const SloPreservation sp = slo_preservation(in.rule->slo, o, true);
  const bool slow = sp.measured && sp.latency < 1;
  const char* why = "";
  if (is_throttled) {
    // Halved: use at the limit and throttled all the time gives 1.5, about what the ratio gives (1 / 0.7).
    const double raised = limit * (1 + std::min(throttled.value, 1.0) / 2);
    if (raised > recommendation) {
      recommendation = raised;
      why = "throttled";
    }
  }
  // HPA's tolerance keeps still a little above the target; not while the objective is missed.
  if (slow && usage.value / target > recommendation) recommendation = usage.value / target;
  // As HPA does: what was there at the start is the first recommendation, so that a limit is not cut before a
  // whole window was seen.
  if (samples == 1 && !unlimited) recommendations.add(in.now, opt.down_stabilization_s, limit);
  recommendations.add(in.now, opt.down_stabilization_s, recommendation);

  double desired = recommendation;
  if (unlimited) {
    if (samples < kFirstSteps) {
      appendf(out, ": watching before the first limit (step %d of %d).", samples, kFirstSteps);
      proposed.set(kKnob, limit);
      return;
    }
    desired = std::max(desired, recommendations.max(in.now, opt.down_stabilization_s)) * kFirstHeadroom;
    why = "the first limit has 25 % of headroom";
  } else if (desired < limit) {
    const double held = std::min(limit, recommendations.max(in.now, opt.down_stabilization_s));
    if (held > desired) {
      desired = held;
      why = "the highest recommendation of the stabilisation window";
    }
  }
  if (slow && !unlimited && desired < limit) {
    desired = limit;
    why = "not cut while the latency objective is missed";
  }
  desired = std::clamp(round_up(desired, kCoreQuantum), in.cpu_range.lower, in.cpu_range.upper);
  // What rounding or clamping moved by less than the tolerance is no reason to write, unless out of range.
  if (!unlimited && same_setting(kKnob, desired, limit)) desired = limit;
  proposed.set(kKnob, desired);
  if (!in.words) return;

  if (is_throttled) appendf(out, ", throttled in %.0f %% of the periods", 100 * throttled.value);
  if (slow)
    appendf(out, ", p99 latency %.1f ms over its %.1f ms", o[Signal::LatencyP99].value,
            *in.rule->slo.latency_p99_ms);
  if (desired == limit)
    appendf(out, ": the limit stays%s%s%s.", *why ? " (" : "", why, *why ? ")" : "");
  else
    appendf(out, ": limit to %.2f cores%s%s%s.", desired, *why ? " (" : "", why, *why ? ")" : "");
}

void LimitsFallback::memory(LimitsFallback& rules, const LimitsInput& in, Action& proposed,
                            std::string& out) {
  constexpr KnobKind kKnob = KnobKind::MemoryLimit;
  int& samples = rules.memory_samples_;
  MemoryPeaks& peaks = rules.peaks_;
  const LimitOptions& opt = in.rule->limits[kKnob];
  const Observation& o = *in.observation;
  const Sample& used = o[Signal::MemoryWorkingSet];
  const double limit = in.memory_limit;
  if (std::isnan(limit)) {
    out += "The target has no memory limit that can be read.";
    return;
  }
  if (!used.usable()) {
    out += "Memory use is not measured: the memory limit stays.";
    proposed.set(kKnob, limit);
    return;
  }
  ++samples;
  const bool unlimited = std::isinf(limit);
  const double margin = 1 + opt.safety_margin;
  peaks.add(in.now, opt.half_life_s, used.value);
  const double room = used.value + in.growth_room;

  // Run into the limit: the peaks cannot show what the target would have used.
  const bool oom = o[Signal::MemoryOomKills].value_or(0) > 0;
  const bool squeezed =
      !unlimited && (starving(kKnob, o, in.rule->guards) ||
                     (o[Signal::MemoryHighEvents].value_or(0) > 0 && used.value >= kNearLimit * limit));
  double bumped = 0;
  if (oom || squeezed) {
    const double from = unlimited ? used.value : std::max(limit, used.value);
    bumped = oom ? std::max(from * kOomBumpRatio, from + kOomMinBump) : from * kOomBumpRatio;
    if (oom) peaks.add(in.now, opt.half_life_s, bumped);
  }

  if (in.words) {
    out += "Working set ";
    append_value(out, kKnob, used.value);
    out += " of ";
    append_value(out, kKnob, limit);
  }
  if (unlimited && samples < kFirstSteps) {
    appendf(out, ": watching before the first limit (step %d of %d).", samples, kFirstSteps);
    proposed.set(kKnob, limit);
    return;
  }

  // VPA widens its bounds while history is short (confidence); minutes stand for VPA's days, since a limit is
  // changed here without a restart.
  const double confidence = 1 + 1 / (1 + peaks.history_s(in.now) / 60);
  const double peak = peaks.percentile(opt.percentile);
  double desired = std::max(peak * margin * confidence, used.value * margin);
  const bool growing = room > desired && room > bumped;
  desired = std::max({desired, bumped, room});
  desired = std::clamp(round_up(desired, kByteQuantum), in.memory_range.lower, in.memory_range.upper);
  const bool must = bumped > 0 || limit < used.value * margin || limit < in.memory_range.lower ||
                    limit > in.memory_range.upper;
  if (!unlimited && !must && std::abs(desired / limit - 1) <= kMemoryTolerance) desired = limit;
  proposed.set(kKnob, desired);
  if (!in.words) return;

  appendf(out, ", %.0f %% of the recent peaks below ", 100 * opt.percentile);
  append_value(out, kKnob, peak);
  if (oom) out += ", a task was killed for lack of memory";
  if (squeezed && !oom) out += ", the limit is being run into";
  if (desired == limit) {
    out += ": the limit stays.";
  } else {
    out += ": limit to ";
    append_value(out, kKnob, desired);
    appendf(out, " (margin %.0f %%", 100 * opt.safety_margin);
    if (growing)
      appendf(out, ", room for %.0f s of its fastest recent growth", kGrowthSeconds);
    else if (confidence > 1.1)
      out += ", wider while the history is short";
    out += ").";
  }
}

}  // namespace flash
