// Purpose: signed models for tests.
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "link/model_manifest.h"

namespace flash::link {

/// `hex` as bytes.
inline std::string bytes_of(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return bytes;
}

/// The keys of RFC 8032, 7.1, tests 1 and 2: no test waits for randomness (libgcrypt's jitter generator also
/// leaks 128 KiB when its first measurement fails).
inline const KeyPair& release_key() {
  static const KeyPair key = {bytes_of("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"),
                              bytes_of("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")};
  return key;
}
inline const KeyPair& strange_key() {
  static const KeyPair key = {bytes_of("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"),
                              bytes_of("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")};
  return key;
}
inline std::vector<TrustedKey> trusted() {
  return {{release_key().open, "release"}};
}

/// Three chunks, the last of 7 bytes.
inline std::string model_bytes() {
  std::string bytes;
  for (std::size_t i = 0; i < 2 * kModelChunkBytes + 7; ++i) bytes += static_cast<char>(i * 31 >> 3);
  return bytes;
}

inline ModelManifest manifest(std::uint64_t version, const std::string& bytes = model_bytes(),
                              const std::string& name = "resource-limits") {
  ModelManifest m = *manifest_of(bytes);
  m.name = name;
  m.version = version;
  m.previous = version - 1;
  m.made_us = 1'700'000'000'000'000;
  m.software = "0.1.0";
  return m;
}

inline SignedModel signed_as(const ModelManifest& m, const std::string& bytes = model_bytes(),
                             const KeyPair& key = release_key()) {
  const std::string encoded = encode(m);
  return {encoded, *sign(key, encoded), bytes};
}

}  // namespace flash::link
