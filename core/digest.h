// Purpose: SHA-256, and libgcrypt made ready for those who use it.
// Ownership: values.
// Thread rule: pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace flash {

inline constexpr std::size_t kDigestBytes = 32;

/// The 32 bytes of it.
std::string sha256(std::string_view bytes);

/// Before any other call of libgcrypt; as often as one likes.
void prepare_gcrypt();

}  // namespace flash
