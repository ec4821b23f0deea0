#include "policy/guard.h"

#include <algorithm>
#include <cmath>

#include "policy/explain.h"
#include "policy/knob_policy.h"

namespace flash {
namespace {

/// What a limit counts as: "no limit" as all there is, one beyond both its range and the limits above it as
/// these.
double effective(const GuardInput& in, double value) {
  const LimitedResource* const limit = limited_resource(in.knob);
  if (!limit) return std::isinf(value) ? in.range.upper : value;
  const double all = std::isinf(value) ? limit->effective(value, *in.node) : limit->above(in.node->in_force);
  return std::min(value, std::max(in.range.upper, all));
}

/// nullptr: what is in use of the resource can be taken away at any time.
const LimitedResource* occupied(const GuardInput& in) {
  const LimitedResource* const limit = limited_resource(in.knob);
  return limit && limit->occupied ? limit : nullptr;
}

/// What is in use, with room above it; 0: not measured.
double needed(const GuardInput& in, const LimitedResource& limit, double room) {
  const Sample& used = (*in.observation)[limit.used];
  return used.usable() ? std::max(used.value * limit.occupied->margin, used.value + room) : 0;
}

/// Half of that room is gone: whatever was proposed and however often it moved, the limit grows.
bool short_of_room(const GuardInput& in) {
  const LimitedResource* const limit = occupied(in);
  if (!limit || !std::isfinite(in.current)) return false;
  const double used = (*in.observation)[limit->used].value_or(0);
  return in.current < used + (needed(in, *limit, in.growth_room) - used) / 2;
}

/// The limit is not cut below this in one step; says why. `room` 0: the rule's range counts for more than room
/// for growth.
double occupied_floor(const GuardInput& in, const LimitedResource& limit, double room, std::string& why) {
  const Sample& used = (*in.observation)[limit.used];
  const Sample& charged = (*in.observation)[limit.occupied->charged];
  const double in_use = needed(in, limit, room);
  const double at_once = charged.usable() ? charged.value - limit.occupied->at_once : 0;
  if (!in.words) return std::max(in_use, at_once);
  if (in_use >= at_once) {
    why = "the working set is ";
    append_value(why, in.knob, used.value_or(0));
    if (room > used.value_or(0) * (limit.occupied->margin - 1)) {
      why += " and lately grew so fast that ";
      append_value(why, in.knob, room);
      why += " are kept free";
    }
    return in_use;
  }
  why = "of the ";
  append_value(why, in.knob, charged.value);
  why += limit.occupied->words;
  return at_once;
}

double objective(const GuardInput& in, double proposed, std::string& reason) {
  const bool held = in.rules_ask > 0 && (!limited_resource(in.knob) || proposed < in.rules_ask);
  if (!held || same_setting(in.knob, proposed, in.rules_ask)) return proposed;
  if (in.words) {
    appendf(reason, "of late the policy missed the objective%s in %.1f %% of its steps, ",
            in.rule->slo.given() ? "" : " (none is given: throttling and pressure stand for it)",
            100 * in.objective->policy_share());
    if (in.objective->measuring())
      reason += "and how often the rules would is measured anew";
    else
      appendf(reason, "the rules in %.1f %%", 100 * in.objective->rules_share());
    reason += "; the rules ask for ";
    append_value(reason, in.knob, in.rules_ask);
  }
  return in.rules_ask;
}

double pressure_floor(const GuardInput& in, double proposed, std::string& reason) {
  const LimitedResource* const limit = limited_resource(in.knob);
  if (!limit) return proposed;
  const Observation& o = *in.observation;
  double allowed = proposed;
  if (proposed < in.current && limit->starving(o, in.rule->guards)) {
    if (!in.words) return in.current;
    limit->starves(o, reason);
    reason += ", a starving target is not cut";
    return in.current;
  }
  if (limit->occupied) {
    std::string why;
    const double floor = occupied_floor(in, *limit, in.growth_room, why);
    if (proposed < in.current && proposed < floor) {
      allowed = std::min(in.current, floor);
      reason += why;
    }
    const double wanted = std::min(needed(in, *limit, in.growth_room), std::max(in.range.upper, in.current));
    if (short_of_room(in) && allowed < wanted) {
      if (reason.empty()) reason = why;
      return wanted;
    }
  }
  return allowed;
}

double slew(const GuardInput& in, double proposed, std::string& reason) {
  const double from = effective(in, in.current);
  const double to = effective(in, proposed);
  if (!std::isfinite(from) || from <= 0) return proposed;
  const GuardOptions& g = in.rule->guards;
  double highest = std::max(from * (1 + g.max_step_up), in.bring_back);
  double lowest = from * (1 - g.max_step_down);
  if (!limited_resource(in.knob)) {
    // One hardware step is always allowed, and what is allowed is a hardware step.
    constexpr double kBeyond = 1e-4;
    highest = std::max(step_at_or_above(from * (1 + kBeyond), in.steps, in.range),
                       step_at_or_below(highest, in.steps, in.range));
    lowest = std::min(step_at_or_below(from * (1 - kBeyond), in.steps, in.range),
                      step_at_or_above(lowest, in.steps, in.range));
    if (in.steps.empty()) {
      highest = from * (1 + g.max_step_up);
      lowest = from * (1 - g.max_step_down);
    }
  }
  if (to > highest && !same_setting(in.knob, to, highest)) {
    if (in.words) appendf(reason, "may grow by at most %.0f %% per step", 100 * g.max_step_up);
    return highest;
  }
  if (to < lowest && !same_setting(in.knob, to, lowest)) {
    if (in.words) appendf(reason, "may shrink by at most %.0f %% per step", 100 * g.max_step_down);
    return lowest;
  }
  return proposed;
}

double flap(const GuardInput& in, double proposed, std::string& reason) {
  if (same_setting(in.knob, in.current, proposed)) return proposed;
  const int direction = proposed > in.current ? 1 : -1;
  const GuardOptions& g = in.rule->guards;
  // A last move down must not leave further cuts of memory as the only way: running into its limit may kill.
  const bool cut = direction < 0 && occupied(in);
  if (!cut && !in.flaps->reverses(direction)) return proposed;
  if (!in.flaps->reversed(g.flap_budget, in.step, g.flap_window_steps)) return proposed;
  if (direction > 0 && proposed <= in.bring_back) return proposed;
  if (direction > 0 && (starving(in.knob, *in.observation, g) || short_of_room(in))) return proposed;
  if (in.words)
    appendf(reason, "changed direction %d times in the last %d steps, %d are allowed",
            in.flaps->reversals(in.step, g.flap_window_steps), g.flap_window_steps, g.flap_budget);
  return in.current;
}

double bounds(const GuardInput& in, double proposed, std::string& reason) {
  double allowed = proposed;
  if (std::isnan(proposed)) {
    if (in.words) reason += "not a number";
    allowed = in.current;
  }
  // No limit now and none proposed: nothing is to be written.
  if (std::isinf(allowed) && std::isinf(in.current)) return allowed;
  const double inside =
      limited_resource(in.knob)
          ? std::clamp(allowed, in.range.lower, in.range.upper)
          : nearest_step(std::clamp(allowed, in.range.lower, in.range.upper), in.steps, in.range);
  if (const LimitedResource* const limit = occupied(in); limit && inside < in.current) {
    // A range that ends below what is in use is approached, not jumped into: on v1 that is refused (EBUSY)
    // after all was reclaimed or swapped that could be, and again in every tick.
    std::string why;
    if (const double floor = occupied_floor(in, *limit, 0, why); inside < floor) {
      if (reason.empty()) reason = why;
      return std::min(in.current, floor);
    }
  }
  if (in.words && inside != allowed && !same_setting(in.knob, inside, allowed) && reason.empty()) {
    if (allowed < in.range.lower || allowed > in.range.upper) {
      reason += "the range is ";
      append_value(reason, in.knob, in.range.lower);
      reason += " to ";
      append_value(reason, in.knob, in.range.upper);
    } else {
      reason += "the hardware has no such step";
    }
  }
  return inside;
}

constexpr std::array<Guard, 5> kGuards = {{{"objective", objective},
                                           {"pressure", pressure_floor},
                                           {"slew", slew},
                                           {"flap", flap},
                                           {"bounds", bounds}}};

}  // namespace

void FlapRecord::record(std::uint64_t step, int direction) {
  if (direction == 0) return;
  if (reverses(direction)) {
    steps_[next_] = static_cast<std::uint32_t>(step);
    next_ = (next_ + 1) % kRemembered;
    count_ = std::min(count_ + 1, kRemembered);
  }
  last_ = direction;
}

bool FlapRecord::within(std::size_t back, std::uint64_t step, int window) const {
  const std::uint64_t at = steps_[(next_ + kRemembered - back) % kRemembered];
  return at + static_cast<std::uint64_t>(std::max(window, 0)) > step;
}

bool FlapRecord::reversed(int times, std::uint64_t step, int window) const {
  if (times <= 0) return true;
  const auto back = static_cast<std::size_t>(times);
  return back <= count_ && within(back, step, window);
}

int FlapRecord::reversals(std::uint64_t step, int window) const {
  std::size_t n = 0;
  while (n < count_ && within(n + 1, step, window)) ++n;
  return static_cast<int>(n);
}

bool starving(const KnobId& knob, const Observation& o, const GuardOptions& g) {
  const LimitedResource* const limit = limited_resource(knob);
  return limit && limit->starving(o, g);
}

std::span<const Guard> guard_table() {
  return kGuards;
}

double apply_guards(const GuardInput& in, double proposed, std::vector<GuardVerdict>& verdicts) {
  std::string reason;
  double value = proposed;
  for (const Guard& guard : kGuards) {
    reason.clear();
    const double allowed = guard.allow(in, value, reason);
    if (!reason.empty()) {
      GuardVerdict v;
      v.guard = guard.name;
      v.knob = in.knob;
      v.verdict = same_setting(in.knob, allowed, in.current) ? Verdict::Refused : Verdict::Changed;
      v.before = value;
      v.after = allowed;
      v.reason = reason;
      verdicts.push_back(std::move(v));
    }
    value = allowed;
  }
  return value;
}

}  // namespace flash
