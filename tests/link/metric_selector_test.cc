#include "link/metric_selector.h"

#include <gmock/gmock.h>

namespace flash::link {
namespace {

using testing::HasSubstr;

std::string wrong(std::string_view text) {
  const auto s = parse_metric_selector(text);
  return s ? "" : s.error().message();
}

TEST(MetricSelector, ReadsANameWithMatchers) {
  const auto s = parse_metric_selector("http_seconds{ handler = \"/a\\\"b\" , code!=\"500\",}");
  ASSERT_TRUE(s) << s.error().message();
  EXPECT_EQ(s->name, "http_seconds");
  EXPECT_EQ(s->matchers, (std::vector<LabelMatcher>{{"handler", "/a\"b", true}, {"code", "500", false}}));
  EXPECT_EQ(parse_metric_selector("a:b")->name, "a:b");
}

TEST(MetricSelector, AnAbsentLabelCountsAsEmpty) {
  const auto s = parse_metric_selector("a{code!=\"500\",handler=\"\"}");
  EXPECT_TRUE(matches(*s, {}));
  EXPECT_FALSE(matches(*s, {{"code", "500"}}));
  EXPECT_FALSE(matches(*s, {{"handler", "/"}}));
}

TEST(MetricSelector, SaysWhatIsWrongAndWhere) {
  EXPECT_THAT(wrong(""), HasSubstr("name was expected at character 1"));
  EXPECT_THAT(wrong("9a"), HasSubstr("name was expected"));
  EXPECT_THAT(wrong("a{"), HasSubstr("a label's name was expected at character 3"));
  EXPECT_THAT(wrong("a{b=~\"x\"}"), HasSubstr("regular expressions are not supported"));
  EXPECT_THAT(wrong("a{b=\"x}"), HasSubstr("closing quote"));
  EXPECT_THAT(wrong("a{b=x}"), HasSubstr("double quotes"));
  EXPECT_THAT(wrong("a} "), HasSubstr("'{'"));
  EXPECT_THAT(wrong("a{b=\"x\"}c"), HasSubstr("something follows"));
  EXPECT_THAT(wrong(std::string(300, 'a')), HasSubstr("longer than"));
}

TEST(Url, TakesHttpAndHttpsWithAHost) {
  for (const char* good : {"http://127.0.0.1:9100/metrics", "https://web.example/metrics?x=1",
                           "http://[::1]:80/", "http://web", "http://web:8080"})
    EXPECT_EQ(wrong_with_url(good), std::nullopt) << good;
}

TEST(Url, RefusesTheRest) {
  EXPECT_THAT(*wrong_with_url("file:///etc/shadow"), HasSubstr("http://"));
  EXPECT_THAT(*wrong_with_url("ftp://web/"), HasSubstr("http://"));
  EXPECT_THAT(*wrong_with_url("http://me:secret@web/"), HasSubstr("no place for secrets"));
  EXPECT_THAT(*wrong_with_url("http://web/#top"), HasSubstr("fragment"));
  EXPECT_THAT(*wrong_with_url("http://web/a b"), HasSubstr("character"));
  EXPECT_THAT(*wrong_with_url("http:///metrics"), HasSubstr("HOST"));
  EXPECT_THAT(*wrong_with_url("http://web:0/"), HasSubstr("HOST"));
  EXPECT_THAT(*wrong_with_url("http://web:65536/"), HasSubstr("HOST"));
  EXPECT_THAT(*wrong_with_url("http://[::1/"), HasSubstr("HOST"));
  EXPECT_THAT(*wrong_with_url("http://web/" + std::string(1100, 'a')), HasSubstr("longer"));
}

}  // namespace
}  // namespace flash::link
