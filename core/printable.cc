#include "core/printable.h"

#include <algorithm>
#include <cstdint>

#include "core/utf8.h"

namespace flash {
namespace {

struct Character {
  char32_t code = 0;
  std::size_t bytes = 1;
  bool valid = false;
};

/// The character at the begin of `text` (not empty). What is not UTF-8 is one byte.
Character first_of(std::string_view text) {
  const std::size_t n = utf8_sequence(text);
  if (n == 0) return {};
  return {utf8_character(text), n, true};
}

/// Does a terminal do something else with it than to show it?
bool commands(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c <= 0x9f) || c == 0x061c ||  // C0, DEL, C1; Arabic letter mark
         (c >= 0x200b && c <= 0x200f) ||                         // of no width; left-to-right, right-to-left
         (c >= 0x2028 && c <= 0x202e) ||                         // separators of lines; embeddings, overrides
         (c >= 0x2060 && c <= 0x206f) || c == 0xfeff ||          // isolates, invisible operators
         (c >= 0xe0000 && c <= 0xe007f);                         // tags
}

template <class Replace>
std::string cleaned(std::string_view text, bool lines, const Replace& replace) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character c = first_of(text);
    if (c.valid && (!commands(c.code) || (lines && (c.code == '\n' || c.code == '\t'))))
      out += text.substr(0, c.bytes);
    else
      replace(out, c);
    text.remove_prefix(c.bytes);
  }
  return out;
}

void question_mark(std::string& out, const Character&) {
  out += '?';
}

}  // namespace

std::string printable_line(std::string_view text) {
  return cleaned(text, false, question_mark);
}

std::string printable_text(std::string_view text) {
  return cleaned(text, true, question_mark);
}

std::string printable_json(std::string_view json) {
  return cleaned(json, true, [](std::string& out, const Character& c) {
    if (!c.valid) {
      out += "\xef\xbf\xbd";
      return;
    }
    const auto unit = [&out](std::uint32_t u) {
      char text[8];
      std::snprintf(text, sizeof text, "\\u%04x", u & 0xffffU);
      out += text;
    };
    const auto code = static_cast<std::uint32_t>(c.code);
    if (code > 0xffff) {
      unit(0xd800U + ((code - 0x10000U) >> 10));
      unit(0xdc00U + ((code - 0x10000U) & 0x3ffU));
    } else {
      unit(code);
    }
  });
}

void print_line(std::FILE* to, std::string_view text) {
  const std::string line = printable_line(text) + '\n';
  std::fwrite(line.data(), 1, line.size(), to);
}

void print_text(std::FILE* to, std::string_view text) {
  const std::string clean = printable_text(text);
  std::fwrite(clean.data(), 1, clean.size(), to);
}

bool PrintableStream::pass_on(std::size_t bytes) {
  const std::string clean = printable_text(std::string_view(waiting_).substr(0, bytes));
  waiting_.erase(0, bytes);
  const auto size = static_cast<std::streamsize>(clean.size());
  return below_->sputn(clean.data(), size) == size;
}

PrintableStream::int_type PrintableStream::overflow(int_type c) {
  if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
  const char one = traits_type::to_char_type(c);
  return xsputn(&one, 1) == 1 ? c : traits_type::eof();
}

std::streamsize PrintableStream::xsputn(const char* text, std::streamsize n) {
  waiting_.append(text, static_cast<std::size_t>(n));
  // Whole lines: no character lies across their end.
  const auto end = waiting_.rfind('\n');
  return end == std::string::npos || pass_on(end + 1) ? n : 0;
}

int PrintableStream::sync() {
  return pass_on(waiting_.size()) ? below_->pubsync() : -1;
}

}  // namespace flash
