// NKeys, JWTs, tokens: spelled as nats-server spells them, and nothing else is accepted.
#include <gmock/gmock.h>

#include <tuple>

#include "coordinator/certificates.h"
#include "coordinator/jwt.h"
#include "coordinator/keyring.h"
#include "coordinator/messages_enrol.h"
#include "coordinator/nkey.h"
#include "coordinator/registrar.h"
#include "coordinator/server_version.h"
#include "coordinator/text_codes.h"
#include "core/json.h"
#include "tests/actuators/temporary_folder.h"

namespace flash::coordinator {
namespace {

using namespace std::literals;
using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// RFC 8032, section 7.1, test 1: the secret and public key, and the signature of nothing.
constexpr std::string_view kSecret =
    "\x9d\x61\xb1\x9d\xef\xfd\x5a\x60\xba\x84\x4a\xf4\x92\xec\x2c\xc4\x44\x49\xc5\x69\x7b\x32\x69\x19\x70\x3b"
    "\xac"
    "\x03\x1c\xae\x7f\x60";
constexpr std::string_view kSignature =
    "\xe5\x56\x43\x00\xc3\x60\xac\x72\x90\x86\xe2\xcc\x80\x6e\x82\x8a\x84\x87\x7f\x1e\xb8\xe5\xd9\x74\xd8\x73"
    "\xe0"
    "\x65\x22\x49\x01\x55\x5f\xb8\x82\x15\x90\xa3\x3b\xac\xc6\x1e\x39\x70\x1c\xf9\xb4\x6b\xd2\x5b\xf5\xf0\x59"
    "\x5b"
    "\xbe\x24\x65\x51\x41\x43\x8e\x7a\x10\x0b"sv;

// The same as a user's NKey: prefix, CRC-16 and base32 by Python's binascii.crc_hqx and base64.
constexpr std::string_view kSeed = "SUAJ2YNRTXX72WTAXKCEV5ES5QWMIRCJYVUXWMTJDFYDXLADDSXH6YALCA";
constexpr std::string_view kPublic = "UDLVVGABQKYQVN6VJP7NHSLEA45A5YLS6PNKMIZFV4BBU2HXA5IRUVAL";
constexpr std::int64_t kToday = 1'800'000'000;

TEST(TextCodes, AreThoseOfTheRfc) {
  // RFC 4648, section 10, without padding.
  EXPECT_EQ(base32("foobar"), "MZXW6YTBOI");
  EXPECT_EQ(base32("fooba"), "MZXW6YTB");
  EXPECT_EQ(base32("f"), "MY");
  EXPECT_EQ(base64url("fooba"), "Zm9vYmE");
  EXPECT_EQ(base64url("\xfb\xff"), "-_8");
  for (const std::string text : {"", "f", "fo", "foo", "foob", "fooba", "foobar"}) {
    EXPECT_EQ(*from_base32(base32(text)), text);
    EXPECT_EQ(*from_base64url(base64url(text)), text);
  }
}

TEST(TextCodes, WhatIsNotCanonicalIsRefused) {
  EXPECT_TRUE(from_base32("MY"));
  EXPECT_FALSE(from_base32("MZ")) << "left-over bits";
  EXPECT_FALSE(from_base32("M")) << "no byte has one letter";
  EXPECT_FALSE(from_base32("my")) << "small letters";
  EXPECT_FALSE(from_base32("MY======")) << "padding";
  EXPECT_FALSE(from_base64url("Zg=="));
  EXPECT_FALSE(from_base64url("Zh"));
  EXPECT_FALSE(from_base64url("+_8"));
}

TEST(NKey, IsEd25519InNatsSpelling) {
  EXPECT_EQ(from_base32(kSeed)->substr(2, 32), kSecret);
  const auto key = NKey::from_seed(kSeed);
  ASSERT_TRUE(key) << key.error().message();
  EXPECT_EQ(key->kind(), KeyKind::User);
  EXPECT_EQ(key->seed(), kSeed);
  EXPECT_EQ(key->public_key(), kPublic);
  EXPECT_EQ(*key->sign(""), kSignature);
  EXPECT_TRUE(verify(kPublic, "", kSignature));
  EXPECT_TRUE(verify(kPublic, "x", kSignature).error().is(std::errc::bad_message));
}

TEST(NKey, SaysWhoseItIs) {
  for (const auto& [kind, seed, key] :
       {std::tuple(KeyKind::Operator, "SO", "O"), std::tuple(KeyKind::Account, "SA", "A"),
        std::tuple(KeyKind::User, "SU", "U")}) {
    const NKey made = *NKey::make(kind);
    EXPECT_THAT(made.seed(), StartsWith(seed));
    EXPECT_THAT(made.public_key(), StartsWith(key));
    EXPECT_EQ(NKey::from_seed(made.seed())->public_key(), made.public_key());
    EXPECT_EQ(*kind_of_public(made.public_key()), kind);
    EXPECT_NE(made.seed(), NKey::make(kind)->seed());
  }
}

TEST(NKey, ATypingErrorIsNamed) {
  std::string text(kPublic);
  text[20] = text[20] == 'A' ? 'B' : 'A';
  EXPECT_THAT(kind_of_public(text).error().message(), HasSubstr("mistyped"));
  EXPECT_FALSE(NKey::from_seed(kPublic)) << "a public key is no seed";
  EXPECT_FALSE(kind_of_public(kSeed)) << "a seed is no public key";
  EXPECT_FALSE(NKey::from_seed(""));
}

/// The middle part of a JWT.
nlohmann::json claims_of(const std::string& jwt) {
  const auto first = jwt.find('.'), second = jwt.find('.', first + 1);
  return nlohmann::json::parse(*from_base64url(jwt.substr(first + 1, second - first - 1)));
}

struct Keys {
  NKey op = *NKey::make(KeyKind::Operator), account = *NKey::make(KeyKind::Account),
       node = *NKey::make(KeyKind::Account), enroll = *NKey::make(KeyKind::Account),
       user = *NKey::make(KeyKind::User);
};

TEST(Jwt, ANodesSaysNothingButWhoAndHowLong) {
  const Keys k;
  const auto jwt =
      role_user_jwt(k.node, k.account.public_key(), {"web1", k.user.public_key(), kToday + 60}, kToday);
  const auto claims = claims_of(*jwt);
  EXPECT_EQ(claims["name"], "web1");
  EXPECT_EQ(claims["sub"], k.user.public_key());
  EXPECT_EQ(claims["iss"], k.node.public_key());
  EXPECT_EQ(claims["exp"], kToday + 60);
  // Permissions are the role's alone: with any of its own the server refuses such a user.
  EXPECT_EQ(claims["nats"].dump(),
            R"({"issuer_account":")" + k.account.public_key() + R"(","type":"user","version":2})");
  const auto read = read_jwt(*jwt);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->name, "web1");
  EXPECT_EQ(read->expires, kToday + 60);
}

TEST(Jwt, ARoleLetsANodeSpeakForItselfAlone) {
  const Keys k;
  const auto jwt = account_jwt(
      k.op, fleet_account(k.account.public_key(), k.node.public_key(), k.enroll.public_key()), kToday);
  const auto nats = claims_of(*jwt)["nats"];
  EXPECT_EQ(nats["limits"]["leaf"], 0);
  ASSERT_EQ(nats["signing_keys"].size(), 2u);
  for (const auto& role : nats["signing_keys"])
    for (const std::string subject : role["template"]["pub"]["allow"])
      EXPECT_THAT(subject, AllOf(HasSubstr(".{{name()}}"), Not(StartsWith("$"))))
          << "what the server answers, it answers anywhere";
  EXPECT_THAT(nats["signing_keys"][0]["template"]["sub"]["allow"].get<std::vector<std::string>>(),
              ElementsAre("flash.v1.dn.{{name()}}.>", "_INBOX.{{name()}}.>"));
}

TEST(Jwt, ACoordinatorMayPublishWhatItsProgramPublishes) {
  const Keys k;
  const auto jwt = account_jwt(
      k.op, fleet_account(k.account.public_key(), k.node.public_key(), k.enroll.public_key()), kToday);
  const auto given = claims_of(*jwt)["nats"]["default_permissions"];
  for (const std::string subject : given["pub"]["allow"]) {
    EXPECT_NE(subject, ">");
    // Not as a node, not what deletes a stream, nor a stream of somebody else.
    EXPECT_THAT(subject,
                Not(AnyOf(HasSubstr("flash.v1.up"), HasSubstr("flash.v1.rq"), HasSubstr("flash.v1.hb"),
                          HasSubstr("flash.v1.id"), HasSubstr("STREAM.DELETE"), HasSubstr("API.>"),
                          HasSubstr("STREAM.*"), HasSubstr("$SYS"))));
  }
  // A user with any permissions of its own would not get these.
  const auto user = claims_of(*full_user_jwt(k.account, {"coordinator", k.user.public_key(), 0}, kToday));
  EXPECT_FALSE(user["nats"].contains("pub"));
}

TEST(Jwt, KeepsWhatIsRevoked) {
  const Keys k;
  Account account = fleet_account(k.account.public_key(), k.node.public_key(), k.enroll.public_key());
  account.revoked[k.user.public_key()] = kToday;
  EXPECT_EQ(read_jwt(*account_jwt(k.op, account, kToday))->account.revoked, account.revoked);
}

TEST(Jwt, OneChangedLetterIsRefused) {
  const Keys k;
  const std::string jwt = *full_user_jwt(k.account, {"root", k.user.public_key(), 0}, kToday);
  ASSERT_TRUE(read_jwt(jwt));
  for (std::size_t i = 0; i < jwt.size(); i += 7) {
    std::string other = jwt;
    other[i] = other[i] == 'A' ? 'B' : 'A';
    EXPECT_FALSE(read_jwt(other)) << i;
  }
  EXPECT_FALSE(read_jwt(jwt + "A"));
  EXPECT_FALSE(read_jwt(""));
  EXPECT_FALSE(read_jwt("a.b.c"));
}

TEST(Creds, AreReadAsTheyAreWritten) {
  const Keys k;
  const std::string jwt = *full_user_jwt(k.account, {"root", k.user.public_key(), 0}, kToday);
  const auto read = read_creds(creds_file(jwt, k.user));
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->jwt, jwt);
  EXPECT_EQ(read->seed, k.user.seed());
  EXPECT_FALSE(read_creds("USER:PASSWORD"));
}

