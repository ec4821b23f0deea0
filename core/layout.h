// Purpose: what the numbers of an agent mean: the entries of its state, what its actions set, what is rewarded. It
// goes with everything that outlives a process or leaves it (messages, stored steps, checkpoints, policies, models),
// so that numbers of the same count and another meaning are refused by name.
// Ownership: values.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json_box.h"
#include "core/result.h"
#include "core/space.h"

namespace flash {

inline constexpr std::size_t kMaxLayoutEntries = 64;  // of a state, of actions, and levels
inline constexpr std::size_t kMaxLayoutName = 128;    // bytes

struct SpaceLayout {
  Task task = Task::ResourceLimits;
  std::vector<std::string> state;    // names of its entries, in order
  std::vector<std::string> actions;  // knob_name() of the knob that each number of an action sets, in order
  std::uint32_t levels = 0;          // discrete: how many an action may have; continuous: 0
  std::string reward;                // policy/reward.h reward_words(); empty: not said

  ActionForm form() const { return action_form(task); }
  int state_dim() const { return static_cast<int>(state.size()); }
  /// Outputs of a policy: a number per knob, or a score per level.
  int action_dim() const {
    return static_cast<int>(form() == ActionForm::Discrete ? levels : actions.size());
  }
  /// Numbers of an action as it is logged: one per knob, or the level.
  int action_size() const { return form() == ActionForm::Discrete ? 1 : static_cast<int>(actions.size()); }

  /// 16 hexadecimal digits; equal where task, state, actions and levels are. The reward does not count.
  std::string digest() const;
  /// Sizes and names within their bounds, no name twice, one knob where actions are levels. EINVAL says what is wrong.
  Result<void> check() const;
  bool operator==(const SpaceLayout&) const = default;
};

/// What is different in `theirs`, in words: "state entry 3 is 'load' there, 'pressure' here". Empty: nothing. A reward
/// that one of them does not say is no difference.
std::string difference(const SpaceLayout& theirs, const SpaceLayout& ours);
/// EINVAL: "another layout: " and the difference.
Result<void> same_layout(const SpaceLayout& theirs, const SpaceLayout& ours);

/// What the numbers of files meant that were written before files said it (0.1.0). Nothing: the task is newer.
std::optional<SpaceLayout> layout_before_named(Task task);

/// As a JSON object of a tensor file's meta, and back. EINVAL says what is wrong.
JsonBox layout_to_json(const SpaceLayout& layout);
Result<SpaceLayout> layout_from_json(const JsonBox& json);

}  // namespace flash
