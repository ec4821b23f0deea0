#include "policy/learning_view.h"

#include <algorithm>
#include <cmath>

#include "policy/action_space.h"
#include "policy/knob_policy.h"
#include "policy/task.h"

namespace flash {
namespace {

constexpr double kNearEnd = 0.01;

/// "No limit" as it acts: the whole node.
double effective(const KnobId& knob, double value, const NodeCapacity& node) {
  const LimitedResource* const limit = limited_resource(knob);
  return limit && std::isinf(value) ? limit->effective(value, node) : value;
}

/// The one knob that moves in steps, of cpu-frequency.
const KnobContext* stepped(std::span<const KnobContext> contexts) {
  for (const KnobContext& c : contexts)
    if (!limited_resource(c.knob)) return &c;
  return nullptr;
}

}  // namespace

std::size_t output_knobs(Task task, std::span<const KnobContext> contexts, OutputKnobs& outputs) {
  std::size_t n = 0;
  for (const KnobKind kind : task_spec(task).knobs) {
    const KnobContext* last = nullptr;
    do {
      const KnobContext* next = nullptr;
      for (const KnobContext& c : contexts)
        if (c.knob.kind == kind && (!last || last->knob < c.knob) && (!next || c.knob < next->knob))
          next = &c;
      if ((!next && last) || n == outputs.size()) break;
      outputs[n++] = last = next;
    } while (last);
  }
  return n;
}

void fill_contexts(const Rule& rule, const NodeCapacity& node, std::span<const KnobView> knobs,
                   std::vector<KnobContext>& contexts) {
  std::size_t n = 0;
  contexts.resize(knobs.size());
  for (const KnobView& knob : knobs) {
    if (!manages(rule, knob.kind)) continue;
    const KnobRange range = knob_range(rule, knob, node);
    KnobContext& c = contexts[n++];
    c.knob = knob.kind;
    c.lower = range.lower;
    c.upper = range.upper;
    c.steps.assign(knob.steps.begin(), knob.steps.end());
  }
  contexts.resize(n);
}

bool to_network_form(const Rule& rule, const NodeCapacity& node, const Action& action,
                     std::span<const KnobContext> contexts, std::vector<float>& out) {
  out.clear();
  if (action_form(rule.task) == ActionForm::Discrete) {
    const KnobContext* c = stepped(contexts);
    if (!c || !std::isfinite(c->upper) || !action.has(c->knob)) return false;
    out.push_back(static_cast<float>(khz_to_level(action[c->knob], {c->lower, c->upper})));
    return true;
  }
  bool any = false;
  OutputKnobs knobs;
  const std::size_t n = output_knobs(rule.task, contexts, knobs);
  for (const KnobContext* c : std::span(knobs).first(n)) {
    // Without an upper end (memory of an unknown node) the learned policy leaves the knob alone.
    if (!c || !manages(rule, c->knob) || !std::isfinite(c->upper)) {
      out.push_back(0);
      continue;
    }
    const double asked = action[c->knob];
    const double value = action.has(c->knob) ? effective(c->knob, asked, node) : asked;
    const bool no_limit = action.has(c->knob) && std::isinf(asked);
    if (!std::isfinite(value) || (no_limit && value > c->upper && !same_setting(c->knob, value, c->upper))) {
      any = false;
      break;
    }
    any = true;
    out.push_back(static_cast<float>(to_unit(value, {c->lower, c->upper})));
  }
  if (!any) out.clear();
  return any;
}

void from_network_form(const PolicySnapshot& policy, std::span<const float> state,
                       std::span<const float> outputs, std::span<const KnobContext> contexts, Action& out) {
  if (action_form(policy.task) == ActionForm::Discrete) {
    const KnobContext* c = stepped(contexts);
    if (!c || outputs.empty()) return;
    out.set(c->knob, level_to_khz(static_cast<int>(decided_level(outputs, state, policy.stay_margin)),
                                  c->steps, {c->lower, c->upper}));
    return;
  }
  OutputKnobs knobs;
  const std::size_t n = std::min(output_knobs(policy.task, contexts, knobs), outputs.size());
  for (std::size_t i = 0; i < n; ++i)
    if (const KnobContext* c = knobs[i]; c && std::isfinite(c->upper))
      out.set(c->knob, from_unit(outputs[i], {c->lower, c->upper}));
}

double decided_limit(KnobKind kind, double wanted, double in_force, KnobRange range) {
  if (wanted <= range.lower * (1 + kNearEnd)) return range.lower;
  if (wanted >= range.upper / (1 + kNearEnd)) return range.upper;
  const LimitedResource* const limit = limited_resource(kind);
  return limit && std::abs(wanted / in_force - 1) <= limit->near ? in_force : wanted;
}

void decided_limits(const Action& in_force, std::span<const KnobContext> contexts, Action& chosen) {
  for (const KnobContext& c : contexts)
    if (limited_resource(c.knob) && chosen.has(c.knob) && in_force.has(c.knob))
      chosen.set(c.knob, decided_limit(c.knob.kind, chosen[c.knob], in_force[c.knob], {c.lower, c.upper}));
}

}  // namespace flash
