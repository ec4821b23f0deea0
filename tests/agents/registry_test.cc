#include "agents/registry.h"

#include <gtest/gtest.h>

#include "tests/agents/toy_learner.h"

namespace flash::registry_test {
namespace {

constexpr AgentSpaces kSpaces[] = {{Task::ResourceLimits, 6, 2}, {Task::CpuFrequency, 14, 5}};

Transition step(const AgentSpaces& s, float reward, bool by_fallback) {
  Transition t;
  t.state.assign(static_cast<std::size_t>(s.state_dim), 0.5F);
  t.next_state = t.state;
  t.action.assign(action_form(s.task) == ActionForm::Discrete ? 1 : static_cast<std::size_t>(s.action_dim),
                  0);
  t.reward = reward;
  t.by_fallback = by_fallback;
  return t;
}

TEST(Registry, EveryNameHasARowThatMakesALearnerOfItsForms) {
  Random random(1);
  for (const AlgorithmName& name : kAlgorithms)
    for (const AgentSpaces& spaces : kSpaces) {
      if (!name.learns(action_form(spaces.task))) continue;
      const auto row = algorithm_row("x", name.name, action_form(spaces.task), name.phase);
      ASSERT_TRUE(row) << row.error().message();
      ASSERT_EQ(row->make != nullptr, name.phase == LearningPhase::Online) << name.name;
      ASSERT_EQ(row->make_offline != nullptr, name.phase == LearningPhase::Offline) << name.name;
      if (row->make == nullptr) continue;
      const auto learner = row->make(spaces, {}, random);
      ASSERT_TRUE(learner) << learner.error().message();
    }
}

TEST(Registry, EveryOfflineMethodLearnsBesideEveryLearnerThatItMayHandOverTo) {
  for (const AgentSpaces& spaces : kSpaces) {
    const ActionForm form = action_form(spaces.task);
    for (const std::string_view offline : algorithm_names(form, LearningPhase::Offline))
      for (const std::string_view online : algorithm_names(form, LearningPhase::Online)) {
        AgentOptions options;
        options.offline = offline;
        options.online = online;
        auto agent = Agent::create(spaces, options);
        ASSERT_TRUE(agent) << agent.error().message();
        for (int i = 0; i < 120; ++i) ASSERT_TRUE((*agent)->add(step(spaces, 0.1F * (i % 3), true)));
        EXPECT_EQ((*agent)->learn_offline(3).updates, 3u) << offline << ", " << online;
        EXPECT_EQ((*agent)->learn_online(2).updates, 2u) << offline << ", " << online;
        const auto valid = (*agent)->snapshot().validate(spaces.state_dim, spaces.action_dim);
        EXPECT_TRUE(valid) << valid.error().message();
      }
  }
}

TEST(Registry, AnAlgorithmIsAddedByARowAndAnAgentLearnsWithIt) {
  const RegisteredAlgorithm toy(toy::mean_row());
  for (const AgentSpaces& spaces : kSpaces) {
    AgentOptions options;
    options.online = "toy-mean";
    options.learning_starts = 1;
    auto agent = *Agent::create(spaces, options);
    // On-policy: the fallback's steps are not its own.
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(agent->add(step(spaces, 1, true)));
    EXPECT_EQ(agent->learn_offline(5).updates, 0u);
    EXPECT_EQ(agent->learn_online(5).updates, 0u);
    EXPECT_FALSE(agent->learned());
    for (std::uint64_t i = 0; i < toy::kRollout; ++i) ASSERT_TRUE(agent->add(step(spaces, 0.25F, false)));
    EXPECT_EQ(agent->learn_online(5).updates, 1u) << "one rollout, one update";
    EXPECT_TRUE(agent->learned());
    const PolicySnapshot policy = agent->snapshot();
    EXPECT_EQ(policy.algorithm, "toy-mean");
    EXPECT_EQ(policy.actor.at(0).bias.at(0), 0.25F);
    EXPECT_TRUE(policy.validate(spaces.state_dim, spaces.action_dim));

    const TensorFile saved = agent->checkpoint();
    auto other = *Agent::create(spaces, options);
    ASSERT_TRUE(other->restore(saved));
    EXPECT_EQ(other->snapshot().actor.at(0).bias.at(0), 0.25F);
    options.online.clear();
    EXPECT_FALSE((*Agent::create(spaces, options))->restore(saved)) << "it is another algorithm's";
  }
}

TEST(Registry, AnAlgorithmIsGoneWithItsRow) {
  { const RegisteredAlgorithm toy(toy::mean_row()); }
  AgentOptions options;
  options.online = "toy-mean";
  const auto agent = Agent::create(kSpaces[0], options);
  ASSERT_FALSE(agent);
  EXPECT_EQ(agent.error().message(), "online: 'toy-mean' is none of ddpg");
}

TEST(Registry, ANameWithoutARowIsRefused) {
  const Registry<AlgorithmName>::Addition alone(
      kAlgorithms, {.name = "toy-alone", .phase = LearningPhase::Offline, .continuous = true});
  AgentOptions options;
  options.offline = "toy-alone";
  const auto agent = Agent::create(kSpaces[0], options);
  ASSERT_FALSE(agent);
  EXPECT_EQ(agent.error().message(), "offline: 'toy-alone' has a name and no row");
}

}  // namespace
}  // namespace flash::registry_test
