// Agents as the learner knows them, and the steps that it has not stored.
#include "daemon/learner_agents.h"
#include "policy/task.h"

#include <gmock/gmock.h>

#include "tests/daemon/web_target.h"

namespace flash {
namespace {

using testing::HasSubstr;

class LearnerAgentsTest : public testing::Test {
 protected:
  std::string add(const Target& t) {
    return agents.add(t, space_layout(task_spec(t.task()), {})).announce.agent;
  }
  void decide(const Target& t, std::uint64_t seq, std::uint64_t episode = 0) {
    Decision d;
    d.seq = seq;
    d.episode = episode;
    agents.decided(t, d);
  }
  /// What the next message says.
  std::vector<link::Step> next() {
    const auto batch = agents.next_batch();
    if (batch.steps.empty()) return {};
    auto message = link::decode_down(link::join_steps(batch.steps));
    EXPECT_TRUE(message);
    return std::get<link::Steps>(*message).steps;
  }

  LearnerAgents agents;
};

TEST_F(LearnerAgentsTest, NumbersOfANameThatComesBackGoOn) {
  const std::string name = add(web());
  decide(web(), 1, 0);
  decide(web(), 2, 1);
  agents.remove(web().id);
  EXPECT_EQ(agents.present(), 0U);
  decide(web(), 3, 1);  // nobody is there
  EXPECT_EQ(agents.steps(), 2U);
  add(web());
  decide(web(), 1, 0);
  const auto steps = next();
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_EQ(steps[1].seq, 2U);
  EXPECT_EQ(steps[2].seq, 4U) << "with a gap, so that it is no transition";
  EXPECT_EQ(steps[2].episode, 2U);
}

TEST_F(LearnerAgentsTest, WhatIsStoredGoesAndWhatNobodyRecordedIsAnError) {
  const std::string name = add(web());
  for (std::uint64_t seq = 1; seq <= 3; ++seq) decide(web(), seq);
  const auto wrong = agents.stored({name, 4});
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message(), HasSubstr("the last was 3"));
  EXPECT_TRUE(*agents.stored({name, 2}));
  EXPECT_FALSE(*agents.stored({name, 2})) << "not new";
  EXPECT_FALSE(*agents.stored({"nobody", 9}));
  EXPECT_EQ(agents.trim(), 2U);
  EXPECT_EQ(agents.steps(), 1U);
  EXPECT_EQ(next().at(0).seq, 3U);
}

TEST_F(LearnerAgentsTest, EachStepIsSentOnceOverAConnectionAndWhatIsStoredNotAgain) {
  const std::string name = add(web());
  for (std::uint64_t seq = 1; seq <= 3; ++seq) decide(web(), seq);
  EXPECT_EQ(next().size(), 3U);
  agents.sent(agents.next_batch());
  EXPECT_FALSE(agents.unsent());
  decide(web(), 4);
  ASSERT_EQ(next().size(), 1U);
  EXPECT_EQ(next()[0].seq, 4U);
  ASSERT_TRUE(agents.stored({name, 2}));
  agents.trim();
  ASSERT_EQ(next().size(), 1U) << "where it was, though what was before it has gone";
  EXPECT_EQ(next()[0].seq, 4U);
  agents.restart();
  ASSERT_EQ(next().size(), 2U) << "over the next connection what is not stored";
  EXPECT_EQ(next()[0].seq, 3U);
}

TEST_F(LearnerAgentsTest, TheOldestGoFirstAndOnlyWhatWasNotStoredIsLost) {
  const std::string name = add(web());
  for (std::uint64_t seq = 1; seq <= 4; ++seq) decide(web(), seq);
  const std::size_t each = agents.bytes() / 4;
  ASSERT_TRUE(agents.stored({name, 1}));
  EXPECT_EQ(agents.shrink(2 * each), 1U) << "of the two that went the first was stored";
  ASSERT_EQ(agents.steps(), 2U);
  EXPECT_EQ(next()[0].seq, 3U);
  EXPECT_EQ(agents.shrink(2 * each), 0U);
}

TEST_F(LearnerAgentsTest, AnAgentThatIsGoneStaysUntilItsStepsAreStoredAndItWasSaid) {
  const std::string name = add(web());
  agents.find(name)->announced = true;
  decide(web(), 1);
  EXPECT_NE(agents.remove(web().id), nullptr);
  EXPECT_EQ(agents.remove(web().id), nullptr) << "it is gone already";
  EXPECT_EQ(agents.unsaid_gone(0), 0U) << "kept for its step";
  ASSERT_TRUE(agents.stored({name, 1}));
  agents.trim();
  EXPECT_NE(agents.find(name), nullptr) << "the learner knows it still";
  EXPECT_EQ(agents.unsaid_gone(0), 1U);
  agents.told_gone(name);
  EXPECT_EQ(agents.find(name), nullptr);

  add(web(2, "/other"));
  decide(web(2, "/other"), 1);
  agents.remove(web(2, "/other").id);
  agents.shrink(0);
  EXPECT_TRUE(agents.names().empty()) << "never announced, and no step left";
}

TEST_F(LearnerAgentsTest, ToldGoneOfOneThatCameBackChangesNothing) {
  const std::string name = add(web());
  agents.find(name)->announced = true;
  agents.told_gone(name);
  ASSERT_NE(agents.find(name), nullptr);
  EXPECT_TRUE(agents.find(name)->announced);
}

TEST(LearningKey, IsPrintableAndBounded) {
  EXPECT_EQ(learning_key(web()), "resource-limits:/web");
  EXPECT_EQ(learning_key(web(1, "/w\xc3\xa4\n")), "resource-limits:/w\\xc3\\xa4\\x0a");
  const std::string a = learning_key(web(1, "/" + std::string(1000, 'a')));
  const std::string b = learning_key(web(1, "/" + std::string(1001, 'a')));
  EXPECT_EQ(a.size(), link::kMaxName);
  EXPECT_NE(a, b);
  Target cpus;
  cpus.id = {TargetKind::CpuSet, 1};
  cpus.cpus = {0, 1, 2, 8};
  EXPECT_EQ(learning_key(cpus), "cpu-frequency:0-2,8");
}

}  // namespace
}  // namespace flash