Token token_of(const Keys& k) {
  return {
      .servers = "tls://hub:4222,tls://hub2:4222",
      .ca = "-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n",
      .pool = "default",
      .node = "web1",
      .jwt = *role_user_jwt(k.enroll, k.account.public_key(), {"web1", k.user.public_key(), kToday}, kToday),
      .seed = k.user.seed()};
}

TEST(Token, IsOneLineAndReadAsWritten) {
  const Keys k;
  const Token token = token_of(k);
  const std::string text = encode(token);
  EXPECT_THAT(text, StartsWith("flash1."));
  EXPECT_EQ(text.find_first_of(" \n"), text.npos);
  const auto read = decode_token(text);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->servers, token.servers);
  EXPECT_EQ(read->ca, token.ca);
  EXPECT_EQ(read->node, "web1");
  EXPECT_EQ(read->jwt, token.jwt);
  EXPECT_EQ(read->seed, token.seed);
}

TEST(Token, WhatIsNoneIsRefused) {
  EXPECT_THAT(decode_token("hello").error().message(), HasSubstr("not a token"));
  EXPECT_FALSE(decode_token("flash1."));
  const std::string text = encode(token_of(Keys()));
  EXPECT_FALSE(decode_token(text.substr(0, text.size() - 4)));
  EXPECT_FALSE(decode_token(text + "AAAA"));
  EXPECT_FALSE(decode_token("flash1." + base64url("\xa1\x61v\x01")));
}

