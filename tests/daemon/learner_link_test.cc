// flashd's end of the learner's socket against a scripted learner, on a real socket and made clocks.
#include "daemon/learner_link.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>

#include "core/tensor_file.h"
#include "link/seqpacket.h"
#include "policy/observation_space.h"
#include "tests/daemon/web_target.h"

namespace flash {
namespace {

using link::Announce;
using link::Down;
using link::Gone;
using link::HelloDown;
using link::Steps;
using link::Up;
using testing::HasSubstr;
using testing::StartsWith;

std::string policy_bytes(std::uint64_t version) {
  PolicySnapshot p;
  p.version = version;
  p.algorithm = "td3+bc";
  p.expires = WallTime(std::chrono::hours(1000));
  p.mean.assign(7, 0.0f);
  p.scale.assign(7, 1.0f);
  p.actor = {DenseLayer{7, 2, std::vector<float>(14, 0.1f), {0, 0}, Activation::Tanh}};
  return encode(to_tensor_file(p));
}

class LearnerLinkTest : public testing::Test {
 protected:
  LearnerLinkTest() {
    char name[] = "/tmp/flashd-test-XXXXXX";
    folder_ = mkdtemp(name);
    options.socket = folder_ + "/learner.sock";
    options.user = "root";
    open();
  }
  ~LearnerLinkTest() override { std::filesystem::remove_all(folder_); }

  void open() {
    LearnerCallbacks callbacks;
    callbacks.offer = [this](Now, TargetId id, std::shared_ptr<const PolicySnapshot> p) -> Result<void> {
      offered.emplace_back(id.value, p->version);
      lives.push_back(p->expires - now.wall);
      if (!refuse.empty()) return Error(std::errc::invalid_argument, refuse);
      return {};
    };
    callbacks.log = [this](LearnerEvent event, const std::string& text) {
      log.push_back(std::string(to_string(event)) + ": " + text);
    };
    flashd.reset();
    flashd = std::make_unique<LearnerLink>(options, LearnerSession{"flashd 0.1.0", 77}, callbacks, bounds);
    flashd->tick(now);
  }

  /// As the event loop does it: as long as the descriptor is readable; says how often.
  int run() {
    int times = 0;
    while (times < 10000) {
      pollfd p = {flashd->fd(), POLLIN, 0};
      if (poll(&p, 1, 0) != 1) break;
      flashd->process(now);
      ++times;
    }
    return times;
  }
  /// A tick in which each of the targets decides once.
  void tick(std::vector<Target> targets = {web()}) {
    now.mono += std::chrono::seconds(1);
    now.wall += std::chrono::seconds(1);
    for (const Target& t : targets) {
      Decision d;
      d.seq = ++seq[t.id.value];
      d.at = now;
      d.learning.state = {1, 2, 3, 4, 5, 6, 7};
      d.learning.state_trusted = true;
      d.learning.action = {0.5f, -0.5f};
      flashd->decided(t, d);
    }
    flashd->tick(now);
    run();
  }

  link::Connection dial() {
    auto c = link::Connection::connect(options.socket);
    EXPECT_TRUE(c) << c.error().message();
    run();
    return std::move(*c);
  }
  void say(link::Connection& c, const Up& message) {
    ASSERT_TRUE(c.send(link::encode(message)));
    run();
  }
  /// A connected learner that has said Hello, and what it was told so far.
  link::Connection greet(const std::vector<link::Stored>& stored = {}) {
    link::Connection c = dial();
    say(c, link::HelloUp{"flash-learner 0.1.0", "OpenBLAS", 1});
    for (const auto& s : stored) say(c, s);
    return c;
  }
  static std::vector<Down> hear(link::Connection& c) {
    std::vector<Down> all;
    while (true) {
      auto got = c.receive();
      if (!got || !*got) return all;
      auto message = link::decode_down(**got);
      EXPECT_TRUE(message) << message.error().message();
      all.push_back(*message);
    }
  }
  static bool closed(link::Connection& c) {
    while (true) {
      auto got = c.receive();
      if (!got) return true;
      if (!*got) return false;
    }
  }
  static std::vector<std::uint64_t> seqs(const std::vector<Down>& messages) {
    std::vector<std::uint64_t> all;
    for (const Down& m : messages)
      if (const auto* steps = std::get_if<Steps>(&m))
        for (const auto& s : steps->steps) all.push_back(s.seq);
    return all;
  }

