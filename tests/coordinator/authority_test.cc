// Whose word a node takes for the coordinator's.
#include "coordinator/authority.h"

#include <gmock/gmock.h>

#include "coordinator/jwt.h"
#include "coordinator/lease.h"
#include "coordinator/messages_enrol.h"
#include "coordinator/model_desk.h"
#include "coordinator/node_budget.h"
#include "coordinator/registry.h"

namespace flash::coordinator {
namespace {

using namespace std::literals;
using testing::HasSubstr;

constexpr std::int64_t kToday = 1'800'000'000;

struct Fleet {
  NKey account = *NKey::make(KeyKind::Account), node_role = *NKey::make(KeyKind::Account);

  std::string creds(const NKey& signer, const std::string& name, bool of_role) const {
    const NKey user = *NKey::make(KeyKind::User);
    const User who{name, user.public_key(), 0};
    return creds_file(*(of_role ? role_user_jwt(signer, account.public_key(), who, kToday)
                                : full_user_jwt(signer, who, kToday)),
                      user);
  }
  Authority coordinator() const { return *Authority::of(creds(account, "coordinator", false)); }
  Authority node(const std::string& name = "web1") const {
    return *Authority::of(creds(node_role, name, true));
  }
};

TEST(Authority, ANodeBelievesACoordinatorOfItsOwnAccountAlone) {
  const Fleet fleet, other;
  const Authority node = fleet.node();
  const std::string seal = fleet.coordinator().seal("flash.v1.dn.web1.wm", "bytes", 7);
  ASSERT_TRUE(node.check("flash.v1.dn.web1.wm", "bytes", seal));
  EXPECT_EQ(*node.check("flash.v1.dn.web1.wm", "bytes", seal), 7u);
  EXPECT_EQ(fleet.coordinator().why_not_believed(), "");

  struct Row {
    const char* who;
    std::string seal;
  };
  for (const Row& row :
       {Row{"nobody", ""},
        Row{"another fleet's", other.coordinator().seal("flash.v1.dn.web1.wm", "bytes", 7)},
        Row{"a node", fleet.node("web2").seal("flash.v1.dn.web1.wm", "bytes", 7)},
        Row{"a node of that name", fleet.node("coordinator").seal("flash.v1.dn.web1.wm", "bytes", 7)},
        Row{"another user of the account's key", Authority::of(fleet.creds(fleet.account, "web1", false))
                                                     ->seal("flash.v1.dn.web1.wm", "bytes", 7)},
        Row{"rubbish", "7 x y"}, Row{"an answer of the server's", "{\"type\":\"io.nats.jetstream\"}"}})
    EXPECT_FALSE(node.check("flash.v1.dn.web1.wm", "bytes", row.seal)) << row.who;
  EXPECT_THAT(fleet.node().why_not_believed(), HasSubstr("no coordinator of this fleet"));
}

TEST(Authority, ASignatureIsOfOneSubjectOneMessageAndOneSerial) {
  const Fleet fleet;
  const Authority node = fleet.node();
  const std::string seal = fleet.coordinator().seal("a", "b", 3);
  EXPECT_TRUE(node.check("a", "b", seal));
  EXPECT_FALSE(node.check("x", "b", seal));
  EXPECT_FALSE(node.check("a", "x", seal));
  EXPECT_FALSE(node.check("a", "b", "4" + seal.substr(1)));
  EXPECT_FALSE(node.check("a", "b", "03" + seal.substr(1)));
  EXPECT_FALSE(node.check("a\n3\nb", "", seal));
  for (std::size_t i = 0; i < seal.size(); i += 5) {
    std::string changed = seal;
    changed[i] = changed[i] == 'A' ? 'B' : 'A';
    EXPECT_FALSE(node.check("a", "b", changed)) << i;
  }
}

TEST(Authority, WithoutCredentialsNothingIsSignedAndAllIsBelieved) {
  const Authority nobody;
  EXPECT_EQ(nobody.seal("a", "b"), "");
  EXPECT_TRUE(nobody.check("a", "b", ""));
  EXPECT_FALSE(Authority::of("rubbish"));
}

TEST(Seal, IsReadAsWritten) {
  const Seal seal{12, std::string(64, 'x'), "a.b.c"};
  EXPECT_EQ(*decode_seal(encode(seal)), seal);
  for (const std::string& wrong : {""s, "1"s, "1 "s, "1  "s, "1 AAAA a.b.c"s, "-1"s + encode(seal).substr(2),
                                   encode(seal) + " x", encode(seal) + "\n", std::string(5000, 'a')})
    EXPECT_FALSE(decode_seal(wrong)) << wrong;
}

TEST(Inbox, IsTheAskersOwnAndNothingElse) {
  for (const char* own : {"_INBOX.web1.a", "_INBOX.web1.a.b.C-_9"})
    EXPECT_TRUE(is_inbox_of(own, "web1")) << own;
  for (const char* other :
       {"", "_INBOX", "_INBOX.web1", "_INBOX.web1.", "_INBOX.web1..a", "_INBOX.web1.a.", "_INBOX.web1.*",
        "_INBOX.web1.>", "_INBOX.web1.a b", "_INBOX.web2.a", "_INBOX.web11.a", "_inbox.web1.a",
        "x_INBOX.web1.a", "_INBOX_COORDINATOR.web1.a", "$KV.FLASH_LEASE.speaker", "flash.v1.bc.models",
        "$JS.API.STREAM.PURGE.FLASH_UP", "_INBOX.web1.a\r\nPUB x 0"})
    EXPECT_FALSE(is_inbox_of(other, "web1")) << other;
  EXPECT_FALSE(is_inbox_of("_INBOX.*.a", "*"));
  EXPECT_FALSE(is_inbox_of("_INBOX.web1.a", "web1.a"));
}

TEST(NodeBudget, OneNodeSpendsItsOwnAlone) {
  NodeBudget budget(2, 4);
  Duration now = 100s;
  int had = 0;
  for (int i = 0; i < 100; ++i) had += budget.take("a", now);
  EXPECT_EQ(had, 4);
  EXPECT_TRUE(budget.take("b", now));
  now += 1s;
  for (had = 0; budget.take("a", now);) ++had;
  EXPECT_EQ(had, 2);
  now += 1000s;
  for (had = 0; budget.take("a", now);) ++had;
  EXPECT_EQ(had, 4);
}

class ModelDeskTest : public testing::Test {
 protected:
  std::optional<std::string> ask(const std::string& node, const std::string& bytes,
                                 const std::string& reply) {
    const auto answer = desk.answer({model_question_subject(node), bytes, reply}, now);
    EXPECT_TRUE(answer);
    return *answer;
  }
  int looked = 0;
  Duration now = 100s;
  ModelDesk desk{[this](const std::string& subject) -> Result<std::optional<Message>> {
    ++looked;
    if (subject != kModelsSubject) return std::optional<Message>();
    return std::optional<Message>(Message{subject, "state", {}, 1, "seal"});
  }};
};

TEST_F(ModelDeskTest, AnswersWithWhatTheStreamHas) {
  const auto answer =
      decode_model_answer(*ask("web1", encode(ModelQuestion{kModelsSubject}), "_INBOX.web1.x"));
  ASSERT_TRUE(answer);
  EXPECT_TRUE(answer->found);
  EXPECT_EQ(answer->bytes, "state");
  EXPECT_EQ(answer->seal, "seal");
  const std::string chunk = chunk_subject("resource-limits", 1, 0);
  EXPECT_FALSE(decode_model_answer(*ask("web1", encode(ModelQuestion{chunk}), "_INBOX.web1.x"))->found);
}

TEST_F(ModelDeskTest, DoesNotAnswerWhereTheAskerIsNotNorWhatIsNoModels) {
  const std::string question = encode(ModelQuestion{kModelsSubject});
  for (const char* reply : {"", "flash.v1.bc.models", "$KV.FLASH_LEASE.speaker", "_INBOX.web2.x",
                            "_INBOX.web1.>", "flash.v1.dn.web2.wm", "$JS.API.STREAM.PURGE.FLASH_MODELS"})
    EXPECT_FALSE(ask("web1", question, reply)) << reply;
  EXPECT_FALSE(ask("web1", "rubbish", "_INBOX.web1.x"));
  EXPECT_FALSE(ask("web.1", question, "_INBOX.web.1.x"));
  EXPECT_EQ(looked, 0);
  for (const char* subject :
       {"flash.v1.ck.>", "flash.v1.ck.resource-limits.1.*", "flash.v1.ck.resource-limits.01.0",
        "flash.v1.ck.resource-limits.1.64", "flash.v1.ck.resource-limits.1.manifest.x",
        "flash.v1.ck.other.1.0", "flash.v1.up.a.b.ep", "$KV.FLASH_LEASE.speaker", ""})
    EXPECT_FALSE(is_model_subject(subject)) << subject;
  for (const char* subject : {"flash.v1.bc.models", "flash.v1.ck.resource-limits.1.manifest",
                              "flash.v1.ck.cpu-frequency.1000000000.63"})
    EXPECT_TRUE(is_model_subject(subject)) << subject;
}

TEST_F(ModelDeskTest, ManyThatAskAtOnceCostOneLookAndOneThatAsksForEverNothing) {
  const std::string question = encode(ModelQuestion{kModelsSubject});
  for (int i = 0; i < 100; ++i) {
    const std::string node = "web" + std::to_string(i);
    EXPECT_TRUE(ask(node, question, "_INBOX." + node + ".x"));
  }
  EXPECT_EQ(looked, 1);
  int answered = 0;
  for (int i = 0; i < 1000; ++i) answered += ask("web1", question, "_INBOX.web1.x").has_value();
  EXPECT_LT(answered, 200);
  EXPECT_TRUE(ask("web2", question, "_INBOX.web2.x"));
}

class SignedState : public testing::Test {
 protected:
  Message state(std::uint64_t version, std::uint64_t position, const Authority& by) {
    Models m;
    m.offered.push_back({"resource-limits", version, 100, 1, 1});
    const std::string bytes = encode(m);
    return {kModelsSubject, bytes, {}, position, by.seal(kModelsSubject, bytes, 10 * version)};
  }
  std::uint64_t counts(const std::vector<Message>& kept) {
    const Registered r = newest_good(kept, coordinator);
    return r.models.offered.empty() ? 0 : r.models.offered[0].version;
  }
  Fleet fleet;
  Authority coordinator = fleet.coordinator();
};

TEST_F(SignedState, OfWhatLiesThereTheNewestThatACoordinatorSignedCounts) {
  const Message a = state(1, 1, coordinator), b = state(2, 2, coordinator);
  EXPECT_EQ(counts({a, b}), 2u);
  EXPECT_EQ(newest_good({a, b}, coordinator).serial, 20u);
  EXPECT_EQ(counts({a, b, {kModelsSubject, "{\"type\":\"io.nats\"}", {}, 3}}), 2u);
  EXPECT_EQ(counts({a, b, state(9, 3, fleet.node())}), 2u) << "a node's";
  EXPECT_EQ(counts({a, b, state(9, 3, Authority())}), 2u) << "nobody's";
  Message moved = b;
  moved.seal = a.seal;
  EXPECT_EQ(counts({a, moved}), 1u) << "another message's signature";
}

TEST_F(SignedState, WhatAReleaseBeforeSignaturesLeftCountsWhileNothingIsSigned) {
  EXPECT_EQ(counts({state(1, 1, Authority()), state(2, 2, Authority())}), 2u);
  EXPECT_EQ(newest_good({state(2, 2, Authority())}, coordinator).serial, 0u);
  EXPECT_EQ(counts({state(2, 1, Authority()), state(1, 2, coordinator)}), 1u);
}

}  // namespace
}  // namespace flash::coordinator
