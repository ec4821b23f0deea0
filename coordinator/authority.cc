#include "coordinator/authority.h"

#include <charconv>

#include "coordinator/jwt.h"
#include "coordinator/text_codes.h"

namespace flash::coordinator {
namespace {

constexpr std::size_t kSignature = 64;

/// What is signed. No part of it but the last can hold a line feed, so no two messages have the same.
std::string signed_text(std::string_view subject, std::uint64_t serial, std::string_view bytes) {
  std::string text = "flash.v1 coordinator\n";
  text.append(subject).append("\n").append(std::to_string(serial)).append("\n").append(bytes);
  return text;
}

Error refused(const std::string& why) {
  return {std::errc::permission_denied, why};
}

/// Whose own key it is that speaks for these credentials' account.
std::string account_of(const Jwt& jwt) {
  return jwt.issuer_account.empty() ? jwt.issuer : jwt.issuer_account;
}

Result<std::string> coordinators_key(const std::string& signer, const std::string& account) {
  FLASH_TRY(const Jwt jwt, read_jwt(signer));
  if (jwt.type != "user" || jwt.issuer != account || jwt.name != kCoordinatorUser)
    return refused("signed by '" + jwt.name + "', who is no coordinator of this fleet");
  return jwt.subject;
}

}  // namespace

std::string encode(const Seal& seal) {
  return std::to_string(seal.serial) + " " + base64url(seal.signature) + " " + seal.signer;
}

Result<Seal> decode_seal(std::string_view text) {
  const Error bad(std::errc::invalid_argument, "not a coordinator's signature");
  const auto first = text.find(' '), second = text.find(' ', first == text.npos ? first : first + 1);
  if (text.size() > kMaxSeal || second == text.npos) return bad;
  Seal seal;
  const auto number = std::from_chars(text.data(), text.data() + first, seal.serial);
  if (number.ec != std::errc() || number.ptr != text.data() + first ||
      std::to_string(seal.serial) != text.substr(0, first))
    return bad;
  FLASH_TRY(seal.signature, from_base64url(text.substr(first + 1, second - first - 1)));
  seal.signer = text.substr(second + 1);
  if (seal.signature.size() != kSignature || seal.signer.empty() ||
      seal.signer.find_first_of(" \r\n") != seal.signer.npos)
    return bad;
  return seal;
}

Result<Authority> Authority::of(std::string_view text) {
  FLASH_TRY(Creds creds, read_creds(text));
  FLASH_TRY(NKey key, NKey::from_seed(creds.seed));
  FLASH_TRY(const Jwt jwt, read_jwt(creds.jwt));
  Authority a;
  a.key_ = std::move(key);
  a.jwt_ = std::move(creds.jwt);
  a.account_ = account_of(jwt);
  return a;
}

std::string Authority::why_not_believed() const {
  if (!known()) return {};
  const auto key = coordinators_key(jwt_, account_);
  return key ? std::string() : "nodes will not believe these credentials: " + key.error().message();
}

std::string Authority::seal(std::string_view subject, std::string_view bytes, std::uint64_t serial) const {
  if (!key_) return {};
  auto signature = key_->sign(signed_text(subject, serial, bytes));
  return signature ? encode(Seal{serial, std::move(*signature), jwt_}) : std::string();
}

Result<std::string> Authority::key_of(const std::string& signer) const {
  if (signer == known_signer_) return known_key_;
  FLASH_TRY(std::string key, coordinators_key(signer, account_));
  known_signer_ = signer;
  known_key_ = key;
  return key;
}

Result<std::uint64_t> Authority::check(std::string_view subject, std::string_view bytes,
                                       std::string_view text) const {
  if (!known()) return std::uint64_t{0};
  if (text.empty()) return refused("not signed by a coordinator");
  FLASH_TRY(const Seal seal, decode_seal(text));
  FLASH_TRY(const std::string key, key_of(seal.signer));
  FLASH_CHECK(verify(key, signed_text(subject, seal.serial, bytes), seal.signature));
  return seal.serial;
}

}  // namespace flash::coordinator
