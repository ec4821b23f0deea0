#include "agents/offline_td3_bc.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

namespace flash {
namespace {

/// Behaviour cloning asks for no more exactness than this, in units of the action [-1,1].
constexpr double kLeastActionScale = 0.02;
/// A state entry that moved less than this over the whole log is constant.
constexpr double kConstant = 1e-4;

std::vector<bool> constant_entries(const Replay& replay) {
  const auto n = static_cast<std::size_t>(replay.state_dim());
  std::vector<bool> constant(n, true);
  const StoredTransition first = replay.at(0);
  for (std::size_t i = 1; i < replay.size(); ++i)
    for (std::size_t k = 0; k < n; ++k)
      if (std::abs(replay.at(i).state[k] - first.state[k]) > kConstant) constant[k] = false;
  return constant;
}

}  // namespace

at::Tensor row(std::span<const float> values) {
  at::Tensor t = at::empty({1, static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), t.data_ptr<float>());
  return t;
}

at::Tensor normal_like(const at::Tensor& shape, Random& random) {
  at::Tensor t = at::empty(shape.sizes());
  float* p = t.data_ptr<float>();
  for (std::int64_t i = 0, n = t.numel(); i < n; ++i) p[i] = static_cast<float>(random.normal());
  return t;
}

void begin_at(Network& actor, std::span<const float> action) {
  float* bias = actor.parameters.data_ptr<float>() + actor.parameters.numel() -
                static_cast<std::int64_t>(action.size());
  for (std::size_t i = 0; i < action.size(); ++i) bias[i] = std::atanh(std::clamp(action[i], -0.97F, 0.97F));
}

void measure_actions(const Replay& replay, int levels, std::vector<float>& mean, std::vector<float>& scale) {
  const auto n = static_cast<std::size_t>(replay.action_size());
  std::vector<double> sum(n, 0.0), squares(n, 0.0);
  const auto count = static_cast<double>(replay.by_fallback());
  for (std::size_t i = 0; i < replay.size(); ++i)
    if (const StoredTransition t = replay.at(i); t.by_fallback)
      for (std::size_t k = 0; k < n; ++k) sum[k] += t.action[k] / count;
  for (std::size_t i = 0; i < replay.size(); ++i)
    if (const StoredTransition t = replay.at(i); t.by_fallback)
      for (std::size_t k = 0; k < n; ++k)
        squares[k] += (t.action[k] - sum[k]) * (t.action[k] - sum[k]) / count;
  const double unit = levels > 1 ? 2.0 / (levels - 1) : 1, origin = levels > 1 ? -1 : 0;
  mean.resize(n);
  scale.resize(n);
  for (std::size_t k = 0; k < n; ++k) {
    mean[k] = static_cast<float>(origin + unit * sum[k]);
    scale[k] = static_cast<float>(std::max(kLeastActionScale, unit * std::sqrt(squares[k])));
  }
}

void widen_actions(Network& critic, std::span<const float> mean, std::span<const float> scale) {
  const int inputs = critic.spec.inputs, outputs = critic.spec.layers.front().outputs;
  const int first = inputs - static_cast<int>(mean.size());
  float* w = critic.parameters.data_ptr<float>();
  float* bias = w + std::int64_t{inputs} * outputs;
  for (int o = 0; o < outputs; ++o)
    for (std::size_t i = 0; i < mean.size(); ++i) {
      float& weight = w[o * inputs + first + static_cast<int>(i)];
      weight /= scale[i];
      bias[o] -= weight * mean[i];
    }
}

void forget_inputs(Network& network, const std::vector<bool>& constant) {
  const int inputs = network.spec.inputs, outputs = network.spec.layers.front().outputs;
  float* w = network.parameters.data_ptr<float>();
  for (int o = 0; o < outputs; ++o)
    for (std::size_t i = 0; i < constant.size(); ++i)
      if (constant[i]) w[o * inputs + static_cast<int>(i)] = 0;
}

namespace {

Td3Bc beside(const Replay& replay, int levels, const Td3BcOptions& options) {
  Td3Bc td3;
  td3.options = options;
  measure_actions(replay, levels, td3.action_mean, td3.action_scale);
  td3.actor_adam.rate = options.actor_rate;
  td3.critic_adam.rate = td3.critic2_adam.rate = options.critic_rate;
  return td3;
}

}  // namespace

Td3Bc make_td3_bc(Ddpg& ddpg, const Replay& replay, int levels, const Td3BcOptions& options, Random& random) {
  Td3Bc td3 = beside(replay, levels, options);
  td3.critic2 = make_network(ddpg.critic.spec, random, 3e-3);
  const std::vector<bool> constant = constant_entries(replay);
  for (Network* critic : {&ddpg.critic, &td3.critic2}) {
    widen_actions(*critic, td3.action_mean, td3.action_scale);
    forget_inputs(*critic, constant);
  }
  forget_inputs(ddpg.actor, constant);
  begin_at(ddpg.actor, td3.action_mean);
  ddpg.target_actor = copy_of(ddpg.actor);
  ddpg.target_critic = copy_of(ddpg.critic);
  td3.target_critic2 = copy_of(td3.critic2);
  return td3;
}

Td3Bc resume_td3_bc(const Ddpg& ddpg, const Replay& replay, const Td3BcOptions& options) {
  Td3Bc td3 = beside(replay, 0, options);
  td3.critic2 = copy_of(ddpg.critic);
  td3.critic2.parameters.set_requires_grad(true);
  td3.target_critic2 = copy_of(ddpg.target_critic);
  return td3;
}

at::Tensor td3_target(const Td3Bc& td3, const Ddpg& ddpg, const Minibatch& b, Random& random) {
  const at::NoGradGuard no_gradients;
  const Td3BcOptions& o = td3.options;
  at::Tensor a_tp1 = mlp(ddpg.target_actor, b.s_tp1);
  const at::Tensor noise = (o.policy_noise * normal_like(a_tp1, random)).clamp(-o.noise_clip, o.noise_clip);
  a_tp1 = (a_tp1 + noise * row(td3.action_scale)).clamp(-1, 1);
  const at::Tensor q_tp1 =
      (mlp(ddpg.target_critic, b.s_tp1, a_tp1) + mlp(td3.target_critic2, b.s_tp1, a_tp1)) / 2;
  return b.r_tp1 + o.discount * q_tp1;
}

at::Tensor td3_bc_actor_loss(const Td3Bc& td3, const Ddpg& ddpg, const Minibatch& b, double weight) {
  const at::Tensor a_t = mlp(ddpg.actor, b.s_t);
  const at::Tensor q_t = (mlp_frozen(ddpg.critic, b.s_t, a_t) + mlp_frozen(td3.critic2, b.s_t, a_t)) / 2;
  const double lambda = td3.options.alpha / (q_t.detach().abs().mean().item<double>() + 1e-6);
  const at::Tensor away = (a_t - b.a_t) / row(td3.action_scale);
  return -lambda * q_t.mean() + weight * away.square().mean();
}

Losses update(Td3Bc& td3, Ddpg& ddpg, const Minibatch& b, double weight, Random& random) {
  Losses losses;
  const at::Tensor target_t = td3_target(td3, ddpg, b, random);
  losses.critic =
      descend(ddpg.critic, td3.critic_adam, at::mse_loss(mlp(ddpg.critic, b.s_t, b.a_t), target_t));
  descend(td3.critic2, td3.critic2_adam, at::mse_loss(mlp(td3.critic2, b.s_t, b.a_t), target_t));
  if (++td3.updates % static_cast<std::uint64_t>(td3.options.policy_delay) != 0) return losses;
  losses.actor = descend(ddpg.actor, td3.actor_adam, td3_bc_actor_loss(td3, ddpg, b, weight));
  soft_update(ddpg.target_actor, ddpg.actor, td3.options.tau);
  soft_update(ddpg.target_critic, ddpg.critic, td3.options.tau);
  soft_update(td3.target_critic2, td3.critic2, td3.options.tau);
  return losses;
}

LevelsTd3Bc make_levels_td3_bc(int levels, const Replay& replay, const DdpgOptions& shape,
                               const Td3BcOptions& options, Random& random) {
  LevelsTd3Bc l;
  l.levels = levels;
  l.ddpg = make_ddpg(replay.state_dim(), 1, shape, random);
  l.td3 = make_td3_bc(l.ddpg, replay, levels, options, random);
  return l;
}

Losses update(LevelsTd3Bc& l, Minibatch b, Random& random) {
  b.a_t = b.a_t * (2.0 / (l.levels - 1)) - 1;
  return update(l.td3, l.ddpg, b, 1, random);
}

std::vector<DenseLayer> level_scores(const LevelsTd3Bc& l) {
  std::vector<DenseLayer> layers = to_layers(l.ddpg.actor);
  DenseLayer scores{1, l.levels, {}, {}, Activation::Linear, false};
  for (int k = 0; k < l.levels; ++k) {
    const float x = 2 * static_cast<float>(k) / static_cast<float>(l.levels - 1) - 1;
    scores.weights.push_back(2 * x);
    scores.bias.push_back(-x * x);
  }
  layers.push_back(std::move(scores));
  return layers;
}

at::Tensor level_values(const LevelsTd3Bc& l, const at::Tensor& s_t) {
  constexpr double kTrusted = 1.5;  // levels from the policy's choice
  constexpr double kPerLevel = 0.2;
  const at::NoGradGuard no_gradients;
  const std::int64_t batch = s_t.size(0);
  const at::Tensor x = at::linspace(-1, 1, l.levels).view({1, l.levels});
  const at::Tensor s = s_t.repeat_interleave(l.levels, 0);
  const at::Tensor a = x.repeat({batch, 1}).view({batch * l.levels, 1});
  const auto value = [&](const at::Tensor& at_s, const at::Tensor& at_a) {
    return (mlp(l.ddpg.critic, at_s, at_a) + mlp(l.td3.critic2, at_s, at_a)) / 2;
  };
  const at::Tensor values = value(s, a).view({batch, l.levels});
  const at::Tensor chosen = mlp(l.ddpg.actor, s_t);
  const at::Tensor away = (x - chosen).abs() * ((l.levels - 1) / 2.0);
  const at::Tensor bound = value(s_t, chosen) - kPerLevel * away;
  return at::where(away.le(kTrusted), values, at::minimum(values, bound));
}

double bc_weight(const Td3BcOptions& o, std::uint64_t online_updates) {
  return std::max(0.0, 1 - static_cast<double>(online_updates) / std::max(1, o.anneal_updates));
}

void rescale(Td3Bc& td3, const Scaling& from, const Scaling& to) {
  for (Network* n : {&td3.critic2, &td3.target_critic2}) {
    keep_function(*n, input_scale(from), input_scale(to));
    keep_function(*n, output_scale(from), output_scale(to));
  }
}

namespace {

struct LimitsTd3Bc : OfflineMethod {
  Td3Bc td3;
  explicit LimitsTd3Bc(Td3Bc t) : td3(std::move(t)) {}

