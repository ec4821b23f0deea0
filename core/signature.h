// Purpose: Ed25519 signatures (RFC 8032) and the files that keys are kept in: a release key signs pretrained
// models where no network is, nodes pin its public half. The mathematics is libgcrypt's.
// Ownership: values.
// Thread rule: pure; only the functions with a path touch files.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace flash {

inline constexpr std::size_t kKeyBytes = 32, kSignatureBytes = 64;
inline constexpr std::size_t kMaxSignedText = 32 * 1024;  // libgcrypt aborts beyond 64 KiB

struct KeyPair {
  std::string secret, open;  // kKeyBytes each
};

Result<KeyPair> make_key_pair();
/// kSignatureBytes. EINVAL: not a key, or more than kMaxSignedText.
Result<std::string> sign(const KeyPair& key, std::string_view bytes);
/// false also for what is no key, no signature or too long.
bool verify(std::string_view open_key, std::string_view bytes, std::string_view signature);

/// A public key that a node trusts, and its name for people: the file's.
struct TrustedKey {
  std::string open;
  std::string name;
};
inline constexpr std::size_t kMaxTrustedKeys = 16;

/// PATH (readable by its owner alone) and PATH.pub. EEXIST: one of them is there, which is never overwritten.
Result<void> write_key_pair(const std::string& path, const KeyPair& key);
Result<KeyPair> read_key_pair(const std::string& path);
/// A file of write_key_pair() with the suffix .pub, or a directory: all its *.pub in order of name. Empty:
/// the directory is not there, or has none. EINVAL names the file that is no key.
Result<std::vector<TrustedKey>> read_trusted_keys(const std::string& path);

}  // namespace flash
