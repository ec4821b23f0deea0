// Purpose: is every key of one configuration file known, and every value of its type and range?
// Ownership: none.
// Thread rule: pure.
#pragma once

#include "daemon/config_text.h"

namespace flash {

/// `drop_in`: the file changes others, so that null (take it out) has a meaning.
void check_config(const ParsedConfig& file, bool drop_in, ConfigErrors& errors);

/// "/rules/web/cpu" -> "/rules/*/cpu", as the table of keys has it.
std::string pattern_of(std::string_view pointer);

}  // namespace flash
