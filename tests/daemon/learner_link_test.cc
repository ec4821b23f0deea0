// What flashd tells its learner, what it takes from it, and what is kept while there is none.
#include "daemon/learner_link.h"
#include "core/json.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include "policy/tasks/resource_limits.h"
#include "tests/daemon/scripted_learner.h"

namespace flash {
namespace {

using link::Announce;
using link::Down;
using link::Gone;
using link::HelloDown;
using link::Steps;
using testing::HasSubstr;
using testing::StartsWith;

TEST_F(LearnerLinkTest, ALearnerIsGreetedAndToldOfEveryAgent) {
  agent_added(*flashd, web());
  EXPECT_EQ(flashd->state(), "absent");
  auto c = dial();
  EXPECT_EQ(flashd->state(), "connecting: no Hello yet");
  const auto heard = hear(c);
  ASSERT_EQ(heard.size(), 2u);
  const auto& hello = std::get<HelloDown>(heard[0]);
  EXPECT_EQ(hello.epoch, 77u);
  EXPECT_EQ(hello.software, "flashd 0.1.0");
  EXPECT_EQ(hello.settings, link::LearningSettings{});
  const auto& announce = std::get<Announce>(heard[1]);
  EXPECT_EQ(announce.agent, "limits_1");
  EXPECT_EQ(announce.key, "resource-limits:/web");
  EXPECT_EQ(announce.application, "shop");
  EXPECT_EQ(announce.layout, space_layout(task_spec(Task::ResourceLimits), {}));
  say(c, link::HelloUp{"flash-learner 0.1.0", "OpenBLAS 0.3.21 serial", 1});
  EXPECT_EQ(flashd->state(), "connected: flash-learner 0.1.0, OpenBLAS 0.3.21 serial");
  EXPECT_EQ(flashd->counters().connections, 1u);
}

TEST_F(LearnerLinkTest, StepsFollowTheHelloAndThenEveryTick) {
  agent_added(*flashd, web());
  tick();
  auto c = dial();
  tick();
  EXPECT_TRUE(seqs(hear(c)).empty()) << "before the learner's Hello";
  say(c, link::HelloUp{"l", "", 1});
  tick();
  EXPECT_EQ(seqs(hear(c)), (std::vector<std::uint64_t>{1, 2, 3}));
  tick();
  const auto heard = hear(c);
  ASSERT_EQ(heard.size(), 1u);
  const auto& step = std::get<Steps>(heard[0]).steps.at(0);
  EXPECT_EQ(step.seq, 4u);
  EXPECT_EQ(step.state.size(), 7u);
  EXPECT_EQ(step.action, (std::vector<float>{0.5f, -0.5f}));
  EXPECT_EQ(step.time_us, 1004 * 1000000);
}

TEST_F(LearnerLinkTest, ALearnerKilledAHundredTimesLosesAndDoublesNothing) {
  agent_added(*flashd, web());
  std::vector<std::uint64_t> on_disk;
  for (int life = 0; life < 100; ++life) {
    auto c = on_disk.empty() ? greet() : greet({{"limits_1", on_disk.back()}});
    for (int t = 0; t < 3; ++t) {
      tick();
      const auto got = seqs(hear(c));
      if ((life + t) % 3 == 2) break;  // killed between reading and storing
      on_disk.insert(on_disk.end(), got.begin(), got.end());
      if ((life + t) % 2 == 0 && !got.empty()) say(c, link::Acknowledge{{{"limits_1", on_disk.back()}}});
    }
    c.close();
    run();
    tick();
  }
  auto c = greet({{"limits_1", on_disk.back()}});
  tick();
  const auto got = seqs(hear(c));
  on_disk.insert(on_disk.end(), got.begin(), got.end());
  ASSERT_EQ(on_disk.size(), seq[1]);
  for (std::size_t i = 0; i < on_disk.size(); ++i) ASSERT_EQ(on_disk[i], i + 1);
  EXPECT_EQ(flashd->counters().dropped_steps, 0u);
}

TEST_F(LearnerLinkTest, ALearnerStoppedForTenMinutesCatchesUp) {
  agent_added(*flashd, web());
  auto c = greet();
  std::vector<Target> targets;
  for (std::uint64_t i = 1; i <= 20; ++i) {
    targets.push_back(web(i, "/web" + std::to_string(i)));
    agent_added(*flashd, targets.back());
  }
  for (int t = 0; t < 600; ++t) tick(targets);  // nobody reads
  EXPECT_EQ(flashd->counters().dropped_steps, 0u);
  std::map<std::string, std::uint64_t> last;
  std::size_t total = 0;
  for (int round = 0; round < 1000; ++round) {
    const auto heard = hear(c);
    if (heard.empty()) break;
    for (const Down& m : heard)
      if (const auto* steps = std::get_if<Steps>(&m))
        for (const auto& s : steps->steps) {
          ASSERT_EQ(s.seq, last[s.agent] + 1) << s.agent;
          last[s.agent] = s.seq;
          ++total;
        }
    run();
  }
  EXPECT_EQ(total, 600u * 20);
}

TEST_F(LearnerLinkTest, AcknowledgedStepsLeaveTheBacklog) {
  agent_added(*flashd, web());
  auto c = greet();
  for (int t = 0; t < 10; ++t) tick();
  EXPECT_EQ(flashd->counters().backlog_steps, 10u);
  say(c, link::Acknowledge{{{"limits_1", 7}}});
  EXPECT_EQ(flashd->counters().backlog_steps, 3u);
  EXPECT_EQ(flashd->counters().acknowledged_steps, 7u);
  say(c, link::Acknowledge{{{"limits_1", 10}, {"limits_99", 4}}});
  EXPECT_EQ(flashd->counters().backlog_steps, 0u);
  EXPECT_EQ(flashd->counters().backlog_bytes, 0u);
}

TEST_F(LearnerLinkTest, TheBacklogIsBoundedAndWhatItDropsIsCounted) {
  bounds.backlog_bytes = 64 * 1024;
  bounds.backlog_bytes_unused = 8 * 1024;
  open();
  agent_added(*flashd, web());
  for (int t = 0; t < 1000; ++t) tick();
  EXPECT_LE(flashd->counters().backlog_bytes, 8u * 1024);
  EXPECT_EQ(flashd->counters().dropped_steps, 0u) << "nobody was there to miss them";
  auto c = greet();
  c.close();
  run();
  const std::uint64_t before = flashd->counters().backlog_steps;
  for (int t = 0; t < 1000; ++t) tick();
  const auto& counters = flashd->counters();
  EXPECT_LE(counters.backlog_bytes, 64u * 1024);
  EXPECT_EQ(counters.dropped_steps + counters.backlog_steps, before + 1000);
  auto again = greet();
  tick();
  const auto got = seqs(hear(again));
  ASSERT_FALSE(got.empty());
  EXPECT_EQ(got.back(), seq[1]) << "the newest are kept";
}

TEST_F(LearnerLinkTest, AnAgentThatGoesIsSaidAfterItsLastStep) {
  agent_added(*flashd, web());
  auto c = greet();
  tick();
  hear(c);
  Decision last;
  last.seq = ++seq[1];
  flashd->decided(web(), last);
  flashd->agent_removed(web().id);
  flashd->tick(now);
  run();
  const auto heard = hear(c);
  ASSERT_EQ(heard.size(), 2u);
  EXPECT_EQ(std::get<Steps>(heard[0]).steps.at(0).seq, 2u);
  EXPECT_EQ(std::get<Gone>(heard[1]).agent, "limits_1");
  say(c, link::Acknowledge{{{"limits_1", 2}}});
  EXPECT_EQ(flashd->counters().backlog_steps, 0u);
}

TEST_F(LearnerLinkTest, StepsOfAnAgentThatIsGoneReachALearnerThatComesLater) {
  agent_added(*flashd, web());
  tick();
  flashd->agent_removed(web().id);
  auto c = greet();
  tick({});
  const auto heard = hear(c);
  ASSERT_EQ(heard.size(), 4u);  // Hello, Announce, Steps, Gone
  EXPECT_EQ(std::get<Announce>(heard[1]).agent, "limits_1");
  EXPECT_EQ(std::get<Steps>(heard[2]).steps.size(), 1u);
  EXPECT_EQ(std::get<Gone>(heard[3]).agent, "limits_1");
}

TEST_F(LearnerLinkTest, AnAgentThatComesBackCountsOnWithAGap) {
  agent_added(*flashd, web());
  auto c = greet();
  tick();
  tick();
  flashd->agent_removed(web().id);
  agent_added(*flashd, web());
  seq[1] = 0;
  tick();
  std::vector<std::uint64_t> all, episodes;
  for (const Down& m : hear(c))
    if (const auto* steps = std::get_if<Steps>(&m))
      for (const auto& s : steps->steps) {
        all.push_back(s.seq);
        episodes.push_back(s.episode);
      }
  EXPECT_EQ(all, (std::vector<std::uint64_t>{1, 2, 4}));
  EXPECT_EQ(episodes, (std::vector<std::uint64_t>{0, 0, 1}));  // in the store both lives are one run
}

TEST_F(LearnerLinkTest, ALearnerThatKnowsAnEarlierLifeOfAnAgentIsNotAnError) {
  agent_added(*flashd, web());
  auto c = greet();
  tick();
  say(c, link::Acknowledge{{{"limits_1", 1}}});
  flashd->agent_removed(web().id);
  flashd->tick(now);
  run();
  agent_added(*flashd, web());
  say(c, link::Stored{"limits_1", 1});
  EXPECT_THAT(flashd->state(), StartsWith("connected"));
}

TEST_F(LearnerLinkTest, AnOfferIsJudgedAndAnswered) {
  agent_added(*flashd, web());
  auto c = greet();
  hear(c);
  say(c, link::Offer{{"limits_1"}, policy_bytes(5)});
  ASSERT_EQ(offered, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{1, 5}}));
  auto heard = hear(c);
  ASSERT_EQ(heard.size(), 1u);
  auto verdict = std::get<link::Verdict>(heard[0]);
  EXPECT_EQ(verdict.agent, "limits_1");
  EXPECT_EQ(verdict.version, 5u);
  EXPECT_TRUE(verdict.accepted) << verdict.reason;

