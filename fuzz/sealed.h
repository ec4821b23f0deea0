// Purpose: bytes of a tensor file with the header's length and the digest put right, so that a fuzzer reaches
// what they protect.
// Ownership: values.
// Thread rule: pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/tensor_file.h"

namespace flash::fuzz {

inline constexpr std::size_t kPrefix = 12;  // magic and header length
inline constexpr std::size_t kDigest = 32;

inline std::string sealed(std::string_view bytes) {
  std::string out = "FLASHTF1";
  // The header ends at its last brace; where there is none, all is header.
  std::string_view rest = bytes.substr(std::min(bytes.size(), kPrefix));
  if (rest.size() >= kDigest) rest.remove_suffix(kDigest);
  int depth = 0;
  std::size_t header = rest.size();
  for (std::size_t i = 0; i < rest.size(); ++i) {
    depth += rest[i] == '{' ? 1 : rest[i] == '}' ? -1 : 0;
    if (depth == 0 && rest[i] == '}') {
      header = i + 1;
      break;
    }
  }
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>((header >> shift) & 0xFF);
  out += rest;
  const std::string hex = flash::sha256_hex(out);
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  for (std::size_t i = 0; i < hex.size(); i += 2)
    out += static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1]));
  return out;
}

}  // namespace flash::fuzz