  std::string folder_;
  LearnerOptions options;
  LearnerBounds bounds;
  Now now{std::chrono::seconds(100), WallTime(std::chrono::seconds(1000))};
  std::map<std::uint64_t, std::uint64_t> seq;
  std::string refuse;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> offered;
  std::vector<Duration> lives;  // of the policies that were offered
  std::vector<std::string> log;
  std::unique_ptr<LearnerLink> flashd;
};

TEST_F(LearnerLinkTest, ALearnerIsGreetedAndToldOfEveryAgent) {
  flashd->agent_added(web());
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
  EXPECT_EQ(announce.state_dim, static_cast<unsigned>(kLimitsStateDim));
  EXPECT_EQ(announce.action_dim, 2u);
  say(c, link::HelloUp{"flash-learner 0.1.0", "OpenBLAS 0.3.21 serial", 1});
  EXPECT_EQ(flashd->state(), "connected: flash-learner 0.1.0, OpenBLAS 0.3.21 serial");
  EXPECT_EQ(flashd->counters().connections, 1u);
}

TEST_F(LearnerLinkTest, StepsFollowTheHelloAndThenEveryTick) {
  flashd->agent_added(web());
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
  flashd->agent_added(web());
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
  flashd->agent_added(web());
  auto c = greet();
  std::vector<Target> targets;
  for (std::uint64_t i = 1; i <= 20; ++i) {
    targets.push_back(web(i, "/web" + std::to_string(i)));
    flashd->agent_added(targets.back());
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
  flashd->agent_added(web());
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
  flashd->agent_added(web());
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
  flashd->agent_added(web());
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
  flashd->agent_added(web());
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
  flashd->agent_added(web());
  auto c = greet();
  tick();
  tick();
  flashd->agent_removed(web().id);
  flashd->agent_added(web());
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
  flashd->agent_added(web());
  auto c = greet();
  tick();
  say(c, link::Acknowledge{{{"limits_1", 1}}});
  flashd->agent_removed(web().id);
  flashd->tick(now);
  run();
  flashd->agent_added(web());
  say(c, link::Stored{"limits_1", 1});
  EXPECT_THAT(flashd->state(), StartsWith("connected"));
}

TEST_F(LearnerLinkTest, AnOfferIsJudgedAndAnswered) {
  flashd->agent_added(web());
  auto c = greet();
  hear(c);
  say(c, link::Offer{"limits_1", policy_bytes(5)});
  ASSERT_EQ(offered, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{1, 5}}));
  auto heard = hear(c);
  ASSERT_EQ(heard.size(), 1u);
  auto verdict = std::get<link::Verdict>(heard[0]);
  EXPECT_EQ(verdict.agent, "limits_1");
  EXPECT_EQ(verdict.version, 5u);
  EXPECT_TRUE(verdict.accepted) << verdict.reason;

