#include "agents/ddpg.h"

#include <c10/core/GradMode.h>

namespace flash {

Ddpg make_ddpg(int state_dim, int action_dim, const DdpgOptions& options, Random& random) {
  Ddpg d;
  d.options = options;
  MlpSpec actor = relu_mlp(state_dim, options.hidden, action_dim, Activation::Tanh);
  for (LayerSpec& layer : actor.layers)
    if (layer.activation == Activation::Relu) layer.activation = options.actor_hidden;
  d.actor = make_network(std::move(actor), random, 3e-3);
  d.critic = make_network(
      relu_mlp(state_dim + action_dim, options.hidden, 1, Activation::Linear, options.critic_layer_norm),
      random, 3e-3);
  d.target_actor = copy_of(d.actor);
  d.target_critic = copy_of(d.critic);
  d.actor_adam.rate = options.actor_rate;
  d.critic_adam.rate = options.critic_rate;
  return d;
}

at::Tensor ddpg_target(const Ddpg& d, const Minibatch& b) {
  const at::NoGradGuard no_gradients;
  const at::Tensor a_tp1 = mlp(d.target_actor, b.s_tp1);
  const at::Tensor q_tp1 = mlp(d.target_critic, b.s_tp1, a_tp1);
  return b.r_tp1 + d.options.discount * q_tp1;
}

at::Tensor ddpg_critic_loss(const Ddpg& d, const Minibatch& b, const at::Tensor& target_t) {
  const at::Tensor q_t = mlp(d.critic, b.s_t, b.a_t);
  return at::mse_loss(q_t, target_t);
}

at::Tensor ddpg_actor_loss(const Ddpg& d, const Minibatch& b) {
  const at::Tensor a_t = mlp(d.actor, b.s_t);
  return -mlp_frozen(d.critic, b.s_t, a_t).mean();
}

Losses update(Ddpg& d, const Minibatch& b) {
  Losses losses;
  losses.critic = descend(d.critic, d.critic_adam, ddpg_critic_loss(d, b, ddpg_target(d, b)));
  losses.actor = descend(d.actor, d.actor_adam, ddpg_actor_loss(d, b));
  soft_update(d.target_critic, d.critic, d.options.tau);
  soft_update(d.target_actor, d.actor, d.options.tau);
  return losses;
}

std::vector<Part> parts(Ddpg& d) {
  return {{"actor", &d.actor, &d.actor_adam},
          {"critic", &d.critic, &d.critic_adam},
          {"target_actor", &d.target_actor, nullptr},
          {"target_critic", &d.target_critic, nullptr}};
}

void rescale(Ddpg& d, const Scaling& from, const Scaling& to) {
  for (Network* n : {&d.actor, &d.target_actor}) keep_function(*n, input_scale(from), input_scale(to));
  for (Network* n : {&d.critic, &d.target_critic}) {
    keep_function(*n, input_scale(from), input_scale(to));
    keep_function(*n, output_scale(from), output_scale(to));
  }
}

void DdpgLearner::update(int n, const Experience& from, UpdateSum& sum) {
  sum.repeat(n, [&] { return flash::update(ddpg, sample(from, ddpg.options.batch, false)); });
}

void DdpgLearner::policy(PolicySnapshot& p, bool online) const {
  // The target's is the mean of the last few hundred actors: it does not swing with the last minibatches.
  p.actor = to_layers(online ? ddpg.target_actor : ddpg.actor);
  p.critic = to_layers(ddpg.critic);
}

Result<std::unique_ptr<Learner>> ddpg_learner(const AgentSpaces& spaces, const AgentOptions& options,
                                              Random& random) {
  DdpgOptions d;
  d.discount = options.discount;
  return std::unique_ptr<Learner>(
      std::make_unique<DdpgLearner>(make_ddpg(spaces.state_dim, spaces.action_dim, d, random)));
}

}  // namespace flash
