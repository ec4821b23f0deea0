// FLASH's own recipe on a small pool (label learning: fixed seeds).
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "core/json.h"
#include "lab/pretrain/flash_agent.h"
#include "lab/pretrain/flash_recipe.h"
#include "lab/pretrain/scoring.h"

namespace flash {
namespace {

/// An encoder that tests can afford; the loop around it is the same.
FlashPretraining small(int episodes) {
  FlashPretraining how;
  how.options.episodes = episodes;
  how.options.worlds = 8;
  how.options.batch = 128;
  how.options.meta.encoder = {EncoderKind::Gru, 8, 16, 1, 16, 3e-4};
  return how;
}

TEST(FlashRecipe, LearnsLimitsThatBeatChanceOnUnseenPairs) {
  const Pool pool = *make_pool({.pairs = 12, .seed = 1});
  const auto model = pretrain_flash(pool, small(64));
  ASSERT_TRUE(model) << model.error().message();
  ASSERT_TRUE(model->seen) << "the pool's embeddings are in the file";
  // Through the file, as others load it.
  const auto again = to_task_model(*decode_tensor_file(encode(to_tensor_file(*model))), "resource-limits");
  ASSERT_TRUE(again) << again.error().message();
  const Pool unseen = *make_pool({.pairs = 6, .seed = 78});
  const Scoring scoring(unseen, {3, 5, 2});
  const auto scored = scoring.one_shot("flash", *again);
  ASSERT_TRUE(scored) << scored.error().message();
  EXPECT_GT(interval_of(scored->score).mean, 0.3);
}

TEST(FlashRecipe, TheLossMovesTheEncoder) {
  const Pool pool = *make_pool({.pairs = 2, .seed = 1});
  double gradient = 0;
  FlashPretraining how = small(16);
  how.progress = [&](const FlashProgress& p) { gradient = p.gradient; };
  const auto one = pretrain_flash(pool, how);
  ASSERT_TRUE(one) << one.error().message();
  EXPECT_GT(gradient, 0);
  EXPECT_GT(one->meta.meta["updates"].get<int>(), 0);
}

TEST(FlashRecipe, AnotherPairsEmbeddingIsTheOneThatItWouldHaveAndLeavesThePresentPairAlone) {
  MetaOptions o;
  o.encoder = {EncoderKind::Gru, 8, 16, 1, 16, 3e-4};
  RlModel model = *RlModel::create(o);
  ASSERT_TRUE(model.register_base_learner("resource-limits", 2, 1));
  const Trajectory one = {{{0.1F, 0.2F}, {0.3F}, 0.4F}, {{0.5F, 0.1F}, {0.2F}, 0.9F}};
  const Trajectory other = {{{0.9F, 0.8F}, {-0.3F}, 0.1F}};
  ASSERT_TRUE(model.insert_traj_samples({&one, 1}));
  const std::vector<float> before = *model.get_embedding();
  const std::vector<float> foreign = *model.embedding_of({&other, 1});
  EXPECT_NE(foreign, before);
  EXPECT_EQ(*model.get_embedding(), before);
  EXPECT_EQ(*model.embedding_of({&one, 1}), before);
  model.switch_pair();
  ASSERT_TRUE(model.insert_traj_samples({&other, 1}));
  EXPECT_EQ(*model.get_embedding(), foreign);
}

TEST(FlashRecipe, GoesOnFromItsCheckpointAndRefusesAnotherRecipes) {
  const std::string file = ::testing::TempDir() + "flash_recipe_test.progress";
  std::filesystem::remove(file);
  const Pool pool = *make_pool({.pairs = 2, .seed = 1});
  FlashPretraining how = small(32);
  how.checkpoint = file;
  how.every_s = 0;
  ASSERT_TRUE(pretrain_flash(pool, how));
  ASSERT_TRUE(std::filesystem::exists(file));
  how.resume = file;
  int begun_at = 0;
  how.progress = [&](const FlashProgress& p) { begun_at = p.begun_at; };
  const auto resumed = pretrain_flash(pool, how);
  ASSERT_TRUE(resumed) << resumed.error().message();
  EXPECT_EQ(begun_at, 0) << "nothing was left to do, so nothing is reported";
  how.options.seed = 2;
  const auto refused = pretrain_flash(pool, how);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("seed"), std::string::npos) << refused.error().message();
  EXPECT_NE(refused.error().message().find(file), std::string::npos) << refused.error().message();
}

TEST(FlashAgent, GoesOnLearningFromTheSharedWeightsWithTheEncoderFrozen) {
  for (const Task task : {Task::ResourceLimits, Task::CpuFrequency}) {
    const Pool pool = *make_pool({.task = task, .pairs = 2, .seed = 1});
    const auto model = pretrain_flash(pool, small(16));
    ASSERT_TRUE(model) << model.error().message();
    auto agent = FlashAgent::create(*model, task, {});
    ASSERT_TRUE(agent) << agent.error().message();
    const Pool unseen = *make_pool({.task = task, .pairs = 1, .seed = 5});
    const Pair* pair = &unseen.pairs.front();
    const Recorded first = fallback_episodes({&pair, 1}, {}).front();
    std::vector<LivedEpisode> lived;
    const auto before = *FlashAgent::create(*model, task, {})->snapshot();
    const auto curve = adapt_flash(*agent, *pair, first, 2, 1, {2, 1, 1}, &lived);
    ASSERT_TRUE(curve) << curve.error().message();
    EXPECT_EQ(curve->size(), 3u);
    ASSERT_EQ(lived.size(), 2u);
    EXPECT_GT(lived[0].slo_preservation, 0);
    const auto after = *agent->snapshot();
    EXPECT_NE(after.embedding, before.embedding) << "it has seen trajectories";
    EXPECT_NE(after.actor[0].weights, before.actor[0].weights) << "the base learner went on";
    EXPECT_TRUE(after.validate(state_dim(task), action_dim(task)));
    const Task other = task == Task::ResourceLimits ? Task::CpuFrequency : Task::ResourceLimits;
    EXPECT_FALSE(FlashAgent::create(*model, other, {}));
  }
}

}  // namespace
}  // namespace flash
