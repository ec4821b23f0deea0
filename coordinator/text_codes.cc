#include "coordinator/text_codes.h"

#include <cstdint>

namespace flash::coordinator {
namespace {

constexpr std::string_view kBase32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

std::string encode(std::string_view bytes, std::string_view alphabet, unsigned bits) {
  std::string text;
  std::uint32_t held = 0;
  unsigned count = 0;
  const std::uint32_t mask = (1u << bits) - 1;
  for (const char c : bytes) {
    held = held << 8 | static_cast<unsigned char>(c);
    for (count += 8; count >= bits; count -= bits) text += alphabet[held >> (count - bits) & mask];
  }
  if (count > 0) text += alphabet[held << (bits - count) & mask];
  return text;
}

Result<std::string> decode(std::string_view text, std::string_view alphabet, unsigned bits,
                           const char* name) {
  std::string bytes;
  std::uint32_t held = 0;
  unsigned count = 0;
  for (const char c : text) {
    const auto digit = alphabet.find(c);
    if (digit == alphabet.npos)
      return Error(std::errc::invalid_argument, std::string("not ") + name + ": another character");
    held = held << bits | static_cast<std::uint32_t>(digit);
    count += bits;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(held >> count & 0xff);
  }
  if (count >= bits || (held & ((1u << count) - 1)) != 0)
    return Error(std::errc::invalid_argument, std::string("not ") + name + ": it ends within a byte");
  return bytes;
}

}  // namespace

std::string base32(std::string_view bytes) {
  return encode(bytes, kBase32, 5);
}

Result<std::string> from_base32(std::string_view text) {
  return decode(text, kBase32, 5, "base32");
}

std::string base64url(std::string_view bytes) {
  return encode(bytes, kBase64Url, 6);
}

Result<std::string> from_base64url(std::string_view text) {
  return decode(text, kBase64Url, 6, "base64url");
}

}  // namespace flash::coordinator
