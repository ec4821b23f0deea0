#include "coordinator/messages_pages.h"

#include <gmock/gmock.h>

#include "link/messages.h"

namespace flash::coordinator {
namespace {

using testing::HasSubstr;

FleetRow row(const std::string& name) {
  return {.node = "n1",
          .pool = "web",
          .target = name,
          .application = "shop",
          .task = Task::CpuFrequency,
          .stage = Stage::Online,
          .agents = 1,
          .serving = 0,
          .reward = 0.5,
          .fallback = std::nullopt,
          .time_us = 7};
}

TEST(FleetMessages, WhatIsSaidIsUnderstood) {
  const FleetQuestion question{.id = 9, .agents = true, .text = "we\"b", .offset = 50};
  const auto asked = decode_fleet_question(encode(question));
  ASSERT_TRUE(asked) << asked.error().message();
  EXPECT_EQ(asked->id, 9u);
  EXPECT_TRUE(asked->agents);
  EXPECT_EQ(asked->text, "we\"b");
  EXPECT_EQ(asked->offset, 50u);
  const auto page = decode_fleet_page(encode(FleetPage{9, 70, {row("a"), row("b")}}));
  ASSERT_TRUE(page) << page.error().message();
  EXPECT_EQ(page->id, 9u);
  EXPECT_EQ(page->total, 70u);
  EXPECT_THAT(page->rows, testing::ElementsAre(row("a"), row("b")));
}

TEST(FleetMessages, APageOfTheLongestRowsFitsAMessage) {
  FleetRow longest = row(std::string(256, 't'));
  longest.node = longest.pool = longest.application = std::string(256, 'x');
  const FleetPage page{1, 50, std::vector<FleetRow>(kFleetRows, longest)};
  EXPECT_LT(encode(page).size(), link::kMaxMessage);
  EXPECT_TRUE(decode_fleet_page(encode(page)));
}

TEST(FleetMessages, WhatIsOutsideTheBoundsIsRefusedByName) {
  const auto trouble = [](auto decoded) { return decoded ? std::string() : decoded.error().message(); };
  std::string bytes = encode(FleetQuestion{.id = 1, .agents = false, .text = "abc", .offset = 0});
  bytes[bytes.find("abc")] = '\n';
  EXPECT_THAT(trouble(decode_fleet_question(bytes)), HasSubstr("text: a control character"));
  EXPECT_FALSE(validate({.offset = kMaxFleetOffset + 1}));
  EXPECT_FALSE(validate({.text = std::string(257, 'a')}));
  bytes = encode(FleetPage{1, 1, {row("target")}});
  std::string broken = bytes;
  broken.replace(broken.find("cpu-frequency"), 13, "cpu-frequencz");
  EXPECT_THAT(trouble(decode_fleet_page(broken)), HasSubstr("rows[0].task: not a task"));
  broken = bytes;
  broken.replace(broken.find("serving"), 7, "servinq");
  EXPECT_THAT(trouble(decode_fleet_page(broken)), HasSubstr("rows[0].serving: missing"));
  broken = bytes;
  broken.replace(broken.find("efleet"), 6, "efleex");
  EXPECT_THAT(trouble(decode_fleet_page(broken)), HasSubstr("fleex"));
  EXPECT_FALSE(decode_fleet_question("\xff"));
}

TEST(FleetMessages, SubjectsNameTheNodeThatAsks) {
  EXPECT_EQ(fleet_question_subject("n1"), "flash.v1.rq.n1.fleet");
  EXPECT_EQ(fleet_page_subject("n1"), "flash.v1.dn.n1.fleet");
  EXPECT_EQ(fleet_asking_node("flash.v1.rq.n1.fleet"), "n1");
  for (const char* subject : {"flash.v1.rq.n1.nearest", "flash.v1.rq..fleet", "flash.v1.rq.a.b.fleet",
                              "flash.v1.rq.fleet", "flash.v1.rq.*.fleet", "flash.v1.rq.n1-fleet"})
    EXPECT_EQ(fleet_asking_node(subject), std::nullopt) << subject;
}

}  // namespace
}  // namespace flash::coordinator
