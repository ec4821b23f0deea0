#include "policy/learning_view.h"

#include <algorithm>
#include <cmath>

#include "policy/action_space.h"

namespace flash {
namespace {

const KnobContext* find(std::span<const KnobContext> contexts, KnobKind kind) {
  const auto it =
      std::find_if(contexts.begin(), contexts.end(), [kind](const KnobContext& c) { return c.knob == kind; });
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
  contexts.resize(knobs.size());
  for (std::size_t i = 0; i < knobs.size(); ++i) {
    const KnobRange range = knob_range(rule, knobs[i], node);
    contexts[i].knob = knobs[i].kind;
    contexts[i].lower = range.lower;
    contexts[i].upper = range.upper;
    contexts[i].steps.assign(knobs[i].steps.begin(), knobs[i].steps.end());
  }
}

bool to_network_form(const Rule& rule, const NodeCapacity& node, const Action& action,
                     std::span<const KnobContext> contexts, std::vector<float>& out) {
  out.clear();
  if (rule.task == Task::CpuFrequency) {
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

}  // namespace flash
