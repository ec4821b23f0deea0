// Lives of agents under flashd's own tick and flash-learner's own schedule.
#include "lab/pretrain/learning_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "agents/agent.h"
#include "core/policy_snapshot.h"
#include "lab/pretrain/adaptation.h"
#include "lab/pretrain/model_of_policy.h"
#include "lab/sim/pool.h"
#include "learner/pretrained.h"
#include "meta/shared_policy.h"
#include "policy/action_space.h"
#include "policy/observation_space.h"

namespace flash::learning_run_test {
namespace {

using ::testing::ElementsAre;

constexpr std::uint64_t kSeed = 7;

const Pool& pool() {
  static const Pool made = *make_pool({.task = Task::ResourceLimits, .pairs = 4, .seed = 4242});
  return made;
}
const Pair& pair() {
  return pool().pairs.front();
}

std::vector<Stage> stages_of(const LearningRun& life) {
  std::vector<Stage> out;
  for (const StageChange& change : life.view().stages) out.push_back(change.stage);
  return out;
}

/// Means of the episodes, which no two lives share by chance.
std::vector<double> rewards_of(LearningRun life, int episodes) {
  std::vector<double> out;
  for (int e = 0; e < episodes; ++e) out.push_back(life.live().reward);
  return out;
}

std::unique_ptr<Agent> converged(std::uint64_t seed) {
  AgentOptions a;
  a.seed = seed;
  auto agent = *Agent::create(agent_spaces(pair().task()), a);
  for (int e = 0; e < 3; ++e) live_one_episode(*agent, pair(), e, seed);
  return agent;
}

Rule without_bootstrapping() {
  Rule rule = pair().rule();
  rule.profile.bootstrap = false;
  return rule;
}

TEST(LearningRun, GoesThroughTheStagesOfTheLifeCycle) {
  // Not every policy is good enough to serve; of four pairs one is.
  std::unique_ptr<LearningRun> serving;
  for (const Pair& one : pool().pairs) {
    LearningRun life(one, one.rule(), {.seed = kSeed});
    EXPECT_EQ(life.stage(), Stage::Initialized);
    EXPECT_EQ(life.live().learned, 0);
    EXPECT_THAT(stages_of(life), ElementsAre(Stage::Initialized, Stage::Offline));
    for (int e = 1; e < 30 && life.stage() != Stage::Serving; ++e) life.live();
    if (life.stage() != Stage::Serving) continue;
    serving = std::make_unique<LearningRun>(std::move(life));
    break;
  }
  ASSERT_NE(serving, nullptr);
  const std::vector<Stage> stages = stages_of(*serving);
  ASSERT_GE(stages.size(), 2U);
  EXPECT_EQ(stages[stages.size() - 2], Stage::Online);
  const std::uint64_t offered = serving->view().snapshots.offered;
  EXPECT_GT(offered, 9U);  // while ONLINE about every ten seconds
  EXPECT_GT(serving->live().learned, 0.9);
  EXPECT_LE(serving->view().snapshots.offered, offered + 1);  // SERVING: renewed at most
}

TEST(LearningRun, IsTheSameForTheSameSeed) {
  const auto life = [](std::uint64_t seed) {
    return rewards_of(LearningRun(pair(), pair().rule(), {.seed = seed}), 6);
  };
  const std::vector<double> once = life(kSeed);
  EXPECT_EQ(life(kSeed), once);
  EXPECT_NE(life(kSeed + 1), once);
}

TEST(LearningRun, UnderTheRulesNobodyLearns) {
  LearningRun life = LearningRun::of_rule(pair(), pair().rule(), {.seed = kSeed});
  for (int e = 0; e < 3; ++e) {
    const EpisodeStats episode = life.live();
    EXPECT_EQ(episode.learned, 0);
    EXPECT_EQ(episode.explored, 0);
  }
  EXPECT_EQ(life.view().snapshots.offered, 0U);
}

TEST(LearningRun, TransferLearningBeginsFromTheGivenAgent) {
  const auto agent = converged(1);
  LearningRun life(pair(), without_bootstrapping(), agent->checkpoint(), {.seed = kSeed});
  const auto weights = agent->snapshot().actor.front().weights;
  ASSERT_NE(life.view().snapshot, nullptr);
  EXPECT_EQ(life.view().snapshot->actor.front().weights, weights);
  life.live();  // under the rules: it keeps what it came with
  EXPECT_EQ(life.stage(), Stage::Online);
  EXPECT_EQ(life.view().snapshot->actor.front().weights, weights);
  EXPECT_GT(life.live().learned, 0.9);
  EXPECT_NE(life.view().snapshot->actor.front().weights, weights);  // it goes on learning
}

TEST(LearningRun, AReplacedAgentIsInTheSeatAtOnce) {
  LearningRun life(pair(), without_bootstrapping(), converged(1)->checkpoint(), {.seed = kSeed});
  life.live();
  const auto other = converged(2);
  life.replace_agent(other->checkpoint());
  ASSERT_NE(life.view().snapshot, nullptr);
  EXPECT_EQ(life.view().snapshot->actor.front().weights, other->snapshot().actor.front().weights);
}

SharedPolicyOptions small(Conditioning conditioning) {
  SharedPolicyOptions o;
  o.task = Task::ResourceLimits;
  o.state_dim = state_dim(o.task);
  o.outputs = o.action_width = action_dim(o.task);
  o.conditioning = conditioning;
  o.encoder = {EncoderKind::Set, 4, 8, 2, 8, 1e-3};
  o.hidden = {8, 6};
  return o;
}

TEST(LearningRun, BeginsWithAPretrainedPolicyAsSoonAsItsEmbeddingIsKnown) {
  const SharedPolicy policy = *SharedPolicy::create(small(Conditioning::Embedding));
  auto model = model_of_policy(policy.checkpoint(), Task::ResourceLimits, pair().rule().reward);
  ASSERT_TRUE(model) << model.error().message();
  LearningRun life(pair(), pair().rule(), *model, without_learning({.seed = kSeed}));
  EXPECT_EQ(life.view().snapshot, nullptr);
  life.live();
  ASSERT_NE(life.view().snapshot, nullptr);
  EXPECT_EQ(life.view().snapshot->algorithm, "flash");
  EXPECT_EQ(life.view().snapshot->embedding.size(), 4U);
  const auto first = life.view().snapshot->embedding;
  life.live();
  EXPECT_NE(life.view().snapshot->embedding, first);  // of two episodes
}

TEST(ModelOfPolicy, WithoutAnEmbeddingItDecidesTheSame) {
  const SharedPolicy policy = *SharedPolicy::create(small(Conditioning::None));
  auto model = model_of_policy(policy.checkpoint(), Task::ResourceLimits, pair().rule().reward);
  ASSERT_TRUE(model) << model.error().message();
  LearningRun life(pair(), pair().rule(), *model, without_learning({.seed = kSeed}));
  life.live();
  ASSERT_NE(life.view().snapshot, nullptr);
  const CompiledPolicy same(*life.view().snapshot), own(policy.snapshot({}));
  EvaluatorScratch a, b;
  same.actor.prepare(a);
  own.actor.prepare(b);
  const std::vector<float> state(static_cast<std::size_t>(state_dim(Task::ResourceLimits)), 0.3F);
  const auto one = same.actor.evaluate(state, a), other = own.actor.evaluate(state, b);
  ASSERT_EQ(one.size(), other.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_FLOAT_EQ(one[i], other[i]);
}

TEST(ModelOfPolicy, RefusesWhatIsNoPolicy) {
  EXPECT_FALSE(model_of_policy(converged(1)->checkpoint(), Task::ResourceLimits, {}));
  const SharedPolicy policy = *SharedPolicy::create(small(Conditioning::Embedding));
  EXPECT_FALSE(model_of_policy(policy.checkpoint(), Task::CpuFrequency, {}));
}

}  // namespace
}  // namespace flash::learning_run_test
