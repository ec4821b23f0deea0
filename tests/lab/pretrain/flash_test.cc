// FLASH's interface (Listing 1): what a base learner may rely on.
#include "lab/pretrain/flash.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/random.h"

namespace flash {
namespace {

MetaOptions options(EncoderKind kind) {
  MetaOptions o;
  o.encoder.kind = kind;
  o.encoder.embedding = 4;
  o.encoder.hidden = 8;
  o.encoder.fc = 8;
  o.encoder.layers = 1;
  o.initial_trajectories = 0;
  return o;
}

std::vector<Trajectory> one(std::uint64_t seed, float reward = 1) {
  Random random(seed);
  Trajectory t;
  for (int i = 0; i < 5; ++i)
    t.push_back({{static_cast<float>(random.normal()), 1}, {static_cast<float>(random.normal())}, reward});
  return {t};
}

class Flash : public testing::TestWithParam<EncoderKind> {
 protected:
  Flash() : model_(*RlModel::create(options(GetParam()))) {
    EXPECT_TRUE(model_.register_base_learner("cpu-frequency", 2, 1));
  }
  std::vector<float> embedding() { return *model_.get_embedding(); }
  RlModel model_;
  const std::vector<float> gradient_{1, -1, 0.5F, 2};
};

TEST_P(Flash, TheEmbeddingIsZeroBeforeThereIsData) {
  EXPECT_EQ(embedding(), std::vector<float>(4, 0));
}

TEST_P(Flash, TheEmbeddingIsComputedOncePerEpisode) {
  model_.toggle_meta_model_update(true);
  ASSERT_TRUE(model_.insert_traj_samples(one(1)));
  const auto first = embedding();
  EXPECT_NE(first, std::vector<float>(4, 0));
  ASSERT_TRUE(model_.insert_traj_samples(one(2)));
  EXPECT_EQ(embedding(), first);
  ASSERT_TRUE(model_.end_episode());
  EXPECT_NE(embedding(), first);
}

TEST_P(Flash, InInferenceTheParametersAreFixed) {
  ASSERT_TRUE(model_.insert_traj_samples(one(1)));
  const TensorFile before = model_.checkpoint();
  (void)embedding();
  ASSERT_TRUE(model_.add_gradient(gradient_));
  EXPECT_FALSE(model_.end_episode()->updated);
  EXPECT_EQ(encode(model_.checkpoint()), encode(before));
}

TEST_P(Flash, AnUpdateGoesDownTheAccumulatedGradient) {
  model_.toggle_meta_model_update(true);
  ASSERT_TRUE(model_.insert_traj_samples(one(1)));
  const auto value = [&](const std::vector<float>& e) {
    double v = 0;
    for (std::size_t i = 0; i < e.size(); ++i) v += e[i] * gradient_[i];
    return v;
  };
  const double before = value(embedding());
  for (int episode = 0; episode < 20; ++episode) {
    (void)embedding();
    for (int update = 0; update < 3; ++update) ASSERT_TRUE(model_.add_gradient(gradient_));
    const auto done = model_.end_episode();
    ASSERT_TRUE(done && done->updated);
    EXPECT_NEAR(done->gradient, 2.5, 1e-6);  // the mean of equal gradients is one of them
  }
  EXPECT_LT(value(embedding()), before - 0.02);
}

TEST_P(Flash, ASwitchOfPairsForgetsTheOldOne) {
  ASSERT_TRUE(model_.insert_traj_samples(one(1)));
  const auto first = embedding();
  model_.switch_pair();
  EXPECT_EQ(embedding(), std::vector<float>(4, 0));
  ASSERT_TRUE(model_.insert_traj_samples(one(2)));
  EXPECT_NE(embedding(), first);
  model_.switch_pair();
  ASSERT_TRUE(model_.insert_traj_samples(one(1)));
  EXPECT_EQ(embedding(), first);
}

TEST_P(Flash, RefusesGradientsThatDoNotFit) {
  EXPECT_FALSE(model_.add_gradient(std::vector<float>{1, 2}));
  EXPECT_FALSE(model_.add_gradient(std::vector<float>{1, 2, 3, NAN}));
}

INSTANTIATE_TEST_SUITE_P(Both, Flash, testing::Values(EncoderKind::Gru, EncoderKind::Set),
                         [](const auto& kind) { return std::string(to_string(kind.param)); });

TEST(FlashInterface, NeedsABaseLearnerFirst) {
  auto rl = *RlModel::create({});
  EXPECT_FALSE(rl.get_embedding());
  EXPECT_FALSE(rl.insert_traj_samples(one(1)));
  auto sl = *SlModel::create({});
  EXPECT_FALSE(sl.insert_data_samples({}));
  EXPECT_FALSE(sl.register_base_learner("", 3, 1));
  MetaOptions bad;
  bad.encoder.hidden = 0;
  EXPECT_FALSE(RlModel::create(bad));
}

TEST(FlashInterface, SamplesGiveAnEmbedding) {
  auto sl = *SlModel::create(options(EncoderKind::Gru));
  ASSERT_TRUE(sl.register_base_learner("resource-configuration", 2, 1));
  ASSERT_TRUE(sl.insert_data_samples(std::vector<LabelledSample>{{{1, 2}, {3}}, {{2, 1}, {4}}}));
  const auto e = sl.get_embedding();
  ASSERT_TRUE(e);
  EXPECT_NE(*e, std::vector<float>(4, 0));
}

}  // namespace
}  // namespace flash
