#include "coordinator/api_query.h"

#include <gmock/gmock.h>

namespace flash::coordinator {
namespace {

using testing::HasSubstr;

http::Target target(const std::string& text) {
  auto parsed = http::parse_target("/x" + text);
  EXPECT_TRUE(parsed) << text;
  return parsed ? *parsed : http::Target();
}

template <class T>
std::string trouble(const Result<T>& result) {
  return result ? "" : result.error().message();
}

TEST(ApiQuery, AgentsAreAskedForByWhatTheyAre) {
  const auto q =
      agents_query(target("?q=We%20b&node=n1&pool=p&application=shop&task=cpu-frequency&stage=serving&sort=-"
                          "gain&offset=100&limit=25"));
  ASSERT_TRUE(q) << q.error().message();
  EXPECT_EQ(q->text, "We b");
  EXPECT_EQ(q->node, "n1");
  EXPECT_EQ(q->pool, "p");
  EXPECT_EQ(q->application, "shop");
  EXPECT_EQ(q->task, Task::CpuFrequency);
  EXPECT_EQ(q->stage, Stage::Serving);
  EXPECT_EQ(q->order, AgentOrder::Gain);
  EXPECT_TRUE(q->falling);
  EXPECT_EQ(q->page.offset, 100u);
  EXPECT_EQ(q->page.limit, 25u);
}

TEST(ApiQuery, NothingAskedForIsTheFirstPage) {
  const auto q = agents_query(target(""));
  ASSERT_TRUE(q);
  EXPECT_EQ(q->page.limit, kDefaultPage);
  EXPECT_FALSE(q->task || q->stage || q->falling);
}

TEST(ApiQuery, WhatIsNoValueIsRefusedByName) {
  for (const char* text : {"?limit=0", "?limit=501", "?limit=-1", "?limit=1x", "?limit="})
    EXPECT_THAT(trouble(agents_query(target(text))), HasSubstr("is not a value of limit")) << text;
  EXPECT_THAT(trouble(agents_query(target("?offset=10000001"))), HasSubstr("offset"));
  EXPECT_THAT(trouble(agents_query(target("?offset=99999999999999999999999"))), HasSubstr("offset"));
  for (const char* text : {"?sort=", "?sort=-", "?sort=--node", "?sort=target", "?sort=Node"})
    EXPECT_THAT(trouble(agents_query(target(text))), HasSubstr("is not a value of sort")) << text;
  EXPECT_THAT(trouble(agents_query(target("?task=limits"))), HasSubstr("task"));
  EXPECT_THAT(trouble(agents_query(target("?stage=done"))), HasSubstr("stage"));
  EXPECT_THAT(trouble(agents_query(target("?q=" + std::string(kMaxWord + 1, 'a')))), HasSubstr("q"));
  EXPECT_EQ(trouble(agents_query(target("?Q=a"))), "unknown parameter 'Q'");
  EXPECT_EQ(trouble(nodes_query(target("?stage=serving"))), "unknown parameter 'stage'");
  EXPECT_EQ(trouble(no_query(target("?a=1"))), "unknown parameter 'a'");
}

TEST(ApiQuery, NodesCurvesAndTheMapHaveTheirOwn) {
  const auto nodes = nodes_query(target("?q=n&sort=agents"));
  ASSERT_TRUE(nodes);
  EXPECT_EQ(nodes->order, NodeOrder::Agents);
  const auto curves = curves_query(target("?task=cpu-frequency&application=a&range=month"));
  ASSERT_TRUE(curves);
  EXPECT_EQ(curves->range, Range::Month);
  EXPECT_EQ(curves->task, Task::CpuFrequency);
  EXPECT_THAT(trouble(curves_query(target("?range=year"))), HasSubstr("range"));
  EXPECT_EQ(map_query(target(""))->model, "");
  EXPECT_EQ(map_query(target("?model=limits%20v3"))->model, "limits v3");
  EXPECT_THAT(trouble(map_query(target("?model=" + std::string(kMaxWord + 1, 'a')))), HasSubstr("model"));
}

}  // namespace
}  // namespace flash::coordinator
