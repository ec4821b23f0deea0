#include "sync/foreign_page.h"

#include <gmock/gmock.h>

namespace flash::sync {
namespace {

using namespace std::string_literals;
using testing::HasSubstr;

struct Answer {
  std::string name, body, type, words;  // words empty: it looks like metrics
};
class ForeignPage : public testing::TestWithParam<Answer> {};

TEST_P(ForeignPage, IsNamed) {
  const std::string words = foreign_page(GetParam().body, GetParam().type);
  EXPECT_THAT(words, HasSubstr(GetParam().words));
  EXPECT_EQ(words.empty(), GetParam().words.empty()) << words;
  EXPECT_LE(words.size(), 256u);
}

INSTANTIATE_TEST_SUITE_P(
    Answers, ForeignPage,
    testing::Values(Answer{"gzip", "\x1f\x8b\x08\0\0"s, "text/plain", "compressed with gzip"},
                    Answer{"zstd", "\x28\xb5\x2f\xfd\x04"s, "", "compressed with zstd"},
                    Answer{"deflate", "\x78\x9c\xab"s, "", "compressed with deflate"},
                    Answer{"xz", "\xfd"s + "7zXZ\0"s, "", "compressed with xz"},
                    Answer{"html", "<!DOCTYPE html><html>", "text/html; charset=utf-8", "HTML"},
                    Answer{"html_that_says_it_is_text", "\n  <html>", "text/plain", "HTML"},
                    Answer{"xml", "<?xml version=\"1.0\"?>", "application/xml", "XML"},
                    Answer{"json", "{\"status\": \"UP\"}", "application/json", "JSON"},
                    Answer{"json_list", "[1, 2]", "", "JSON"}, Answer{"json_empty", "{}", "", "JSON"},
                    Answer{"a_name_in_quotes", "{\"http.requests\"} 1\n", "", ""},
                    Answer{"a_name_in_quotes_with_labels", "{\"http.requests\",a=\"b\"} 1\n", "", ""},
                    Answer{"protobuf", "\x0a\x05hello", "application/vnd.google.protobuf", "protobuf"},
                    Answer{"protobuf_unsaid", "\x8e\x01\x0a\x05hello\0\0"s, "", "protobuf"},
                    Answer{"utf16", "\xff\xfeu\0p\0"s, "", "UTF-16"},
                    Answer{"utf16_big", "\xfe\xff\0u"s, "", "UTF-16"},
                    Answer{"utf16_without_a_mark", "u\0p\0"s, "", "UTF-16"}, Answer{"empty", "", "", "empty"},
                    Answer{"blank", " \n\n", "", "empty"},
                    Answer{"metrics", "# HELP a b\na 1\n", "text/plain", ""},
                    Answer{"metrics_that_say_they_are_html", "up 1\n", "text/html", ""}),
    [](const auto& p) { return p.param.name; });

TEST(WordsForStatus, SayWhatToDo) {
  for (const long status : {204, 301, 302, 307, 400, 401, 403, 404, 405, 406, 426, 429, 500, 502, 503})
    EXPECT_FALSE(words_for_status(status).empty()) << status;
  EXPECT_THAT(std::string(words_for_status(401)), HasSubstr("login"));
  EXPECT_THAT(std::string(words_for_status(404)), HasSubstr("path"));
  EXPECT_EQ(words_for_status(418), "");
}

}  // namespace
}  // namespace flash::sync
