// Purpose: what an agent sees of the others of its group: entries `others_*` behind those of its task, a row each. Agents of
// one task whose rules name the same group are a group. To each of its agents all others are one (SIMPPO's virtual agent):
// what they have of the node, how well their objectives hold and how much of their limits they use, in this tick. Who
// is in which group, and when a tick asks, is in policy/tick_groups.cc. A new entry is a row of group.cc; what it needs to know
// of a member beside that is a field of GroupMember with its Moments.
// Ownership: values; rows are constants.
// Thread rule: pure functions; core/registry.h for the table.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "core/decision.h"
#include "core/registry.h"
#include "core/space.h"
#include "policy/observation_space.h"
#include "policy/task.h"

namespace flash {

/// What one agent adds to its group's summary. NaN: not known, or not to be trusted, in this tick.
struct GroupMember {
  double slo_preservation = std::numeric_limits<double>::quiet_NaN();  // Reward::slo_preservation, [0,1]
  // Use / limit, mean of the managed limits; of a task without limits CPU use / CPUs. [0,1]
  double utilization = std::numeric_limits<double>::quiet_NaN();
  // Limit in force / what the node may hand out, mean of the managed limits. [0,1]
  double allocation = std::numeric_limits<double>::quiet_NaN();
};
/// `step` and `reward` of the same tick.
GroupMember group_member(const TaskSpec& spec, const TaskStep& step, const Reward& reward);

/// Count, mean and standard deviation of numbers in [0,1] that can be taken out again; NaN is left out.
class Moments {
 public:
  void add(double x) {
    if (std::isnan(x)) return;
    ++known_;
    sum_ += x;
    squares_ += x * x;
  }
  /// REQUIRES: x was added.
  void take_out(double x) {
    if (std::isnan(x)) return;
    --known_;
    sum_ -= x;
    squares_ -= x * x;
  }
  std::size_t known() const { return known_; }
  /// `none` where nothing is known.
  double mean(double none) const {
    return known_ > 0 ? std::clamp(sum_ / static_cast<double>(known_), 0.0, 1.0) : none;
  }
  /// Of the population; 0 where fewer than two are known. Right within 1e-6: it is a difference of sums.
  double deviation() const {
    if (known_ < 2) return 0;
    const double mean = sum_ / static_cast<double>(known_);
    return std::sqrt(std::max(0.0, squares_ / static_cast<double>(known_) - mean * mean));
  }

 private:
  std::size_t known_ = 0;
  double sum_ = 0, squares_ = 0;
};

/// Of some agents of a group in one tick.
struct GroupSummary {
  std::size_t members = 0;
  Moments slo_preservation, utilization, allocation;

  void add(const GroupMember& m);
  /// REQUIRES: m was added.
  GroupSummary without(const GroupMember& m) const;
};

struct GroupEntry {
  StateEntry entry;
  double (*value)(const GroupSummary& others);  // about [-1,1]; defined also where there are none
};
/// In the order in which they follow the task's own entries.
extern Registry<GroupEntry> kGroupEntries;
static_assert(Registry<GroupEntry>::kMost == kMaxGroupDim);

/// Appends the entries. They are always trusted: what is not known of a member was left out.
void append_group(const GroupSummary& others, StateVector& state);

}  // namespace flash
