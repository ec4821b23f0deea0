// Purpose: a knob's value as people read it in messages: "1.5 cores", "64 MiB", "2600 MHz", "none".
// Ownership: value.
// Thread rule: none needed.
#pragma once

#include <string>

#include "core/knob.h"

namespace flash {

std::string setting_text(const KnobId& knob, double value);

}  // namespace flash
