// A toy of cpu-frequency with a known optimum: work comes at a low or a high rate, what is not done piles up.
// Ten states (backlog 0 to 4, two rates), so that value iteration gives the truth and every policy's value is
// computed exactly. The cost of a frequency shows at once, its benefit a step later.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "agents/agent.h"
#include "core/random.h"
#include "policy/action_space.h"

namespace flash {

struct FrequencyToy {
  static constexpr int kStates = 10, kLevels = kFrequencyLevels;
  using Policy = std::array<int, kStates>;
  using Values = std::array<double, kStates>;

  std::vector<double> steps;  // the machine's frequency table, kHz
  double discount = 0.99;

  static int backlog(int s) { return s / 2; }
  static bool busy(int s) { return s % 2 == 1; }
  KnobRange range() const { return {steps.front(), steps.back()}; }
  /// Where in its range the machine runs when level is asked for.
  double place(int level) const { return relative_position(level_to_khz(level, steps, range()), range()); }

  double reward(int s, int level) const {
    const double p = 0.4 + 0.6 * place(level);  // the lowest frequency is 40 % of the highest
    return 1 - 0.6 * backlog(s) / 4.0 - 0.4 * p * p * p;
  }
  struct Outcome {
    int state;
    double probability;
  };
  /// Work in units: 0.7 or 2.3 come, up to 3 are done; the backlog is rounded at random.
  std::array<Outcome, 4> outcomes(int s, int level) const {
    const double left = backlog(s) + (busy(s) ? 2.3 : 0.7) - 3 * (0.4 + 0.6 * place(level));
    const double clamped = std::clamp(left, 0.0, 4.0);
    const int low = std::min(3, static_cast<int>(clamped));
    const double up = clamped - low;
    std::array<Outcome, 4> all;
    for (int i = 0; i < 4; ++i) {
      const bool higher = i % 2 == 1, changed = i / 2 == 1;
      const int b = low + (higher ? 1 : 0);
      all[static_cast<std::size_t>(i)] = {2 * b + ((busy(s) != changed) ? 1 : 0),
                                          (higher ? up : 1 - up) * (changed ? 0.1 : 0.9)};
    }
    return all;
  }
  double backup(const Values& v, int s, int level) const {
    double q = reward(s, level);
    for (const Outcome& o : outcomes(s, level))
      q += discount * o.probability * v[static_cast<std::size_t>(o.state)];
    return q;
  }
  Values value_of(const Policy& policy) const {
    Values v{};
    for (int i = 0; i < 3000; ++i) {
      Values next;
      for (int s = 0; s < kStates; ++s)
        next[static_cast<std::size_t>(s)] = backup(v, s, policy[static_cast<std::size_t>(s)]);
      v = next;
    }
    return v;
  }
  Values optimum(Policy* best = nullptr) const {
    Values v{};
    for (int i = 0; i < 3000; ++i) {
      Values next;
      for (int s = 0; s < kStates; ++s) {
        int level = 0;
        for (int l = 1; l < kLevels; ++l)
          if (backup(v, s, l) > backup(v, s, level)) level = l;
        next[static_cast<std::size_t>(s)] = backup(v, s, level);
        if (best != nullptr) (*best)[static_cast<std::size_t>(s)] = level;
      }
      v = next;
    }
    return v;
  }
  static double mean(const Values& v) {
    double sum = 0;
    for (double x : v) sum += x / kStates;
    return sum;
  }
  /// The best that never changes the frequency.
  double best_fixed() const {
    double best = -1e9;
    for (int l = 0; l < kLevels; ++l) {
      Policy p;
      p.fill(l);
      best = std::max(best, mean(value_of(p)));
    }
    return best;
  }

  /// cpu-frequency's state: the rate shows as instructions, the backlog as CPU use.
  std::vector<float> observe(int s, int level) const {
    static constexpr float kUse[] = {0.1F, 0.4F, 0.6F, 0.8F, 1.0F};
    const float use = kUse[backlog(s)];
    std::vector<float> state = {busy(s) ? 0.3F : 0.08F, 1, use, static_cast<float>(place(level)), 1, 1, 0.5F};
    state.insert(state.end(), 4, use);
    state.insert(state.end(), 3, -1.0F);  // no objective
    return state;
  }
  int next(int s, int level, Random& random) const {
    double u = random.uniform();
    const auto all = outcomes(s, level);
    for (const Outcome& o : all) {
      if (u < o.probability) return o.state;
      u -= o.probability;
    }
    return all[0].state;
  }
};

}  // namespace flash
