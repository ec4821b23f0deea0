// What a learner cannot do to flashd: break the protocol, flood it, take its memory or its time.
#include "daemon/learner_link.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/daemon/scripted_learner.h"

namespace flash {
namespace {

using link::Up;
using testing::HasSubstr;
using testing::StartsWith;

class LearnerLinkBounds : public LearnerLinkTest {};

TEST_F(LearnerLinkBounds, WhatBreaksTheProtocolClosesTheConnectionByName) {
  const auto closes = [&](const std::string& bytes, const std::string& why) {
    auto c = greet();
    ASSERT_TRUE(c.send(bytes));
    run();
    EXPECT_TRUE(closed(c));
    EXPECT_THAT(flashd->state(), HasSubstr(why));
    EXPECT_THAT(flashd->state(), StartsWith("closed: "));
    now.mono += bounds.error_backoff;
  };
  closes("garbage", "byte 0");
  closes(link::encode(Up(link::HelloUp{"l", "", 1})), "a second Hello");
  std::string other = link::encode(Up(link::Stored{"limits_1", 1}));
  other[other.find("av") + 2] = link::kVersion + 1;
  closes(other, "version " + std::to_string(link::kVersion + 1) + ", this end speaks " +
                    std::to_string(link::kVersion));
  EXPECT_EQ(flashd->counters().protocol_errors, 3u);
}

TEST_F(LearnerLinkBounds, AnAcknowledgementOfTheFutureIsAnError) {
  agent_added(*flashd, web());
  auto c = greet();
  tick();
  say(c, link::Acknowledge{{{"limits_1", 2}}});
  EXPECT_EQ(flashd->state(), "closed: acknowledges step 2 of limits_1, the last was 1");
  EXPECT_TRUE(closed(c));
}

TEST_F(LearnerLinkBounds, AMessageBeforeTheHelloIsAnError) {
  auto c = dial();
  say(c, link::Stored{"limits_1", 1});
  EXPECT_EQ(flashd->state(), "closed: a message before the Hello");
}

TEST_F(LearnerLinkBounds, AnOversizedMessageIsAnError) {
  auto c = greet();
  const std::string huge(link::kMaxMessage + 1, 'x');
  ASSERT_GT(::send(c.fd(), huge.data(), huge.size(), 0), 0);
  run();
  EXPECT_THAT(flashd->state(), HasSubstr("a message of 262145 bytes, at most 262144"));
}

TEST_F(LearnerLinkBounds, ALearnerWithoutHelloIsDropped) {
  auto c = dial();
  for (int i = 0; i < 10; ++i) tick({});
  EXPECT_FALSE(closed(c));
  tick({});
  EXPECT_TRUE(closed(c));
  EXPECT_EQ(flashd->state(), "closed: no Hello within 10 s");
}

TEST_F(LearnerLinkBounds, ASecondLearnerIsRefusedTheFirstStays) {
  auto first = greet();
  auto second = dial();
  EXPECT_TRUE(closed(second));
  EXPECT_FALSE(closed(first));
  EXPECT_THAT(flashd->state(), StartsWith("connected"));
  EXPECT_EQ(flashd->counters().refused_peers, 1u);
  EXPECT_THAT(flashd->counters().last_error, HasSubstr("a learner is connected already"));
}

TEST_F(LearnerLinkBounds, PeersWithoutEndWaitForTheNextTick) {
  std::vector<link::Connection> peers;
  for (int round = 0; round < 3; ++round)
    for (int i = 0; i < 20; ++i) {
      if (auto c = link::Connection::connect(options.socket)) peers.push_back(std::move(*c));
      run();
    }
  const auto looked_at = [this] { return flashd->counters().connections + flashd->counters().refused_peers; };
  EXPECT_EQ(looked_at(), 20u);
  EXPECT_EQ(run(), 0);  // no busy loop
  tick({});
  EXPECT_GT(looked_at(), 20u);
}

TEST_F(LearnerLinkBounds, AgentsThatGoDoNotPileUpForALearnerThatDoesNotRead) {
  bounds.gone_agents = 20;
  open();
  auto c = greet();
  for (std::uint64_t n = 1; n <= 3000 && flashd->state().starts_with("connected"); ++n) {
    agent_added(*flashd, web(n, "/" + std::string(200, 'a')));
    tick({});
    flashd->agent_removed(web(n).id);
  }
  EXPECT_THAT(flashd->state(), HasSubstr("does not read"));
  EXPECT_EQ(flashd->counters().protocol_errors, 1u);
}

TEST_F(LearnerLinkBounds, ALearnerThatReadsIsToldOfAnyNumberOfAgents) {
  bounds.gone_agents = 20;
  open();
  auto c = greet();
  for (std::uint64_t n = 1; n <= 500; ++n) {
    agent_added(*flashd, web(n));
    tick({web(n)});
    flashd->agent_removed(web(n).id);
    (void)hear(c);
  }
  EXPECT_THAT(flashd->state(), StartsWith("connected"));
}

TEST_F(LearnerLinkBounds, AFloodOfOffersClosesAndBacksOff) {
  agent_added(*flashd, web());
  auto c = greet();
  std::size_t sent = 0;
  while (sent < 200 && !closed(c)) {
    auto status = c.send(link::encode(Up(link::Offer{{"limits_1"}, "x"})));
    if (!status) break;
    run();
    ++sent;
  }
  EXPECT_LE(flashd->counters().offers, 54u);
  EXPECT_GE(flashd->counters().offers, 50u);
  EXPECT_EQ(flashd->counters().flood_closes, 1u);
  EXPECT_EQ(flashd->state(), "closed: flood of offers");
  auto again = dial();
  EXPECT_TRUE(closed(again));
  EXPECT_EQ(flashd->state(), "refused: back-off of 60 s after: flood");
  now.mono += bounds.flood_backoff;
  auto later = greet();
  EXPECT_THAT(flashd->state(), StartsWith("connected"));
}

TEST_F(LearnerLinkBounds, AnOfferToAGroupIsAsManyTriesAsItHasAgents) {
  agent_added(*flashd, web());
  auto c = greet();
  const std::vector<std::string> many(link::kMaxOfferedTo, "limits_1");
  say(c, link::Offer{many, "x"});
  EXPECT_EQ(flashd->counters().offers, 32u);
  EXPECT_THAT(flashd->state(), StartsWith("connected"));
  say(c, link::Offer{many, "x"});  // of 54 at once
  EXPECT_EQ(flashd->counters().offers, 32u) << "none of it was looked at";
  EXPECT_EQ(flashd->counters().flood_closes, 1u);
  EXPECT_EQ(flashd->state(), "closed: flood of offers");
}

TEST_F(LearnerLinkBounds, AFloodOfOtherMessagesClosesToo) {
  auto c = greet();
  link::Status status;
  status.doing = "learning";
  for (int i = 0; i < 300; ++i) (void)c.send(link::encode(Up(status)));
  run();
  EXPECT_EQ(flashd->state(), "closed: flood of messages");
  EXPECT_TRUE(closed(c));
}

TEST_F(LearnerLinkBounds, LongAcknowledgementsAreAFloodToo) {
  auto c = greet();
  link::Acknowledge all;
  all.stored.assign(link::kMaxAgents / 2, {"limits_1", 1});
  say(c, all);
  EXPECT_EQ(flashd->state(), "closed: flood of messages");
}

TEST_F(LearnerLinkBounds, AsManyMessagesOverTimeAreNoFlood) {
  auto c = greet();
  link::Status status;
  status.doing = "learning";
  for (int i = 0; i < 1000; ++i) {
    now.mono += std::chrono::milliseconds(10);
    say(c, status);
  }
  EXPECT_THAT(flashd->state(), StartsWith("connected"));
}

TEST_F(LearnerLinkBounds, OneWakeupDoesABoundedAmountOfWork) {
  agent_added(*flashd, web());
  auto c = greet();
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(c.send(link::encode(Up(link::Offer{{"limits_1"}, "x"}))));
  flashd->process(now);
  EXPECT_EQ(flashd->counters().offers, 1u);
  run();
  EXPECT_EQ(flashd->counters().offers, 40u);
}

TEST_F(LearnerLinkBounds, LogLinesAreRateLimitedAndSayHowManyWereNotWritten) {
  bounds.error_backoff = {};
  open();
  for (int i = 0; i < 100; ++i) {
    auto c = greet();
    (void)c.send("garbage");
    run();
    now.mono += std::chrono::milliseconds(100);
  }
  EXPECT_LE(log.size(), 20u);
  now.mono += std::chrono::seconds(60);
  auto c = greet();
  (void)c.send("garbage");
  run();
  EXPECT_THAT(log.back(), HasSubstr("more before)"));
}

}  // namespace
}  // namespace flash
