// Purpose: the two alphabets that NATS writes keys and JWTs in: base32 (RFC 4648, section 6) and base64url
// (section 5), both without padding. Strict: what decodes is what would be written again.
// Ownership: values.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"

namespace flash::coordinator {

std::string base32(std::string_view bytes);
/// EINVAL: another letter, a length that nothing has, or left-over bits that are not zero.
Result<std::string> from_base32(std::string_view text);
inline constexpr std::string_view kBase64Url =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
std::string base64url(std::string_view bytes);
Result<std::string> from_base64url(std::string_view text);

}  // namespace flash::coordinator