TEST(Token, IsNotRepeatedByWhoRefusesIt) {
  EXPECT_EQ(without_tokens("'flash1.aB-_9' and flash1.x, flash1."),
            "'flash1....' and flash1...., flash1....");
  EXPECT_EQ(without_tokens("flash-sync enroll"), "flash-sync enroll");
  const Token token = token_of(Keys());
  const std::string text = encode(token);
  for (std::size_t i = 7; i < text.size(); i += 3) {
    std::string changed = text;
    changed[i] = changed[i] == 'A' ? 'B' : 'A';
    for (const std::string& wrong : {text.substr(0, i), changed})
      if (const auto read = decode_token(wrong); !read) {
        const std::string& why = read.error().message();
        for (const std::string& secret : {wrong, token.seed, token.jwt})
          EXPECT_EQ(why.find(std::string_view(secret).substr(0, 20)), why.npos) << why;
      }
  }
}

TEST(Registrar, LogsWhomItRefusedWithoutTheToken) {
  const TemporaryFolder folder;
  const Keys k;
  std::string said;
  Registrar registrar(*NKey::from_seed(k.enroll.seed()), k.account.public_key(), 60,
                      *IdentityStore::open(folder.path() + "/store.db", nullptr),
                      [&said](int, const std::string& text) { said += text + "\n"; });
  const std::string wish = encode(Wish{std::string(kPublic)});
  const auto answer = registrar.answer(wish_subject({"web1", k.user.public_key()}), wish,
                                       "_INBOX." + k.user.public_key() + ".a", kToday);
  ASSERT_TRUE(answer);
  EXPECT_THAT(decode_credentials(*answer).error().message(), HasSubstr("the token is not known"));
  EXPECT_EQ(said, "refused credentials of web1 by a token: the token is not known\n");
  said.clear();
  EXPECT_TRUE(registrar.answer(wish_subject({"web1", ""}), wish, "_INBOX.web1.a.b", kToday));
  EXPECT_THAT(said, StartsWith("refused credentials that web1 wants renewed: "));
  said.clear();
  EXPECT_FALSE(
      registrar.answer("flash.v1.id.web1." + k.user.public_key() + ".x", wish, "_INBOX.web1.a", kToday));
  EXPECT_EQ(said, "refused credentials: not a subject of wishes\n");
}

