#include "lab/sim/environment.h"

#include <gtest/gtest.h>

namespace flash {
namespace {

constexpr std::string_view kGood =
    R"({"name":"a","cores":2,"memory_mib":1024,"frequencies_khz":[1000000,2000000],)"
    R"("power":{"idle_w":5,"max_w":20,"exponent":2},"cycles_factor":1.5,"noise":0.1})";

TEST(EnvironmentFile, IsReadWithItsDefaults) {
  const auto e = parse_environment(kGood, "env.json");
  ASSERT_TRUE(e) << e.error().message();
  EXPECT_EQ(e->name, "a");
  EXPECT_EQ(e->cores, 2);
  EXPECT_EQ(e->top_khz(), 2e6);
  EXPECT_EQ(e->power.max_w, 20);
  EXPECT_EQ(e->cycles_factor, 1.5);
  EXPECT_EQ(e->stall_factor, 1);
}

TEST(EnvironmentFile, ErrorsNameFileAndKey) {
  struct Case {
    std::string_view from, to, expected;
  };
  for (const Case& c : {
           Case{R"("cores":2)", R"("cores":0)", "/cores"},
           Case{R"("cores":2)", R"("cores":2.5)", "/cores"},
           Case{R"("cores":2)", R"("cores":"2")", "/cores"},
           Case{R"("cores":2,)", "", "/cores: is missing"},
           Case{R"("name":"a")", R"("name":7)", "/name"},
           Case{R"("noise":0.1)", R"("nois":0.1)", "/nois: unknown key"},
           Case{R"("noise":0.1)", R"("noise":-1)", "/noise"},
           Case{R"([1000000,2000000])", R"([])", "/frequencies_khz"},
           Case{R"([1000000,2000000])", R"([2000000,1000000])",
                "/frequencies_khz: frequencies are not ascending"},
           Case{R"("max_w":20)", R"("max_w":4)", "/power/max_w"},
           Case{R"("max_w":20)", R"("most_w":20)", "/power/most_w: unknown key"},
           Case{R"("cores":2)", R"("cores":2,"cores":3)", "/cores: is there twice"},
           Case{R"("name":"a")", R"("name")", "not JSON"},
       }) {
    std::string text(kGood);
    const auto at = text.find(c.from);
    ASSERT_NE(at, std::string::npos) << c.from;
    text.replace(at, c.from.size(), c.to);
    const auto e = parse_environment(text, "env.json");
    ASSERT_FALSE(e) << text;
    EXPECT_NE(e.error().message().find("env.json: "), std::string::npos) << e.error().message();
    EXPECT_NE(e.error().message().find(c.expected), std::string::npos) << e.error().message();
  }
}

TEST(EnvironmentFile, DeepNestingIsRefused) {
  EXPECT_FALSE(parse_environment(std::string(100000, '['), "env.json"));
}

TEST(EnvironmentPool, IsPrintedAsItIsRead) {
  const std::string text = to_json_text(generate_environments(20, 3));
  const auto pool = parse_environments(text, "pool.json");
  ASSERT_TRUE(pool) << pool.error().message();
  EXPECT_EQ(to_json_text(*pool), text);
  EXPECT_FALSE(parse_environments(R"({"version":2,"environments":[]})", "pool.json"));
  EXPECT_FALSE(parse_environments(R"({"version":1,"environments":[]})", "pool.json"));
}

TEST(EnvironmentPool, TheNthOfASeedDoesNotDependOnCount) {
  const auto few = generate_environments(3, 9), many = generate_environments(30, 9),
             other = generate_environments(3, 10);
  EXPECT_EQ(to_json_text(few), to_json_text(std::span(many).first(3)));
  EXPECT_NE(to_json_text(few), to_json_text(other));
}

TEST(Processors, AreTheThreeOfThePaperWithTheirHighestClocks) {
  ASSERT_EQ(processors().size(), 3U);
  EXPECT_EQ(processors()[0].top_khz(), 3.0e6);
  EXPECT_EQ(processors()[1].top_khz(), 3.1e6);
  EXPECT_EQ(processors()[2].top_khz(), 3.3e6);
}

}  // namespace
}  // namespace flash
