#include "coordinator/messages.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/coordinator/records.h"

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
  const auto back = decode_watermark(encode(Watermark{kRun, 9}));
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(back->run, kRun);
  EXPECT_EQ(back->seq, 9u);
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
  EXPECT_THAT(error("episode", 1), HasSubstr("episode. not a map"));
  EXPECT_THAT(error("more", 1), HasSubstr("more: unknown key"));
  EXPECT_EQ(decode_record("rubbish").error().code(), std::errc::invalid_argument);
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

}  // namespace
}  // namespace flash::coordinator
