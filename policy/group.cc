#include "policy/group.h"

#include <array>

#include "policy/knob_policy.h"
#include "policy/reward.h"

namespace flash {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
/// So many others are half of the scale.
constexpr double kSome = 8;

constexpr std::array<GroupEntry, 6> kRows = {{
    {{"others_count", "agents", "n / (n + 8), [0,1); 0: alone in the group"},
     [](const GroupSummary& others) {
       const auto n = static_cast<double>(others.members);
       return n / (n + kSome);
     }},
    {{"others_slo_preservation", "1",
      "mean of the others' SLO preservation, [0,1], 1 for one without an SLO; 1: alone, or known of none"},
     [](const GroupSummary& others) { return others.slo_preservation.mean(1); }},
    {{"others_slo_deviation", "1",
      "standard deviation of the same, [0,0.5]; 0: known of fewer than two others"},
     [](const GroupSummary& others) { return others.slo_preservation.deviation(); }},
    {{"others_utilization", "1",
      "mean of the others' use / limit (without limits: share of their CPUs), [0,1]; 0: alone, or known of "
      "none"},
     [](const GroupSummary& others) { return others.utilization.mean(0); }},
    {{"others_utilization_deviation", "1",
      "standard deviation of the same, [0,0.5]; 0: known of fewer than two others"},
     [](const GroupSummary& others) { return others.utilization.deviation(); }},
    {{"others_allocation", "1",
      "mean of the others' limits as share of what the node may hand out, [0,1]; no limit is 1; 0: alone, "
      "known of none, or a task without limits"},
     [](const GroupSummary& others) { return others.allocation.mean(0); }},
}};

}  // namespace

constinit Registry<GroupEntry> kGroupEntries(kRows);

GroupMember group_member(const TaskSpec& spec, const TaskStep& step, const Reward& reward) {
  GroupMember m;
  if (reward.given && slo_preservation(step.rule->slo, *step.now, true).trusted)
    m.slo_preservation = reward.slo_preservation;
  const auto mean_of_limits = [&](auto&& share_of_limit) {
    double sum = 0;
    int known = 0;
    for (const KnobNow& k : step.knobs) {
      const LimitedResource* limit = limited_resource(k.knob);
      if (limit == nullptr || std::isnan(k.value) || !manages(*step.rule, k.knob)) continue;
      const double share = share_of_limit(*limit, limit->effective(k.value, *step.node));
      if (std::isnan(share)) continue;
      sum += share;
      ++known;
    }
    return known > 0 ? sum / known : kUnknown;
  };
  m.allocation = mean_of_limits([&](const LimitedResource& limit, double in_force) {
    const double whole = limit.usable(*step.node);
    return std::isfinite(whole) && whole > 0 ? share_of(in_force, whole) : kUnknown;
  });
  const bool limits = std::any_of(spec.knobs.begin(), spec.knobs.end(),
                                  [](KnobKind knob) { return limited_resource(knob) != nullptr; });
  if (limits) {
    m.utilization = mean_of_limits([&](const LimitedResource& limit, double in_force) {
      const Sample& used = (*step.now)[limit.used];
      return used.trusted() && std::isfinite(in_force) ? share_of(used.value, in_force) : kUnknown;
    });
  } else if (const Sample& used = (*step.now)[Signal::CpuUsage]; used.trusted()) {
    m.utilization = share_of(used.value, spec.cores(step));
  }
  return m;
}

void GroupSummary::add(const GroupMember& m) {
  ++members;
  slo_preservation.add(m.slo_preservation);
  utilization.add(m.utilization);
  allocation.add(m.allocation);
}

GroupSummary GroupSummary::without(const GroupMember& m) const {
  GroupSummary others = *this;
  --others.members;
  others.slo_preservation.take_out(m.slo_preservation);
  others.utilization.take_out(m.utilization);
  others.allocation.take_out(m.allocation);
  return others;
}

void append_group(const GroupSummary& others, StateVector& state) {
  StateBuilder b(state);
  for (const GroupEntry& row : kGroupEntries) b.add(row.value(others), true, true);
  state = b.take();
}

}  // namespace flash
