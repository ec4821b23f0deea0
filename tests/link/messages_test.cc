#include "link/messages.h"

#include <gmock/gmock.h>

#include <cmath>

#include "core/json.h"
#include "tests/link/sample_messages.h"

namespace flash::link {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string cbor(const json& j) {
  const auto bytes = json::to_cbor(j);
  return {bytes.begin(), bytes.end()};
}

json tree(const std::string& bytes) {
  return json::from_cbor(bytes);
}

std::string error_down(const std::string& bytes) {
  const auto message = decode_down(bytes);
  return message ? "accepted" : message.error().message();
}

std::string error_up(const std::string& bytes) {
  const auto message = decode_up(bytes);
  return message ? "accepted" : message.error().message();
}

json binary(std::size_t bytes) {
  return json::binary(std::vector<std::uint8_t>(bytes));
}

TEST(LinkMessages, EveryDownMessageComesBackAsItWas) {
  for (const Down& message : sample_down()) {
    const std::string bytes = encode(message);
    const auto back = decode_down(bytes);
    ASSERT_TRUE(back) << back.error().message();
    EXPECT_EQ(back->index(), message.index());
    EXPECT_EQ(encode(*back), bytes);
  }
  const auto steps = decode_down(encode(Down(Steps{{sample_step()}})));
  ASSERT_TRUE(steps);
  const Step& s = std::get<Steps>(*steps).steps.at(0);
  EXPECT_EQ(s.agent, "limits_4711");
  EXPECT_EQ(s.seq, 7u);
  EXPECT_EQ(s.stage, Stage::Online);
  EXPECT_EQ(s.controller, Controller::Learned);
  EXPECT_TRUE(s.explored && s.state_trusted && s.reward_given && s.reward_trusted);
  EXPECT_FALSE(s.end_of_episode);
  EXPECT_EQ(s.state, (std::vector<float>{0.25f, 1.5f, -3e-7f}));
  EXPECT_EQ(s.action, (std::vector<float>{-1.0f, 0.5f}));
  EXPECT_EQ(s.reward, 0.75f);
}

TEST(LinkMessages, EveryUpMessageComesBackAsItWas) {
  for (const Up& message : sample_up()) {
    const std::string bytes = encode(message);
    const auto back = decode_up(bytes);
    ASSERT_TRUE(back) << back.error().message();
    EXPECT_EQ(back->index(), message.index());
    EXPECT_EQ(encode(*back), bytes);
  }
  Offer widest{{}, std::string(kMaxOffered, 'p')};
  std::size_t room = kMaxMessage - kOfferOverhead - kMaxOffered;
  for (const std::string name(kMaxName, 'n'); room >= name.size() + kNameOverhead;
       room -= name.size() + kNameOverhead)
    widest.agents.push_back(name);
  EXPECT_EQ(widest.agents.size(), 3U);
  EXPECT_TRUE(decode_up(encode(Up(widest)))) << "as much as the learner puts into one";
  const auto offer = decode_up(encode(Up(Offer{{"a", "b"}, std::string("\0\xff", 2)})));
  ASSERT_TRUE(offer);
  EXPECT_EQ(std::get<Offer>(*offer).policy, std::string("\0\xff", 2));
  EXPECT_EQ(std::get<Offer>(*offer).agents, (std::vector<std::string>{"a", "b"}));
}

// Another reader and writer of CBOR agree with ours.
TEST(LinkMessages, WhatIsWrittenIsPlainCbor) {
  for (const Down& message : sample_down()) {
    const json j = tree(encode(message));
    EXPECT_EQ(j.at("v"), kVersion);
    EXPECT_TRUE(decode_down(cbor(j))) << error_down(cbor(j));
  }
  for (const Up& message : sample_up()) EXPECT_TRUE(decode_up(cbor(tree(encode(message)))));
  const json hello = tree(encode(sample_down()[0]));
  EXPECT_EQ(hello.at("t"), "hello");
  EXPECT_EQ(hello.at("epoch"), 0xfedcba9876543210);
  EXPECT_EQ(hello.at("settings").at("seed"), 42);
  const json step = tree(encode_step(sample_step()));
  EXPECT_EQ(step.at("stage"), "online");
  EXPECT_EQ(step.at("flags"), 1 + 4 + 8 + 16);
  EXPECT_EQ(step.at("state").get_binary().size(), 12u);
}

TEST(LinkMessages, JoinedStepsAreTheStepsMessage) {
  const Step a = sample_step("a", 1), b = sample_step("b", 2);
  const std::string one = encode_step(a), two = encode_step(b);
  const std::string joined = join_steps(std::vector<std::string_view>{one, two});
  EXPECT_EQ(joined, encode(Down(Steps{{a, b}})));
  EXPECT_LE(joined.size(), one.size() + two.size() + kStepsOverhead);
}

TEST(LinkMessages, AnotherVersionIsNamed) {
  json j = tree(encode(sample_up()[0]));
  j["v"] = 1;
  const auto message = decode_up(cbor(j));
  ASSERT_FALSE(message);
  EXPECT_TRUE(message.error().is(std::errc::protocol_not_supported));
  EXPECT_EQ(message.error().message(), "version 1, this end speaks 5");
  j["v"] = "1";
  EXPECT_EQ(error_up(cbor(j)), "v: not a version");
  j.erase("v");
  EXPECT_EQ(error_up(cbor(j)), "v: not a version");
}

TEST(LinkMessages, TypesOfTheOtherDirectionAreUnknown) {
  EXPECT_EQ(error_up(encode(sample_down()[1])), "t: unknown type 'announce'");
  EXPECT_EQ(error_down(encode(sample_up()[4])), "t: unknown type 'offer'");
  EXPECT_EQ(error_up(cbor({{"v", kVersion}, {"t", "a\nb"}})), "t: unknown type 'a?b'");
  EXPECT_EQ(error_up(cbor({{"v", kVersion}, {"t", 3}})), "t: not a type");
}

TEST(LinkMessages, EveryFieldMustBeThereAndNoOtherMay) {
  const auto check = [](const json& whole, auto decode) {
    for (const auto& item : whole.items()) {
      json less = whole;
      less.erase(item.key());
      EXPECT_FALSE(decode(cbor(less))) << item.key() << " of " << whole.dump();
    }
    json more = whole;
    more["zz"] = 1;
    const auto message = decode(cbor(more));
    ASSERT_FALSE(message);
    EXPECT_EQ(message.error().message(), "zz: unknown key");
  };
  for (const Down& m : sample_down()) check(tree(encode(m)), decode_down);
  for (const Up& m : sample_up()) check(tree(encode(m)), decode_up);

  json steps = tree(encode(sample_down()[3]));
  steps["steps"][1]["zz"] = 1;
  EXPECT_EQ(error_down(cbor(steps)), "steps[1].zz: unknown key");
  steps["steps"][1].erase("zz");
  steps["steps"][1].erase("seq");
  EXPECT_EQ(error_down(cbor(steps)), "steps[1].seq: missing");
  json hello = tree(encode(sample_down()[0]));
  hello["settings"].erase("discount");
  EXPECT_EQ(error_down(cbor(hello)), "settings.discount: missing");
}

TEST(LinkMessages, NoFieldTakesAnotherTypeOfValue) {
  const auto check = [](const json& whole, auto decode) {
    for (const auto& item : whole.items()) {
      if (item.key() == "v") continue;
      json other = whole;
      other[item.key()] = item.value().is_boolean() ? json(1) : json(true);
      const auto message = decode(cbor(other));
      ASSERT_FALSE(message) << item.key() << " of " << whole.dump();
      EXPECT_THAT(message.error().message(), HasSubstr(item.key() + ": not "));
    }
  };
  for (const Down& m : sample_down()) check(tree(encode(m)), decode_down);
  for (const Up& m : sample_up()) check(tree(encode(m)), decode_up);
}

TEST(LinkMessages, BoundsOfAStepAreNamed) {
  const json whole = tree(encode(Down(Steps{{sample_step()}})));
  const auto with = [&](const char* key, const json& value) {
    json j = whole;
    j["steps"][0][key] = value;
    return error_down(cbor(j));
  };
  EXPECT_EQ(with("state", binary(4 * 64)), "accepted");
  EXPECT_EQ(with("state", binary(4 * 70)), "steps[0].state: 70 numbers, at most 64");
  EXPECT_EQ(with("action", binary(4 * 65)), "steps[0].action: 65 numbers, at most 64");
  EXPECT_EQ(with("fallback", binary(6)), "steps[0].fallback: not whole numbers of four bytes");
  EXPECT_EQ(with("seq", 0), "steps[0].seq: 0, counts from 1");
  EXPECT_EQ(with("seq", -1), "steps[0].seq: not a count");
  EXPECT_EQ(with("step", 4294967296), "steps[0].step: not a count below 2^32");
  EXPECT_EQ(with("flags", 64), "steps[0].flags: unknown bits");
  EXPECT_EQ(with("value", 1.5), "steps[0].behaviour: numbers of one that is not given");
  EXPECT_EQ(with("stage", "training"), "steps[0].stage: not a stage");
  EXPECT_EQ(with("by", "nobody"), "steps[0].by: not a controller");
  EXPECT_EQ(with("agent", ""), "steps[0].agent: empty");
  EXPECT_EQ(with("agent", std::string(256, 'a')), "accepted");
  EXPECT_EQ(with("agent", std::string(257, 'a')), "steps[0].agent: 257 bytes, at most 256");
  EXPECT_EQ(with("agent", "a\x1b[2J"), "steps[0].agent: a control character");
  EXPECT_EQ(with("time_us", 9223372036854775808u), "steps[0].time_us: not a whole number");
  EXPECT_EQ(with("time_us", std::numeric_limits<std::int64_t>::min()), "accepted");
}

TEST(LinkMessages, NumbersThatAreNotFiniteAreRefused) {
  for (float bad : {NAN, INFINITY, -INFINITY}) {
    const std::string bytes(reinterpret_cast<const char*>(&bad), 4);
    json j = tree(encode(Down(Steps{{sample_step()}})));
    j["steps"][0]["state"] = json::binary(std::vector<std::uint8_t>(bytes.begin(), bytes.end()));
    EXPECT_EQ(error_down(cbor(j)), "steps[0].state: number 0 is not finite");
    j = tree(encode(Down(Steps{{sample_step()}})));
    j["steps"][0]["reward"] = bad;
    EXPECT_EQ(error_down(cbor(j)), "steps[0].reward: not finite");
    j = tree(encode(sample_up()[5]));
    j["loss"] = bad;
    EXPECT_THAT(error_up(cbor(j)), HasSubstr("loss: "));
  }
}

TEST(LinkMessages, ListsAreBounded) {
  const json step = tree(encode_step(sample_step("a")));
  json j = {{"v", kVersion}, {"t", "steps"}, {"steps", json::array()}};
  EXPECT_EQ(error_down(cbor(j)), "steps: 0 steps, at least 1");
  for (std::size_t i = 0; i < kMaxStepsPerMessage; ++i) j["steps"].push_back(step);
  EXPECT_EQ(error_down(cbor(j)), "accepted");
  j["steps"].push_back(step);
  EXPECT_EQ(error_down(cbor(j)), "steps: 513 steps, at most 512");

  json stored = json::array();
  for (std::size_t i = 0; i < kMaxAgents + 1; ++i) stored.push_back(1);
  EXPECT_EQ(error_up(cbor({{"v", kVersion}, {"t", "acknowledge"}, {"stored", stored}})),
            "stored: 16385 agents, at most 16384");
  EXPECT_EQ(error_up(cbor({{"v", kVersion}, {"t", "acknowledge"}, {"stored", {1}}})), "stored[0]: not a map");
  EXPECT_EQ(error_up(cbor({{"v", kVersion}, {"t", "offer"}, {"agents", {"a"}}, {"policy", binary(0)}})),
            "policy: 0 bytes, at least 1");
  json offer = {{"v", kVersion}, {"t", "offer"}, {"agents", json::array()}, {"policy", binary(1)}};
  EXPECT_EQ(error_up(cbor(offer)), "agents: none");
  for (std::size_t i = 0; i < kMaxOfferedTo; ++i) offer["agents"].push_back("a");
  EXPECT_EQ(error_up(cbor(offer)), "accepted");
  offer["agents"].push_back("a");
  EXPECT_THAT(error_up(cbor(offer)), HasSubstr("agents: 33 agents, at most 32"));

  json announce = tree(encode(sample_down()[1]));
  announce["levels"] = 3;
  EXPECT_EQ(error_down(cbor(announce)), "layout: 3 levels of continuous actions");
  announce["levels"] = 65;
  EXPECT_THAT(error_down(cbor(announce)), HasSubstr("levels: 65"));
  announce["levels"] = 0;
  announce["actions"] = json::array();
  EXPECT_THAT(error_down(cbor(announce)), HasSubstr("0 names of actions"));
  announce["actions"] = {"cpu-limit", "cpu-limit"};
  EXPECT_EQ(error_down(cbor(announce)), "layout: 'cpu-limit' is there twice");
}

TEST(LinkMessages, ANeighbourComesBackWhole) {
  const auto back = decode_down(encode(Down(NearestPair{"frequency_1", sample_neighbour()})));
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(std::get<NearestPair>(*back).neighbour, sample_neighbour());
  EXPECT_EQ(words_of(sample_neighbour()),
            "shop@n2 (cpu-frequency:0-3), distance 0.5, similarity 0.88, 12 episodes to serving");
}

TEST(LinkMessages, NeighboursThatCannotBeAreRefused) {
  const auto error = [](auto change) {
    NearestPair m{"frequency_1", sample_neighbour()};
    change(m.neighbour);
    const auto result = validate(Down(m));
    return result ? "accepted" : result.error().message();
  };
  EXPECT_THAT(error([](auto& n) { n.embedding.clear(); }), HasSubstr("neighbour.embedding: empty"));
  EXPECT_THAT(error([](auto& n) { n.embedding = {0, NAN}; }), HasSubstr("neighbour.embedding: number 1"));
  EXPECT_THAT(error([](auto& n) { n.embedding.assign(257, 0); }), HasSubstr("neighbour.embedding: 257"));
  EXPECT_THAT(error([](auto& n) { n.model = ""; }), HasSubstr("neighbour.model: empty"));
  EXPECT_THAT(error([](auto& n) { n.model.assign(65, 'm'); }),
              HasSubstr("neighbour.model: 65 bytes, at most 64"));
  EXPECT_THAT(error([](auto& n) { n.node = "a\nb"; }), HasSubstr("neighbour.node: a control"));
  EXPECT_THAT(error([](auto& n) { n.agent = ""; }), HasSubstr("neighbour.agent: empty"));
  EXPECT_THAT(error([](auto& n) { n.distance = -1; }), HasSubstr("neighbour.distance: -1"));
  EXPECT_THAT(error([](auto& n) { n.distance = INFINITY; }), HasSubstr("neighbour.distance: "));
  EXPECT_THAT(error([](auto& n) { n.similarity = 1.5; }), HasSubstr("neighbour.similarity: 1.5"));
  EXPECT_THAT(error([](auto& n) { n.reward = NAN; }), HasSubstr("neighbour.reward: "));
  EXPECT_EQ(error([](auto& n) { n.application = ""; }), "accepted");
}

TEST(LinkMessages, AnEmbeddingIsFiniteAndOfAModel) {
  EXPECT_FALSE(validate(Up(Embedded{"a", "m", {}})));
  EXPECT_FALSE(validate(Up(Embedded{"a", "m", {NAN}})));
  EXPECT_FALSE(validate(Up(Embedded{"a", "", {1}})));
  EXPECT_TRUE(validate(Up(Embedded{"a", "m", {1}})));
}

TEST(LinkMessages, AVerdictHasAReasonExactlyWhenItRefuses) {
  EXPECT_FALSE(validate(Down(Verdict{"a", 1, true, "why"})));
  EXPECT_FALSE(validate(Down(Verdict{"a", 1, false, ""})));
}

TEST(LinkMessages, LongMessagesAreRefusedBeforeTheyAreRead) {
  const auto message = decode_up(std::string(kMaxMessage + 1, '\x81'));
  ASSERT_FALSE(message);
  EXPECT_TRUE(message.error().is(std::errc::message_size));
}

// 256 KiB of "an array of one" would recurse 262144 deep; so would strings of unknown length.
TEST(LinkMessages, DeepAndIndefiniteMessagesAreRefused) {
  EXPECT_THAT(error_up(std::string(kMaxMessage, '\x81')), HasSubstr("nested too deep"));
  EXPECT_THAT(error_up(std::string(kMaxMessage, '\x7f')), HasSubstr("indefinite length"));
  EXPECT_THAT(error_up(std::string(kMaxMessage, '\x9f')), HasSubstr("indefinite length"));
  EXPECT_THAT(error_up(std::string(kMaxMessage, '\xc1')), HasSubstr("a kind of value that no message has"));
}

TEST(LinkMessages, DeclaredLengthsAreNotBelieved) {
  using namespace std::string_literals;
  for (const std::string& bytes :
       {"\x9b\x00\x00\x00\xff\xff\xff\xff\xff"s, "\x9b\xff\xff\xff\xff\xff\xff\xff\xff"s,
        "\xbb\x80\x00\x00\x00\x00\x00\x00\x01"s, "\x5a\xff\xff\xff\xff"s,
        "\x7b\x7f\xff\xff\xff\xff\xff\xff\xff"s})
    EXPECT_THAT(error_up(bytes), HasSubstr("a length beyond the message"));
  EXPECT_THAT(error_up(""), HasSubstr("the message ends early"));
  EXPECT_THAT(error_up("\x1b\x00"s), HasSubstr("the message ends early"));
  EXPECT_THAT(error_up(encode(sample_up()[0]) + "\x01"), HasSubstr("more follows the message"));
  EXPECT_EQ(error_up("\x01"), "not a map with text keys");
  EXPECT_EQ(error_up("\xa1\x01\x01"), "not a map with text keys");
}

TEST(LinkMessages, DoubledKeysAreRefused) {
  using namespace std::string_literals;
  EXPECT_EQ(error_up("\xa3\x61v\x01\x61t\x65hello\x61v\x01"s), "a key is there twice");
}

TEST(LinkMessages, TextIsUtf8) {
  std::string bytes = encode(Up(Stored{"limits_4711", 1}));
  bytes[bytes.find("limits")] = '\xff';
  EXPECT_THAT(error_up(bytes), HasSubstr("text that is not UTF-8"));
  EXPECT_TRUE(decode_up(encode(Up(Stored{"größe", 1}))));
  // Overlong, surrogate, above U+10FFFF.
  for (const char* bad : {"\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc3"})
    EXPECT_THAT(error_up(encode(Up(Stored{bad, 1}))), HasSubstr("text that is not UTF-8"));
}

TEST(LinkMessages, EveryPrefixAndEveryDamagedByteIsAnErrorOrAMessage) {
  for (const Up& m : sample_up()) {
    const std::string bytes = encode(m);
    for (std::size_t n = 0; n < bytes.size(); ++n) {
      EXPECT_FALSE(decode_up(bytes.substr(0, n)));
      std::string damaged = bytes;
      damaged[n] = static_cast<char>(damaged[n] ^ 0x15);
      if (const auto again = decode_up(damaged)) {
        EXPECT_TRUE(validate(*again));
      }
    }
  }
}

TEST(LearningSettings, DefaultsAreValid) {
  EXPECT_TRUE(validate(LearningSettings{}));
}

TEST(LearningSettings, TheOneOutOfRangeIsNamed) {
  const auto error = [](auto change) {
    LearningSettings s;
    change(s);
    const auto result = validate(s);
    return result ? "accepted" : result.error().message();
  };
  EXPECT_EQ(error([](auto& s) { s.limits_offline = "sarsa"; }), "limits_offline: not one of td3+bc, bcq");
  EXPECT_EQ(error([](auto& s) { s.frequency_offline = "cql"; }),
            "frequency_offline: not one of td3+bc, iql, bcq");
  EXPECT_EQ(error([](auto& s) { s.frequency_algorithm = ""; }),
            "frequency_algorithm: not one of q-learning, tabular-q");
  EXPECT_EQ(error([](auto& s) { s.discount = 1; }), "discount: 1.0, from 0.0 to 0.9999");
  EXPECT_EQ(error([](auto& s) { s.discount = NAN; }), "discount: null, from 0.0 to 0.9999");
  EXPECT_THAT(error([](auto& s) { s.learning_starts = 0; }), HasSubstr("learning_starts: 0"));
  EXPECT_THAT(error([](auto& s) { s.updates_per_step = 1001; }), HasSubstr("updates_per_step: 1001"));
  EXPECT_THAT(error([](auto& s) { s.offline_updates = 2000000; }), HasSubstr("offline_updates: "));
  EXPECT_THAT(error([](auto& s) { s.publish_interval_s = 0; }), HasSubstr("publish_interval_s: 0"));
  EXPECT_THAT(error([](auto& s) { s.snapshot_lifetime_s = 1e9; }), HasSubstr("snapshot_lifetime_s: "));
  EXPECT_THAT(error([](auto& s) { s.replay_steps = 1; }), HasSubstr("replay_steps: 1"));
  EXPECT_THAT(error([](auto& s) { s.store_max_mib = 0; }), HasSubstr("store_max_mib: 0"));
  EXPECT_THAT(error([](auto& s) { s.store_max_days = 0; }), HasSubstr("store_max_days: 0"));
}

}  // namespace
}  // namespace flash::link