  refuse = "version 5 is not above 5\nand more";
  say(c, link::Offer{{"limits_1"}, policy_bytes(5)});
  heard = hear(c);
  ASSERT_EQ(heard.size(), 1u);
  verdict = std::get<link::Verdict>(heard[0]);
  EXPECT_FALSE(verdict.accepted);
  EXPECT_EQ(verdict.reason, "version 5 is not above 5\\x0aand more");
  EXPECT_EQ(flashd->counters().accepted, 1u);
  EXPECT_EQ(flashd->counters().refused, 1u);

  // The version goes with the agent to the next learner.
  c.close();
  run();
  auto next = dial();
  EXPECT_EQ(std::get<Announce>(hear(next).at(1)).model_version, 5u);
}

TEST_F(LearnerLinkTest, AnOfferToAGroupIsJudgedByEachOfItsAgents) {
  for (std::uint64_t i = 1; i <= 3; ++i) agent_added(*flashd, web(i, "/web" + std::to_string(i)));
  auto c = greet();
  hear(c);
  refuse = "on its states all actions are the same";
  refuses = 2;
  say(c, link::Offer{{"limits_3", "limits_1", "limits_2", "limits_9"}, policy_bytes(5)});
  EXPECT_EQ(offered, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{3, 5}, {1, 5}, {2, 5}}));
  const auto heard = hear(c);
  ASSERT_EQ(heard.size(), 4u) << "a verdict for each";
  std::map<std::string, link::Verdict> verdicts;
  for (const Down& m : heard) verdicts[std::get<link::Verdict>(m).agent] = std::get<link::Verdict>(m);
  EXPECT_TRUE(verdicts["limits_1"].accepted);
  EXPECT_TRUE(verdicts["limits_3"].accepted);
  EXPECT_FALSE(verdicts["limits_2"].accepted);
  EXPECT_EQ(verdicts["limits_2"].reason, refuse);
  EXPECT_EQ(verdicts["limits_9"].reason, "no such agent");
  for (const auto& [name, verdict] : verdicts) EXPECT_EQ(verdict.version, 5u) << name;
  EXPECT_EQ(flashd->counters().offers, 4u);
  EXPECT_EQ(flashd->counters().accepted, 2u);
  EXPECT_EQ(flashd->counters().refused, 2u);
  // What each has goes with it to the next learner.
  c.close();
  run();
  auto next = dial();
  for (const Down& m : hear(next)) {
    const auto* a = std::get_if<Announce>(&m);
    if (a == nullptr) continue;
    EXPECT_EQ(a->model_version, a->agent == "limits_2" ? 0u : 5u) << a->agent;
  }
}

