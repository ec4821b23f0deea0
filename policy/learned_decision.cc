#include "policy/learned_decision.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/policy_head.h"
#include "policy/action_space.h"
#include "policy/explain.h"
#include "policy/learning_view.h"
#include "policy/task.h"

namespace flash {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// A number of the network in discounted reward.
double worth(const PolicySnapshot& s, float y) {
  return std::isfinite(y) ? double(s.value_offset) + double(s.value_scale) * double(y) : kNaN;
}

Alternative& add(Decision& d, std::string_view label, const Action& action, double value) {
  Alternative& a = d.alternatives.emplace_back();
  a.label.assign(label);
  a.action = action;
  a.value = value;
  return a;
}

void attribute(const LearnedInput& in, int output, Decision& d) {
  std::array<float, kMaxStateDim> gradient{};
  const std::size_t n = in.state.size();
  in.policy->actor.gradient(in.state, output, {gradient.data(), n});
  const TaskSpec& spec = task_spec(in.policy->snapshot.task);
  std::array<bool, kMaxStateDim> taken{};
  for (std::size_t k = 0; k < std::min(kAttributions, n); ++k) {
    std::size_t best = n;
    double most = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double weight = double(gradient[i]) * (double(in.state[i]) - in.policy->snapshot.mean[i]);
      if (!taken[i] && std::isfinite(weight) && std::abs(weight) > std::abs(most)) {
        best = i;
        most = weight;
      }
    }
    if (best == n) return;
    taken[best] = true;
    const StateEntry* const entry = state_entry(spec, static_cast<int>(best));
    d.attributions.push_back({entry ? entry->name : "", in.state[best], most});
  }
}

void append_version(std::string& out, const PolicySnapshot& s) {
  appendf(out, "The learned policy (version %llu", static_cast<unsigned long long>(s.version));
  if (!s.algorithm.empty()) out.append(", ").append(s.algorithm, 0, 32);
  out += ") chose ";
}

void append_action(std::string& out, const Action& action, const Action& of) {
  bool first = true;
  of.each([&](const KnobId& knob, double) {
    if (!first) out += " and ";
    first = false;
    append_value(out, knob, action[knob]);
  });
}

void append_worth(std::string& out, double value) {
  if (std::isnan(value))
    out += "nothing it can say";
  else
    appendf(out, "%.1f", value);
}

void append_attributions(std::string& out, const Decision& d) {
  if (d.attributions.empty()) return;
  out += ' ';
  for (std::size_t i = 0; i < d.attributions.size(); ++i) {
    if (i > 0) out += i + 1 == d.attributions.size() ? " and " : ", ";
    out.append(d.attributions[i].entry);
    appendf(out, " (%.2f)", d.attributions[i].value);
  }
  out += " mattered most.";
}

/// resource-limits: the critic's value of an allocation.
double value_of(const LearnedInput& in, std::span<const float> unit, EvaluatorScratch& scratch) {
  const std::size_t takes = in.state.size() + unit.size();
  if (in.policy->critic.empty() || takes != static_cast<std::size_t>(in.policy->critic.inputs())) return kNaN;
  std::array<float, kMaxStateDim + kMaxActionDim> x{};
  std::copy(in.state.begin(), in.state.end(), x.begin());
  std::copy(unit.begin(), unit.end(), x.begin() + static_cast<std::ptrdiff_t>(in.state.size()));
  return worth(in.policy->snapshot, in.policy->critic.evaluate({x.data(), takes}, scratch)[0]);
}

bool decide_limits(const LearnedInput& in, std::span<const float> output, EvaluatorScratch& scratch,
                   Decision& d) {
  Action chosen;
  from_network_form(in.policy->snapshot, in.state, output, in.contexts, chosen);
  if (chosen.empty()) return false;
  decided_limits(in.current, in.contexts, chosen);
  std::array<float, kMaxActionDim> unit{};  // 0 for a knob that is left alone, as in training
  OutputKnobs knobs;
  const std::size_t n = std::min(output_knobs(in.policy->snapshot.task, in.contexts, knobs), output.size());
  int moves_most = 0;
  double furthest = -1;
  for (std::size_t i = 0; i < n; ++i) {
    const KnobContext* c = knobs[i];
    if (!c || !chosen.has(c->knob)) continue;
    unit[i] = std::clamp(output[i], -1.0F, 1.0F);
    const double from = in.current.has(c->knob) ? to_unit(in.current[c->knob], {c->lower, c->upper}) : 0;
    if (std::abs(unit[i] - from) > furthest) {
      furthest = std::abs(unit[i] - from);
      moves_most = static_cast<int>(i);
    }
  }
  d.proposed = chosen;
  if (!in.policy->critic.empty()) in.policy->critic.prepare(scratch);
  const double mine = value_of(in, std::span(unit).first(output.size()), scratch);
  const double fallbacks = value_of(in, in.fallback_form, scratch);
  const double currents = value_of(in, in.current_form, scratch);
  add(d, "chosen", chosen, mine);
  add(d, "fallback", in.fallback, fallbacks);
  add(d, "current", in.current, currents);
  attribute(in, moves_most, d);

  std::string& out = d.explanation;
  append_version(out, in.policy->snapshot);
  append_action(out, chosen, chosen);
  if (in.policy->critic.empty()) {
    out += "; without a critic it gives no values. The fallback would choose ";
    append_action(out, in.fallback, chosen);
  } else {
    out += "; its critic values this at ";
    append_worth(out, mine);
    out += ", the fallback's ";
    append_action(out, in.fallback, chosen);
    out += " at ";
    append_worth(out, fallbacks);
    out += ", the current ";
    append_action(out, in.current, chosen);
    out += " at ";
    append_worth(out, currents);
  }
  out += ".";
  append_attributions(out, d);
  return true;
}

