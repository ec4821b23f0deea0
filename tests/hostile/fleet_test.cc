// One node of a fleet that means harm, or somebody with a token that nobody used, against everything else
// that is said in it: real accounts and roles, a real server, coordinator and flash-sync. Each TEST says what
// the attack did before.
#include <gmock/gmock.h>

#include "coordinator/messages.h"
#include "coordinator/messages_fleet.h"
#include "coordinator/messages_models.h"
#include "coordinator/messages_pages.h"
#include "core/json.h"
#include "tests/hostile/hostile_fleet.h"
#include "tests/link/signed_models.h"

namespace flash::fleet_world {
namespace {

namespace c = flash::coordinator;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kName = "resource-limits";

/// All that somebody else says or hears, or that the server takes for an order.
const std::vector<std::string>& protected_subjects() {
  static const std::vector<std::string> all = {
      "$KV.FLASH_LEASE.speaker",
      "$KV.FLASH_LEASE.other",
      "flash.v1.bc.models",
      "flash.v1.ck.resource-limits.1.manifest",
      "flash.v1.ck.resource-limits.1.0",
      "flash.v1.co.c1",
      "flash.v1.dn.victim.wm",
      "flash.v1.dn.victim.nearest",
      "flash.v1.dn.victim.fleet",
      "flash.v1.up.default.victim.ep",
      "flash.v1.hb.default.victim",
      "flash.v1.rq.victim.nearest",
      "flash.v1.rq.victim.fleet",
      "flash.v1.rq.victim.model",
      "flash.v1.id.victim.renew",
      "_INBOX.victim.abc",
      "_INBOX_COORDINATOR.abc",
      "$JS.API.STREAM.PURGE.FLASH_UP",
      "$JS.API.STREAM.PURGE.FLASH_MODELS",
      "$JS.API.STREAM.DELETE.FLASH_MODELS",
      "$JS.API.STREAM.UPDATE.FLASH_UP",
      "$JS.API.STREAM.MSG.DELETE.FLASH_MODELS",
      "$JS.API.CONSUMER.CREATE.FLASH_UP",
      "$JS.ACK.FLASH_UP.x.1.1.1.1.0",
      "$SYS.REQ.CLAIMS.UPDATE",
  };
  return all;
}

class FleetAttack : public HostileFleet {
 protected:
  void SetUp() override {
    HostileFleet::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_TRUE(write_key_pair(folder_ + "/release", link::release_key()));
    own_ = *c::Authority::of(text_of(identity() + "/coordinator.creds"));
    ASSERT_NO_FATAL_FAILURE(enroll("evil"));
    ASSERT_NO_FATAL_FAILURE(start_enrolled("victim", {"--models", folder_ + "/models", "--model-keys",
                                                      folder_ + "/release.pub", "--models-interval", "1"}));
  }
  std::string model(std::vector<std::string> words) {
    words.insert(words.begin(), {program("flash-coordinator"), "--identity", identity(), "--store",
                                 store("c1"), "--model-keys", folder_ + "/release.pub", "--json", "model"});
    EXPECT_EQ(run(words, "/model.log"), 0) << text_of(folder_ + "/model.log");
    return text_of(folder_ + "/model.log");
  }
  void publish(std::uint64_t version) {
    ASSERT_TRUE(
        link::write_whole_file(folder_ + "/signed", encode(link::signed_as(link::manifest(version)))));
    model({"publish", folder_ + "/signed", "--share", "100"});
  }
  std::uint64_t held() const {
    const auto bytes = link::read_whole_file(folder_ + "/models/" + kName + ".signed", link::kMaxSignedBytes);
    const auto file = bytes ? link::decode_signed(*bytes) : Result<link::SignedModel>(bytes.error());
    const auto model = file ? link::verify_signed(*file, link::trusted(), "0.1.0")
                            : Result<link::ModelManifest>(file.error());
    return model ? model->version : 0;
  }
  /// A coordinator's own words under that subject.
  bool is_coordinators(const Stranger::Heard& h) const {
    if (h.subject.starts_with("$KV.")) {
      const auto end = h.bytes.find('\n');
      return end != h.bytes.npos && own_.check(h.subject, h.bytes.substr(0, end), h.bytes.substr(end + 1));
    }
    return !h.seal.empty() && own_.check(h.subject, h.bytes, h.seal);
  }
  /// What somebody saw under subjects that are not the attacker's, and that is no coordinator's and no
  /// victim's.
  std::vector<std::string> strange(Stranger& who) const {
    std::vector<std::string> out;
    for (const auto& h : who.heard()) {
      const auto& all = protected_subjects();
      if (std::find(all.begin(), all.end(), h.subject) == all.end() || is_coordinators(h)) continue;
      const bool attack = h.bytes.find("attack") != h.bytes.npos;
      // flash-sync and the coordinator's own requests to the server.
      if (!attack &&
          (h.subject.find(".victim.") != h.subject.npos || h.subject == "flash.v1.hb.default.victim") &&
          !h.subject.starts_with("flash.v1.dn") &&
          c::decode_credentials(h.bytes).error().is(std::errc::invalid_argument))
        continue;
      out.push_back(h.subject + ": " + h.bytes.substr(0, 60));
    }
    return out;
  }
  /// The lease is the same one, records are confirmed, what was withdrawn stays so.
  void expect_unharmed(std::uint64_t term) {
    EXPECT_EQ(lease(), term);
    for (int i = 0; i < 3; ++i)
      say("victim", episode("resource-limits:/web", {1, 2}, Stage::Serving, ++said_));
    EXPECT_TRUE(is_told("victim")) << fleet("c1");
    EXPECT_EQ(lease(), term);
  }
  c::Authority own_;
  std::uint64_t said_ = 0;
};

/// What a node may say, with a message that is one and one that is none.
struct Asking {
  std::string subject, bytes;
};
std::vector<Asking> askings_of(const std::string& node, const std::string& key) {
  return {
      {"flash.v1.id." + node + ".renew", encode(c::Wish{key})},
      {"flash.v1.id." + node + ".renew", "attack"},
      {"flash.v1.rq." + node + ".nearest",
       c::encode(link::NearestQuestion{"a", Task::ResourceLimits, "m1", {1, 2}})},
      {"flash.v1.rq." + node + ".fleet", encode(c::FleetQuestion{})},
      {"flash.v1.rq." + node + ".model", encode(c::ModelQuestion{c::kModelsSubject})},
      {"flash.v1.rq." + node + ".model", "attack"},
      {"flash.v1.up.default." + node + ".ep", "attack"},
      {"flash.v1.hb.default." + node, encode(c::Heartbeat{"evil", "", "", 0, 0})},
      // As nodes of an earlier release were allowed to ask the server.
      {"$JS.API.STREAM.MSG.GET.FLASH_MODELS", R"({"last_by_subj":"flash.v1.bc.models"})"},
      {"$JS.API.STREAM.MSG.GET.FLASH_MODELS", "attack"},
  };
}

std::string key_in(const std::string& creds) {
  return c::NKey::from_seed(c::read_creds(creds)->seed)->public_key();
}

// Before: the coordinator answered where the request said, with all rights, and so did the server: with the
// reply $KV.FLASH_LEASE.speaker the lease was overwritten (no watermark while it was repeated), with
// flash.v1.bc.models the registry (16 times: a withdrawal was undone for good); with the server's answer to a
// node's read of the models, and its acknowledgements of the node's records, as well.
TEST_F(FleetAttack, NoAnswerGoesUnderASubjectThatIsNotTheAskersInbox) {
  ASSERT_NO_FATAL_FAILURE(publish(1));
  ASSERT_TRUE(await([&] { return held() == 1; })) << text_of(folder_ + "/victim.log");
  ASSERT_NO_FATAL_FAILURE(publish(2));
  ASSERT_TRUE(await([&] { return held() == 2; })) << text_of(folder_ + "/victim.log");
  model({"withdraw", kName, "2", "--reason", "bad"});
  ASSERT_TRUE(await([&] { return held() == 1; }));
  const std::uint64_t term = lease();
  const auto all = observer();
  const auto evil = as_node("evil");
  for (const Asking& a : askings_of("evil", key_in(text_of(creds_of("evil")))))
    for (const std::string& reply : protected_subjects()) {
      evil->say(a.subject, a.bytes, reply);
      evil->flush();
    }
  // The registry's state is forgotten after 16 messages that are none.
  for (int i = 0; i < 20; ++i) evil->say("$JS.API.STREAM.MSG.GET.FLASH_MODELS", "{}", "flash.v1.bc.models");
  evil->flush();
  // What was asked before this is done with: the coordinator reads in order.
  EXPECT_NE(evil->request("flash.v1.rq.evil.model", encode(c::ModelQuestion{c::kModelsSubject})), "");
  expect_unharmed(term);
  EXPECT_THAT(strange(*all), IsEmpty());
  const auto state = nlohmann::json::parse(model({"list"}), nullptr, false);
  ASSERT_TRUE(state.is_object());
  ASSERT_EQ(state["withdrawn"].size(), 1u) << state;
  EXPECT_EQ(state["withdrawn"][0]["version"], 2);
  EXPECT_EQ(held(), 1u);
}

// Before: the same with a token that nobody has used, which is what is sent around in mails.
TEST_F(FleetAttack, NorThatOfWhoHasATokenThatNobodyUsed) {
  const std::uint64_t term = lease();
  const auto token = *c::decode_token(token_for("newcomer"));
  const std::string key = c::NKey::from_seed(token.seed)->public_key();
  std::ofstream(folder_ + "/token.creds") << c::creds_file(token.jwt, *c::NKey::from_seed(token.seed));
  const auto all = observer();
  Stranger holder(server(), identity() + "/ca.pem", folder_ + "/token.creds", "_INBOX." + key);
  ASSERT_TRUE(holder.connected());
  const std::string subject = "flash.v1.id.newcomer." + key,
                    wish = encode(c::Wish{key_in(text_of(creds_of("evil")))});
  for (const std::string& reply : protected_subjects()) holder.say(subject, wish, reply);
  for (const Asking& a : askings_of("newcomer", key))
    for (const std::string& reply : protected_subjects()) holder.say(a.subject, a.bytes, reply);
  holder.flush();
  EXPECT_NE(holder.request(subject, "attack"), "")
      << "in its own inbox it is answered, if only with a refusal";
  expect_unharmed(term);
  EXPECT_THAT(strange(*all), IsEmpty());
  // The token is not spent by what nobody was answered to.
  EXPECT_EQ(run({program("flash-sync"), "--identity", folder_ + "/newcomer.id", "enroll", encode(token)}), 0)
      << text_of(folder_ + "/run.log");
}

// Held before; the table keeps it so when roles change.
TEST_F(FleetAttack, ANodeSaysAndHearsNothingOfAnothers) {
  const std::uint64_t term = lease();
  const auto all = observer();
  const auto evil = as_node("evil");
  for (const std::string& subject : protected_subjects()) {
    evil->say(subject, "attack");
    evil->say(subject, "attack", "_INBOX.evil.x");
  }
  for (const char* more :
       {"flash.v1.up.default.victim.x.ep", "flash.v1.up.evil.victim.ep", "flash.v1.hb.evil.victim",
        "flash.v1.id.evil.UABC", "flash.v1.rq.evil.other", "$JS.API.INFO", "$JS.API.STREAM.NAMES",
        "$JS.API.STREAM.CREATE.EVIL", "$JS.API.DIRECT.GET.FLASH_MODELS", "_INBOX.evil"})
    evil->say(more, "attack");
  for (const std::string& subject : protected_subjects()) evil->hear(subject);
  for (const char* wide : {">", "*", "flash.>", "flash.v1.>", "flash.v1.dn.>", "flash.v1.dn.*.wm",
                           "flash.v1.up.>", "flash.v1.id.>", "_INBOX.>", "_INBOX.*.>", "$KV.>", "$JS.>",
                           "$SYS.>", "flash.v1.bc.>", "flash.v1.ck.>"})
    evil->hear(wide);
  evil->flush();
  expect_unharmed(term);
  EXPECT_THAT(strange(*all), IsEmpty());
  std::vector<std::string> heard;
  for (const auto& h : evil->heard()) heard.push_back(h.subject);
  EXPECT_THAT(heard, IsEmpty());
}

// Whoever has the coordinator's credentials has what its program publishes. Before: everything in the
// account.
TEST_F(FleetAttack, ACoordinatorsCredentialsAreNoNodesAndDeleteNothing) {
  const std::uint64_t term = lease();
  const auto all = observer();
  Stranger taken(server(), identity() + "/ca.pem", identity() + "/coordinator.creds", "_INBOX_COORDINATOR");
  ASSERT_TRUE(taken.connected());
  for (const char* subject :
       {"flash.v1.up.default.victim.ep", "flash.v1.hb.default.victim", "flash.v1.rq.victim.nearest",
        "flash.v1.id.victim.renew", "$JS.API.STREAM.DELETE.FLASH_UP", "$JS.API.STREAM.DELETE.FLASH_MODELS",
        "$JS.API.STREAM.DELETE.KV_FLASH_LEASE", "$JS.API.STREAM.PURGE.FLASH_UP",
        "$JS.API.STREAM.CREATE.OTHER", "$JS.API.STREAM.MSG.DELETE.FLASH_UP", "$SYS.REQ.CLAIMS.UPDATE",
        "$KV.FLASH_LEASE.other", "anything"})
    taken.say(subject, "attack");
  taken.flush();
  expect_unharmed(term);
  for (const auto& h : all->heard()) EXPECT_THAT(h.bytes, testing::Not(HasSubstr("attack"))) << h.subject;
}

// A message that got under the coordinator's subjects in any other way. Before: a watermark of anybody's let
// a node forget records that nobody had; the lease was whoever's had written there last.
TEST_F(FleetAttack, WhatNoCoordinatorSignedIsBelievedByNobody) {
  for (int i = 0; i < 3; ++i) say("victim", episode("resource-limits:/web", {1, 2}, Stage::Serving, ++said_));
  ASSERT_TRUE(is_told("victim")) << fleet("c1");
  const std::uint64_t term = lease();
  const std::string victims_run = node_of("victim")["runs"][0]["run"];
  const auto all = observer();  // may say everything
  all->heard();
  // Records that nobody has: the coordinator stands still meanwhile.
  kill(coordinators_.at("c1")->pid(), SIGSTOP);
  for (int i = 0; i < 5; ++i) say("victim", episode("resource-limits:/web", {1, 2}, Stage::Serving, ++said_));
  const auto evil_key = *c::Authority::of(text_of(creds_of("evil")));
  const std::string mark = encode(c::Watermark{victims_run, 1000, term + 100});
  for (int i = 0; i < 20; ++i) all->say("flash.v1.dn.victim.wm", mark);
  all->flush();
  ASSERT_TRUE(await([&] {
    hear();
    return text_of(folder_ + "/victim.log").find("not signed by a coordinator") != std::string::npos;
  })) << text_of(folder_ + "/victim.log");
  kill(coordinators_.at("c1")->pid(), SIGCONT);
  for (int i = 0; i < 30; ++i) {
    all->say(
        "$KV.FLASH_LEASE.speaker",
        i % 2 == 0 ? "attack" : "c9/attack\n" + evil_key.seal("$KV.FLASH_LEASE.speaker", "c9/attack", 1));
    all->flush();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  for (int i = 0; i < 20; ++i) all->say("flash.v1.bc.models", encode(c::Models{}));
  all->flush();
  EXPECT_TRUE(is_told("victim")) << fleet("c1");
  // SIGSTOP may have cost it the term; what was written there has not kept it from the lease.
  EXPECT_TRUE(await([&] { return lease() > 0; })) << text_of(folder_ + "/c1.log");
  EXPECT_TRUE(await([&] { return stored("c1") == said_; })) << "no record was forgotten";
}

/// In one node's outbox.
class Outbox {
 public:
  explicit Outbox(Stranger& node) : node_(node) {}
  void say(const link::Episode& e) {
    node_.say("flash.v1.up.default.evil.ep", c::encode_record(run_, seq_ + 1, seq_, c::encode_episode(e)));
    if (++seq_ % 500 == 0) node_.flush();
  }

 private:
  Stranger& node_;
  std::string run_ = std::string(32, 'e');
  std::uint64_t seq_ = 0;
};

// Before: 1e6 was stored as a mean reward, and with it a bad model was never worse than the others.
TEST_F(FleetAttack, ARewardThatNoFormulaGivesIsRefusedAndNothingStopsBehindIt) {
  const auto evil = as_node("evil");
  evil->hear("flash.v1.dn.evil.wm");
  Outbox outbox(*evil);
  std::uint64_t number = 0;
  for (const double reward : {0.5, 1e6, -1e6, 1.5, 1e300, 0.25}) {
    link::Episode e = episode("resource-limits:/evil", {1, 2}, Stage::Serving, ++number);
    e.reward_mean = reward;
    outbox.say(e);
  }
  evil->flush();
  std::uint64_t covered = 0;
  ASSERT_TRUE(await([&] {
    for (const auto& h : evil->heard())
      if (const auto mark = c::decode_watermark(h.bytes)) covered = std::max(covered, mark->seq);
    return covered == 6;
  })) << text_of(folder_ + "/c1.log");
  EXPECT_EQ(stored("c1"), 2u);
  EXPECT_EQ(fleet("c1")["refused"], 4);
  EXPECT_EQ(node_of("evil")["agents"][0]["reward_mean"], 0.25);
}

// Before: 60,000 agents of one node were stored, listed, and searched for each question of the others.
TEST_F(FleetAttack, OneNodeHasOneNodesShareOfTheStore) {
  const std::uint64_t term = lease();
  const auto evil = as_node("evil");
  Outbox outbox(*evil);
  constexpr std::uint64_t kAgents = 12'000;
  for (std::uint64_t i = 0; i < kAgents; ++i)
    outbox.say(episode("resource-limits:/evil" + std::to_string(i), {1, 2}, Stage::Online));
  evil->flush();
  say("victim", episode("resource-limits:/web", {1, 2}, Stage::Serving, ++said_));
  ASSERT_TRUE(await([&] { return stored("c1") == kAgents + said_; })) << stored("c1");
  EXPECT_LE(node_of("evil")["agents"].size(), 4096u);
  EXPECT_EQ(node_of("victim")["agents"].size(), 1u);
  expect_unharmed(term);
}

// Before: a node's questions were answered as fast as they came, 4,096 between two looks at the lease; and
// each message that was refused was a line of the log.
TEST_F(FleetAttack, OneNodeThatAsksForEverCostsTheOthersNothing) {
  const std::uint64_t term = lease();
  const auto evil = as_node("evil");
  for (int i = 0; i < 30; ++i) {
    for (const Asking& a : askings_of("evil", key_in(text_of(creds_of("evil")))))
      for (int k = 0; k < 200; ++k) evil->say(a.subject, k % 2 == 0 ? a.bytes : "attack", "_INBOX.evil.x");
    evil->flush();
  }
  expect_unharmed(term);
  const std::string log = text_of(folder_ + "/c1.log");
  EXPECT_LT(std::count(log.begin(), log.end(), '\n'), 200) << log.substr(0, 4000);
}

}  // namespace
}  // namespace flash::fleet_world
