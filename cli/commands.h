// Purpose: what each flashctl command does.
// Ownership: none.
// Thread rule: one thread.
#pragma once

#include "cli/options.h"

namespace flash::cli {

/// Carries out the command and prints its result to stdout. Throws CliError.
Exit run(const Invocation& invocation);

/// The words of a decision (`why`) out of its JSON; used by the command and its test.
std::string decision_text(std::string_view json, std::size_t width);

}  // namespace flash::cli