  Losses update(Learner& learner, const Experience& from) override {
    return flash::update(td3, *learner.actor_critic(), sample(from, td3.options.batch, false), 1,
                         from.random);
  }
  std::optional<Losses> hold(Ddpg& ddpg, const Experience& from, std::uint64_t online_updates) override {
    return flash::update(td3, ddpg, sample(from, td3.options.batch, false),
                         bc_weight(td3.options, online_updates), from.random);
  }
  void rescale(const Scaling& from, const Scaling& to) override { flash::rescale(td3, from, to); }
};

struct FrequencyTd3Bc : OfflineMethod {
  LevelsTd3Bc levels;
  Adam hand_over;
  explicit FrequencyTd3Bc(LevelsTd3Bc l) : levels(std::move(l)) {}

  Losses update(Learner& learner, const Experience& from) override {
    const Minibatch batch = sample(from, levels.td3.options.batch, false);
    const Losses losses = flash::update(levels, batch, from.random);
    learner.fit_values(batch.s_t, level_values(levels, batch.s_t), hand_over);
    return losses;
  }
  std::vector<DenseLayer> scores() const override { return level_scores(levels); }
};

}  // namespace

OfflinePair offline_td3_bc(const OfflineSite& site) {
  OfflinePair pair;
  if (site.form() == ActionForm::Discrete) {
    pair.method = std::make_unique<FrequencyTd3Bc>(
        make_levels_td3_bc(site.spaces.action_dim, site.replay, {}, {}, site.random));
    pair.learner = site.new_learner();
  } else {
    pair.learner = site.new_learner();
    pair.method = std::make_unique<LimitsTd3Bc>(
        make_td3_bc(*pair.learner->actor_critic(), site.replay, 0, {}, site.random));
  }
  return pair;
}

std::unique_ptr<OfflineMethod> hold_by_td3_bc(const Ddpg& ddpg, const Replay& replay) {
  return std::make_unique<LimitsTd3Bc>(resume_td3_bc(ddpg, replay, {}));
}

}  // namespace flash
