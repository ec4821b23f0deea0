#include "policy/exploration.h"

#include <algorithm>
#include <cmath>

#include "core/policy_head.h"
#include "policy/explain.h"
#include "policy/knob_policy.h"
#include "policy/learning_view.h"
#include "policy/reward.h"

namespace flash {
namespace {

/// A smaller variation shows nothing above the noise of the load.
constexpr double kLeastShare = 0.3;
constexpr double kEager = 2;
/// What is less likely was not drawn but made by rounding under a narrow distribution.
constexpr double kLeastLogProbability = -1000;

const KnobContext* find(std::span<const KnobContext> contexts, const KnobId& kind) {
  for (const KnobContext& c : contexts)
    if (c.knob == kind) return &c;
  return nullptr;
}

bool writable(const ExplorationInput& in, const KnobId& kind) {
  for (const KnobView& k : in.knobs)
    if (k.kind == kind) return k.writable && k.current.usable();
  return false;
}

bool flaps_left(const ExplorationInput& in, const KnobId& kind) {
  const GuardOptions& g = in.rule->guards;
  const FlapRecord* flaps = in.flaps->find(kind);
  const int used = flaps ? flaps->reversals(in.step, g.flap_window_steps) : 0;
  // Out and back.
  return used + 2 + kFlapReserve <= g.flap_budget;
}

/// Room in the range, and for going out and coming back.
bool may_move(const ExplorationInput& in, const KnobContext& c, const Action& proposed) {
  return proposed.has(c.knob) && in.current.has(c.knob) && std::isfinite(proposed[c.knob]) &&
         std::isfinite(in.current[c.knob]) && std::isfinite(c.upper) && c.upper > c.lower &&
         writable(in, c.knob) && flaps_left(in, c.knob);
}

/// Does the target keep room at this lower value?
bool may_go_down(const ExplorationInput& in, const KnobId& kind, double value) {
  const Observation& o = *in.observation;
  const Slo& slo = in.rule->slo;
  const Sample& p99 = o[Signal::LatencyP99];
  const double of_slo = slo.latency_p99_ms && p99.usable() ? p99.value / *slo.latency_p99_ms : 0;
  if (const LimitedResource* const limit = limited_resource(kind)) return limit->keeps_room(o, value, of_slo);
  const double khz = in.current[kind];
  if (!(khz > 0) || !o[Signal::CpuUsage].usable()) return false;
  const double slower = khz / value;
  return o[Signal::CpuUsage].value * slower <= kMostUse * in.cores && of_slo * slower <= kMostOfSlo;
}

bool stochastic(const ExplorationInput& in) {
  return in.policy && in.policy->snapshot.head != PolicyHead::Deterministic;
}

double share_of(const ExplorationInput& in) {
  const ExplorationOptions& e = in.rule->exploration;
  if (in.controller == Controller::Fallback && (in.stage == Stage::Initialized || in.stage == Stage::Offline))
    return e.fallback_share;
  if (in.controller != Controller::Learned || in.stage != Stage::Online || !in.policy) return 0;
  if (stochastic(in)) return e.online_share;
  const ExplorationSchedule& schedule = in.policy->snapshot.exploration;
  if (action_form(in.rule->task) == ActionForm::Discrete)
    return std::min<double>(e.online_share, schedule.epsilon);
  return schedule.sigma > 0 ? e.online_share : 0;
}

void append_change(std::string& words, const KnobId& knob, double to, double from) {
  appendf(words, "the %s ", knob_words(knob).c_str());
  append_value(words, knob, to);
  words += " in place of ";
  append_value(words, knob, from);
}

}  // namespace

const char* exploration_veto(const ExplorationInput& in) {
  if (!in.executing) return "nothing is executed";
  if (!(share_of(in) > 0)) return "not in this stage";
  if (!in.state_trusted) return "the state is not trusted";
  const Observation& o = *in.observation;
  const GuardOptions& g = in.rule->guards;
  for (const LimitedResource& limit : limited_resources)
    if (limit.starving(o, g)) return "the target starves";
  if (o[Signal::CpuThrottled].value_or(0) >= g.throttled_floor) return "the target is throttled";
  const SloPreservation sp = slo_preservation(in.rule->slo, o, cpu_saturated(o, in.cores, g.throttled_floor));
  if (!sp.trusted || sp.value < 1) return "an objective is missed or not measured";
  if (in.last_objection != 0 && in.step - in.last_objection <= kQuietSteps) return "a guard objected lately";
  return nullptr;
}

void Explorer::cancel() {
  now_.left = 0;
  wanted_ = Action{};
  drawn_.given = false;
}

/// The value that the variation makes of `base`, within its bounds; `base` itself: it comes to nothing.
double Explorer::varied(const ExplorationInput& in, const Variation& v, double base) const {
  const KnobContext& c = *find(in.contexts, v.knob);
  const KnobRange range{c.lower, c.upper};
  const double share = std::clamp(in.rule->exploration.max_step, 0.0, 1.0);
  const LimitedResource* const limit = limited_resource(v.knob);
  if (!limit) {
    const double most = share * (range.upper - range.lower);
    // Without a table one level of the action space is a step.
    const double step = (range.upper - range.lower) / (kFrequencyLevels - 1);
    constexpr double kBeyond = 1e-4;
    const double next =
        v.size > 0 ? step_at_or_above(c.steps.empty() ? base + step : base * (1 + kBeyond), c.steps, range)
                   : step_at_or_below(c.steps.empty() ? base - step : base * (1 - kBeyond), c.steps, range);
    const double wanted = nearest_step(base + v.size, c.steps, range);
    return std::abs(wanted - base) <= std::max(most, std::abs(next - base)) &&
                   !same_setting(v.knob, wanted, base)
               ? wanted
               : next;
  }
  const double quantum = limit->quantum;
  // Rounded towards the base, so that the bound holds.
  const double raw = base * std::exp(v.size);
  const double wanted =
      raw > base ? std::floor(raw / quantum + 1e-9) * quantum : std::ceil(raw / quantum - 1e-9) * quantum;
  if ((wanted - base) * v.size <= 0) return base;
  return std::clamp(wanted, std::min(base, range.lower), std::max(base, range.upper));
}

bool Explorer::begin(const ExplorationInput& in, const Action& proposed, int hold) {
  // Which knob: any that may be varied, each as likely.
  std::vector<const KnobId*> candidates;
  for (const KnobContext& c : in.contexts)
    if (may_move(in, c, proposed)) candidates.push_back(&c.knob);
  if (candidates.empty()) return false;
  Variation v;
  v.knob = *candidates[random_.below(candidates.size())];
  v.left = v.of = hold;
  const KnobContext& c = *find(in.contexts, v.knob);
  const double most = std::clamp(in.rule->exploration.max_step, 0.0, 1.0);
  const double base = proposed[v.knob];
  const bool stepped = !limited_resource(v.knob);
  if (stepped) {
    v.size = random_.uniform(kLeastShare, 1) * most * (c.upper - c.lower);
    if (random_.below(2) == 0) v.size = -v.size;
  } else if (in.policy) {
    // Noise on the output in [-1,1]: the knob's scale is geometric, half of it spans log(upper / lower).
    const double low = c.lower > 0 ? c.lower : c.upper / 1000;
    v.size = random_.normal() * double(in.policy->snapshot.exploration.sigma) * std::log(c.upper / low) / 2;
    v.size = std::clamp(v.size, std::log1p(-most), std::log1p(most));
  } else {
    const double size = random_.uniform(kLeastShare, 1) * most;
    v.size = random_.below(2) == 0 ? std::log1p(size) : std::log1p(-size);
  }
  // At an end of the range, or where it would be too tight, the other way.
  for (int attempt = 0; attempt < 2; ++attempt) {
    const double value = varied(in, v, base);
    if (!same_setting(v.knob, value, base) && (value > base || may_go_down(in, v.knob, value))) {
      now_ = v;
      return true;
    }
    v.size = stepped      ? -v.size
             : v.size > 0 ? std::log1p(-std::min(most, std::expm1(v.size)))
                          : std::log1p(std::min(most, -std::expm1(v.size)));
  }
  return false;
}

/// One action of the policy's distribution in place of the most likely one. False: it may not be taken.
bool Explorer::draw_action(const ExplorationInput& in, Action& proposed, std::string& words) {
  const CompiledPolicy& policy = *in.policy;
  const PolicySnapshot& s = policy.snapshot;
  policy.actor.prepare(*in.scratch);
  const auto outputs = policy.actor.evaluate(in.state, *in.scratch);
  drawn_.head = s.head;
  drawn_.outputs.assign(outputs.begin(), outputs.end());
  drawn_.log_sigma = s.log_sigma;
  drawn_.value = 0;
  if (!policy.state_value.empty()) {
    policy.state_value.prepare(*in.scratch);
    drawn_.value = s.value_offset + s.value_scale * policy.state_value.evaluate(in.state, *in.scratch)[0];
    if (!std::isfinite(drawn_.value)) return false;
  }
  const ActionDistribution of{drawn_.head, drawn_.outputs, drawn_.log_sigma};
  std::vector<float> action(action_size(of));
  draw(of, random_, action);

  Action wished;
  if (of.head == PolicyHead::Gaussian) {
    for (float& a : action) a = std::clamp(a, -1.0F, 1.0F);
    from_network_form(s, in.state, action, in.contexts, wished);
  } else {
    for (const KnobContext& c : in.contexts)
      if (!limited_resource(c.knob))
        wished.set(c.knob, level_to_khz(static_cast<int>(action[0]), c.steps, {c.lower, c.upper}));
  }
  const double most = std::clamp(in.rule->exploration.max_step, 0.0, 1.0);
  Action moved;
  for (const KnobContext& c : in.contexts) {
    if (!wished.has(c.knob) || !proposed.has(c.knob)) continue;
    const double base = proposed[c.knob], wish = wished[c.knob];
    if (same_setting(c.knob, wish, base)) continue;
    if (!may_move(in, c, proposed) || !(base > 0)) return false;
    Variation v;
    v.knob = c.knob;
    const bool stepped = !limited_resource(c.knob);
    v.size = stepped ? wish - base : std::clamp(std::log(wish / base), std::log1p(-most), std::log1p(most));
    const double value = varied(in, v, base);
    if (stepped && !same_setting(c.knob, value, wish)) return false;
    if (same_setting(c.knob, value, base)) continue;
    if (value < base && !may_go_down(in, c.knob, value)) return false;
    moved.set(c.knob, value);
  }
  words += "drawn from the policy's distribution: ";
  if (moved.empty()) words += "no other than its most likely action";
  bool first = true;
  moved.each([&](const KnobId& knob, double value) {
    if (!first) words += " and ";
    first = false;
    append_change(words, knob, value, proposed[knob]);
    wanted_.set(knob, proposed[knob]);
    proposed.set(knob, value);
  });
  drawn_.given = true;
  return true;
}

void Explorer::record(bool as_drawn, LearningView& learning) const {
  learning.behaviour = {};
  const ActionDistribution of{drawn_.head, drawn_.outputs, drawn_.log_sigma};
  if (!drawn_.given || !as_drawn || learning.action.size() != action_size(of)) return;
  // Of what came into force, which is what is learned from: a limit may have been cut to its bounds and rounded.
  const double p = log_probability(of, learning.action);
  if (p < kLeastLogProbability) return;
  learning.behaviour = {true, static_cast<float>(p), drawn_.value};
}

bool Explorer::vary(const ExplorationInput& in, Action& proposed, std::string& words) {
  recent_.reset(next_);  // what is now more than kWindow - 1 steps ago
  const std::size_t mine = next_;
  next_ = (next_ + 1) % kWindow;
  wanted_ = Action{};
  drawn_.given = false;

  // Taken in every step, so that what one agent meets does not shift its stream against the steps.
  const double dice = random_.uniform();
  if (exploration_veto(in) != nullptr) {
    now_.left = 0;
    return false;
  }
  const double share = std::clamp(share_of(in), 0.0, 1.0);
  const int budget = static_cast<int>(std::floor(share * kWindow + 1e-9));
  const int used = static_cast<int>(recent_.count());
  if (now_.left <= 0) {
    const int hold = std::clamp(in.rule->exploration.hold_steps, 1, std::max(budget, 1));
    if (used + hold > budget) return false;
    // 1 / (...): `share` of the steps would be varied, hold steps each, after 1 / start - 1 plain ones. The
    // budget cuts where chance puts many together, so chance is given more.
    const double start = kEager / (hold / share - hold + 1);
    if (dice >= start) return false;
    if (stochastic(in)) {
      now_ = Variation{};
      now_.left = now_.of = hold;
    } else if (!begin(in, proposed, hold)) {
      return false;
    }
  }
  const auto count = [&] {
    recent_.set(mine);
    appendf(words,
            ", step %d of %d; %d of the last %zu steps were varied, %d may be; no pressure, objectives kept",
            now_.of - now_.left, now_.of, used + 1, kWindow, budget);
    return true;
  };
  if (stochastic(in)) {
    --now_.left;
    return used < budget && draw_action(in, proposed, words) && count();
  }
  // The controller may want another value by now, or have no value for the knob any more.
  const KnobId knob = now_.knob;
  const bool possible = used < budget && proposed.has(knob) && std::isfinite(proposed[knob]) &&
                        find(in.contexts, knob) != nullptr && writable(in, knob);
  const double base = possible ? proposed[knob] : 0;
  const double value = possible ? varied(in, now_, base) : 0;
  if (!possible || same_setting(knob, value, base) || (value < base && !may_go_down(in, knob, value))) {
    now_.left = 0;
    return false;
  }
  --now_.left;
  wanted_.set(knob, base);
  proposed.set(knob, value);
  append_change(words, knob, value, base);
  return count();
}

Observation seen_at(const Observation& observation, double actual_khz, double wanted_khz) {
  Observation o = observation;
  if (!(actual_khz > 0) || !(wanted_khz > 0)) return o;
  for (Signal s : {Signal::CpuUsage, Signal::LatencyP99, Signal::LatencyP50})
    if (o[s].usable()) o[s].value *= actual_khz / wanted_khz;
  return o;
}

}  // namespace flash