TEST(Registrar, AnswersBelowTheAskersOwnInboxAloneAndDoesNothingForWhoWantsItElsewhere) {
  const TemporaryFolder folder;
  const Keys k;
  const std::string token = k.user.public_key(), path = folder.path() + "/store.db";
  auto store = *IdentityStore::open(path, nullptr);
  ASSERT_TRUE(store.add({token, "web1", kToday, kToday + 60, ""}));
  Registrar registrar(*NKey::from_seed(k.node.seed()), k.account.public_key(), 60, std::move(store),
                      [](int, const std::string&) {});
  const NKey own = *NKey::make(KeyKind::User);
  const std::string wish = encode(Wish{own.public_key()});
  for (const std::string& reply :
       {std::string(), "$KV.FLASH_LEASE.speaker"s, "flash.v1.bc.models"s, "_INBOX.web2.a"s, "_INBOX.web1.a"s,
        "_INBOX." + token, "_INBOX." + token + ".", "_INBOX." + token + ".*", "_INBOX." + token + ".>",
        "_INBOX." + token + ".a..b", "_INBOX." + token + "x.a", "_INBOX.>"s,
        "$JS.API.STREAM.PURGE.FLASH_UP"s}) {
    EXPECT_FALSE(registrar.answer(wish_subject({"web1", token}), wish, reply, kToday)) << reply;
    EXPECT_FALSE(
        registrar.answer(wish_subject({"web2", ""}), wish, reply == "_INBOX.web2.a" ? "" : reply, kToday));
  }
  EXPECT_EQ(IdentityStore::open_to_read(path)->credentials()->size(), 0u);
  const auto answer =
      registrar.answer(wish_subject({"web1", token}), wish, "_INBOX." + token + ".abc.1", kToday);
  ASSERT_TRUE(answer);
  EXPECT_TRUE(decode_credentials(*answer));
  EXPECT_TRUE(registrar.answer(wish_subject({"web1", ""}), wish, "_INBOX.web1.abc.2", kToday));
}

