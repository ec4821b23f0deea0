// Purpose: gzip for tests, without a library: text as it is in stored blocks, and a run of one byte packed as
// tightly as the format allows.
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace flash::sync {

class Gzip {
 public:
  static std::string stored(std::string_view text) {
    std::string body = "\x01";  // the last block, stored
    const auto size = static_cast<std::uint16_t>(text.size());
    number(body, size, 2);
    number(body, static_cast<std::uint16_t>(~size), 2);
    body += text;
    return whole(body, text);
  }
  /// `n` bytes; a thousandth of it. REQUIRES: n - 1 is a multiple of 258.
  static std::string run(char byte, std::size_t n) {
    Gzip bits;
    bits.put(1, 1);  // the last block
    bits.put(1, 2);  // with the fixed codes
    bits.code(0x30 + static_cast<unsigned char>(byte), 8);
    for (std::size_t i = 1; i < n; i += 258) {
      bits.code(0xc5, 8);  // 258 bytes ...
      bits.code(0, 5);     // ... from one back
    }
    bits.code(0, 7);  // end
    return whole(bits.out_ + bits.last_, std::string(n, byte));
  }

 private:
  void put(unsigned value, int width) {
    for (int i = 0; i < width; ++i) bit((value >> i) & 1);
  }
  void code(unsigned value, int width) {
    for (int i = width - 1; i >= 0; --i) bit((value >> i) & 1);
  }
  void bit(unsigned b) {
    last_ = static_cast<char>(static_cast<unsigned char>(last_) | (b << at_));
    if (++at_ < 8) return;
    out_ += last_;
    last_ = 0;
    at_ = 0;
  }
  static void number(std::string& out, std::uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  }
  static std::uint32_t crc(std::string_view text) {
    std::uint32_t c = ~0U;
    for (const char byte : text) {
      c ^= static_cast<unsigned char>(byte);
      for (int k = 0; k < 8; ++k) c = (c >> 1) ^ (c & 1 ? 0xedb88320U : 0);
    }
    return ~c;
  }
  static std::string whole(const std::string& body, std::string_view text) {
    std::string out("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10);
    out += body;
    number(out, crc(text), 4);
    number(out, static_cast<std::uint32_t>(text.size()), 4);
    return out;
  }

  std::string out_;
  char last_ = 0;
  int at_ = 0;
};

}  // namespace flash::sync
