// Pairs that differ only in what the state does not show: a learner conditioned on the embedding must beat
// the same learner without, on pairs that it never saw.
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "agents/net.h"
#include "core/json.h"
#include "lab/pretrain/flash.h"

namespace flash {
namespace {

constexpr int kSteps = 12, kEmbedding = 4;

/// Two families: reward 1 - (a - c s)^2 with a slope c around 1 or around -1, the pair's own. Which one holds
/// is in the rewards of past steps alone; states and actions of exploration are the same noise in both.
struct Pair {
  double slope;

  double best(double s) const { return slope * s; }
  Trajectory explore(Random& random) const {
    Trajectory t;
    for (int i = 0; i < kSteps; ++i) {
      const double s = random.uniform(-1, 1), a = s + random.uniform(-0.3, 0.3), off = a - best(s);
      t.push_back({{static_cast<float>(s)}, {static_cast<float>(a)}, static_cast<float>(1 - off * off)});
    }
    return t;
  }
};

Pair draw(Random& random) {
  const double size = random.uniform(0.7, 1);
  return {random.uniform() < 0.5 ? size : -size};
}

/// Mean reward that the policy a = f(s, e) loses against the best.
struct Learner {
  Network policy;
  Adam adam;
  at::Tensor states(Random& random) const {
    at::Tensor s = at::empty({64, 1});
    for (int i = 0; i < 64; ++i) s.data_ptr<float>()[i] = static_cast<float>(random.uniform(-1, 1));
    return s;
  }
  at::Tensor loss(const Pair& pair, const at::Tensor& s, const at::Tensor& e) const {
    const at::Tensor a = mlp(policy, s, e.expand({s.size(0), kEmbedding}).contiguous());
    return (a - pair.slope * s).square().mean();
  }
};

double unseen_loss(EncoderKind kind, bool conditioned) {
  // Sequences teach more slowly than sets: what tells these pairs apart does not depend on the order.
  const int episodes = kind == EncoderKind::Gru ? 1500 : 600;
  MetaOptions options;
  options.encoder.kind = kind;
  options.encoder.embedding = kEmbedding;
  options.encoder.hidden = 32;
  options.encoder.layers = 1;
  options.encoder.fc = 16;
  options.encoder.learning_rate = 3e-3;
  options.trajectories = 4;
  options.initial_trajectories = 0;
  auto meta = *RlModel::create(options);
  EXPECT_TRUE(meta.register_base_learner("toy", 1, 1));
  meta.toggle_meta_model_update(true);
  Random random(11);
  Learner learner{make_network(relu_mlp(1 + kEmbedding, {32, 32}, 1, Activation::Linear), random), {}};
  learner.adam.rate = 3e-3;
  const auto embedding = [&] {
    const std::vector<float> e = conditioned ? *meta.get_embedding() : std::vector<float>(kEmbedding, 0);
    at::Tensor t = at::empty({1, kEmbedding});
    std::copy(e.begin(), e.end(), t.data_ptr<float>());
    return t;
  };
  const auto meet = [&](const Pair& pair) {
    meta.switch_pair();
    EXPECT_TRUE(
        meta.insert_traj_samples(std::vector<Trajectory>{pair.explore(random), pair.explore(random)}));
  };
  for (int episode = 0; episode < episodes; ++episode) {
    const Pair pair = draw(random);
    meet(pair);
    at::Tensor e = embedding();
    e.set_requires_grad(true);
    for (int update = 0; update < 2; ++update) {
      const at::Tensor loss = learner.loss(pair, learner.states(random), e);
      const auto g = torch::autograd::grad({loss}, {e}, {}, true)[0].contiguous();
      EXPECT_TRUE(meta.add_gradient({g.data_ptr<float>(), kEmbedding}));
      descend(learner.policy, learner.adam, loss);
    }
    EXPECT_TRUE(meta.end_episode());
  }
  meta.toggle_meta_model_update(false);
  Random unseen(77);
  double sum = 0;
  constexpr int kPairs = 40;
  const c10::AutoGradMode inference(false);
  for (int i = 0; i < kPairs; ++i) {
    const Pair pair = draw(unseen);
    meet(pair);
    sum += learner.loss(pair, learner.states(unseen), embedding()).item<double>();
  }
  return sum / kPairs;
}

class MetaLearning : public testing::TestWithParam<EncoderKind> {};

TEST_P(MetaLearning, TheEmbeddingBeatsTheSharedLearnerOnUnseenPairs) {
  const double shared = unseen_loss(GetParam(), false), conditioned = unseen_loss(GetParam(), true);
  std::printf("loss on unseen pairs: shared %.3f, with embedding %.3f\n", shared, conditioned);
  EXPECT_GT(shared, 0.2);  // slopes of both signs: the best that one policy can do is about 0.24
  EXPECT_LT(conditioned, shared / 3);
}

INSTANTIATE_TEST_SUITE_P(Both, MetaLearning, testing::Values(EncoderKind::Gru, EncoderKind::Set),
                         [](const auto& kind) { return std::string(to_string(kind.param)); });

}  // namespace
}  // namespace flash
