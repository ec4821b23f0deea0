#include "agents/offline_bcq.h"

#include <c10/core/GradMode.h>

#include <cmath>

#include "agents/offline_iql.h"
#include "agents/offline_td3_bc.h"

namespace flash {

Bcq make_bcq(const Ddpg& shape, const Replay& replay, const BcqOptions& options, Random& random) {
  const int states = replay.state_dim(), actions = replay.action_size();
  Bcq bcq;
  bcq.options = options;
  bcq.latent = 2 * actions;
  measure_actions(replay, 0, bcq.action_mean, bcq.action_scale);
  const auto critic = [&] {
    Network q = make_network(shape.critic.spec, random, 3e-3);
    widen_actions(q, bcq.action_mean, bcq.action_scale);
    return q;
  };
  // The generative model sees and makes actions in deviations from their mean.
  bcq.encoder = make_network(
      relu_mlp(states + actions, options.vae_hidden, 2 * bcq.latent, Activation::Linear), random);
  bcq.decoder =
      make_network(relu_mlp(states + bcq.latent, options.vae_hidden, actions, Activation::Linear), random);
  bcq.perturbation =
      make_network(relu_mlp(states + actions, options.hidden, actions, Activation::Tanh), random, 3e-3);
  widen_actions(bcq.perturbation, bcq.action_mean, bcq.action_scale);
  bcq.q1 = critic();
  bcq.q2 = critic();
  bcq.actor = make_network(shape.actor.spec, random, 3e-3);
  begin_at(bcq.actor, bcq.action_mean);
  bcq.target_perturbation = copy_of(bcq.perturbation);
  bcq.target_q1 = copy_of(bcq.q1);
  bcq.target_q2 = copy_of(bcq.q2);
  for (Adam* adam : {&bcq.encoder_adam, &bcq.decoder_adam, &bcq.perturbation_adam, &bcq.q1_adam, &bcq.q2_adam,
                     &bcq.actor_adam})
    adam->rate = options.rate;
  return bcq;
}

at::Tensor bcq_actions(const Bcq& bcq, const Network& perturbation, const at::Tensor& s, Random& random) {
  const double clip = bcq.options.latent_clip;
  const at::Tensor z = normal_like(at::empty({s.size(0), bcq.latent}), random).clamp(-clip, clip);
  const at::Tensor a =
      (mlp(bcq.decoder, s, z) * row(bcq.action_scale) + row(bcq.action_mean)).clamp(-1, 1).detach();
  return (a + bcq.options.perturbation * mlp(perturbation, s, a)).clamp(-1, 1);
}

Losses update(Bcq& bcq, const Minibatch& b, Random& random) {
  const BcqOptions& o = bcq.options;
  Losses losses;
  const std::int64_t batch = b.s_t.size(0), actions = b.a_t.size(1);

  // Generative model: reconstruction plus half the divergence of z from N(0,1), as the authors weigh them.
  const at::Tensor wanted = (b.a_t - row(bcq.action_mean)) / row(bcq.action_scale);
  const at::Tensor code = mlp(bcq.encoder, b.s_t, wanted);
  const at::Tensor mean = code.narrow(1, 0, bcq.latent);
  const at::Tensor log_sigma = code.narrow(1, bcq.latent, bcq.latent).clamp(-4, 4);
  const at::Tensor z = mean + log_sigma.exp() * normal_like(mean, random);
  const at::Tensor divergence = -0.5 * (1 + 2 * log_sigma - mean.square() - (2 * log_sigma).exp()).mean();
  const at::Tensor vae_loss = at::mse_loss(mlp(bcq.decoder, b.s_t, z), wanted) + 0.5 * divergence;
  descend(bcq.encoder, bcq.encoder_adam, bcq.decoder, bcq.decoder_adam, vae_loss);

  // Critics: the best of some sampled next actions, by lambda min + (1 - lambda) max of the twins (BCQ, eq.
  // 13).
  at::Tensor target_t;
  {
    const at::NoGradGuard no_gradients;
    const at::Tensor s = b.s_tp1.repeat_interleave(o.target_actions, 0);
    const at::Tensor a = bcq_actions(bcq, bcq.target_perturbation, s, random);
    const at::Tensor one = mlp(bcq.target_q1, s, a), other = mlp(bcq.target_q2, s, a);
    const at::Tensor q = o.lambda * at::minimum(one, other) + (1 - o.lambda) * at::maximum(one, other);
    target_t = b.r_tp1 + o.discount * q.view({batch, o.target_actions}).amax(1, true);
  }
  losses.critic = descend(bcq.q1, bcq.q1_adam, at::mse_loss(mlp(bcq.q1, b.s_t, b.a_t), target_t));
  descend(bcq.q2, bcq.q2_adam, at::mse_loss(mlp(bcq.q2, b.s_t, b.a_t), target_t));

  // Perturbation: up the first critic (BCQ, eq. 12).
  const at::Tensor perturbed = bcq_actions(bcq, bcq.perturbation, b.s_t, random);
  losses.actor =
      descend(bcq.perturbation, bcq.perturbation_adam, -mlp_frozen(bcq.q1, b.s_t, perturbed).mean());

  // The policy is the best of some samples; the actor learns to do the same.
  at::Tensor best;
  {
    const at::NoGradGuard no_gradients;
    const at::Tensor s = b.s_t.repeat_interleave(o.policy_actions, 0);
    const at::Tensor a = bcq_actions(bcq, bcq.perturbation, s, random);
    const at::Tensor at_best = mlp(bcq.q1, s, a).view({batch, o.policy_actions, 1}).argmax(1, true);
    best =
        a.view({batch, o.policy_actions, actions}).gather(1, at_best.expand({batch, 1, actions})).squeeze(1);
  }
  const double away = descend(bcq.actor, bcq.actor_adam,
                              ((mlp(bcq.actor, b.s_t) - best) / row(bcq.action_scale)).square().mean());
  bcq.distillation_error += 0.02 * (std::sqrt(away) - bcq.distillation_error);

  soft_update(bcq.target_perturbation, bcq.perturbation, o.tau);
  soft_update(bcq.target_q1, bcq.q1, o.tau);
  soft_update(bcq.target_q2, bcq.q2, o.tau);
  return losses;
}

DiscreteBcq make_discrete_bcq(int state_dim, int levels, const DiscreteBcqOptions& options, Random& random) {
  DiscreteBcq bcq;
  bcq.options = options;
  const auto net = [&] {
    return make_network(relu_mlp(state_dim, options.hidden, levels, Activation::Linear), random, 3e-3);
  };
  bcq.q = net();
  bcq.behaviour = net();
  bcq.scores = net();
  bcq.target_q = copy_of(bcq.q);
  for (Adam* adam : {&bcq.q_adam, &bcq.behaviour_adam, &bcq.scores_adam}) adam->rate = options.rate;
  return bcq;
}

at::Tensor constrained_argmax(const DiscreteBcq& bcq, const Network& q, const at::Tensor& s) {
  const at::NoGradGuard no_gradients;
  const at::Tensor g = at::softmax(mlp(bcq.behaviour, s), 1);
  const at::Tensor never = g.lt(bcq.options.threshold * g.amax(1, true));
  return mlp(q, s).masked_fill(never, -1e8).argmax(1, true);
}

Losses update(DiscreteBcq& bcq, const Minibatch& b) {
  Losses losses;
  at::Tensor target_t;
  {
    const at::NoGradGuard no_gradients;
    target_t = b.r_tp1 + bcq.options.discount *
                             mlp(bcq.target_q, b.s_tp1).gather(1, constrained_argmax(bcq, bcq.q, b.s_tp1));
  }
  losses.critic =
      descend(bcq.q, bcq.q_adam, at::smooth_l1_loss(mlp(bcq.q, b.s_t).gather(1, b.level_t), target_t));
  const auto imitate = [&](Network& network, Adam& adam, const at::Tensor& level) {
    return descend(network, adam, -at::log_softmax(mlp(network, b.s_t), 1).gather(1, level).mean());
  };
  imitate(bcq.behaviour, bcq.behaviour_adam, b.level_t);
  losses.actor = imitate(bcq.scores, bcq.scores_adam, constrained_argmax(bcq, bcq.q, b.s_t));
  soft_update(bcq.target_q, bcq.q, bcq.options.tau);
  return losses;
}

namespace {

struct LimitsBcq : OfflineMethod {
  Bcq bcq;
  explicit LimitsBcq(Bcq b) : bcq(std::move(b)) {}