TEST(Registrar, ANodeThatAsksForEverIsAnsweredOnceInAWhile) {
  const TemporaryFolder folder;
  const Keys k;
  Registrar registrar(*NKey::from_seed(k.node.seed()), k.account.public_key(), 60,
                      *IdentityStore::open(folder.path() + "/store.db", nullptr),
                      [](int, const std::string&) {});
  const std::string wish = encode(Wish{std::string(kPublic)});
  int answered = 0;
  for (int i = 0; i < 1000; ++i)
    answered += registrar.answer(wish_subject({"web1", ""}), wish, "_INBOX.web1.a", kToday).has_value();
  EXPECT_LT(answered, 100);
  EXPECT_TRUE(registrar.answer(wish_subject({"web2", ""}), wish, "_INBOX.web2.a", kToday))
      << "another node's";
}

TEST(Enrolment, SubjectsNameTheNodeAndTheToken) {
  const Petitioner first{"web1", std::string(kPublic)}, again{"web1", ""};
  EXPECT_EQ(wish_subject(first), "flash.v1.id.web1." + std::string(kPublic));
  EXPECT_EQ(wish_subject(again), "flash.v1.id.web1.renew");
  EXPECT_EQ(petitioner_of(wish_subject(first))->token, kPublic);
  EXPECT_EQ(petitioner_of(wish_subject(again))->token, "");
  for (const char* wrong : {"flash.v1.id.web1", "flash.v1.id.web1.", "flash.v1.id..renew",
                            "flash.v1.id.web1.x", "flash.v1.id.web1.renew.renew", "flash.v1.up.web1.renew"})
    EXPECT_FALSE(petitioner_of(wrong)) << wrong;
}

TEST(Enrolment, AnAnswerIsCredentialsOrARefusal) {
  EXPECT_EQ(decode_wish(encode(Wish{std::string(kPublic)}))->key, kPublic);
  EXPECT_EQ(decode_credentials(encode(Credentials{"a.b.c"}))->jwt, "a.b.c");
  const auto refused = decode_credentials(encode(Refusal{"the token was used already"}));
  EXPECT_TRUE(refused.error().is(std::errc::permission_denied));
  EXPECT_THAT(refused.error().message(), HasSubstr("used already"));
  EXPECT_FALSE(decode_wish(encode(Credentials{"a.b.c"})));
  EXPECT_FALSE(decode_credentials(encode(Wish{std::string(kPublic)})));
}

TEST(Certificates, AServersHasItsNamesAndAnEnd) {
  const Certified authority = *make_authority(kToday, kToday + 1000);
  const auto server =
      make_server_certificate(authority, {"hub.example", "10.0.0.1", "fd00::1"}, kToday, kToday + 500);
  ASSERT_TRUE(server) << server.error().message();
  const auto facts = read_certificate(server->certificate);
  ASSERT_TRUE(facts) << facts.error().message();
  EXPECT_THAT(facts->names, ElementsAre("hub.example", "10.0.0.1", "fd00::1"));
  EXPECT_EQ(facts->expires, kToday + 500);
  const Certified other = *make_authority(kToday, kToday + 1000);
  EXPECT_FALSE(make_server_certificate({other.key, authority.certificate}, {"hub"}, kToday, kToday + 1));
  EXPECT_FALSE(read_certificate(server->key));
}

TEST(Certificates, ANameWithMoreInItIsNone) {
  EXPECT_TRUE(is_server_name("hub.example"));
  EXPECT_TRUE(is_server_name("fd00::1"));
  for (const char* wrong : {"", "hub example", "hub,DNS:evil", "*.example", "-hub", "hub:4222"})
    EXPECT_FALSE(is_server_name(wrong)) << wrong;
}

TEST(ServerVersion, AnOldOneIsNamedWithItsHoles) {
  EXPECT_EQ(*version_in(R"(INFO {"server_id":"x","version":"2.9.10","proto":1} )"), "2.9.10");
  EXPECT_FALSE(version_in("HTTP/1.1 200 OK"));
  EXPECT_FALSE(version_in(R"(INFO {"version":3})"));
  EXPECT_FALSE(version_in("INFO ["));
  for (const char* old : {"2.9.10", "2.10.26", "1.4.1", "2.10.2"})
    EXPECT_THAT(why_too_old(old), HasSubstr("CVE-2025-30215")) << old;
  for (const char* good : {"2.10.27", "2.10.27-RC.1", "2.11.0", "3.0.0", "nonsense", ""})
    EXPECT_EQ(why_too_old(good), "") << good;
}

}  // namespace
}  // namespace flash::coordinator
