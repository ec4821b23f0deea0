#include "core/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace flash::utf8_test {
namespace {

using namespace std::string_literals;

TEST(Utf8, ACharacterHasItsBytesAndItsNumber) {
  const struct {
    std::string text;
    std::size_t bytes;
    char32_t character;
  } rows[] = {{"a", 1, U'a'},
              {"\0"s, 1, 0},
              {"\x7f", 1, 0x7f},
              {"\xc2\x80", 2, 0x80},
              {"\xdf\xbf", 2, 0x7ff},
              {"\xe0\xa0\x80", 3, 0x800},
              {"\xed\x9f\xbf", 3, 0xd7ff},
              {"\xee\x80\x80", 3, 0xe000},
              {"\xef\xbf\xbf", 3, 0xffff},
              {"\xf0\x90\x80\x80", 4, 0x10000},
              {"\xf4\x8f\xbf\xbf", 4, 0x10ffff}};
  for (const auto& row : rows) {
    EXPECT_EQ(utf8_sequence(row.text), row.bytes);
    EXPECT_EQ(utf8_sequence(row.text + "more"), row.bytes);
    EXPECT_EQ(utf8_character(row.text + "more"), row.character);
    EXPECT_TRUE(is_utf8(row.text + row.text));
    if (row.bytes > 1) {
      EXPECT_EQ(utf8_sequence(row.text.substr(0, row.bytes - 1)), 0u);
    }
  }
}

TEST(Utf8, OverlongFormsSurrogatesAndStrayBytesAreNoCharacters) {
  for (const char* bad : {"\x80", "\xbf", "\xc0\xaf", "\xc1\xbf", "\xc2",
                          "\xc2"
                          "a",
                          "\xe0\x9f\xbf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xed\xbf\xbf", "\xe1\x80",
                          "\xe1\x80"
                          "a",
                          "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
                          "\xf1\x80\x80"
                          "a",
                          "\xff"}) {
    EXPECT_EQ(utf8_sequence(bad), 0u);
    EXPECT_FALSE(is_utf8("a"s + bad));
  }
  EXPECT_EQ(utf8_sequence(""), 0u);
  EXPECT_TRUE(is_utf8(""));
}

}  // namespace
}  // namespace flash::utf8_test
