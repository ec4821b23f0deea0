#include "agents/offline.h"

#include <algorithm>
#include <cmath>

namespace flash {
namespace {

/// How likely, relative to the favourite, a level must be for its value to go over to Q-learning.
constexpr double kIqlSupport = 0.1;

bool all_finite(OnlineLearner& learner) {
  if (auto* ddpg = std::get_if<Ddpg>(&learner)) return finite(ddpg->actor) && finite(ddpg->critic);
  return finite(std::get<QLearning>(learner).q);
}

void put_into(Ddpg& ddpg, const Bcq& bcq) {
  soft_update(ddpg.actor, bcq.actor, 1);
  soft_update(ddpg.target_actor, bcq.actor, 1);
  soft_update(ddpg.critic, bcq.q1, 1);
  soft_update(ddpg.target_critic, bcq.target_q1, 1);
}

void put_into(QLearning& q, Adam& adam, const at::Tensor& values, const at::Tensor& s_t) {
  descend(q.q, adam, at::mse_loss(mlp(q.q, s_t), values));
  soft_update(q.target_q, q.q, 1);
}

}  // namespace

int Offline::prepare(int n, const Replay& replay, const OnlineLearner& learner, Random& random) {
  const auto data = static_cast<double>(replay.by_fallback());
  // Not while the last ones are in training: a slow learner would never finish.
  if (began_with_ == 0 || (!next_ && data >= kBeginAnew * static_cast<double>(began_with_))) {
    began_with_ = replay.by_fallback();
    updates_ = 0;
    next_.emplace();
    next_->scaling = measure(replay, options_.discount);
    if (const auto* ddpg = std::get_if<Ddpg>(&learner)) {
      Ddpg made = make_ddpg(replay.state_dim(), replay.action_size(), ddpg->options, random);
      if (options_.limits_offline == "bcq")
        next_->method = make_bcq(made, replay, {}, random);
      else
        next_->method = make_td3_bc(made, replay, 0, {}, random);
      next_->learner = std::move(made);
    } else {
      const auto& q = std::get<QLearning>(learner);
      const int levels = q.q.spec.outputs();
      if (options_.frequency_offline == "bcq")
        next_->method = make_discrete_bcq(replay.state_dim(), levels, {}, random);
      else if (options_.frequency_offline == "td3+bc")
        next_->method = make_levels_td3_bc(levels, replay, {}, {}, random);
      else
        next_->method = make_iql(replay.state_dim(), levels, {}, random);
      next_->learner = make_q_learning(replay.state_dim(), levels, q.options, random);
    }
    hand_over_ = Adam{};
  }
  bearable_ = std::max(1.0, std::floor(kUpdatesPerTransition * data));
  return static_cast<int>(std::clamp(bearable_ - updates_, 0.0, static_cast<double>(std::max(n, 0))));
}

Losses Offline::update_method(Method& method, OnlineLearner& learner, Adam& hand_over, const Replay& replay,
                              const Scaling& scaling, Random& random) {
  const auto draw = [&](int batch, bool levels) {
    return sample(replay, scaling, random, batch, levels, true);
  };
  if (auto* td3 = std::get_if<Td3Bc>(&method))
    return flash::update(*td3, std::get<Ddpg>(learner), draw(td3->options.batch, false), 1, random);
  if (auto* bcq = std::get_if<Bcq>(&method)) {
    const Losses losses = flash::update(*bcq, draw(bcq->options.batch, false), random);
    put_into(std::get<Ddpg>(learner), *bcq);
    return losses;
  }
  auto& q = std::get<QLearning>(learner);
  if (auto* td3 = std::get_if<LevelsTd3Bc>(&method)) {
    const Minibatch batch = draw(td3->td3.options.batch, false);
    const Losses losses = flash::update(*td3, batch, random);
    put_into(q, hand_over, level_values(*td3, batch.s_t), batch.s_t);
    return losses;
  }
  if (auto* iql = std::get_if<Iql>(&method)) {
    const Minibatch batch = draw(iql->options.batch, true);
    const Losses losses = flash::update(*iql, batch);
    put_into(q, hand_over, supported_values(iql->q1, iql->scores, kIqlSupport, batch.s_t), batch.s_t);
    return losses;
  }
  auto& bcq = std::get<DiscreteBcq>(method);
  const Minibatch batch = draw(bcq.options.batch, true);
  const Losses losses = flash::update(bcq, batch);
  put_into(q, hand_over, supported_values(bcq.q, bcq.behaviour, bcq.options.threshold, batch.s_t), batch.s_t);
  return losses;
}

Losses Offline::update(const Replay& replay, Scaling& scaling, OnlineLearner& learner, Random& random,
                       bool& renewed) {
  Losses losses;
  if (next_) {
    losses = update_method(next_->method, next_->learner, hand_over_, replay, next_->scaling, random);
  } else {
    losses = update_method(live_, learner, hand_over_, replay, scaling, random);
  }
  ++updates_;
  if (next_ &&
      updates_ >=
          std::min(kUpdatesPerTransition * static_cast<double>(began_with_), double(kUpdatesToTakeOver)) &&
      all_finite(next_->learner)) {
    learner = std::move(next_->learner);
    live_ = std::move(next_->method);
    scaling = std::move(next_->scaling);
    next_.reset();
    renewed = in_seat_ = true;
  }
  return losses;
}

void Offline::diverged() {
  next_.reset();
  live_ = {};
  began_with_ = 0;
}

std::optional<Losses> Offline::update_online(const Replay& replay, const Scaling& scaling, Ddpg& ddpg,
                                             std::uint64_t online_updates, Random& random) {
  began_with_ = 0;  // offline learning that is asked for again starts over
  if (!in_seat_ || replay.by_fallback() == 0) return std::nullopt;
  if (bc_weight({}, online_updates) <= 0) return std::nullopt;
  // After BCQ, or a checkpoint: held near the data in the same way.
  if (!std::holds_alternative<Td3Bc>(live_)) live_ = resume_td3_bc(ddpg, replay, {});
  auto& td3 = std::get<Td3Bc>(live_);
  return flash::update(td3, ddpg, sample(replay, scaling, random, td3.options.batch, false),
                       bc_weight(td3.options, online_updates), random);
}

void Offline::rescale(const Scaling& from, const Scaling& to) {
  if (auto* td3 = std::get_if<Td3Bc>(&live_)) flash::rescale(*td3, from, to);
  // The others learn on only after they were started over.
}

std::vector<DenseLayer> Offline::scores() const {
  if (const auto* td3 = std::get_if<LevelsTd3Bc>(&live_)) return level_scores(*td3);
  if (const auto* iql = std::get_if<Iql>(&live_)) return to_layers(iql->scores);
  if (const auto* bcq = std::get_if<DiscreteBcq>(&live_)) return to_layers(bcq->scores);
  return {};
}

}  // namespace flash
