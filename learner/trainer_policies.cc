// The trainer's part that publishes: which agents a policy is due for, and what is offered to them.
#include <algorithm>

#include "learner/group_learner.h"
#include "learner/trainer.h"

namespace flash {
namespace {

constexpr double kTries = 8;  // per life of a policy that was refused

bool fallback_acts(Stage stage) {
  return stage == Stage::Initialized || stage == Stage::Offline;
}

}  // namespace

/// On a slow host updates may be asked for faster than they are made: to wait for their end is to publish
/// nothing.
bool Trainer::behind(const Pupil& p, Now now) const {
  if (fallback_acts(p.learner->stage)) return p.learner->pending_offline > settings_.offline_updates;
  return p.offered && seconds(now.mono - p.offered_at) >= 2 * settings_.publish_interval_s;
}

bool Trainer::publish_due(const Pupil& p, Now now) const {
  const GroupLearner& l = *p.learner;
  if (!p.attached || !l.agent || !p.stage_known) return false;
  if (!p.pretrained()) {
    if (!l.agent->learned()) return false;
    if (l.pending_offline > 0 && !behind(p, now)) return false;  // in the middle of a burst
  }
  const bool changed = p.edition() != p.edition_at_offer;
  const double since = seconds(now.mono - p.offered_at);
  // SERVING never changes it, and what was refused may be taken later (too many offers at once, the states of
  // late): without another try it would expire, and the fallback act under the name of SERVING forever.
  if (p.refused && !changed && (p.stage != Stage::Serving || since < settings_.snapshot_lifetime_s / kTries))
    return false;
  if (!p.offered || p.refused) return true;
  return (changed && since >= settings_.publish_interval_s) || since >= settings_.snapshot_lifetime_s / 2;
}

/// The policy that one agent begins with, or the learner's: to all that it is due for, and with them to those that have an
/// older one.
void Trainer::publish(GroupLearner& l, Now now) {
  const auto due =
      std::find_if(l.pupils.begin(), l.pupils.end(), [&](const Pupil* p) { return publish_due(*p, now); });
  if (due == l.pupils.end()) return;
  if ((*due)->pretrained()) return offer(l, {*due}, now);
  std::vector<Pupil*> to;
  for (Pupil* p : l.pupils) {
    const bool older = p->attached && p->stage_known && p->edition() != p->edition_at_offer;
    if (!p->pretrained() && (older || publish_due(*p, now))) to.push_back(p);
  }
  // Each version by somebody else's turn: what is looked at per tick is bounded.
  std::rotate(to.begin(), to.begin() + static_cast<std::ptrdiff_t>(l.version % to.size()), to.end());
  offer(l, std::move(to), now);
}

OffPolicyEstimate Trainer::estimate_for(GroupLearner& l, const std::vector<Pupil*>& to) {
  if (to.front()->pretrained()) {
    l.updates_at_estimate = ~std::uint64_t{0};  // not of what was learned here
    return to.front()->beginning->policy.estimate;
  }
  if (std::any_of(to.begin(), to.end(), [](const Pupil* p) { return fallback_acts(p->stage); })) {
    // Before the policy has ever acted: what the log says about it. An unchanged policy keeps its estimate.
    if (!l.estimate.given || l.updates_at_estimate != l.updates) {
      l.estimate = l.agent->estimate();
      l.updates_at_estimate = l.updates;
      burst_ = true;
    }
  } else if (l.updates_at_estimate != l.updates) {
    l.estimate = {};
  }
  return l.estimate;
}

/// REQUIRES: one agent with a pretrained policy, or some without.
void Trainer::offer(GroupLearner& l, std::vector<Pupil*> to, Now now) {
  const OffPolicyEstimate estimate = estimate_for(l, to);
  // Whatever happens below, the next attempt waits its time.
  for (Pupil* p : to) {
    p->offered = true;
    p->offered_at = now.mono;
    p->edition_at_offer = p->edition();
  }
  const Pupil& first = *to.front();
  PolicySnapshot policy = first.pretrained() ? first.beginning->policy : l.agent->snapshot();
  policy.version = l.version + 1;
  policy.layout = l.layout;
  policy.data_steps = l.transitions;
  policy.expires = now.wall + from_seconds(settings_.snapshot_lifetime_s);
  policy.estimate = estimate;
  if (!first.pretrained())
    policy.model = policy.algorithm + ", seed " + std::to_string(settings_.seed) + ", " +
                   std::to_string(l.updates) + " updates" + (first.unfamiliar.empty() ? "" : "; ") +
                   first.unfamiliar;
  const auto not_published = [&](int priority, const std::string& why) {
    trouble(l, "not published: " + why);
    tell(priority, kMessagePolicy, l, l.trouble);
  };
  if (auto valid = policy.validate(l.layout.state_dim(), l.layout.action_dim()); !valid)
    return not_published(LOG_WARNING, valid.error().message());
  const TensorFile file = to_tensor_file(policy);
  const std::string bytes = encode(file);
  if (bytes.size() > link::kMaxOffered)
    return not_published(LOG_ERR,
                         "a policy of " + std::to_string(bytes.size()) + " bytes does not fit a message");
  // On disk before it is offered: after a crash no version is used for two policies.
  if (auto kept = checkpoints_.save_policy(l.key, file); !kept)
    return not_published(LOG_WARNING, kept.error().message());
  l.version = policy.version;
  counters_.offered += to.size();
  std::size_t room = 0;
  for (Pupil* p : to) {
    p->offered_version = l.version;
    const std::size_t name = p->announced.agent.size() + link::kNameOverhead;
    if (p == to.front() || name > room || offers_.back().agents.size() == link::kMaxOfferedTo) {
      offers_.push_back({{}, bytes});
      room = link::kMaxMessage - link::kOfferOverhead - bytes.size();
    }
    room -= name;
    offers_.back().agents.push_back(p->announced.agent);
    say_({LOG_DEBUG,
          kMessagePolicy,
          p->announced.agent + " (" + p->announced.key + "): policy " + std::to_string(l.version) +
              " offered: " + policy.model,
          {{"FLASHD_AGENT", p->announced.agent},
           {"FLASHD_KEY", p->announced.key},
           {"FLASHD_MODEL_VERSION", std::to_string(l.version)}}});
  }
}

}  // namespace flash
