// Purpose: the rule-based controller of resource-limits (AWARE 3.4: Kubernetes' HPA and VPA as the fallback):
// CPU by HPA's ratio, memory by VPA's decaying histogram. docs/agents/fallback_limits.md has the formulas,
// what differs from Kubernetes and why.
// Ownership: an agent owns its LimitsFallback.
// Thread rule: one thread. Time is a parameter.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/decision.h"
#include "core/knob.h"
#include "core/rule.h"
#include "core/signal.h"
#include "core/time.h"
#include "policy/action_space.h"
#include "policy/reward.h"

namespace flash {

/// HPA: desired = limit * usage / (limit * target); within |ratio - 1| <= tolerance the limit itself.
/// Without a limit (+inf): usage / target.
double hpa_desired(double limit, double usage, double target, double tolerance);

/// The greatest value of the last `window` seconds, in kBuckets buckets of fixed size: no allocation, at most
/// 1/kBuckets of the window too long.
class WindowMax {
 public:
  static constexpr int kBuckets = 16;
  void add(Duration now, double window_s, double value);
  /// -inf when nothing was added within the window.
  double max(Duration now, double window_s) const;

 private:
  struct Bucket {
    std::int64_t number = -1;
    double max = 0;
  };
  static std::int64_t number_of(Duration now, double window_s);
  std::array<Bucket, kBuckets> buckets_{};
};

/// VPA's decaying exponential histogram: first bucket 10 MB, each next one 5 % wider; a sample's weight
/// halves every half life.
class DecayingHistogram {
 public:
  static constexpr double kFirstBucket = 10e6;
  static constexpr double kGrowth = 1.05;
  static constexpr int kBuckets = 250;  // up to 3.9e13 bytes
  DecayingHistogram() : weights_(kBuckets, 0.0F) {}
  void add(Duration at, double half_life_s, double value, double weight = 1);
  /// The upper edge of the bucket that holds the percentile p in [0,1]; 0 when empty.
  double percentile(double p) const;
  bool empty() const { return total_ <= 0; }
  static int bucket_of(double value);
  static double upper_edge(int bucket);

 private:
  double decay(Duration at, double half_life_s);
  std::vector<float> weights_;
  double total_ = 0;
  Duration reference_{};  // weights are multiples of 2^((at - reference) / half life)
  bool started_ = false;
};

/// Peaks of the working set: one histogram sample per interval, replaced while the interval's peak grows.
class MemoryPeaks {
 public:
  static constexpr double kInterval_s = 60;
  void add(Duration now, double half_life_s, double bytes);
  double percentile(double p) const { return histogram_.percentile(p); }
  bool empty() const { return histogram_.empty(); }
  double history_s(Duration now) const { return empty() ? 0 : seconds(now - first_); }

 private:
  DecayingHistogram histogram_;
  Duration first_{}, interval_start_{};
  double peak_ = 0;
};

/// How much room above the working set its recent growth asks for: some seconds of the fastest growth of the
/// last minutes. On v1 a memory limit is hard, and running into it kills.
class GrowthRoom {
 public:
  void add(Duration now, double used);
  /// Bytes.
  double room(Duration now) const;

 private:
  WindowMax growth_;  // of the working set, bytes per second
  std::optional<double> last_used_;
  Duration last_used_at_{};
};

struct LimitsInput {
  Duration now{};
  const Rule* rule = nullptr;
  const Observation* observation = nullptr;
  double cpu_limit = std::numeric_limits<double>::quiet_NaN();     // read back; +inf: none; NaN: no such knob
  double memory_limit = std::numeric_limits<double>::quiet_NaN();  // the same
  KnobRange cpu_range, memory_range;
  double node_cores = 1;
  double growth_room = 0;          // bytes above the working set that its growth asks for (GrowthRoom)
  std::span<const KnobNow> knobs;  // all limits, for the rows of other kinds
  bool words = true;               // false: only what cannot be decided is said, for the simulator's pace
};

class LimitsFallback {
 public:
  /// Takes in the tick and decides. Sets the knobs that it has an opinion on in `proposed` and appends a
  /// sentence per managed knob to `explanation`.
  void decide(const LimitsInput& input, Action& proposed, std::string& explanation);

  /// Of the rows of policy/knob_policy: HPA's and VPA's part.
  static void cpu(LimitsFallback& rules, const LimitsInput& input, Action& proposed,
                  std::string& explanation);
  static void memory(LimitsFallback& rules, const LimitsInput& input, Action& proposed,
                     std::string& explanation);

 private:
  WindowMax recommendations_;
  MemoryPeaks peaks_;
  int cpu_samples_ = 0, memory_samples_ = 0;
};

}  // namespace flash
