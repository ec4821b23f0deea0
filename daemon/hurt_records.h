// Purpose: how often policies hurt which target, over restarts of flashd: a file hurts.json in the state
// directory. A policy that was taken out must not be back because flashd was started again.
// Ownership: none.
// Thread rule: one thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "policy/control_loop.h"

namespace flash {

/// JSON, an array of objects with rule, target, hurts, failures, until_s (Unix time).
std::string hurt_records_text(std::span<const HurtRecord> records);
/// Entries that are not as they should be are left out; EINVAL: it is no such array.
Result<std::vector<HurtRecord>> parse_hurt_records(std::string_view text);

/// None there: none. EPERM: others can change the directory, so what is in it is not believed.
Result<std::vector<HurtRecord>> read_hurt_records(const std::string& directory);
/// As a whole or not at all.
Result<void> write_hurt_records(const std::string& directory, std::span<const HurtRecord> records);

}  // namespace flash