TEST_F(LearnerLinkTest, TheGroupThatLearnsTogetherIsAnnounced) {
  Rule rule;
  rule.group = "shop";
  flashd->agent_added(web(), space_layout(task_spec(Task::ResourceLimits), rule), rule.learning_group());
  rule.parameter_sharing = true;
  flashd->agent_added(web(2, "/cart"), space_layout(task_spec(Task::ResourceLimits), rule),
                      rule.learning_group());
  auto c = dial();
  std::map<std::string, std::string> groups;
  for (const Down& m : hear(c))
    if (const auto* a = std::get_if<Announce>(&m)) groups[a->agent] = a->group;
  EXPECT_EQ(groups, (std::map<std::string, std::string>{{"limits_1", ""}, {"limits_2", "shop"}}));
}

link::Neighbour neighbour(Task task = Task::ResourceLimits) {
  link::Neighbour n{.task = task, .model = "m1", .node = "n2", .agent = "resource-limits:/shop"};
  n.embedding = {1, 2};
  return n;
}

TEST_F(LearnerLinkTest, TheNearestPairIsSaidOfTheAgentThatItIsForAndToEveryNewLearner) {
  agent_added(*flashd, web());
  auto c = greet();
  hear(c);
  using Set = LearnerLink::NearestSet;
  EXPECT_EQ(flashd->set_nearest("resource-limits:/web", neighbour()), Set::Another);
  run();
  const auto heard = hear(c);
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(std::get<link::NearestPair>(heard[0]).agent, "limits_1");
  EXPECT_EQ(std::get<link::NearestPair>(heard[0]).neighbour, neighbour());
  ASSERT_NE(flashd->nearest(web().id), nullptr);
  EXPECT_EQ(flashd->set_nearest("resource-limits:/web", neighbour()), Set::Same);
  run();
  EXPECT_EQ(hear(c).size(), 1u);
  link::Neighbour cart = neighbour();
  cart.agent = "resource-limits:/cart";
  EXPECT_EQ(flashd->set_nearest("resource-limits:/web", cart), Set::Another);
  flashd->set_nearest("resource-limits:/web", neighbour());
  c.close();
  run();
  auto next = greet();
  EXPECT_EQ(std::get<link::NearestPair>(hear(next).at(2)).neighbour, neighbour());
}

