// Purpose: numbers and decisions in words that a person understands. flashctl why prints what is made here.
// Ownership: none.
// Thread rule: pure functions.
#pragma once

#include <string>

#include "core/decision.h"
#include "core/knob.h"
#include "core/target.h"

namespace flash {

/// printf onto the end of a string; allocates only when the string has to grow.
void appendf(std::string& out, const char* format, ...) __attribute__((format(printf, 2, 3)));

/// "1.19 cores", "412 MiB", "2.60 GHz"; "no limit" for +inf, "unknown" for NaN.
void append_value(std::string& out, const KnobId& kind, double value);
std::string in_words(const KnobId& kind, double value);

/// One paragraph: who decided and why, what it wanted, what the guards said, what was done, what the step
/// before it earned.
std::string explain(const Decision& decision, const Target& target);

}  // namespace flash