  refuse = "version 5 is not above 5\nand more";
  say(c, link::Offer{"limits_1", policy_bytes(5)});
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

link::Neighbour neighbour(Task task = Task::ResourceLimits) {
  link::Neighbour n{.task = task, .model = "m1", .node = "n2", .agent = "resource-limits:/shop"};
  n.embedding = {1, 2};
  return n;
}

TEST_F(LearnerLinkTest, TheNearestPairIsSaidOfTheAgentThatItIsForAndToEveryNewLearner) {
  flashd->agent_added(web());
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
  flashd->agent_added(web());
  using Set = LearnerLink::NearestSet;
  EXPECT_EQ(flashd->set_nearest("resource-limits:/web", neighbour(Task::CpuFrequency)), Set::NoAgent);
  EXPECT_EQ(flashd->set_nearest("resource-limits:/gone", neighbour()), Set::NoAgent);
  EXPECT_EQ(flashd->nearest(web().id), nullptr);
  flashd->agent_removed(web().id);
  EXPECT_EQ(flashd->set_nearest("resource-limits:/web", neighbour()), Set::NoAgent);
}

TEST_F(LearnerLinkTest, TheEmbeddingThatTheLearnerMadeIsKept) {
  flashd->agent_added(web());
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
  flashd->agent_added(web());
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
  flashd->agent_added(web());
  auto c = greet();
  say(c, link::Offer{"limits_1", policy_bytes(1)});  // asks for 1000 hours
  ASSERT_EQ(lives.size(), 1u);
  EXPECT_EQ(lives[0], std::chrono::seconds(600));
}

TEST_F(LearnerLinkTest, AnOfferWithALongHeaderIsNotRead) {
  flashd->agent_added(web());
  auto c = greet();
  TensorFile file;
  file.kind = "policy";
  for (int i = 0; i < 20000; ++i) file.meta["numbers"].push_back(0);
  say(c, link::Offer{"limits_1", encode(file)});
  EXPECT_THAT(flashd->counters().last_error, HasSubstr("at most 16384 are allowed"));
}

TEST_F(LearnerLinkTest, AnOfferThatIsNoPolicyIsRefusedWithoutReachingTheLoop) {
  flashd->agent_added(web());
  auto c = greet();
  hear(c);
  std::string damaged = policy_bytes(5);
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 1);
  say(c, link::Offer{"limits_1", damaged});
  say(c, link::Offer{"limits_1", "garbage"});
  say(c, link::Offer{"limits_2", policy_bytes(5)});
  const auto heard = hear(c);
  ASSERT_EQ(heard.size(), 3u);
  for (const Down& m : heard) EXPECT_FALSE(std::get<link::Verdict>(m).accepted);
  EXPECT_EQ(std::get<link::Verdict>(heard[2]).reason, "no such agent");
  EXPECT_TRUE(offered.empty());
  EXPECT_EQ(flashd->counters().refused, 3u);
  EXPECT_THAT(flashd->state(), StartsWith("connected"));
}

TEST_F(LearnerLinkTest, WhatBreaksTheProtocolClosesTheConnectionByName) {
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

TEST_F(LearnerLinkTest, AnAcknowledgementOfTheFutureIsAnError) {
  flashd->agent_added(web());
  auto c = greet();
  tick();
  say(c, link::Acknowledge{{{"limits_1", 2}}});
  EXPECT_EQ(flashd->state(), "closed: acknowledges step 2 of limits_1, the last was 1");
  EXPECT_TRUE(closed(c));
}

TEST_F(LearnerLinkTest, AMessageBeforeTheHelloIsAnError) {
  auto c = dial();
  say(c, link::Stored{"limits_1", 1});
  EXPECT_EQ(flashd->state(), "closed: a message before the Hello");
}

TEST_F(LearnerLinkTest, AnOversizedMessageIsAnError) {
  auto c = greet();
  const std::string huge(link::kMaxMessage + 1, 'x');
  ASSERT_GT(::send(c.fd(), huge.data(), huge.size(), 0), 0);
  run();
  EXPECT_THAT(flashd->state(), HasSubstr("a message of 262145 bytes, at most 262144"));
}

TEST_F(LearnerLinkTest, ALearnerWithoutHelloIsDropped) {
  auto c = dial();
  for (int i = 0; i < 10; ++i) tick({});
  EXPECT_FALSE(closed(c));
  tick({});
  EXPECT_TRUE(closed(c));
  EXPECT_EQ(flashd->state(), "closed: no Hello within 10 s");
}

TEST_F(LearnerLinkTest, ASecondLearnerIsRefusedTheFirstStays) {
  auto first = greet();
  auto second = dial();
  EXPECT_TRUE(closed(second));
  EXPECT_FALSE(closed(first));
  EXPECT_THAT(flashd->state(), StartsWith("connected"));
  EXPECT_EQ(flashd->counters().refused_peers, 1u);
  EXPECT_THAT(flashd->counters().last_error, HasSubstr("a learner is connected already"));
}

TEST_F(LearnerLinkTest, PeersWithoutEndWaitForTheNextTick) {
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

TEST_F(LearnerLinkTest, AgentsThatGoDoNotPileUpForALearnerThatDoesNotRead) {
  bounds.gone_agents = 20;
  open();
  auto c = greet();
  for (std::uint64_t n = 1; n <= 3000 && flashd->state().starts_with("connected"); ++n) {
    flashd->agent_added(web(n, "/" + std::string(200, 'a')));
    tick({});
    flashd->agent_removed(web(n).id);
  }
  EXPECT_THAT(flashd->state(), HasSubstr("does not read"));
  EXPECT_EQ(flashd->counters().protocol_errors, 1u);
}

TEST_F(LearnerLinkTest, ALearnerThatReadsIsToldOfAnyNumberOfAgents) {
  bounds.gone_agents = 20;
  open();
  auto c = greet();
  for (std::uint64_t n = 1; n <= 500; ++n) {
    flashd->agent_added(web(n));
    tick({web(n)});
    flashd->agent_removed(web(n).id);
    (void)hear(c);
  }
  EXPECT_THAT(flashd->state(), StartsWith("connected"));
}

TEST_F(LearnerLinkTest, AFloodOfOffersClosesAndBacksOff) {
  flashd->agent_added(web());
  auto c = greet();
  std::size_t sent = 0;
  while (sent < 200 && !closed(c)) {
    auto status = c.send(link::encode(Up(link::Offer{"limits_1", "x"})));
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

TEST_F(LearnerLinkTest, AFloodOfOtherMessagesClosesToo) {
  auto c = greet();
  link::Status status;
  status.doing = "learning";
  for (int i = 0; i < 300; ++i) (void)c.send(link::encode(Up(status)));
  run();
  EXPECT_EQ(flashd->state(), "closed: flood of messages");
  EXPECT_TRUE(closed(c));
}

TEST_F(LearnerLinkTest, LongAcknowledgementsAreAFloodToo) {
  auto c = greet();
  link::Acknowledge all;
  all.stored.assign(link::kMaxAgents / 2, {"limits_1", 1});
  say(c, all);
  EXPECT_EQ(flashd->state(), "closed: flood of messages");
}

TEST_F(LearnerLinkTest, AsManyMessagesOverTimeAreNoFlood) {
  auto c = greet();
  link::Status status;
  status.doing = "learning";
  for (int i = 0; i < 1000; ++i) {
    now.mono += std::chrono::milliseconds(10);
    say(c, status);
  }
  EXPECT_THAT(flashd->state(), StartsWith("connected"));
}

TEST_F(LearnerLinkTest, OneWakeupDoesABoundedAmountOfWork) {
  flashd->agent_added(web());
  auto c = greet();
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(c.send(link::encode(Up(link::Offer{"limits_1", "x"}))));
  flashd->process(now);
  EXPECT_EQ(flashd->counters().offers, 1u);
  run();
  EXPECT_EQ(flashd->counters().offers, 40u);
}

TEST_F(LearnerLinkTest, LogLinesAreRateLimitedAndSayHowManyWereNotWritten) {
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