bool decide_level(const LearnedInput& in, std::span<const float> output, EvaluatorScratch& scratch,
                  Decision& d) {
  OutputKnobs knobs;
  output_knobs(in.policy->snapshot.task, in.contexts, knobs);
  const KnobContext* c = knobs[0];
  if (!c || !std::isfinite(c->upper)) return false;
  const KnobId& knob = c->knob;
  const std::size_t levels = output.size();
  const KnobRange range{c->lower, c->upper};
  std::array<float, kMaxOutputs> scores{}, q{};
  std::copy_n(output.begin(), std::min(output.size(), scores.size()), scores.begin());
  q = scores;
  if (in.policy->snapshot.head == PolicyHead::Categorical) q.fill(std::numeric_limits<float>::quiet_NaN());
  if (!in.policy->critic.empty()) {
    in.policy->critic.prepare(scratch);
    const auto y = in.policy->critic.evaluate(in.state, scratch);
    std::copy_n(y.begin(), std::min(y.size(), q.size()), q.begin());
  }
  const PolicySnapshot& s = in.policy->snapshot;
  const std::size_t decided = decided_level(output, in.state, s.stay_margin);
  const bool stays = decided != decided_level(output, in.state, 0);
  from_network_form(s, in.state, output, in.contexts, d.proposed);
  const double chosen = d.proposed[knob];

  // Levels that come to the same step of this hardware are one alternative, of the best score among them.
  double chosen_value = worth(s, q[decided]), next_value = kNaN, next_khz = 0;
  for (std::size_t i = 0; i < levels;) {
    const double khz = level_to_khz(static_cast<int>(i), c->steps, range);
    std::size_t of = i;
    for (++i; i < levels && same_setting(knob, level_to_khz(static_cast<int>(i), c->steps, range), khz); ++i)
      if (scores[i] > scores[of]) of = i;
    Action action;
    action.set(knob, khz);
    Alternative& a = add(d, "", action, worth(s, q[of]));
    appendf(a.label, "%.0f kHz", khz);
    if (khz != chosen && !(a.value <= next_value)) {
      next_value = a.value;
      next_khz = khz;
    }
  }
  const std::size_t steps = d.alternatives.size();
  const auto value_at = [&](const Action& action) {
    if (!action.has(knob)) return kNaN;
    for (std::size_t i = 0; i < steps; ++i)
      if (same_setting(knob, d.alternatives[i].action[knob], action[knob])) return d.alternatives[i].value;
    return worth(s, q[static_cast<std::size_t>(khz_to_level(action[knob], range))]);
  };
  const double fallbacks = value_at(in.fallback), currents = value_at(in.current);
  add(d, "fallback", in.fallback, fallbacks);
  add(d, "current", in.current, currents);
  attribute(in, static_cast<int>(decided), d);

  std::string& out = d.explanation;
  append_version(out, s);
  append_value(out, knob, chosen);
  if (s.head == PolicyHead::Categorical && in.policy->critic.empty()) {
    double probability = 0;
    for (std::size_t i = 0; i < output.size(); ++i) {
      const auto level = static_cast<float>(i);
      if (same_setting(knob, level_to_khz(static_cast<int>(i), c->steps, range), chosen))
        probability += std::exp(log_probability({s.head, output, {}}, {&level, 1}));
    }
    appendf(out, ", with a probability of %.2f; without a critic it gives no values", probability);
    if (in.fallback.has(knob)) {
      out += ". The fallback would choose ";
      append_value(out, knob, in.fallback[knob]);
    }
    out += ".";
    append_attributions(out, d);
    return true;
  }
  out += ", which it values at ";
  append_worth(out, chosen_value);
  if (stays) out += " and keeps, as no other is clearly better";
  if (next_khz > 0) {
    out += stays ? "; the best other " : "; next best ";
    append_value(out, knob, next_khz);
    out += " at ";
    append_worth(out, next_value);
  }
  if (in.fallback.has(knob)) {
    out += ", the fallback's ";
    append_value(out, knob, in.fallback[knob]);
    out += " at ";
    append_worth(out, fallbacks);
  }
  if (in.current.has(knob)) {
    out += ", the current ";
    append_value(out, knob, in.current[knob]);
    out += " at ";
    append_worth(out, currents);
  }
  out += ".";
  append_attributions(out, d);
  return true;
}

}  // namespace

bool decide_learned(const LearnedInput& in, EvaluatorScratch& scratch, Decision& d, std::string& why_not) {
  in.policy->actor.prepare(scratch);
  const std::span<const float> y = in.policy->actor.evaluate(in.state, scratch);
  std::array<float, kMaxOutputs> output{};
  const std::size_t n = std::min(y.size(), output.size());
  for (std::size_t i = 0; i < n; ++i) {
    if (!std::isfinite(y[i])) {
      why_not += "the policy's output is not a number";
      return false;
    }
    output[i] = y[i];
  }
  const bool done = action_form(in.policy->snapshot.task) == ActionForm::Continuous
                        ? decide_limits(in, {output.data(), n}, scratch, d)
                        : decide_level(in, {output.data(), n}, scratch, d);
  if (!done)
    why_not += "the policy has no knob to act on";
  else
    d.model_version = in.policy->snapshot.version;
  return done;
}

}  // namespace flash
