// Purpose: a pretrained model with what a release key signed about it: the manifest, and the file that holds
// both. flash-coordinator makes and hands it out, flash-sync takes it from the network, flash-learner
// believes neither of them and verifies it again. docs/MODELS.md.
// Ownership: values.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/signature.h"

namespace flash::link {

inline constexpr std::size_t kModelChunkBytes = 128 * 1024;  // of each chunk but the last
inline constexpr std::size_t kMaxModelBytes = 8u << 20;      // flash-sync holds one in memory
inline constexpr std::uint64_t kMaxModelVersion = 1'000'000'000;
inline constexpr std::size_t kMaxManifestBytes = 8 * 1024;  // 64 digests, and names

/// What is signed: these bytes exactly, as CBOR.
struct ModelManifest {
  std::string name;                 // of a task: "resource-limits"
  std::uint64_t version = 0;        // from 1, grows
  std::uint64_t previous = 0;       // the version that it follows, 0: none
  std::uint64_t size = 0;           // bytes of the model
  std::string digest;               // SHA-256 of them
  std::vector<std::string> chunks;  // SHA-256 of each kModelChunkBytes of them
  std::int64_t made_us = 0;         // wall clock of the signing
  std::string software;             // what a node must have at least: "0.1.0"
  bool operator==(const ModelManifest&) const = default;
};

std::string encode(const ModelManifest& manifest);
/// EINVAL names the field. EPROTONOSUPPORT: another version of the format.
Result<ModelManifest> decode_manifest(std::string_view bytes);

/// The manifest of a model's bytes; the rest is the caller's.
Result<ModelManifest> manifest_of(std::string_view model);
std::string_view chunk_of(std::string_view model, std::size_t chunk);

/// EACCES: no trusted key signed it, as long as that holds nothing of it is parsed. EINVAL: it is no
/// manifest. ENOTSUP: it wants newer software than `software`.
Result<ModelManifest> verify_manifest(std::string_view manifest, std::string_view signature,
                                      std::span<const TrustedKey> keys, std::string_view software);

/// "FLASHSM1" | length of the manifest, u32 little endian | manifest | signature | model
struct SignedModel {
  std::string manifest, signature, model;
};
inline constexpr std::size_t kMaxSignedBytes = kMaxModelBytes + kMaxManifestBytes + kSignatureBytes + 12;

std::string encode(const SignedModel& model);
/// EINVAL: not such a file. What is in it is not looked at.
Result<SignedModel> decode_signed(std::string_view bytes);
/// As verify_manifest(); EBADMSG: the model is not the one that was signed.
Result<ModelManifest> verify_signed(const SignedModel& model, std::span<const TrustedKey> keys,
                                    std::string_view software);

/// "0.10.2" against "0.9": -1, 0, 1. What is no number counts as 0.
int compare_versions(std::string_view a, std::string_view b);

/// A regular file of at most so many bytes. EFBIG: more.
Result<std::string> read_whole_file(const std::string& path, std::size_t most);
/// As write_durable_file() of core/durable_file.h, readable for the group.
Result<void> write_whole_file(const std::string& path, std::string_view bytes);

}  // namespace flash::link
