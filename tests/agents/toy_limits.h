// Purpose: a small resource-limits world for learning tests: a service under a load that rises and falls,
// with the real state, reward, fallback and guards of policy/. What a decision does shows one step later.
// Ownership: a world owns its state.
// Thread rule: one thread. All randomness comes from the seed.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

#include "agents/agent.h"
#include "core/random.h"
#include "policy/action_space.h"
#include "policy/fallback_limits.h"
#include "policy/guard.h"
#include "policy/observation_space.h"
#include "policy/reward.h"
#include "policy/tasks/resource_limits.h"

namespace flash::toy {

struct LimitsOptions {
  double period_s = 60, low_rps = 20, high_rps = 150;  // the load's sine; requests arrive at random around it
  double walk = 0.03;                                  // per second: random walk of the load's level
  double core_s = 0.004;                               // CPU per request
  double threads = 2;
  double base_mib = 80, mib_per_rps = 0.3;
  double max_mib = 4096;  // as wide as a node
  double slo_ms = 100;
  double down_stabilization_s = 5;
};

/// Variation of the fallback while it is in charge, as core/rule.h's ExplorationOptions.
struct Exploration {
  double share = 0.10, max_step = 0.10;
  int hold_steps = 3;
};

class LimitsWorld {
 public:
  LimitsWorld(const LimitsOptions& options, std::uint64_t seed) : o_(options), random_(seed) {
    rule_.task = Task::ResourceLimits;
    rule_.slo.latency_p99_ms = o_.slo_ms;
    rule_.limits[KnobKind::CpuLimit].down_stabilization_s = o_.down_stabilization_s;
    rule_.limits[KnobKind::MemoryLimit].min = 32 * kMiB;
    rule_.limits[KnobKind::MemoryLimit].max = o_.max_mib * kMiB;
    node_.cores = 2;
    node_.memory_bytes = 8192 * kMiB;
    phase_ = random_.uniform(0, o_.period_s);
    range_[0] = {rule_.limits[KnobKind::CpuLimit].min, node_.cores};
    range_[1] = {rule_.limits[KnobKind::MemoryLimit].min, rule_.limits[KnobKind::MemoryLimit].max};
    limit_ = {node_.cores, o_.max_mib * kMiB};
    sense();
    before_ = now_;
  }

  const std::vector<float>& state() const { return state_; }
  const std::vector<float>& fallback() const { return fallback_; }  // proposed for state()
  double reward() const { return reward_; }                         // of the last act()
  double slo_preservation() const { return slo_preservation_; }
  bool calm() const {  // may be explored in: nothing starves, the objective is kept
    return slo_preservation_ >= 1 && !starving(KnobKind::CpuLimit, now_, rule_.guards) &&
           !starving(KnobKind::MemoryLimit, now_, rule_.guards);
  }

  /// Asks for limits in [-1,1]; the guards have the last word. Returns what was executed, in the same form.
  std::vector<float> act(const std::vector<float>& wanted) {
    std::vector<float> executed(2);
    for (std::size_t i = 0; i < 2; ++i) {
      GuardInput in;
      in.knob = kLimitsActions[i];
      in.current = limit_[i];
      in.range = range_[i];
      in.observation = &now_;
      in.rule = &rule_;
      in.node = &node_;
      in.flaps = &flaps_[i];
      in.step = step_;
      std::vector<GuardVerdict> verdicts;
      double allowed = apply_guards(in, from_unit(wanted[i], range_[i]), verdicts);
      if (i == 0) allowed = std::ceil(allowed * 100 - 1e-9) / 100;
      if (!same_setting(in.knob, allowed, limit_[i])) {
        flaps_[i].record(step_, allowed > limit_[i] ? 1 : -1);
        limit_[i] = allowed;
      }
      executed[i] = static_cast<float>(to_unit(limit_[i], range_[i]));
    }
    ++step_;
    before_ = now_;
    sense();
    LimitsStep step;
    step.now = &now_;
    step.in_force.set(KnobKind::CpuLimit, limit_[0]);
    step.in_force.set(KnobKind::MemoryLimit, limit_[1]);
    std::array<KnobNow, 2> knobs;
    for (std::size_t i = 0; i < knobs.size(); ++i) {
      knobs[i].knob = kLimitsActions[i];
      knobs[i].scale = range_[i];
    }
    step.knobs = knobs;
    const Reward r = limits_reward(rule_, node_, step);
    reward_ = r.value;
    slo_preservation_ = r.slo_preservation;
    return executed;
  }

  /// The limits that would have been best for the step ahead, had its load been known as the mean of the
  /// load's distribution. Not reachable (guards, chance), but a baseline.
  std::vector<float> knowing() const {
    const double cores =
        std::min(rate(step_) * o_.core_s, o_.threads) / rule_.limits[KnobKind::CpuLimit].target_utilization;
    const double bytes =
        now_[Signal::MemoryWorkingSet].value * (1 + rule_.limits[KnobKind::MemoryLimit].safety_margin);
    return {static_cast<float>(to_unit(cores, range_[0])), static_cast<float>(to_unit(bytes, range_[1]))};
  }

 private:
  static constexpr double kMiB = 1024.0 * 1024;

