// Purpose: what everybody needs to know of a task's actions who need not know what the task does.
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/target.h"

namespace flash {

/// What a policy's outputs are.
enum class ActionForm : std::uint8_t {
  Continuous,  // a number in [-1,1] per knob
  Discrete,    // a score per level, the highest decides; an action is one level
};
std::string_view to_string(ActionForm f);  // "continuous", "discrete"
ActionForm action_form(Task t);

}  // namespace flash