TEST_F(LearnerLinkTest, ANearestPairOfAnotherTaskOrForNobodyIsRefused) {
  agent_added(*flashd, web());
  using Set = LearnerLink::NearestSet;
  EXPECT_EQ(flashd->set_nearest("resource-limits:/web", neighbour(Task::CpuFrequency)), Set::NoAgent);
  EXPECT_EQ(flashd->set_nearest("resource-limits:/gone", neighbour()), Set::NoAgent);
  EXPECT_EQ(flashd->nearest(web().id), nullptr);
  flashd->agent_removed(web().id);
  EXPECT_EQ(flashd->set_nearest("resource-limits:/web", neighbour()), Set::NoAgent);
}

TEST_F(LearnerLinkTest, TheEmbeddingThatTheLearnerMadeIsKept) {
  agent_added(*flashd, web());
  auto c = greet();
  EXPECT_EQ(flashd->embedded(web().id), nullptr);
  say(c, link::Embedded{"limits_1", "m1", {1, 2}});
  say(c, link::Embedded{"limits_7", "m1", {1, 2}});  // nobody's
  ASSERT_NE(flashd->embedded(web().id), nullptr);
  EXPECT_EQ(flashd->embedded(web().id)->model, "m1");
  EXPECT_EQ(flashd->embedded(web().id)->embedding, (std::vector<float>{1, 2}));
  EXPECT_EQ(flashd->counters().protocol_errors, 0u);
}

