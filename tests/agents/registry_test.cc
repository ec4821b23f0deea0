#include "agents/registry.h"

#include <gtest/gtest.h>

#include <cmath>

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

/// One that the policy in the seat drew.
Transition drawn(const AgentSpaces& s, float reward) {
  Transition t = step(s, reward, false);
  t.behaviour = {true, -1.5F, 0.5F};
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
    // On-policy: neither the fallback's steps are its own, nor what its policy decided without drawing it.
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(agent->add(step(spaces, 1, i % 2 == 0)));
    EXPECT_EQ(agent->learn_online(5).updates, 0u);
    EXPECT_FALSE(agent->learned());
    EXPECT_EQ(agent->learn_offline(5).updates, 5u);
    EXPECT_TRUE(agent->learned()) << "or its policy would never act";
    EXPECT_EQ(agent->snapshot().actor.at(0).bias.at(0), 1.0F);
    for (std::size_t i = 0; i < toy::kRollout; ++i) ASSERT_TRUE(agent->add(drawn(spaces, 0.25F)));
    EXPECT_EQ(agent->learn_online(5).updates, 1u) << "one rollout, one update";
    EXPECT_EQ(agent->learn_online(5).updates, 0u) << "it is used up";
    const PolicySnapshot policy = agent->snapshot();
    EXPECT_EQ(policy.algorithm, "toy-mean");
    EXPECT_EQ(policy.actor.at(0).bias.at(0), 0.25F);
    const auto valid = policy.validate(spaces.state_dim, spaces.action_dim);
    EXPECT_TRUE(valid) << valid.error().message();
    EXPECT_EQ(policy.head, action_form(spaces.task) == ActionForm::Discrete ? PolicyHead::Categorical
                                                                            : PolicyHead::Gaussian);

    const TensorFile saved = agent->checkpoint();
    auto other = *Agent::create(spaces, options);
    ASSERT_TRUE(other->restore(saved));
    EXPECT_EQ(other->snapshot().actor.at(0).bias.at(0), 0.25F);
    options.online.clear();
    EXPECT_FALSE((*Agent::create(spaces, options))->restore(saved)) << "it is another algorithm's";
  }
}

class OnlineOnly : public toy::MeanLearner {
 public:
  using MeanLearner::MeanLearner;
  OfflinePhase offline_phase() const override { return OfflinePhase::None; }
};

TEST(Registry, AnOnPolicyLearnerWithoutAnOfflinePhaseHasLearnedOnceItHasUpdated) {
  AlgorithmRow row = toy::mean_row();
  row.make = [](const AgentSpaces& spaces, const AgentOptions&, Random&) -> Result<std::unique_ptr<Learner>> {
    return std::unique_ptr<Learner>(std::make_unique<OnlineOnly>(spaces));
  };
  const RegisteredAlgorithm toy(row);
  for (const AgentSpaces& spaces : kSpaces) {
    AgentOptions options;
    options.online = "toy-mean";
    options.learning_starts = 1;
    auto agent = *Agent::create(spaces, options);
    ASSERT_TRUE(agent->add(step(spaces, 1, true)));
    EXPECT_EQ(agent->learn_offline(3).updates, 0u);
    EXPECT_FALSE(agent->learned());
    for (std::size_t i = 0; i < toy::kRollout; ++i) ASSERT_TRUE(agent->add(drawn(spaces, 0.25F)));
    EXPECT_EQ(agent->learn_online(1).updates, 1u);
    EXPECT_TRUE(agent->learned());
  }
}

TEST(Registry, AnImpossibleBehaviourIsRefused) {
  const AgentSpaces& spaces = kSpaces[1];
  auto agent = *Agent::create(spaces, {});
  ASSERT_TRUE(agent->add(drawn(spaces, 1)));
  for (const Behaviour& wrong :
       {Behaviour{true, NAN, 0}, Behaviour{true, -1, INFINITY}, Behaviour{true, 0.5F, 0}}) {
    Transition t = drawn(spaces, 1);
    t.behaviour = wrong;
    EXPECT_FALSE(agent->add(t)) << wrong.log_probability << ", " << wrong.value;
  }
  Transition t = drawn(spaces, 1);
  t.by_fallback = true;
  EXPECT_FALSE(agent->add(t)) << "the fallback draws nothing";
  EXPECT_EQ(agent->transitions(), 1u);
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