  double rate(std::uint64_t step) const {
    const double angle = 2 * std::numbers::pi * (static_cast<double>(step) + phase_) / o_.period_s;
    return level_ * (o_.low_rps + (o_.high_rps - o_.low_rps) * (0.5 - 0.5 * std::cos(angle)));
  }

  void sense() {
    level_ = std::clamp(level_ * std::exp(o_.walk * random_.normal()), 0.6, 1.4);
    const double rps = rate(step_);
    // Ten CFS periods: arrivals at random, quota per period, what is not done waits for the next.
    double used = 0, requests = 0, longest_wait = 0;
    int throttled = 0;
    for (int p = 0; p < 10; ++p) {
      const double n = std::max(0.0, rps / 10 + std::sqrt(rps / 10) * random_.normal());
      requests += n;
      backlog_ = std::min(backlog_ + n * o_.core_s, 2.0 * limit_[0]);
      const double quota = limit_[0] / 10, able = std::min(quota, o_.threads / 10);
      const double done = std::min(backlog_, able);
      if (backlog_ > quota) ++throttled;
      backlog_ -= done;
      used += done;
      longest_wait = std::max(longest_wait, backlog_ / limit_[0]);
    }
    now_ = Observation{};
    now_[Signal::CpuUsage] = Sample::good(used);
    now_[Signal::CpuThrottled] = Sample::good(throttled / 10.0);
    now_[Signal::RequestRate] = Sample::good(requests);
    now_[Signal::LatencyP99] = Sample::good(1000 * (2 * o_.core_s + longest_wait));
    working_set_ += 0.2 * (o_.base_mib + o_.mib_per_rps * requests - working_set_);
    const double wanted = working_set_ * kMiB;
    now_[Signal::MemoryWorkingSet] = Sample::good(std::min(wanted, limit_[1]));
    now_[Signal::MemoryPressureFull] = Sample::good(wanted > limit_[1] ? 0.3 : 0.0);
    now_[Signal::MemoryOomKills] = Sample::good(0);

    const StateVector s =
        limits_state(rule_, node_, &before_, now_, {limit_[0], range_[0]}, {limit_[1], range_[1]});
    state_.assign(s.span().begin(), s.span().end());
    LimitsInput in;
    in.now = from_seconds(static_cast<double>(step_));
    in.rule = &rule_;
    in.observation = &now_;
    in.cpu_limit = limit_[0];
    in.memory_limit = limit_[1];
    in.cpu_range = range_[0];
    in.memory_range = range_[1];
    in.node_cores = node_.cores;
    Action proposed;
    proposed.set(KnobKind::CpuLimit, limit_[0]);
    proposed.set(KnobKind::MemoryLimit, limit_[1]);
    std::string words;
    controller_.decide(in, proposed, words);
    fallback_ = {static_cast<float>(to_unit(proposed[KnobKind::CpuLimit], range_[0])),
                 static_cast<float>(to_unit(proposed[KnobKind::MemoryLimit], range_[1]))};
  }

  LimitsOptions o_;
  Random random_;
  Rule rule_;
  NodeCapacity node_;
  LimitsFallback controller_;
  std::array<FlapRecord, 2> flaps_;
  std::array<KnobRange, 2> range_;
  std::array<double, 2> limit_{};
  Observation now_, before_;
  std::uint64_t step_ = 0;
  double phase_ = 0, level_ = 1, backlog_ = 0, working_set_ = 80, reward_ = 0, slo_preservation_ = 1;
  std::vector<float> state_, fallback_;
};

/// What the learner would be given: `steps` transitions of the fallback with its bounded variation.
inline std::vector<Transition> log_of_fallback(LimitsWorld& world, int steps, const Exploration& e,
                                               Random random) {
  std::vector<Transition> log;
  std::array<double, 2> offset{};
  int hold = 0;
  for (int t = 0; t < steps; ++t) {
    Transition x;
    x.state = world.state();
    x.fallback = world.fallback();
    x.by_fallback = true;
    if (hold > 0) --hold;
    if (hold == 0) {
      offset = {};
      // A share of all steps explores, in runs of hold_steps.
      if (random.uniform() < e.share / (e.hold_steps * (1 - e.share) + e.share) && world.calm()) {
        for (double& v : offset) v = 2 * e.max_step * random.uniform(-1, 1);
        hold = e.hold_steps;
      }
    }
    std::vector<float> wanted = x.fallback;
    if (hold > 0 && world.calm())
      for (std::size_t i = 0; i < 2; ++i)
        wanted[i] = static_cast<float>(std::clamp(wanted[i] + offset[i], -1.0, 1.0));
    x.action = world.act(wanted);
    x.reward = static_cast<float>(world.reward());
    x.next_state = world.state();
    x.next_fallback = world.fallback();
    log.push_back(std::move(x));
  }
  return log;
}

/// Mean reward per step of `policy` (state and fallback's proposal in, limits in [-1,1] out).
template <class Policy>
double mean_reward(const LimitsOptions& options, std::uint64_t seed, int steps, Policy&& policy) {
  LimitsWorld world(options, seed);
  // The first steps, in which the limits come down from "the whole node", are the fallback's in any case.
  for (int t = 0; t < 60; ++t) world.act(world.fallback());
  double sum = 0;
  for (int t = 0; t < steps; ++t) {
    world.act(policy(world));
    sum += world.reward();
  }
  return sum / steps;
}

}  // namespace flash::toy
