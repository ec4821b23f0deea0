#include "agents/offline_iql.h"

#include <c10/core/GradMode.h>

namespace flash {
namespace {

at::Tensor smaller_q(const Iql& iql, const Minibatch& b) {
  const at::NoGradGuard no_gradients;
  return at::minimum(mlp(iql.target_q1, b.s_t), mlp(iql.target_q2, b.s_t)).gather(1, b.level_t);
}

/// How far below the least supported value an unsupported level is set, in deviations of the reward.
constexpr double kBelowSupport = 0.5;

/// How likely, relative to the favourite, a level must be for its value to go over to Q-learning.
constexpr double kIqlSupport = 0.1;

}  // namespace

Iql make_iql(int state_dim, int levels, const IqlOptions& options, Random& random) {
  Iql iql;
  iql.options = options;
  const auto net = [&](int outputs) {
    return make_network(relu_mlp(state_dim, options.hidden, outputs, Activation::Linear), random, 3e-3);
  };
  iql.q1 = net(levels);
  iql.q2 = net(levels);
  iql.v = net(1);
  iql.scores = net(levels);
  iql.target_q1 = copy_of(iql.q1);
  iql.target_q2 = copy_of(iql.q2);
  for (Adam* adam : {&iql.q1_adam, &iql.q2_adam, &iql.v_adam, &iql.scores_adam}) adam->rate = options.rate;
  return iql;
}

at::Tensor iql_value_loss(const Iql& iql, const Minibatch& b) {
  const at::Tensor u = smaller_q(iql, b) - mlp(iql.v, b.s_t);
  const at::Tensor weight = (iql.options.expectile - u.detach().lt(0).to(at::kFloat)).abs();
  return (weight * u.square()).mean();
}

at::Tensor iql_q_loss(const Iql& iql, const Network& q, const Minibatch& b) {
  at::Tensor target_t;
  {
    const at::NoGradGuard no_gradients;
    target_t = b.r_tp1 + iql.options.discount * mlp(iql.v, b.s_tp1);
  }
  return at::mse_loss(mlp(q, b.s_t).gather(1, b.level_t), target_t);
}

at::Tensor iql_policy_loss(const Iql& iql, const Minibatch& b) {
  at::Tensor weight;
  {
    const at::NoGradGuard no_gradients;
    weight = (iql.options.temperature * (smaller_q(iql, b) - mlp(iql.v, b.s_t))).exp();
    weight = weight.clamp_max(iql.options.most_weight);
  }
  const at::Tensor log_pi = at::log_softmax(mlp(iql.scores, b.s_t), 1).gather(1, b.level_t);
  return -(weight * log_pi).mean();
}

Losses update(Iql& iql, const Minibatch& b) {
  Losses losses;
  descend(iql.v, iql.v_adam, iql_value_loss(iql, b));
  losses.actor = descend(iql.scores, iql.scores_adam, iql_policy_loss(iql, b));
  losses.critic = descend(iql.q1, iql.q1_adam, iql_q_loss(iql, iql.q1, b));
  descend(iql.q2, iql.q2_adam, iql_q_loss(iql, iql.q2, b));
  soft_update(iql.target_q1, iql.q1, iql.options.tau);
  soft_update(iql.target_q2, iql.q2, iql.options.tau);
  return losses;
}

at::Tensor supported_values(const Network& q, const Network& scores, double support, const at::Tensor& s_t) {
  const at::NoGradGuard no_gradients;
  const at::Tensor pi = at::softmax(mlp(scores, s_t), 1);
  const at::Tensor supported = pi.ge(support * pi.amax(1, true));
  const at::Tensor values = mlp(q, s_t);
  const at::Tensor least = values.masked_fill(supported.logical_not(), 1e6).amin(1, true) - kBelowSupport;
  return at::where(supported, values, at::minimum(values, least.expand_as(values)));
}

namespace {

struct LevelsIql : OfflineMethod {
  Iql iql;
  Adam hand_over;
  explicit LevelsIql(Iql i) : iql(std::move(i)) {}

  Losses update(Learner& learner, const Experience& from) override {
    const Minibatch batch = sample(from, iql.options.batch, true);
    const Losses losses = flash::update(iql, batch);
    learner.fit_values(batch.s_t, supported_values(iql.q1, iql.scores, kIqlSupport, batch.s_t), hand_over);
    return losses;
  }
  std::vector<DenseLayer> scores() const override { return to_layers(iql.scores); }
};

}  // namespace

OfflinePair offline_iql(const OfflineSite& site) {
  OfflinePair pair;
  pair.method =
      std::make_unique<LevelsIql>(make_iql(site.replay.state_dim(), site.spaces.action_dim, {}, site.random));
  pair.learner = site.new_learner();
  return pair;
}

}  // namespace flash
