// Purpose: the fleet as the store knows it, as JSON for programs and as lines for people.
// Ownership: values. Thread rule: as the store's.
#pragma once

#include <string>

#include "coordinator/store.h"
#include "core/result.h"

namespace flash::coordinator {

Result<std::string> fleet_json(const Store& store);
Result<std::string> fleet_text(const Store& store);

}  // namespace flash::coordinator
