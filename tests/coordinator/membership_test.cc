#include "coordinator/membership.h"
#include "core/json.h"

#include <gmock/gmock.h>

#include "tests/coordinator/json_error.h"

namespace flash::coordinator {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int64_t kOneSecond = 1'000'000, kStart = 1'795'000'000 * kOneSecond;
const Heartbeat kBeat{"flash-sync 0.1.0", "0.1.0", "control", 12, 3};

TEST(Membership, ANodeIsSuspectAfterFifteenSecondsAndDeadAfterThirty) {
  Membership m;
  m.listening(kStart);
  m.beat({"pool", "n1"}, kBeat, kStart);
  auto changes = m.tick(kStart);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].now, Liveness::Alive);
  EXPECT_THAT(m.tick(kStart + 14 * kOneSecond), IsEmpty());
  EXPECT_EQ(m.tick(kStart + 15 * kOneSecond).at(0).now, Liveness::Suspect);
  EXPECT_THAT(m.tick(kStart + 29 * kOneSecond), IsEmpty());
  EXPECT_EQ(m.tick(kStart + 30 * kOneSecond).at(0).now, Liveness::Dead);
  m.beat({"pool", "n1"}, kBeat, kStart + 40 * kOneSecond);
  EXPECT_EQ(m.tick(kStart + 40 * kOneSecond).at(0).now, Liveness::Alive);
}

TEST(Membership, SilenceCountsOnlyWhileSomebodyListens) {
  FleetNode known{.node = "n1", .last_seen_us = kStart};
  Membership m({known});
  m.listening(kStart + 3600 * kOneSecond);  // the coordinator was away for an hour
  EXPECT_THAT(m.tick(kStart + 3610 * kOneSecond), IsEmpty());
  EXPECT_EQ(m.tick(kStart + 3616 * kOneSecond).at(0).now, Liveness::Suspect);
  EXPECT_EQ(m.tick(kStart + 3631 * kOneSecond).at(0).now, Liveness::Dead);
}

TEST(Membership, WhatChangedIsHandedOverOnce) {
  Membership m;
  m.beat({"pool", "n1"}, kBeat, kStart);
  m.beat({"pool", "n1"}, kBeat, kStart + kOneSecond);
  const auto changed = m.take_changed();
  ASSERT_EQ(changed.size(), 1u);
  EXPECT_EQ(changed[0].node, "n1");
  EXPECT_EQ(changed[0].pool, "pool");
  EXPECT_EQ(changed[0].software, "flash-sync 0.1.0");
  EXPECT_EQ(changed[0].mode, "control");
  EXPECT_EQ(changed[0].agents, 12u);
  EXPECT_EQ(changed[0].outbox, 3u);
  EXPECT_EQ(changed[0].last_seen_us, kStart + kOneSecond);
  EXPECT_THAT(m.take_changed(), IsEmpty());
}

TEST(FleetMessages, HeartbeatsComeBackAsTheyWereAndAreBounded) {
  const auto back = decode_heartbeat(encode(kBeat));
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(*back, kBeat);
  const auto error = [](const std::string& key, nlohmann::json value) {
    return error_of(encode(kBeat), key, std::move(value), decode_heartbeat);
  };
  EXPECT_THAT(error("software", ""), HasSubstr("software: empty"));
  EXPECT_THAT(error("mode", "a\nb"), HasSubstr("mode: a control character"));
  EXPECT_THAT(error("agents", 2000000), HasSubstr("agents: "));
  EXPECT_THAT(error("outbox", -1), HasSubstr("outbox: not a count"));
  EXPECT_THAT(error("more", 1), HasSubstr("more: unknown key"));
}

TEST(FleetMessages, WhatACoordinatorSaysComesBackAsItWasAndIsBounded) {
  const CoordinatorBeat beat{"9f", 5, 7, true, 3};
  const auto back = decode_coordinator_beat(encode(beat));
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(*back, beat);
  const auto error = [&](const std::string& key, nlohmann::json value) {
    return error_of(encode(beat), key, std::move(value), decode_coordinator_beat);
  };
  EXPECT_THAT(error("instance", ""), HasSubstr("instance: empty"));
  EXPECT_THAT(error("position", 1e16), HasSubstr("position: "));
  EXPECT_THAT(error("in_step", 1), HasSubstr("in_step: not true or false"));
}

TEST(FleetMessages, SubjectsSayWhoSpeaks) {
  EXPECT_EQ(heartbeat_subject({"p", "n"}), "flash.v1.hb.p.n");
  EXPECT_EQ(heartbeat_origin("flash.v1.hb.p.n")->node, "n");
  EXPECT_EQ(coordinator_of(coordinator_subject("c1")), "c1");
  for (const char* wrong : {"flash.v1.hb.p", "flash.v1.hb.p.n.x", "flash.v1.hb..n", "flash.v1.co.a"})
    EXPECT_FALSE(heartbeat_origin(wrong)) << wrong;
  for (const char* wrong : {"flash.v1.co.", "flash.v1.co.a.b", "flash.v1.hb.p.n"})
    EXPECT_FALSE(coordinator_of(wrong)) << wrong;
}

}  // namespace
}  // namespace flash::coordinator
