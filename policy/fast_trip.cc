// What takes a policy out of the seat within seconds, what its target gets back, and how long policies stay
// out then. The life cycle (tick.cc) judges rewards at the end of an episode; this looks at every step, where
// a rule gives no objective that a reward could show to be missed.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "policy/control_loop_impl.h"
#include "policy/explain.h"
#include "policy/knob_policy.h"

namespace flash {
namespace {

constexpr Duration kRestoring = std::chrono::seconds(60);     // what is not back by then is the rules' affair
constexpr Duration kLongestOut = std::chrono::hours(24 * 7);  // as backoff_s may be
constexpr double kAccountStep_s = 0.99;
constexpr std::size_t kRemembered = 1024;  // targets that left with policies out

/// Less than the rules asked for was in force, and the policy had wanted it so.
bool gave_less(const ManagedAgent& a, const Decision& before, const KnobView& k) {
  if (k.lease != LeaseState::Ours || before.explored) return false;
  if (!a.rules_asked.has(k.kind) || !a.in_force.has(k.kind) || !before.proposed.has(k.kind)) return false;
  const double asked = a.rules_asked[k.kind];
  const auto less = [&](double value) { return value < asked && !same_setting(k.kind, value, asked); };
  return less(a.in_force[k.kind]) && less(before.proposed[k.kind]);
}

/// Of all instances of a limit the worst.
Blame blame_for(const ManagedAgent& a, const Decision& before, std::span<const KnobView> knobs,
                const LimitedResource& row) {
  Blame blame;
  for (const KnobView& k : knobs) {
    if (k.kind.kind != row.knob || !gave_less(a, before, k)) continue;
    blame.less = true;
    if (!a.rules_gave.has(k.kind)) continue;
    const double rules = row.effective(a.rules_gave[k.kind], a.capacity);
    const double now_in_force = row.effective(a.in_force[k.kind], a.capacity);
    if (rules > 0) blame.taken = std::max(blame.taken, std::clamp(1 - now_in_force / rules, 0.0, 1.0));
  }
  return blame;
}

std::string key_of(const ManagedAgent& a) {
  return a.rule->name + '\n' + a.target.name;
}

}  // namespace

void ControlLoop::Impl::change_stage(ManagedAgent& a, Decision& d, Stage next, std::string why, Now now) {
  if (next == Stage::Offline && a.stage != Stage::Initialized) {
    a.failed_version = a.seat.accepted_version();
    a.good_episodes = 0;
  }
  if (!d.notes.empty()) d.notes += ' ';
  d.notes += "The stage went from ";
  d.notes.append(to_string(a.stage)).append(" to ").append(to_string(next));
  d.notes.append(": ").append(why).append(".");
  a.stage = next;
  a.stage_episodes = 0;
  if (a.stages.size() >= AgentView::kStagesKept) a.stages.erase(a.stages.begin());
  a.stages.push_back({next, now.wall, std::move(why)});
  a.change.stage = true;
  // The fallback's rewards must not vouch for the learned policy: R starts over with the stage.
  a.proof.clear();
  a.unjudged = 0;
  a.trip.clear();
}

void ControlLoop::Impl::watch_policy(ManagedAgent& a, Decision& d, std::span<const KnobView> knobs, Now now) {
  const double elapsed = a.watched_at ? std::max(0.0, seconds(now.mono - *a.watched_at)) : 0;
  a.watched_at = now.mono;
  a.contention = {};
  if (!a.spec->contention || a.history.size() < 2) return;
  const Decision& before = a.history[a.history.size() - 2];
  a.contention = contention(*a.rule, a.capacity, d.observation, a.in_force);
  // A second, however many ticks it has: else a policy would be held after some fifths of one, before it can
  // be told whether it is to be out.
  if (a.missed_of_s >= kAccountStep_s) a.missed_s = a.missed_of_s = 0;
  if (a.contention.known) {
    a.missed_of_s += elapsed;
    if (a.contention.violation) a.missed_s += elapsed;
  }
  restored(a, now);
  const bool learned = a.in_control && a.controller == Controller::Learned;
  if (!learned) {
    a.trip.clear();
    if (!a.restore.empty()) return;  // what the policy left is no more usual than what it did
    a.rules_gave = a.in_force;
    if (a.in_control) a.trip.rules(a.contention);
    return;
  }
  if (a.hurts > 0) {
    a.good_s += elapsed;
    if (a.good_s >= forgiven_after_s(a.hurts, a.rule->contention.backoff_s)) {
      --a.hurts;
      a.good_s = 0;
    }
  }
  // Held to what the rules ask for it proves nothing, for or against it.
  if (a.rule->slo.given() || a.held_to_rules) return;
  PerLimit<Blame> blame;
  for (std::size_t i = 0; i < limited_resources.size(); ++i)
    blame[i] = blame_for(a, before, knobs, limited_resources[i]);
  if (!a.trip.policy(a.contention, a.rule->contention, blame, elapsed)) return;
  std::string why;
  appendf(why,
          "the policy (version %llu) hurt: ", static_cast<unsigned long long>(a.seat.accepted_version()));
  why += a.trip.explain();
  take_out(a, d, std::move(why), now);
}

/// What stands for the objective goes into the account of who missed it, once a second.
void ControlLoop::Impl::account_contention(ManagedAgent& a) {
  if (a.missed_of_s >= kAccountStep_s) a.objective.step(2 * a.missed_s >= a.missed_of_s, a.held_to_rules);
}

/// Out, and for longer each time: a learner that offers a "new" policy after each that hurt must not be back
/// as often as it likes.
void ControlLoop::Impl::take_out(ManagedAgent& a, Decision& d, std::string why, Now now) {
  ++a.hurts;
  a.good_s = 0;
  const double out = backoff_s(a.hurts, a.rule->contention.backoff_s);
  a.out_until = now.mono + from_seconds(out);
  a.restore = {};
  bool first = true;
  a.in_force.each([&](const KnobId& knob, double in_force) {
    if (std::find(a.spec->knobs.begin(), a.spec->knobs.end(), knob.kind) == a.spec->knobs.end()) return;
    double level = a.rules_asked.has(knob) ? a.rules_asked[knob] : 0;
    if (a.rules_gave.has(knob)) level = std::max(level, a.rules_gave[knob]);
    if (!(level > in_force)) return;
    a.restore.set(knob, level);
    why += first ? "; it gave " : " and ";
    append_value(why, knob, in_force);
    why += " where the rules had ";
    append_value(why, knob, level);
    first = false;
  });
  a.restore_until = now.mono + kRestoring;
  appendf(why, "; policies are out for %.0f s (time %llu)", out, static_cast<unsigned long long>(a.hurts));
  change_stage(a, d, Stage::Offline, std::move(why), now);
}

/// What is in force again, or cannot be brought back, is not asked for any longer.
void ControlLoop::Impl::restored(ManagedAgent& a, Now now) {
  if (a.restore.empty()) return;
  Action left;
  a.restore.each([&](const KnobId& knob, double wanted) {
    const double level = std::min(wanted, a.restore_most.has(knob) ? a.restore_most[knob] : wanted);
    const bool there =
        a.in_force.has(knob) && (a.in_force[knob] >= level || same_setting(knob, a.in_force[knob], level));
    if (!there && now.mono < a.restore_until) left.set(knob, wanted);
  });
  a.restore = std::move(left);
}

/// The rules go on from where the policy found them, not from where it left them.
void ControlLoop::Impl::bring_back(ManagedAgent& a, Decision& d, std::span<const KnobView> knobs) {
  if (a.restore.empty()) return;
  a.restore_most = {};
  for (const KnobView& k : knobs) {
    if (!a.restore.has(k.kind)) continue;
    const double level = std::min(a.restore[k.kind], knob_range(*a.rule, k, a.capacity).upper);
    a.restore_most.set(k.kind, level);
    if (d.proposed.has(k.kind) && d.proposed[k.kind] >= level) continue;
    d.proposed.set(k.kind, level);
    d.explanation.append(d.explanation.empty() ? "" : " ").append("Back to ");
    append_value(d.explanation, k.kind, level);
    d.explanation += ", as under the rules before the policy that hurt.";
  }
}

void ControlLoop::Impl::remember(const ManagedAgent& a) {
  if (a.hurts == 0 && a.failures == 0) return;
  if (remembered.size() >= kRemembered) {
    // Whose time is over first is forgotten first.
    const auto least = std::min_element(remembered.begin(), remembered.end(), [](auto& x, auto& y) {
      return x.second.out_until < y.second.out_until;
    });
    remembered.erase(least);
  }
  remembered[key_of(a)] = {a.hurts, a.failures, a.out_until};
}

std::vector<HurtRecord> ControlLoop::hurts() const {
  std::vector<HurtRecord> all;
  const auto wall = [this](Duration mono) {
    return mono == Duration{} ? WallTime{} : impl_->last_tick + (mono - impl_->last_mono);
  };
  for (const auto& a : impl_->agents)
    if (a->hurts > 0 || a->failures > 0)
      all.push_back({a->rule->name, a->target.name, a->hurts, a->failures, wall(a->out_until)});
  for (const auto& [key, r] : impl_->remembered) {
    const auto end = key.find('\n');
    all.push_back({key.substr(0, end), key.substr(end + 1), r.hurts, r.failures, wall(r.out_until)});
  }
  return all;
}

void ControlLoop::recall_hurts(Now now, std::span<const HurtRecord> records) {
  for (const HurtRecord& r : records) {
    if (impl_->remembered.size() >= kRemembered) return;
    // A clock that was wrong must not keep policies out forever.
    const Duration left = std::clamp(r.out_until - now.wall, Duration{}, kLongestOut);
    impl_->remembered[r.rule + '\n' + r.target] = {r.hurts, r.failures,
                                                   left > Duration{} ? now.mono + left : Duration{}};
  }
}

/// A target that was created again (a restarted container) is no new chance for policies that hurt it.
void ControlLoop::Impl::recall(ManagedAgent& a) {
  const auto found = remembered.find(key_of(a));
  if (found == remembered.end()) return;
  a.hurts = found->second.hurts;
  a.failures = found->second.failures;
  a.out_until = found->second.out_until;
  remembered.erase(found);
}

}  // namespace flash
