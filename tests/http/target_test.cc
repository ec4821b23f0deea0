#include "http/target.h"

#include <gmock/gmock.h>

namespace flash::http {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::string trouble(std::string_view text) {
  auto parsed = parse_target(text);
  return parsed ? "" : parsed.error().message();
}

TEST(HttpTarget, APathIsItsSegments) {
  EXPECT_TRUE(parse_target("/")->path.empty());
  EXPECT_THAT(parse_target("/api/v1/nodes/a%2Fb")->path, ElementsAre("api", "v1", "nodes", "a/b"));
}

TEST(HttpTarget, AQueryIsNamesAndValues) {
  const auto target = parse_target("/a?q=x%26y%3d&empty=&plus=1+1&%c3%a9=%F0%9F%98%80");
  ASSERT_TRUE(target) << target.error().message();
  EXPECT_THAT(target->query, ElementsAre(Pair("q", "x&y="), Pair("empty", ""), Pair("plus", "1+1"),
                                         Pair("\u00e9", "\U0001F600")));
  EXPECT_EQ(target->parameter("empty"), "");
  EXPECT_EQ(target->parameter("none"), std::nullopt);
}

TEST(HttpTarget, WhatIsNotUnderstoodIsRefused) {
  for (const char* text : {"", "a", "http://host/", "*", "//", "/a/", "/a//b", "/.", "/a/../b", "/%2e%2e"})
    EXPECT_THAT(trouble(text), HasSubstr("path")) << text;
  for (const char* text : {"/?", "/?a", "/?=1", "/?a=1&", "/?&a=1", "/?a=1&&b=2"})
    EXPECT_THAT(trouble(text), HasSubstr("NAME=VALUE")) << text;
  for (const char* text : {"/%", "/%4", "/%zz", "/?a=%1"}) EXPECT_EQ(trouble(text), "half an escape") << text;
  for (const char* text : {"/%00", "/a%0d%0a", "/?a=%7f"})
    EXPECT_EQ(trouble(text), "a control character") << text;
  for (const char* text : {"/a b", "/a#b", "/\x01", "/\xc3\xa9"})
    EXPECT_THAT(trouble(text), HasSubstr("has to be escaped")) << text;
  EXPECT_EQ(trouble("/?a=1&a=2"), "a parameter is given twice");
}

TEST(HttpTarget, OnlyUtf8Passes) {
  for (const char* text : {"/%80", "/%c0%af", "/%c3", "/%e0%80%80", "/%ed%a0%80", "/%f0%80%80%80",
                           "/%f4%90%80%80", "/%f5%80%80%80", "/%e2%82"})
    EXPECT_EQ(trouble(text), "not UTF-8") << text;
  for (const char* text : {"/%e2%82%ac", "/%ed%9f%bf", "/%f4%8f%bf%bf"}) EXPECT_EQ(trouble(text), "") << text;
}

TEST(HttpTarget, ItIsBounded) {
  EXPECT_EQ(trouble("/" + std::string(kMaxTarget - 1, 'a')), "");
  EXPECT_THAT(trouble("/" + std::string(kMaxTarget, 'a')), HasSubstr("2048"));
  std::string many = "/?a0=1";
  for (std::size_t i = 1; i < kMaxParameters; ++i) many += "&a" + std::to_string(i) + "=1";
  EXPECT_EQ(trouble(many), "");
  EXPECT_EQ(trouble(many + "&b=1"), "too many parameters");
}

}  // namespace
}  // namespace flash::http