  Losses update(Learner& learner, const Experience& from) override {
    const Losses losses = flash::update(bcq, sample(from, bcq.options.batch, false), from.random);
    Ddpg& ddpg = *learner.actor_critic();
    soft_update(ddpg.actor, bcq.actor, 1);
    soft_update(ddpg.target_actor, bcq.actor, 1);
    soft_update(ddpg.critic, bcq.q1, 1);
    soft_update(ddpg.target_critic, bcq.target_q1, 1);
    return losses;
  }
};

struct LevelsBcq : OfflineMethod {
  DiscreteBcq bcq;
  Adam hand_over;
  explicit LevelsBcq(DiscreteBcq b) : bcq(std::move(b)) {}

  Losses update(Learner& learner, const Experience& from) override {
    const Minibatch batch = sample(from, bcq.options.batch, true);
    const Losses losses = flash::update(bcq, batch);
    learner.fit_values(batch.s_t, supported_values(bcq.q, bcq.behaviour, bcq.options.threshold, batch.s_t),
                       hand_over);
    return losses;
  }
  std::vector<DenseLayer> scores() const override { return to_layers(bcq.scores); }
};

}  // namespace

OfflinePair offline_bcq(const OfflineSite& site) {
  OfflinePair pair;
  if (site.form() == ActionForm::Discrete) {
    pair.method = std::make_unique<LevelsBcq>(
        make_discrete_bcq(site.replay.state_dim(), site.spaces.action_dim, {}, site.random));
    pair.learner = site.new_learner();
  } else {
    pair.learner = site.new_learner();
    pair.method =
        std::make_unique<LimitsBcq>(make_bcq(*pair.learner->actor_critic(), site.replay, {}, site.random));
  }
  return pair;
}

}  // namespace flash
