// Purpose: NATS' NKeys: Ed25519 keys (libcrypto's) in the spelling of nats-server: base32 of a prefix that
// says whose they are, the key, and a CRC-16.
// Ownership: an NKey owns its secret and wipes it.
// Thread rule: values; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"

namespace flash::coordinator {

enum class KeyKind : std::uint8_t { Operator, Account, User };

class NKey {
 public:
  static Result<NKey> make(KeyKind kind);
  /// EINVAL: not a seed (SO..., SA..., SU...), or with a typing error.
  static Result<NKey> from_seed(std::string_view text);
  NKey(const NKey&) = default;
  NKey& operator=(const NKey&) = default;
  ~NKey();

  KeyKind kind() const { return kind_; }
  std::string seed() const;
  const std::string& public_key() const { return public_; }
  /// 64 bytes, not text.
  Result<std::string> sign(std::string_view message) const;

 private:
  using Secret = std::array<unsigned char, 32>;
  NKey(KeyKind kind, const Secret& secret) : kind_(kind), secret_(secret) {}
  static Result<NKey> of(KeyKind kind, const Secret& secret);

  KeyKind kind_;
  Secret secret_;
  std::string public_;
};

/// EINVAL: not the public key of one (O..., A..., U...), or with a typing error.
Result<KeyKind> kind_of_public(std::string_view public_key);
/// EBADMSG: not what the owner of that key signed.
Result<void> verify(std::string_view public_key, std::string_view message, std::string_view signature);

}  // namespace flash::coordinator
