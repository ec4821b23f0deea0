// Purpose: the one kind of pattern that people write here.
// Ownership: none.
// Thread rule: pure.
#pragma once

#include <string>
#include <string_view>

namespace flash {

/// fnmatch(3) with FNM_NOESCAPE, as systemd matches names of units: '*' also takes '/', and a backslash
/// stands for itself, because names of units have them ("machine-qemu\x2d1.scope"). "[*]" is the character
/// '*'.
bool glob_matches(const std::string& pattern, const std::string& text);
/// The same; case does not count. No allocation.
bool glob_matches_any_case(const char* pattern, const char* text);

/// What a text has to begin with to match: the pattern up to its first special character.
std::string_view literal_beginning(std::string_view pattern);

}  // namespace flash
