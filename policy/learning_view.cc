#include "policy/learning_view.h"

#include <algorithm>
#include <cmath>

#include "policy/action_space.h"

namespace flash {
namespace {

/// A limit nearer than this to the one in force stays: a network's output trembles with its input, and each
/// reversal would cost a write and a piece of the flap budget. Below what HPA tolerates (10 %). What is good
/// for memory hardly moves, and the last percents of it count.
constexpr double kNearCpu = 0.05, kNearMemory = 0.02;
constexpr double kNearEnd = 0.01;

const KnobContext* find(std::span<const KnobContext> contexts, const KnobId& kind) {
  const auto it = std::find_if(contexts.begin(), contexts.end(),
                               [&kind](const KnobContext& c) { return c.knob == kind; });
  return it == contexts.end() ? nullptr : &*it;
}

/// "No limit" as it acts: the whole node.
double effective(KnobKind kind, double value, const NodeCapacity& node) {
  if (!std::isinf(value)) return value;
  if (kind == KnobKind::CpuLimit) return effective_cores(value, node);
  if (kind == KnobKind::MemoryLimit) return effective_memory(value, node);
  return value;
}

}  // namespace

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
    const KnobContext* c = find(contexts, KnobKind::CpuFrequency);
    if (!c || !std::isfinite(c->upper) || !action.has(KnobKind::CpuFrequency)) return false;
    out.push_back(static_cast<float>(khz_to_level(action[KnobKind::CpuFrequency], {c->lower, c->upper})));
    return true;
  }
  bool any = false;
  for (KnobKind kind : kLimitsActions) {
    const KnobContext* c = find(contexts, kind);
    // Without an upper end (memory of an unknown node) the learned policy leaves the knob alone.
    if (!c || !manages(rule, kind) || !std::isfinite(c->upper)) {
      out.push_back(0);
      continue;
    }
    const double value = action.has(kind) ? effective(kind, action[kind], node) : action[kind];
    const bool no_limit = action.has(kind) && std::isinf(action[kind]);
    if (!std::isfinite(value) || (no_limit && value > c->upper && !same_setting(kind, value, c->upper))) {
      out.clear();
      return false;
    }
    any = true;
    out.push_back(static_cast<float>(to_unit(value, {c->lower, c->upper})));
  }
  if (!any) out.clear();
  return any;
}

bool acts_on(std::span<const KnobContext> contexts, const KnobId& kind) {
  const KnobContext* c = find(contexts, kind);
  return c && std::isfinite(c->upper);
}

void from_network_form(const PolicySnapshot& policy, std::span<const float> state,
                       std::span<const float> outputs, std::span<const KnobContext> contexts, Action& out) {
  if (action_form(policy.task) == ActionForm::Discrete) {
    const KnobContext* c = find(contexts, KnobKind::CpuFrequency);
    if (!c || outputs.empty()) return;
    out.set(KnobKind::CpuFrequency,
            level_to_khz(static_cast<int>(decided_level(outputs, state, policy.stay_margin)), c->steps,
                         {c->lower, c->upper}));
    return;
  }
  for (std::size_t i = 0; i < outputs.size() && i < std::size(kLimitsActions); ++i) {
    const KnobContext* c = find(contexts, kLimitsActions[i]);
    if (c && std::isfinite(c->upper)) out.set(kLimitsActions[i], from_unit(outputs[i], {c->lower, c->upper}));
  }
}

double decided_limit(KnobKind kind, double wanted, double in_force, KnobRange range) {
  if (wanted <= range.lower * (1 + kNearEnd)) return range.lower;
  if (wanted >= range.upper / (1 + kNearEnd)) return range.upper;
  const double near = kind == KnobKind::MemoryLimit ? kNearMemory : kNearCpu;
  return std::abs(wanted / in_force - 1) <= near ? in_force : wanted;
}

void decided_limits(const Action& in_force, std::span<const KnobContext> contexts, Action& chosen) {
  for (KnobKind kind : kLimitsActions)
    if (const KnobContext* c = find(contexts, kind); c && chosen.has(kind) && in_force.has(kind))
      chosen.set(kind, decided_limit(kind, chosen[kind], in_force[kind], {c->lower, c->upper}));
}

}  // namespace flash
