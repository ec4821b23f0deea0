// Purpose: signed models for tests. Ownership: values. Thread rule: none needed.
#pragma once

#include <string>
#include <vector>

#include "link/model_manifest.h"

namespace flash::link {

inline const KeyPair& release_key() {
  static const KeyPair key = *make_key_pair();
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
