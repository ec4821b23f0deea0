#include "agents/offline.h"

#include <algorithm>
#include <cmath>

#include "agents/net.h"
#include "agents/offline_td3_bc.h"

namespace flash {
namespace {

/// Of what learns; target networks follow it.
bool trained_parts_finite(Learner& learner) {
  const std::vector<Part> parts = learner.parts();
  return std::all_of(parts.begin(), parts.end(),
                     [](const Part& part) { return part.adam == nullptr || finite(*part.network); });
}

}  // namespace

int Offline::prepare(int n, const Replay& replay, Random& random) {
  keep_until_ = 0;
  const auto data = static_cast<double>(replay.by_fallback());
  // Not while the last ones are in training: a slow learner would never finish.
  if (began_with_ == 0 || (!next_ && data >= kBeginAnew * static_cast<double>(began_with_))) {
    began_with_ = replay.by_fallback();
    updates_ = 0;
    next_.emplace();
    next_->scaling = measure(replay, options_.discount);
    next_->pair = method_.make_offline({spaces_, options_, online_.make, replay, random});
  }
  bearable_ = std::max(1.0, std::floor(kUpdatesPerTransition * data));
  return static_cast<int>(std::clamp(bearable_ - updates_, 0.0, static_cast<double>(std::max(n, 0))));
}

Losses Offline::update(const Replay& replay, Scaling& scaling, std::unique_ptr<Learner>& learner,
                       Random& random, bool& renewed) {
  const Losses losses =
      next_ ? next_->pair.method->update(*next_->pair.learner, {replay, next_->scaling, random, true})
            : live_->update(*learner, {replay, scaling, random, true});
  ++updates_;
  if (next_ &&
      updates_ >=
          std::min(kUpdatesPerTransition * static_cast<double>(began_with_), double(kUpdatesToTakeOver)) &&
      trained_parts_finite(*next_->pair.learner)) {
    learner = std::move(next_->pair.learner);
    live_ = std::move(next_->pair.method);
    scaling = std::move(next_->scaling);
    next_.reset();
    renewed = in_seat_ = true;
  }
  return losses;
}

void Offline::diverged() {
  keep_until_ = 0;
  next_.reset();
  live_.reset();
  began_with_ = 0;
}

void Offline::restored(bool in_seat, std::uint64_t transitions) {
  *this = Offline(spaces_, options_, method_, online_);
  in_seat_ = in_seat;
  keep_until_ = static_cast<std::size_t>(
      std::min(kBeginAnew * static_cast<double>(transitions), static_cast<double>(options_.replay_steps)));
}

std::optional<Losses> Offline::update_online(Learner& learner, const Experience& from,
                                             std::uint64_t online_updates) {
  keep_until_ = 0;  // the life cycle judges what acts: sent back to offline, it is learned anew
  Ddpg* ddpg = learner.actor_critic();
  if (ddpg == nullptr) return std::nullopt;
  began_with_ = 0;  // offline learning that is asked for again starts over
  if (!in_seat_ || from.replay.by_fallback() == 0) return std::nullopt;
  if (bc_weight({}, online_updates) <= 0) return std::nullopt;
  if (live_)
    if (const auto held = live_->hold(*ddpg, from, online_updates)) return held;
  // After BCQ, or a checkpoint: held near the data in the same way.
  live_ = hold_by_td3_bc(*ddpg, from.replay);
  return live_->hold(*ddpg, from, online_updates);
}

void Offline::rescale(const Scaling& from, const Scaling& to) {
  if (live_) live_->rescale(from, to);
  // The others learn on only after they were started over.
}

std::vector<DenseLayer> Offline::scores() const {
  return live_ ? live_->scores() : std::vector<DenseLayer>{};
}

}  // namespace flash
