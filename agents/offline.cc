#include "agents/offline.h"

#include <algorithm>

namespace flash {

int Offline::prepare(int n, const Replay& replay, double discount, const Ddpg& ddpg, Random& random) {
  const auto data = static_cast<double>(replay.by_fallback());
  if (began_with_ == 0 || data >= kBeginAnew * static_cast<double>(began_with_)) {
    began_with_ = replay.by_fallback();
    updates_ = 0;
    next_.emplace();
    next_->scaling = measure(replay, discount);
    next_->ddpg = make_ddpg(replay.state_dim(), replay.action_size(), ddpg.options, random);
    next_->td3 = make_td3_bc(next_->ddpg, replay, {}, random);
  }
  bearable_ = std::max(1.0, kUpdatesPerTransition * data);
  return static_cast<int>(std::clamp(bearable_ - updates_, 0.0, static_cast<double>(std::max(n, 0))));
}

Losses Offline::update(const Replay& replay, Scaling& scaling, Ddpg& ddpg, Random& random, bool& renewed) {
  Ddpg& d = next_ ? next_->ddpg : ddpg;
  Td3Bc& td3 = next_ ? next_->td3 : *live_;
  const Scaling& s = next_ ? next_->scaling : scaling;
  const Minibatch batch = sample(replay, s, random, td3.options.batch, false, true);
  const Losses losses = flash::update(td3, d, batch, 1, random);
  ++updates_;
  if (next_ && updates_ >= std::min(bearable_, double(kUpdatesToTakeOver)) && finite(d.actor) &&
      finite(d.critic)) {
    ddpg = std::move(next_->ddpg);
    live_ = std::move(next_->td3);
    scaling = std::move(next_->scaling);
    next_.reset();
    renewed = in_seat_ = true;
  }
  return losses;
}

void Offline::diverged() {
  next_.reset();
  live_.reset();
  began_with_ = 0;
}

std::optional<Losses> Offline::update_online(const Replay& replay, const Scaling& scaling, Ddpg& ddpg,
                                             std::uint64_t online_updates, Random& random) {
  began_with_ = 0;  // offline learning that is asked for again begins anew
  if (!in_seat_ || replay.by_fallback() == 0) return std::nullopt;
  if (!live_) live_ = resume_td3_bc(ddpg, replay, {});
  const double weight = bc_weight(live_->options, online_updates);
  if (weight <= 0) return std::nullopt;
  return flash::update(*live_, ddpg, sample(replay, scaling, random, live_->options.batch, false), weight,
                       random);
}

void Offline::rescale(const Scaling& from, const Scaling& to) {
  if (live_) flash::rescale(*live_, from, to);
}

}  // namespace flash
