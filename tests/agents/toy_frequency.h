// Purpose: a small cpu-frequency world for learning tests: a program with a share of stalls that no clock
// speeds up, under a load that rises and falls, with the real state, reward, fallback and guards of policy/.
// Ownership: a world owns its state.
// Thread rule: one thread. All randomness comes from the seed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "agents/agent.h"
#include "core/random.h"
#include "policy/action_space.h"
#include "policy/fallback_frequency.h"
#include "policy/guard.h"
#include "policy/observation_space.h"
#include "policy/reward.h"
#include "policy/tasks/cpu_frequency.h"
#include "tests/agents/toy_limits.h"

namespace flash::toy {

struct FrequencyOptions {
  double stalls = 0.3;  // share of the work, at the highest clock, that waits for memory
  double period_s = 60, low = 0.15, high = 0.65;  // CPU time asked for per second, at the highest clock
  double service_ms = 8, slo_ms = 40;
};

class FrequencyWorld {
 public:
  FrequencyWorld(const FrequencyOptions& options, std::uint64_t seed) : o_(options), random_(seed) {
    rule_.task = Task::CpuFrequency;
    rule_.slo.latency_p99_ms = o_.slo_ms;
    for (int i = 0; i < kFrequencyLevels; ++i) steps_.push_back(1e6 + 2e5 * i);
    range_ = {steps_.front(), steps_.back()};
    khz_ = khz_before_ = range_.upper;
    phase_ = random_.uniform(0, o_.period_s);
    sense();
    before_ = now_;
    fill_state();
  }

  const std::vector<float>& state() const { return state_; }
  int fallback() const { return fallback_; }
  double reward() const { return reward_; }
  bool calm() const { return slo_preservation_ >= 1; }

  /// Asks for a level; the guards have the last word. Returns the level in force.
  int act(int level) {
    GuardInput in;
    in.knob = KnobKind::CpuFrequency;
    in.current = khz_;
    in.range = range_;
    in.steps = steps_;
    in.observation = &now_;
    in.rule = &rule_;
    in.node = &node_;
    in.flaps = &flaps_;
    in.step = step_;
    std::vector<GuardVerdict> verdicts;
    const double allowed = apply_guards(in, level_to_khz(level, steps_, range_), verdicts);
    khz_before_ = khz_;
    if (!same_setting(KnobKind::CpuFrequency, allowed, khz_)) {
      flaps_.record(step_, allowed > khz_ ? 1 : -1);
      khz_ = allowed;
    }
    ++step_;
    before_ = now_;
    sense();
    FrequencyStep step;
    step.before = &before_;
    step.now = &now_;
    step.khz_before = khz_before_;
    step.khz_now = khz_;
    step.range = range_;
    step.gain_before = gain_;
    const Reward r = frequency_reward(rule_, step);
    gain_ = r.ips_gain;
    fill_state();
    reward_ = r.value;
    slo_preservation_ = r.slo_preservation;
    return khz_to_level(khz_, range_);
  }

 private:
  void fill_state() {
    past_.add(rule_, now_, 1);
    const StateVector s = frequency_state(rule_, now_, khz_, range_, 1, gain_, past_);
    state_.assign(s.span().begin(), s.span().end());
  }

  void sense() {
    const double angle = 2 * std::numbers::pi * (static_cast<double>(step_) + phase_) / o_.period_s;
    const double level = o_.low + (o_.high - o_.low) * (0.5 - 0.5 * std::cos(angle));
    const double demand = std::max(0.01, level * (1 + 0.08 * random_.normal()));
    const double speed = 1 / ((1 - o_.stalls) * range_.upper / khz_ + o_.stalls);  // of the highest clock's
    backlog_ = std::min(backlog_ + demand, 2.0);
    const double done = std::min(backlog_, speed), use = done / speed;
    backlog_ -= done;
    now_ = Observation{};
    now_[Signal::Instructions] = Sample::good(4e9 * done);
    now_[Signal::CpuUsage] = Sample::good(use);
    now_[Signal::RequestRate] = Sample::good(1000 * demand / o_.service_ms);
    const double busy = std::min(use, 0.98);
    now_[Signal::LatencyP99] = Sample::good(o_.service_ms / speed / (1 - busy) + 1000 * backlog_ / speed);

    FrequencyInput in;
    in.rule = &rule_;
    in.observation = &now_;
    in.khz = khz_;
    in.range = range_;
    in.steps = steps_;
    Action proposed;
    proposed.set(KnobKind::CpuFrequency, khz_);
    std::string words;
    std::vector<Alternative> alternatives;
    decide_frequency(in, proposed, words, alternatives);
    fallback_ = khz_to_level(proposed[KnobKind::CpuFrequency], range_);
  }

  FrequencyOptions o_;
  Random random_;
  Rule rule_;
  NodeCapacity node_;
  FlapRecord flaps_;
  std::vector<double> steps_;
  KnobRange range_;
  Observation now_, before_;
  double khz_ = 0, khz_before_ = 0, phase_ = 0, backlog_ = 0, reward_ = 0, slo_preservation_ = 1;
  double gain_ = std::numeric_limits<double>::quiet_NaN();
  FrequencyPast past_;
  std::uint64_t step_ = 0;
  int fallback_ = 0;
  std::vector<float> state_;
};

inline std::vector<Transition> log_of_fallback(FrequencyWorld& world, int steps, const Exploration& e,
                                               Random random) {
  std::vector<Transition> log;
  int offset = 0, hold = 0;
  for (int t = 0; t < steps; ++t) {
    Transition x;
    x.state = world.state();
    x.fallback = {static_cast<float>(world.fallback())};
    x.by_fallback = true;
    if (hold > 0) --hold;
    if (hold == 0 && world.calm() && random.uniform() < e.share / (e.hold_steps * (1 - e.share) + e.share)) {
      offset = random.uniform() < 0.5 ? -1 : 1;  // max_step of ten intervals: one level
      hold = e.hold_steps;
    }
    int level = world.fallback();
    if (hold > 0 && world.calm()) level = std::clamp(level + offset, 0, kFrequencyLevels - 1);
    x.action = {static_cast<float>(world.act(level))};
    x.reward = static_cast<float>(world.reward());
    x.next_state = world.state();
    x.next_fallback = {static_cast<float>(world.fallback())};
    log.push_back(std::move(x));
  }
  return log;
}

template <class Policy>
double mean_reward(const FrequencyOptions& options, std::uint64_t seed, int steps, Policy&& policy) {
  FrequencyWorld world(options, seed);
  for (int t = 0; t < 30; ++t) world.act(world.fallback());
  double sum = 0;
  for (int t = 0; t < steps; ++t) {
    world.act(policy(world));
    sum += world.reward();
  }
  return sum / steps;
}

}  // namespace flash::toy
