// Purpose: what is UTF-8 and what is not (RFC 3629; Unicode, table 3-7): no overlong forms, no surrogates, nothing above
// U+10FFFF. The one place that knows (flashctl, which includes no other room, has the same in cli/render).
// Ownership: none.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <string_view>

namespace flash {

/// Bytes of the character at the front, 0: there is none.
std::size_t utf8_sequence(std::string_view text);
/// The character at the front. REQUIRES: utf8_sequence(text) > 0.
char32_t utf8_character(std::string_view text);
bool is_utf8(std::string_view text);

}  // namespace flash