TEST_F(LearnerLinkTest, WhatTheLearnerSaysOfItselfIsShownAsLongAsItIsThere) {
  agent_added(*flashd, web());
  auto c = greet();
  link::Status status{.agent = "limits_1", .doing = "learning offline", .transitions = 120, .updates = 500};
  say(c, status);
  EXPECT_EQ(flashd->doing(web().id),
            "learning offline; 120 transitions, 0 episodes, 500 updates of 0 us, loss 0");
  say(c, link::Status{.doing = "1 agent", .rss_mib = 180, .cpu_share = 0.01});
  EXPECT_EQ(flashd->state(), "connected: flash-learner 0.1.0, OpenBLAS; 1 agent (180 MiB, 1.0 % of a CPU)");
  c.close();
  run();
  EXPECT_EQ(flashd->doing(web().id), "");
  EXPECT_EQ(flashd->state(), "absent: it closed the connection");
}

TEST_F(LearnerLinkTest, APolicyDecidesNoLongerThanTheOperatorSays) {
  agent_added(*flashd, web());
  auto c = greet();
  say(c, link::Offer{{"limits_1"}, policy_bytes(1)});  // asks for 1000 hours
  ASSERT_EQ(lives.size(), 1u);
  EXPECT_EQ(lives[0], std::chrono::seconds(600));
}

TEST_F(LearnerLinkTest, AnOfferWithALongHeaderIsNotRead) {
  agent_added(*flashd, web());
  auto c = greet();
  TensorFile file;
  file.kind = "policy";
  for (int i = 0; i < 20000; ++i) file.meta["numbers"].push_back(0);
  say(c, link::Offer{{"limits_1"}, encode(file)});
  EXPECT_THAT(flashd->counters().last_error, HasSubstr("at most 16384 are allowed"));
}

TEST_F(LearnerLinkTest, AnOfferThatIsNoPolicyIsRefusedWithoutReachingTheLoop) {
  agent_added(*flashd, web());
  auto c = greet();
  hear(c);
  std::string damaged = policy_bytes(5);
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 1);
  say(c, link::Offer{{"limits_1"}, damaged});
  say(c, link::Offer{{"limits_1"}, "garbage"});
  say(c, link::Offer{{"limits_2"}, policy_bytes(5)});
  const auto heard = hear(c);
  ASSERT_EQ(heard.size(), 3u);
  for (const Down& m : heard) EXPECT_FALSE(std::get<link::Verdict>(m).accepted);
  EXPECT_EQ(std::get<link::Verdict>(heard[2]).reason, "no such agent");
  EXPECT_TRUE(offered.empty());
  EXPECT_EQ(flashd->counters().refused, 3u);
  EXPECT_THAT(flashd->state(), StartsWith("connected"));
}

TEST_F(LearnerLinkTest, ChangedSettingsAreReadInANewHello) {
  auto c = greet();
  flashd->reconfigure(now, options, std::chrono::seconds(1), 100);
  EXPECT_FALSE(closed(c));
  options.settings.discount = 0.5;
  flashd->reconfigure(now, options, std::chrono::seconds(2), 100);
  EXPECT_TRUE(closed(c));
  flashd->tick(now);
  auto again = dial();
  const auto heard = hear(again);
  EXPECT_EQ(std::get<HelloDown>(heard.at(0)).settings.discount, 0.5);
  EXPECT_EQ(std::get<HelloDown>(heard.at(0)).period_s, 2);
}

TEST_F(LearnerLinkTest, ASocketThatCannotBeOpenedIsSaidAndTriedAgain) {
  options.socket = folder_ + "/later/learner.sock";
  open();
  EXPECT_THAT(flashd->state(), StartsWith("not listening: bind "));
  std::filesystem::create_directory(folder_ + "/later");
  for (int i = 0; i < 5; ++i) tick({});
  EXPECT_EQ(flashd->state(), "absent");
  auto c = greet();
  EXPECT_THAT(flashd->state(), StartsWith("connected"));
}

}  // namespace
}  // namespace flash
