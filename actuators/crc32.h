// Purpose: CRC-32 (IEEE 802.3, reflected 0xEDB88320) of texts one after another.
// Ownership: value.
// Thread rule: none needed.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace flash {

class Crc32 {
 public:
  void add(std::string_view text) {
    for (unsigned char byte : text) state_ = kTable[(state_ ^ byte) & 0xFF] ^ (state_ >> 8);
  }
  std::uint32_t value() const { return ~state_; }

 private:
  static constexpr auto kTable = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t c = i;
      for (int k = 0; k < 8; ++k) c = (c & 1) ? 0xEDB88320U ^ (c >> 1) : c >> 1;
      table[i] = c;
    }
    return table;
  }();

  std::uint32_t state_ = ~0U;
};

}  // namespace flash
