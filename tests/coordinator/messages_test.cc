#include "coordinator/messages.h"

#include <gmock/gmock.h>

#include <limits>

#include <cmath>

#include "core/json.h"
#include "tests/coordinator/records.h"
#include "tests/link/sample_messages.h"

namespace flash::coordinator {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(CoordinatorMessages, ARecordComesBackAsItWas) {
  const auto back = decode_record(encode(record(7, 5)));
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(back->run, kRun);
  EXPECT_EQ(back->seq, 7u);
  EXPECT_EQ(back->prev, 5u);
  EXPECT_EQ(back->episode, record(7, 5).episode);
}

TEST(CoordinatorMessages, AWatermarkComesBackAsItWas) {
  const auto back = decode_watermark(encode(Watermark{kRun, 9, 41}));
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(back->run, kRun);
  EXPECT_EQ(back->seq, 9u);
  EXPECT_EQ(back->lease, 41u);
}

std::string error(const std::string& key, json value) {
  json j = json::from_cbor(encode(record(7, 5)));
  j[key] = std::move(value);
  const auto bytes = json::to_cbor(j);
  const auto message = decode_record(std::string(bytes.begin(), bytes.end()));
  return message ? "accepted" : message.error().message();
}

TEST(CoordinatorMessages, NamesTheFieldThatIsOutOfBounds) {
  EXPECT_THAT(error("v", 2), HasSubstr("version 2, this end speaks 1"));
  EXPECT_THAT(error("t", "watermark"), HasSubstr("unknown type 'watermark'"));
  EXPECT_THAT(error("run", "short"), HasSubstr("run: not 32"));
  EXPECT_THAT(error("run", std::string(32, 'G')), HasSubstr("run: not 32"));
  EXPECT_THAT(error("seq", 0), HasSubstr("seq"));
  EXPECT_THAT(error("prev", 7), HasSubstr("prev: not below seq"));
  EXPECT_THAT(error("episode", 1), HasSubstr("episode: not a map"));
  EXPECT_THAT(error("more", 1), HasSubstr("more: unknown key"));
  EXPECT_EQ(decode_record("rubbish").error().code(), std::errc::invalid_argument);
}

TEST(CoordinatorMessages, AQuestionAndItsAnswerComeBackAsTheyWere) {
  const link::NearestQuestion question{"cpu-frequency:0", Task::CpuFrequency, "m1", {1, 2}};
  const auto asked = decode_nearest_question(encode(question));
  ASSERT_TRUE(asked) << asked.error().message();
  EXPECT_EQ(*asked, question);
  const auto answer =
      decode_nearest_answer(encode(NearestAnswer{"cpu-frequency:0", link::sample_neighbour()}));
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->agent, "cpu-frequency:0");
  EXPECT_EQ(answer->neighbour, link::sample_neighbour());
  const auto nobody = decode_nearest_answer(encode(NearestAnswer{"cpu-frequency:0", {}}));
  ASSERT_TRUE(nobody) << nobody.error().message();
  EXPECT_FALSE(nobody->neighbour);
}

TEST(CoordinatorMessages, QuestionsAndAnswersThatCannotBeAreRefused) {
  EXPECT_THAT(validate(link::NearestQuestion{"a", {}, "m", {}}).error().message(),
              HasSubstr("embedding: empty"));
  EXPECT_THAT(validate(link::NearestQuestion{"a", {}, "m", {NAN}}).error().message(),
              HasSubstr("not finite"));
  EXPECT_THAT(validate(link::NearestQuestion{"a", {}, "", {1}}).error().message(), HasSubstr("model: empty"));
  EXPECT_THAT(validate(link::NearestQuestion{"", {}, "m", {1}}).error().message(), HasSubstr("agent: empty"));
  json two = json::from_cbor(encode(NearestAnswer{"a", link::sample_neighbour()}));
  two["neighbours"].push_back(two["neighbours"][0]);
  const auto bytes = json::to_cbor(two);
  EXPECT_THAT(decode_nearest_answer(std::string(bytes.begin(), bytes.end())).error().message(),
              HasSubstr("neighbours: 2 neighbours, at most 1"));
  EXPECT_FALSE(decode_nearest_question(encode(Watermark{kRun, 9})));
}

TEST(CoordinatorMessages, QuestionsComeUnderTheNodesOwnSubject) {
  EXPECT_EQ(asking_node(question_subject("n1")), "n1");
  EXPECT_EQ(answer_subject("n1"), "flash.v1.dn.n1.nearest");
  for (const char* wrong :
       {"flash.v1.rq.nearest", "flash.v1.rq..nearest", "flash.v1.rq.a.b.nearest", "flash.v1.rq.n1.other"})
    EXPECT_FALSE(asking_node(wrong)) << wrong;
}

TEST(CoordinatorMessages, SubjectsSayWhereARecordComesFrom) {
  const auto origin = origin_of(record_subject({"eu-1", "node_7"}));
  ASSERT_TRUE(origin);
  EXPECT_EQ(origin->pool, "eu-1");
  EXPECT_EQ(origin->node, "node_7");
  EXPECT_EQ(watermark_subject("node_7"), "flash.v1.dn.node_7.wm");
  for (const char* wrong : {"flash.v1.up.pool.ep", "flash.v1.up..node.ep", "flash.v1.up.pool.a.b.ep",
                            "flash.v1.up.pool.node.xx", "flash.v2.up.pool.node.ep", "flash.v1.up.ep"})
    EXPECT_FALSE(origin_of(wrong)) << wrong;
}

TEST(CoordinatorMessages, ANameThatIsASubjectOfItsOwnIsNone) {
  EXPECT_TRUE(is_token("node-1_A"));
  for (const char* wrong : {"", "a.b", "*", ">", "a b", "\xc3\xa9"}) EXPECT_FALSE(is_token(wrong)) << wrong;
  EXPECT_FALSE(is_token(std::string(65, 'a')));
}

struct RewardRow {
  double reward;
  bool good;
};
class RewardOfAnEpisode : public testing::TestWithParam<RewardRow> {};

// 1e6 was taken, and kept a bad model from being withdrawn.
TEST_P(RewardOfAnEpisode, LiesWithinWhatTheFormulasGive) {
  for (double link::Episode::*field : {&link::Episode::reward_mean, &link::Episode::fallback_reward}) {
    Record r = record(2, 1);
    const std::string good = encode(r);
    r.episode.*field = GetParam().reward;
    // As a node would write it that does not check.
    const std::string bytes = encode_record(r.run, r.seq, r.prev, encode_episode(r.episode));
    const auto read = decode_record(bytes);
    EXPECT_EQ(read.has_value(), GetParam().good) << GetParam().reward;
    if (!read) EXPECT_THAT(read.error().message(), testing::HasSubstr("reward"));
    const auto place = decode_record_place(bytes);
    ASSERT_TRUE(place) << "its place is known";
    EXPECT_EQ(place->seq, 2u);
    EXPECT_EQ(place->prev, 1u);
  }
}
INSTANTIATE_TEST_SUITE_P(Rewards, RewardOfAnEpisode,
                         testing::Values(RewardRow{0, true}, RewardRow{1, true}, RewardRow{0.5, true},
                                         RewardRow{-1, true}, RewardRow{1.0000001, false},
                                         RewardRow{-1.0000001, false}, RewardRow{1e6, false},
                                         RewardRow{-1e6, false}, RewardRow{1e300, false},
                                         RewardRow{std::numeric_limits<double>::infinity(), false},
                                         RewardRow{std::numeric_limits<double>::quiet_NaN(), false}));

}  // namespace
}  // namespace flash::coordinator
