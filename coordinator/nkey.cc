#include "coordinator/nkey.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "coordinator/text_codes.h"

namespace flash::coordinator {
namespace {

// A prefix is the first letter of the text in its five upper bits.
constexpr unsigned kSeedPrefix = 18u << 3;  // S
constexpr std::size_t kKeyBytes = 32, kSignatureBytes = 64, kCrcBytes = 2;

struct Destroy {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using KeyHandle = std::unique_ptr<EVP_PKEY, Destroy>;
using DigestHandle = std::unique_ptr<EVP_MD_CTX, Destroy>;

unsigned prefix_of(KeyKind kind) {
  switch (kind) {
    case KeyKind::Operator:
      return 14u << 3;  // O
    case KeyKind::Account:
      return 0;  // A
    case KeyKind::User:
      return 20u << 3;  // U
  }
  return 0;
}

std::optional<KeyKind> kind_of(unsigned prefix) {
  for (const KeyKind kind : {KeyKind::Operator, KeyKind::Account, KeyKind::User})
    if (prefix_of(kind) == prefix) return kind;
  return std::nullopt;
}

/// CRC-16/XMODEM, as NKeys have it.
unsigned crc16(std::string_view bytes) {
  unsigned crc = 0;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned>(static_cast<unsigned char>(c)) << 8;
    for (int bit = 0; bit < 8; ++bit) crc = ((crc << 1) ^ ((crc & 0x8000) != 0 ? 0x1021u : 0u)) & 0xffff;
  }
  return crc;
}

std::string spelled(std::string bytes) {
  const unsigned crc = crc16(bytes);
  bytes += static_cast<char>(crc & 0xff);
  bytes += static_cast<char>(crc >> 8);
  std::string text = base32(bytes);
  OPENSSL_cleanse(bytes.data(), bytes.size());
  return text;
}

Error not_a(const char* what) {
  return {std::errc::invalid_argument, std::string("not ") + what};
}

/// Prefix and key, where the check sum is right.
Result<std::string> read(std::string_view text, std::size_t prefix_bytes, const char* what) {
  auto bytes = from_base32(text);
  if (!bytes || bytes->size() != prefix_bytes + kKeyBytes + kCrcBytes) return not_a(what);
  const auto at = [&](std::size_t i) {
    return static_cast<unsigned>(static_cast<unsigned char>((*bytes)[i]));
  };
  const unsigned crc = at(bytes->size() - 2) | at(bytes->size() - 1) << 8;
  bytes->resize(bytes->size() - kCrcBytes);
  if (crc16(*bytes) != crc) return Error(std::errc::invalid_argument, std::string(what) + ": mistyped");
  return std::move(*bytes);
}

Result<std::string> read_public(std::string_view text) {
  FLASH_TRY(std::string bytes, read(text, 1, "a public key"));
  if (!kind_of(static_cast<unsigned char>(bytes[0])))
    return not_a("a public key of an operator, account or user");
  return bytes;
}

const unsigned char* raw(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

Error crypto_failed() {
  return {std::errc::io_error, "libcrypto does not do Ed25519"};
}

}  // namespace

NKey::~NKey() {
  OPENSSL_cleanse(secret_.data(), secret_.size());
}

Result<NKey> NKey::of(KeyKind kind, const Secret& secret) {
  NKey key(kind, secret);
  const KeyHandle handle(
      EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, secret.data(), secret.size()));
  std::array<unsigned char, kKeyBytes> bytes{};
  std::size_t size = bytes.size();
  if (!handle || EVP_PKEY_get_raw_public_key(handle.get(), bytes.data(), &size) != 1) return crypto_failed();
  std::string text(1, static_cast<char>(prefix_of(kind)));
  text.append(bytes.begin(), bytes.end());
  key.public_ = spelled(std::move(text));
  return key;
}

Result<NKey> NKey::make(KeyKind kind) {
  Secret secret{};
  if (RAND_priv_bytes(secret.data(), static_cast<int>(secret.size())) != 1)
    return Error(std::errc::io_error, "no random bytes for a key");
  auto key = of(kind, secret);
  OPENSSL_cleanse(secret.data(), secret.size());
  return key;
}

Result<NKey> NKey::from_seed(std::string_view text) {
  FLASH_TRY(std::string bytes, read(text, 2, "a seed"));
  const unsigned first = static_cast<unsigned char>(bytes[0]), second = static_cast<unsigned char>(bytes[1]);
  const auto kind = kind_of((first & 7) << 5 | second >> 3);
  if ((first & 0xf8) != kSeedPrefix || (second & 7) != 0 || !kind)
    return not_a("a seed of an operator, account or user");
  Secret secret{};
  std::copy(bytes.begin() + 2, bytes.end(), secret.begin());
  OPENSSL_cleanse(bytes.data(), bytes.size());
  auto key = of(*kind, secret);
  OPENSSL_cleanse(secret.data(), secret.size());
  return key;
}

std::string NKey::seed() const {
  const unsigned prefix = prefix_of(kind_);
  std::string bytes{static_cast<char>(kSeedPrefix | prefix >> 5), static_cast<char>((prefix & 31) << 3)};
  bytes.append(secret_.begin(), secret_.end());
  return spelled(std::move(bytes));
}

Result<std::string> NKey::sign(std::string_view message) const {
  const KeyHandle key(
      EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, secret_.data(), secret_.size()));
  const DigestHandle context(EVP_MD_CTX_new());
  std::string signature(kSignatureBytes, '\0');
  std::size_t size = signature.size();
  if (!key || !context || EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key.get()) != 1 ||
      EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size, raw(message),
                     message.size()) != 1)
    return crypto_failed();
  return signature;
}

Result<KeyKind> kind_of_public(std::string_view public_key) {
  FLASH_TRY(const std::string bytes, read_public(public_key));
  return *kind_of(static_cast<unsigned char>(bytes[0]));
}

Result<void> verify(std::string_view public_key, std::string_view message, std::string_view signature) {
  FLASH_TRY(const std::string bytes, read_public(public_key));
  const KeyHandle key(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, raw(bytes) + 1, kKeyBytes));
  const DigestHandle context(EVP_MD_CTX_new());
  if (!key || !context) return crypto_failed();
  if (EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) != 1 ||
      EVP_DigestVerify(context.get(), raw(signature), signature.size(), raw(message), message.size()) != 1)
    return Error(std::errc::bad_message, "the signature is not of " + std::string(public_key));
  return {};
}

}  // namespace flash::coordinator
