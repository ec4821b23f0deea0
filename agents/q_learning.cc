#include "agents/q_learning.h"

#include <c10/core/GradMode.h>

namespace flash {

QLearning make_q_learning(int state_dim, int levels, const QLearningOptions& options, Random& random) {
  QLearning l;
  l.options = options;
  l.q = make_network(relu_mlp(state_dim, options.hidden, levels, Activation::Linear, options.layer_norm),
                     random, 3e-3);
  l.target_q = copy_of(l.q);
  l.adam.rate = options.rate;
  return l;
}

at::Tensor q_target(const QLearning& l, const Minibatch& b) {
  const at::NoGradGuard no_gradients;
  const at::Tensor q_tp1 = mlp(l.target_q, b.s_tp1);
  const at::Tensor chooser_tp1 = l.options.double_q ? mlp(l.q, b.s_tp1) : q_tp1;
  const at::Tensor level_tp1 = chooser_tp1.argmax(1, true);
  return b.r_tp1 + l.options.discount * q_tp1.gather(1, level_tp1);
}

at::Tensor q_loss(const QLearning& l, const Minibatch& b, const at::Tensor& target_t) {
  const at::Tensor q_t = mlp(l.q, b.s_t).gather(1, b.level_t);
  return at::huber_loss(q_t, target_t);
}

double update(QLearning& l, const Minibatch& b) {
  const double loss = descend(l.q, l.adam, q_loss(l, b, q_target(l, b)));
  soft_update(l.target_q, l.q, l.options.tau);
  return loss;
}

std::vector<Part> parts(QLearning& l) {
  return {{"q", &l.q, &l.adam}, {"target_q", &l.target_q, nullptr}};
}

void rescale(QLearning& l, const Scaling& from, const Scaling& to) {
  for (Network* n : {&l.q, &l.target_q}) {
    keep_function(*n, input_scale(from), input_scale(to));
    keep_function(*n, output_scale(from), output_scale(to));
  }
}

void QLearner::update(int n, const Experience& from, UpdateSum& sum) {
  sum.repeat(n, [&] { return Losses{flash::update(q, sample(from, q.options.batch, true)), 0}; });
}

void QLearner::policy(PolicySnapshot& p, bool online) const {
  p.actor = to_layers(online ? q.target_q : q.q);
}

void QLearner::fit_values(const at::Tensor& s_t, const at::Tensor& values, Adam& adam) {
  descend(q.q, adam, at::mse_loss(mlp(q.q, s_t), values));
  soft_update(q.target_q, q.q, 1);
}

Result<std::unique_ptr<Learner>> q_learner(const AgentSpaces& spaces, const AgentOptions& options,
                                           Random& random) {
  QLearningOptions o;
  o.double_q = options.double_q;
  o.discount = options.discount;
  return std::unique_ptr<Learner>(
      std::make_unique<QLearner>(make_q_learning(spaces.state_dim, spaces.action_dim, o, random)));
}

}  // namespace flash
