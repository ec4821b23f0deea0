// Purpose: who may speak to the fleet as its coordinator, and the proof of it. A coordinator signs what it
// says with the key of its credentials and shows the credentials' JWT beside; whoever has credentials of the
// same account believes it only if the account's own key, which no node and no server has, signed that JWT.
// So a message that got under a subject of the coordinator's by any other way is known for what it is.
// Ownership: value.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "coordinator/nkey.h"
#include "core/result.h"

namespace flash::coordinator {

/// The name in the JWT of a coordinator's credentials.
inline constexpr const char* kCoordinatorUser = "coordinator";

/// "SERIAL SIGNATURE JWT", the signature in base64url: a header of the message, or beside what is stored.
struct Seal {
  std::uint64_t serial = 0;  // of a state that is kept: grows with each; else 0
  std::string signature;     // 64 bytes
  std::string signer;        // a user's JWT
  bool operator==(const Seal&) const = default;
};
inline constexpr std::size_t kMaxSeal = 4096;
std::string encode(const Seal& seal);
/// EINVAL: not a seal.
Result<Seal> decode_seal(std::string_view text);

class Authority {
 public:
  /// Without credentials: nothing is signed and everything is believed, as on a server that asks for none.
  Authority() = default;
  /// Of a file of credentials. EINVAL: not one.
  static Result<Authority> of(std::string_view creds);

  bool known() const { return key_.has_value(); }
  /// Why others will not believe what is signed here (not a coordinator's credentials as setup makes them);
  /// empty: they will.
  std::string why_not_believed() const;
  /// Empty without credentials.
  std::string seal(std::string_view subject, std::string_view bytes, std::uint64_t serial = 0) const;
  /// The seal's serial. EACCES: no seal, or not of a coordinator of this account; EBADMSG: of another
  /// message.
  Result<std::uint64_t> check(std::string_view subject, std::string_view bytes, std::string_view seal) const;

 private:
  Result<std::string> key_of(const std::string& signer) const;

  std::optional<NKey> key_;
  std::string jwt_;      // of that key
  std::string account_;  // whose own key signs coordinators
  // The last signer that was found good, with its key: it is nearly always the same one.
  mutable std::string known_signer_, known_key_;
};

}  // namespace flash::coordinator
