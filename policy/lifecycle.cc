#include "policy/lifecycle.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "policy/explain.h"

namespace flash {

void RewardWindow::resize(std::size_t capacity) {
  capacity = std::max<std::size_t>(capacity, 1);
  if (capacity == capacity_) return;
  std::vector<double> ordered;
  ordered.reserve(ring_.size());
  for (std::size_t i = 0; i < ring_.size(); ++i)
    ordered.push_back(ring_[ring_.size() < capacity_ ? i : (next_ + i) % ring_.size()]);
  capacity_ = capacity;
  clear();
  const std::size_t keep = std::min(capacity, ordered.size());
  for (std::size_t i = ordered.size() - keep; i < ordered.size(); ++i) push(ordered[i]);
}

void RewardWindow::push(double reward) {
  if (ring_.size() < capacity_) {
    ring_.push_back(reward);
    next_ = ring_.size() % capacity_;
    sum_ += reward;
    sum_squares_ += reward * reward;
    return;
  }
  sum_ += reward - ring_[next_];
  sum_squares_ += reward * reward - ring_[next_] * ring_[next_];
  ring_[next_] = reward;
  next_ = (next_ + 1) % capacity_;
  if (next_ != 0) return;
  // Summed again once per round of the ring, or rounding errors would grow forever.
  sum_ = sum_squares_ = 0;
  for (double r : ring_) {
    sum_ += r;
    sum_squares_ += r * r;
  }
}

void RewardWindow::clear() {
  ring_.clear();
  next_ = 0;
  sum_ = sum_squares_ = 0;
}

RewardStats RewardWindow::stats() const {
  RewardStats s;
  s.count = ring_.size();
  if (ring_.empty()) return s;
  const double n = static_cast<double>(ring_.size());
  s.last = ring_[(next_ + ring_.size() - 1) % ring_.size()];
  s.mean = sum_ / n;
  s.stddev = std::sqrt(std::max(0.0, sum_squares_ / n - s.mean * s.mean));
  return s;
}

void FadingMean::add(double value, std::size_t horizon) {
  ++count_;
  const auto n = std::min<std::uint64_t>(count_, std::max<std::size_t>(horizon, 1));
  mean_ += (value - mean_) / static_cast<double>(n);
}

std::uint64_t retry_episodes(std::uint64_t failures) {
  constexpr std::uint64_t kMost = 32;
  if (failures < 2) return 0;
  return failures > 6 ? kMost : std::min(kMost, std::uint64_t{1} << (failures - 1));
}

std::uint64_t forgive_episodes(std::uint64_t failures) {
  return 4 + 4 * retry_episodes(failures);
}

namespace {

/// Collects what is missing; the first one begins the sentence.
class Waits {
 public:
  std::string& next() {
    out_ += out_.empty() ? "waits for " : "; for ";
    return out_;
  }
  bool none() const { return out_.empty(); }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

/// avg(R) >= threshold, as far as it is known.
void wait_for_reward(Waits& waits, const LifecycleInput& in, double threshold) {
  const RewardStats& r = in.rewards;
  if (!in.executing) {
    waits.next() += "control: what is not executed earns nothing";
  } else if (r.count < std::max<std::size_t>(in.min_rewards, 1)) {
    appendf(waits.next(), "trusted rewards of this stage (%zu of %zu)", r.count,
            std::max<std::size_t>(in.min_rewards, 1));
  } else if (!(r.mean >= threshold)) {
    appendf(waits.next(), "a mean reward of %.2f (now %.2f over %zu steps)", threshold, r.mean, r.count);
  }
}

/// t_serving, or what the fallback earned less `tolerance`, if that is more.
double serving_threshold(const LifecycleInput& in, const UserProfile& p, double tolerance) {
  if (in.fallback_count < std::max<std::size_t>(in.min_rewards, 1)) return p.t_serving;
  return std::max(p.t_serving, in.fallback_reward - tolerance);
}

void wait_for_policy(Waits& waits, const LifecycleInput& in) {
  if (!in.policy_ready) waits.next() += "a policy: flash-learner has not published one, or it has expired";
}

}  // namespace

StageVerdict judge_stage(Stage stage, const LifecycleInput& in, const UserProfile& p) {
  const RewardStats& r = in.rewards;
  const std::size_t enough = std::max<std::size_t>(in.min_rewards, 1);
  const bool known = r.count >= enough;
  StageVerdict v;
  v.next = stage;
  if ((stage == Stage::Online || stage == Stage::Serving) && known && in.fallback_count >= enough &&
      r.mean < in.fallback_reward - p.worse_than_fallback) {  // (deviation)
    v.next = Stage::Offline;
    appendf(v.words, "the policy (version %llu) earned %.2f per step, the fallback %.2f",
            static_cast<unsigned long long>(in.version), r.mean, in.fallback_reward);
    return v;
  }
  if ((stage == Stage::Online || stage == Stage::Serving) && in.unjudged >= 2 * enough) {  // (deviation)
    v.next = Stage::Offline;
    appendf(v.words, "nothing that the policy (version %llu) earned in the last %zu steps could be judged",
            static_cast<unsigned long long>(in.version), in.unjudged);
    return v;
  }
  Waits waits;
  switch (stage) {
    case Stage::Initialized:                                           // line 4
      v.next = p.bootstrap || in.seconds_to_wait > 0 ? Stage::Offline  // lines 5-6: bootstrapping
                                                     : Stage::Online;  // lines 7-8: skip bootstrapping
      v.words = v.next == Stage::Offline
                    ? "bootstrapping begins: the fallback is in charge, learning goes on from its steps"
                    : "the profile skips bootstrapping";
      return v;
    case Stage::Offline:                       // line 10
      wait_for_reward(waits, in, p.t_online);  // line 11
      wait_for_policy(waits, in);              // (deviations from here)
      if (in.policy_ready && in.failed_version != 0 && in.version <= in.failed_version)
        appendf(waits.next(), "a policy newer than version %llu, which did worse than the fallback",
                static_cast<unsigned long long>(in.failed_version));
      if (in.policy_ready && !in.estimate.given)
        waits.next() += "the estimate that the policy is not worse than the fallback";
      else if (in.policy_ready && !(in.estimate.lower >= -kEstimateTolerance))
        appendf(waits.next(),
                "an estimate that the policy loses at most %.2f per step (%s says between %+.2f and %+.2f)",
                kEstimateTolerance, in.estimate.method.substr(0, 16).c_str(), double(in.estimate.lower),
                double(in.estimate.upper));
      if (in.episodes_to_wait > 0)
        appendf(waits.next(), "%llu more episodes, after policies that failed",
                static_cast<unsigned long long>(in.episodes_to_wait));
      if (in.seconds_to_wait > 0)
        appendf(waits.next(), "%.0f s more, after %llu times that a policy hurt",
                std::ceil(in.seconds_to_wait), static_cast<unsigned long long>(in.hurts));
      if (!waits.none()) break;
      v.next = Stage::Online;  // line 12
      appendf(v.words, "the mean reward is %.2f, %.2f is enough, and policy version %llu is ready", r.mean,
              p.t_online, static_cast<unsigned long long>(in.version));
      return v;
    case Stage::Online:                                                           // line 14
      wait_for_reward(waits, in, serving_threshold(in, p, kServeBelowFallback));  // line 15
      if (known && !(r.stddev <= p.t_var))                                        // line 15
        appendf(waits.next(), "steadier rewards (deviation %.2f, at most %.2f)", r.stddev, p.t_var);
      wait_for_policy(waits, in);  // (deviation)
      if (!waits.none()) break;
      v.next = Stage::Serving;  // line 16
      appendf(v.words, "the mean reward is %.2f with a deviation of %.2f: good and steady", r.mean, r.stddev);
      return v;
    case Stage::Serving: {  // line 18
      const double wanted = serving_threshold(in, p, kRetrainBelowFallback);
      if (known && (r.mean < wanted || r.stddev > p.t_var)) {  // line 19
        v.next = Stage::Online;                                // line 20
        appendf(v.words,
                "retraining: the mean reward is %.2f (%.2f wanted), its deviation %.2f (at most %.2f)",
                r.mean, wanted, r.stddev, p.t_var);
        return v;
      }
      v.words = "serving";
      return v;
    }
  }
  v.words = waits.take();
  return v;
}

Stage next_stage(Stage stage, const LifecycleInput& input, const UserProfile& profile) {
  return judge_stage(stage, input, profile).next;
}

}  // namespace flash
