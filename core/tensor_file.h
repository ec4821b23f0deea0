// Purpose: named arrays of float32 in one file or message: checkpoints of the learner, policies on disk and
// on the socket. Never torch::load, which executes what it loads.
//
//   "FLASHTF1" (8 bytes) | header length, u32 little endian, <= 1 MiB | header: JSON, UTF-8
//   | arrays: f32 little endian, in the header's order, each without padding | SHA-256 of all before (32 bytes)
//
// Header: {"kind": "policy", "format": 1, "meta": {...},
//          "arrays": [{"name": "actor/0/weights", "shape": [40, 7]}]}
// Ownership: values.
// Thread rule: pure functions; only read_ and write_ touch files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_box.h"
#include "core/policy_snapshot.h"
#include "core/result.h"

namespace flash {

struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;  // empty: one number
  std::vector<float> values;        // row-major
};

struct TensorFile {
  std::string kind;  // "policy", "checkpoint"
  int format = 1;
  JsonBox meta;  // an object
  std::vector<Tensor> tensors;

  const Tensor* find(std::string_view name) const;
};

inline constexpr std::size_t kTensorFileMaxBytes = 64u << 20;
inline constexpr std::size_t kTensorFileMaxArrays = 4096;
inline constexpr std::size_t kTensorFileMaxHeaderBytes = 1u << 20;
/// A policy's header has a few KB, and JSON is what costs most to read: an offer may not bring more.
inline constexpr std::size_t kPolicyMaxHeaderBytes = 1u << 14;

std::string encode(const TensorFile& file);
/// EINVAL says what is wrong: "magic", "header ends early", "array 3 'critic/0/bias': ...", "digest differs".
/// Numbers may be non-finite here; who uses them checks.
Result<TensorFile> decode_tensor_file(std::string_view bytes,
                                      std::size_t max_header_bytes = kTensorFileMaxHeaderBytes);

/// Temporary file, fdatasync, rename, directory sync: after a crash the old or the new file, never half.
Result<void> write_tensor_file(const std::string& path, const TensorFile& file);
Result<TensorFile> read_tensor_file(const std::string& path);

/// Hex SHA-256; the digest that names a policy everywhere.
std::string sha256_hex(std::string_view bytes);

/// A policy as tensor file (kind "policy"). to_policy() refuses what is not one, with the reason; call
/// PolicySnapshot::validate() on the result.
TensorFile to_tensor_file(const PolicySnapshot& policy);
Result<PolicySnapshot> to_policy(const TensorFile& file);

}  // namespace flash
