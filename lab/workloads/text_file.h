// Purpose: whole text files, bounded.
// Ownership: none.
// Thread rule: free functions.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>

#include "core/command_line.h"

namespace flash {

/// Errors name the file.
Parsed<std::string> read_text(const std::string& path, std::size_t bytes_max);

/// JSON; "-" is standard output.
Applied write_text(const std::string& path, const std::string& text, std::ostream& standard_output);

}  // namespace flash
