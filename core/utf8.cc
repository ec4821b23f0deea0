#include "core/utf8.h"

#include <cassert>

namespace flash {

std::size_t utf8_sequence(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t n = first >= 0xc2 && first <= 0xdf   ? 2
                        : first >= 0xe0 && first <= 0xef ? 3
                        : first >= 0xf0 && first <= 0xf4 ? 4
                                                         : 0;
  if (n == 0 || n > text.size()) return 0;
  for (std::size_t k = 1; k < n; ++k)
    if ((byte(k) & 0xc0) != 0x80) return 0;
  if (first == 0xe0 && byte(1) < 0xa0) return 0;
  if (first == 0xed && byte(1) > 0x9f) return 0;
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) > 0x8f) return 0;
  return n;
}

char32_t utf8_character(std::string_view text) {
  const std::size_t n = utf8_sequence(text);
  assert(n > 0);
  const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[k]); };
  char32_t character = n == 1 ? byte(0) : byte(0) & (0x7fU >> n);
  for (std::size_t k = 1; k < n; ++k) character = (character << 6) | (byte(k) & 0x3fU);
  return character;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t n = utf8_sequence(text);
    if (n == 0) return false;
    text.remove_prefix(n);
  }
  return true;
}

}  // namespace flash
