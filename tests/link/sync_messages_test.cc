#include "link/sync_messages.h"

#include <gmock/gmock.h>

#include <cmath>

#include "core/json.h"
#include "link/messages.h"
#include "tests/link/sample_sync_messages.h"

namespace flash::link::sync {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(SyncMessages, EveryMessageComesBackAsItWas) {
  for (const Down& message : sample_down()) {
    const auto back = decode_down(encode(message));
    ASSERT_TRUE(back) << back.error().message();
    EXPECT_EQ(encode(*back), encode(message));
  }
  for (const Up& message : sample_up()) {
    const auto back = decode_up(encode(message));
    ASSERT_TRUE(back) << back.error().message();
    EXPECT_EQ(encode(*back), encode(message));
  }
  const auto back = decode_down(encode(sample_down()[3]));
  EXPECT_EQ(std::get<Family>(*back).values, (std::vector<double>{0.5, 2}));
}

TEST(SyncMessages, TheLongestListOfPagesFitsAMessage) {
  Scrape longest{.rule = std::string(64, 'r'), .url = "http://h/" + std::string(1015, 'u')};
  longest.latency = longest.requests = longest.errors = std::string(256, 'm');
  const Down all = Scrapes{std::vector<Scrape>(kMaxScrapes, longest)};
  ASSERT_TRUE(validate(all));
  EXPECT_LE(encode(all).size(), kMaxMessage);
}

std::string up_error(const std::string& key, json value) {
  json j = json::from_cbor(encode(Up(sample_reading())));
  j[key] = std::move(value);
  const auto bytes = json::to_cbor(j);
  const auto message = decode_up(std::string(bytes.begin(), bytes.end()));
  return message ? "accepted" : message.error().message();
}

TEST(SyncMessages, NamesTheFieldThatIsOutOfBounds) {
  EXPECT_THAT(up_error("v", 1), HasSubstr("version 1, this end speaks 4"));
  EXPECT_THAT(up_error("t", "other"), HasSubstr("unknown type 'other'"));
  EXPECT_THAT(up_error("more", 1), HasSubstr("more: unknown key"));
  EXPECT_THAT(up_error("covers_s", 0.0), HasSubstr("covers_s: no time"));
  EXPECT_THAT(up_error("p99_ms", -1.0), HasSubstr("p99_ms"));
  EXPECT_THAT(up_error("p99_ms", std::nan("")), HasSubstr("p99_ms"));
  EXPECT_THAT(up_error("p50_ms", 5.0), HasSubstr("p50_ms: above p99_ms"));
  EXPECT_THAT(up_error("state", "fine"), HasSubstr("state: not a state"));
  EXPECT_THAT(up_error("reason", "because"), HasSubstr("reason: given exactly"));
  EXPECT_THAT(up_error("rule", ""), HasSubstr("rule: empty"));
  EXPECT_THAT(up_error("no_latency", "why"), HasSubstr("no_latency: given only where"));
  EXPECT_THAT(up_error("at_least", 1), HasSubstr("at_least"));
}

TEST(SyncMessages, ANearestPairComesBackWholeAndIsChecked) {
  NearestPair pair{"cpu-frequency:1", sample_neighbour()};
  const auto back = decode_up(encode(Up(pair)));
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(std::get<NearestPair>(*back).agent, "cpu-frequency:1");
  EXPECT_EQ(std::get<NearestPair>(*back).neighbour, sample_neighbour());
  pair.neighbour.embedding = {NAN};
  EXPECT_FALSE(validate(Up(pair)));
  EXPECT_FALSE(validate(Up(NearestPair{"", sample_neighbour()})));
}

TEST(SyncMessages, AnEpisodeComesBackWhole) {
  const auto back = decode_down(encode(Down(EpisodeEnd{3, sample_episode()})));
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(std::get<EpisodeEnd>(*back).number, 3u);
  EXPECT_EQ(std::get<EpisodeEnd>(*back).episode, sample_episode());
}

TEST(SyncMessages, EpisodesThatCannotBeAreRefused) {
  const auto wrong = [](auto change) {
    EpisodeEnd m{1, sample_episode()};
    change(m);
    const auto result = validate(Down(m));
    return result ? "" : result.error().message();
  };
  EXPECT_THAT(wrong([](EpisodeEnd& m) { m.number = 0; }), HasSubstr("number"));
  EXPECT_THAT(wrong([](EpisodeEnd& m) { m.episode.agent = ""; }), HasSubstr("episode.agent: empty"));
  EXPECT_THAT(wrong([](EpisodeEnd& m) { m.episode.rewards = 101; }), HasSubstr("episode.rewards"));
  EXPECT_THAT(wrong([](EpisodeEnd& m) { m.episode.reward_mean = std::nan(""); }), HasSubstr("reward_mean"));
  EXPECT_THAT(wrong([](EpisodeEnd& m) { m.episode.embedding.resize(257); }), HasSubstr("at most 256"));
  EXPECT_THAT(wrong([](EpisodeEnd& m) { m.episode.embedding[0] = INFINITY; }), HasSubstr("not finite"));
}

TEST(SyncMessages, PagesThatMayNotBeScrapedAreRefused) {
  const auto wrong = [](auto change) {
    Scrape s = sample_scrape();
    change(s);
    const auto result = validate(Down(Scrapes{{s}}));
    return result ? "" : result.error().message();
  };
  EXPECT_THAT(wrong([](Scrape& s) { s.url = "file:///etc/shadow"; }), HasSubstr("scrapes[0].url"));
  EXPECT_THAT(wrong([](Scrape& s) { s.interval_s = 0; }), HasSubstr("interval_s"));
  EXPECT_THAT(wrong([](Scrape& s) { s.latency = "{"; }), HasSubstr("latency"));
  EXPECT_THAT(wrong([](Scrape& s) { s.latency = ""; }), HasSubstr("nothing is asked for"));
}

}  // namespace
}  // namespace flash::link::sync
