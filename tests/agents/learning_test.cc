// Each algorithm solves its toy, whose optimum is known, with several seeds. MUTATIONS.md says which broken
// updates these tests were seen to catch.
#include <gtest/gtest.h>

#include "agents/agent.h"
#include "policy/observation_space.h"
#include "policy/tasks/cpu_frequency.h"
#include "tests/agents/frequency_toy.h"
#include "tests/agents/lqr_toy.h"

namespace flash {
namespace {

constexpr int kPublish = 20;  // steps that a policy acts before the next is published

/// Acts, explores as the snapshots ask for, learns once per step, as the daemons do.
std::unique_ptr<Agent> learn_limits(LqrToy toy, std::uint64_t seed, int steps) {
  AgentOptions options;
  options.seed = seed;
  auto agent = *Agent::create({Task::ResourceLimits, toy.dimensions, toy.dimensions}, options);
  Random random(seed + 100);
  toy.random = Random(seed + 200);
  EvaluatorScratch scratch;
  std::unique_ptr<CompiledPolicy> policy;
  for (int t = 0; t < steps; ++t) {
    if (t % kPublish == 0) {
      policy = std::make_unique<CompiledPolicy>(agent->snapshot());
      policy->actor.prepare(scratch);
    }
    if (t % 100 == 0) toy.scatter();
    Transition x;
    x.state = toy.x;
    const auto a = policy->actor.evaluate(toy.x, scratch);
    for (float ai : a)
      x.action.push_back(std::clamp(
          ai + policy->snapshot.exploration.sigma * static_cast<float>(random.normal()), -1.0F, 1.0F));
    x.reward = toy.step(x.action);
    x.next_state = toy.x;
    EXPECT_TRUE(agent->add(x));
    EXPECT_TRUE(agent->learn_online(1).finite);
  }
  return agent;
}

TEST(DdpgLearns, TheLinearGainOfTheRiccatiEquation) {
  const double gain = LqrToy::gain(0.99);
  for (std::uint64_t seed : {1, 2, 3}) {
    const auto agent = learn_limits({}, seed, 4000);
    const CompiledPolicy policy(agent->snapshot());
    EvaluatorScratch scratch;
    policy.actor.prepare(scratch);
    policy.critic.prepare(scratch);
    double squared = 0, best_squared = 0;
    int n = 0;
    for (float x = -0.5F; x <= 0.51F; x += 0.1F)
      for (float y = -0.5F; y <= 0.51F; y += 0.1F) {
        const std::vector<float> s{x, y};
        const auto a = policy.actor.evaluate(s, scratch);
        for (int i = 0; i < 2; ++i, ++n) {
          const double best = -gain * s[static_cast<std::size_t>(i)];
          squared += std::pow(a[static_cast<std::size_t>(i)] - best, 2);
          best_squared += best * best;
        }
      }
    EXPECT_LT(std::sqrt(squared / n), 0.45 * std::sqrt(best_squared / n)) << "seed " << seed;
  }
}

/// `explore`: the share of steps with any level, if it is more than the snapshot asks for.
std::unique_ptr<Agent> learn_frequency(const FrequencyToy& toy, const AgentOptions& options, int steps,
                                       double explore) {
  auto agent = *Agent::create({Task::CpuFrequency, kFrequencyStateDim, FrequencyToy::kLevels}, options);
  Random random(options.seed + 100);
  EvaluatorScratch scratch;
  std::unique_ptr<CompiledPolicy> policy;
  int s = 0, level = 5;
  for (int t = 0; t < steps; ++t) {
    if (policy == nullptr || (t % kPublish == 0 && explore < 1)) {
      policy = std::make_unique<CompiledPolicy>(agent->snapshot());
      policy->actor.prepare(scratch);
    }
    if (t % 100 == 0) s = static_cast<int>(random.below(FrequencyToy::kStates));
    Transition x;
    x.state = toy.observe(s, level);
    const auto q = policy->actor.evaluate(x.state, scratch);
    level = static_cast<int>(std::max_element(q.begin(), q.end()) - q.begin());
    if (random.uniform() < std::max<double>(explore, policy->snapshot.exploration.epsilon))
      level = static_cast<int>(random.below(FrequencyToy::kLevels));
    x.action = {static_cast<float>(level)};
    x.reward = static_cast<float>(toy.reward(s, level));
    s = toy.next(s, level, random);
    x.next_state = toy.observe(s, level);
    EXPECT_TRUE(agent->add(x));
    EXPECT_TRUE(agent->learn_online(1).finite);
  }
  return agent;
}

/// What the snapshot decides in each state (the place it sees: its own last level, one fixed point is enough
/// for the toy, whose dynamics do not depend on it).
FrequencyToy::Policy decisions(const FrequencyToy& toy, const PolicySnapshot& snapshot) {
  const CompiledPolicy policy(snapshot);
  EvaluatorScratch scratch;
  policy.actor.prepare(scratch);
  FrequencyToy::Policy p;
  for (int s = 0; s < FrequencyToy::kStates; ++s) {
    int level = 5;
    for (int i = 0; i < 3; ++i) {
      const auto q = policy.actor.evaluate(toy.observe(s, level), scratch);
      level = static_cast<int>(std::max_element(q.begin(), q.end()) - q.begin());
    }
    p[static_cast<std::size_t>(s)] = level;
  }
  return p;
}

std::vector<double> table(double first, double last, int n) {
  std::vector<double> t;
  for (int i = 0; i < n; ++i) t.push_back(first + (last - first) * i / (n - 1));
  return t;
}

/// The learned policies are worth more than the best fixed frequency by `share` of what the optimum is, on
/// the machine they were learned on and on one with another frequency table: in the mean of the seeds, since
/// one seed's course follows the last bit of each product and so the processor's vector width.
void expect_solves(const std::string& algorithm, bool double_q, int steps, double explore, double share) {
  constexpr int kSeeds = 6;
  const FrequencyToy toy{table(1e6, 3e6, 11)}, other{table(1.2e6, 2.7e6, 7)};
  std::array<double, 2> sum{};
  std::array<std::string, 2> each;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    AgentOptions options;
    options.seed = seed;
    options.online = algorithm;
    options.double_q = double_q;
    options.replay_steps = steps;
    const auto agent = learn_frequency(toy, options, steps, explore);
    for (std::size_t m = 0; m < 2; ++m) {
      const FrequencyToy& machine = m == 0 ? toy : other;
      const double optimum = FrequencyToy::mean(machine.optimum()), fixed = machine.best_fixed();
      const double learned = FrequencyToy::mean(machine.value_of(decisions(machine, agent->snapshot())));
      sum[m] += (learned - fixed) / (optimum - fixed);
      each[m] += " " + std::to_string((learned - fixed) / (optimum - fixed));
    }
  }
  for (std::size_t m = 0; m < 2; ++m)
    EXPECT_GT(sum[m] / kSeeds, share) << "frequency table " << m << ", each seed's share:" << each[m];
}

TEST(QLearningLearns, TheOptimumOfValueIterationOnTwoFrequencyTables) {
  expect_solves("q-learning", true, 10000, 0, 0.7);
}
TEST(QLearningLearns, TheSameWithoutDoubleQ) {
  expect_solves("q-learning", false, 10000, 0, 0.7);
}
/// A table generalises nothing: it takes every level in every cell, and twice as many steps.
TEST(TabularQLearns, TheOptimumOfValueIterationOnTwoFrequencyTablesFromRandomLevels) {
  expect_solves("tabular-q", true, 20000, 1, 0.55);
}

}  // namespace
}  // namespace flash
