#include "coordinator/store.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "tests/coordinator/records.h"

namespace flash::coordinator {
namespace {

class StoreTest : public testing::Test {
 protected:
  StoreTest() {
    char name[] = "/tmp/flashd-test-XXXXXX";
    folder = mkdtemp(name);
    open();
  }
  ~StoreTest() override { std::filesystem::remove_all(folder); }

  void open() {
    store.reset();
    auto opened = Store::open(folder + "/store.db", nullptr);
    ASSERT_TRUE(opened) << opened.error().message();
    store.emplace(std::move(*opened));
  }
  Committed commit(const std::vector<Record>& records, const std::string& node = "n1") {
    std::vector<Arrived> arrived;
    for (const Record& r : records) arrived.push_back({{"pool", node}, r});
    auto done = store->commit(arrived, 0, {1, ++position});
    EXPECT_TRUE(done) << done.error().message();
    return done ? *done : Committed{};
  }
  std::uint64_t watermark() { return store->runs()->at(0).watermark; }

  std::string folder;
  std::optional<Store> store;
  std::uint64_t position = 0;
};

TEST_F(StoreTest, ARecordThatComesTwiceIsStoredOnce) {
  EXPECT_EQ(commit({record(1, 0), record(2, 1)}).fresh, 2u);
  const Committed again = commit({record(2, 1), record(3, 2), record(3, 2)});
  EXPECT_EQ(again.fresh, 1u);
  EXPECT_EQ(again.duplicates, 2u);
  open();
  EXPECT_EQ(commit({record(1, 0)}).duplicates, 1u);
  EXPECT_EQ(store->counts()->records, 3u);
  EXPECT_EQ(store->counts()->duplicates, 3u);
  EXPECT_EQ(store->runs()->at(0).records, 3u);
}

TEST_F(StoreTest, CountsTheEpisodesUntilAnAgentServes) {
  std::vector<Record> all = {record(1, 0), record(2, 1), record(3, 2), record(4, 3)};
  for (Record& r : all) r.episode.stage = Stage::Online;
  EXPECT_EQ(commit({all[0], all[1]}).agents.at(0).episodes_to_serving, 0u);
  all[2].episode.stage = Stage::Serving;
  EXPECT_EQ(commit({all[2]}).agents.at(0).episodes_to_serving, 3u);
  const Committed later = commit({all[3]});
  EXPECT_EQ(later.agents.at(0).episodes_to_serving, 3u);
  EXPECT_EQ(later.agents.at(0).latest, all[3].episode);
  EXPECT_TRUE(commit({all[3]}).agents.empty());  // nothing new
}

TEST_F(StoreTest, DriftIsTheNewestEmbeddingsWayFromTheMeanOfThoseBefore) {
  EXPECT_FALSE(commit({record(1, 0)}).agents.at(0).drift);
  EXPECT_EQ(commit({record(2, 1)}).agents.at(0).drift, 0);
  Record moved = record(3, 2);
  moved.episode.embedding = {4, 6};
  EXPECT_DOUBLE_EQ(*commit({moved}).agents.at(0).drift, 5);
  Record other = record(4, 3);
  other.episode.model = "m2";  // not comparable
  EXPECT_FALSE(commit({other}).agents.at(0).drift);
}

constexpr std::int64_t kDayUs = 86'400'000'000;

TEST_F(StoreTest, TheOldestRecordsBecomeSummariesAndTheNewestOfEachAgentStays) {
  std::vector<Record> all;
  for (std::uint64_t i = 1; i <= 10; ++i) all.push_back(record(i, i - 1));
  all.push_back(record(11, 10, "resource-limits:/other"));
  commit(all);
  const auto none = store->retain({.days = 1}, kDayUs);
  EXPECT_EQ(none->thinned, 0u);
  const auto some = store->retain({.days = 1}, kDayUs + 6'000'000);  // five of ten, one per second
  EXPECT_EQ(some->thinned, 5u);
  const auto rest = store->retain({.days = 1}, 400 * kDayUs);
  EXPECT_EQ(rest->thinned, 4u);
  EXPECT_EQ(store->retain({.days = 1}, 400 * kDayUs)->thinned, 0u);
  EXPECT_EQ(store->counts()->thinned, 9u);
  EXPECT_EQ(store->counts()->records, 11u);
  EXPECT_EQ(store->runs()->at(0).records, 11u);
  const auto agents = *store->agents();
  ASSERT_EQ(agents.size(), 2u);
  EXPECT_EQ(agents[1].latest, record(10, 9).episode);
  EXPECT_EQ(agents[1].records, 10u);
}

TEST_F(StoreTest, WhatBecameASummaryIsKnownWhenItComesAgain) {
  commit({record(1, 0), record(2, 1), record(3, 2)});
  ASSERT_EQ(store->retain({.days = 1}, 400 * kDayUs)->thinned, 2u);
  open();
  const Committed again = commit({record(1, 0), record(2, 1), record(3, 2), record(4, 3)});
  EXPECT_EQ(again.duplicates, 3u);
  EXPECT_EQ(again.fresh, 1u);
  EXPECT_EQ(store->counts()->records, 4u);
  EXPECT_EQ(watermark(), 4u);
}

TEST_F(StoreTest, WhatNoWatermarkCoversIsNotThinned) {
  commit({record(1, 0), record(3, 2), record(4, 3)});
  EXPECT_EQ(store->retain({.days = 1}, 400 * kDayUs)->thinned, 1u);
  commit({record(2, 1)});
  EXPECT_EQ(watermark(), 4u);
}

TEST_F(StoreTest, AboveItsSizeTheOldestGoHoweverYoung) {
  std::vector<Record> all;
  for (std::uint64_t i = 1; i <= 3000; ++i) {
    all.push_back(record(i, i - 1));
    all.back().episode.embedding.assign(256, 0.5F);
  }
  commit(all);
  const RetentionOptions small{.days = 365, .mib = 1};
  std::uint64_t thinned = 0;
  for (int i = 0; i < 20; ++i) thinned += store->retain(small, 1, 500)->thinned;
  EXPECT_GT(thinned, 1500u);
  EXPECT_LT(thinned, 2999u);  // and no more than must
  EXPECT_EQ(store->agents()->at(0).latest.episode, 3000u);
  EXPECT_LT(std::filesystem::file_size(folder + "/store.db"), 5u << 19);
}

TEST_F(StoreTest, KnowsWhoWasSeenWhenAfterARestart) {
  const FleetNode node{"n1", "pool", "flash-sync 0.1.0", "0.1.0", "control", 12, 3, 77};
  const FleetCoordinator self{"c1", 9, true, 41, 78};
  ASSERT_TRUE(store->save({{node}}, {{self}}, {70, 80}));
  open();
  EXPECT_EQ(store->nodes()->at(0), node);
  EXPECT_EQ(store->coordinators()->at(0).name, "c1");
  EXPECT_EQ(store->coordinators()->at(0).lease, 41u);
  EXPECT_EQ(store->watch()->since_us, 70);
  EXPECT_EQ(store->watch()->until_us, 80);
  ASSERT_TRUE(store->save({}, {}, {70, 90}));
  EXPECT_EQ(store->nodes()->size(), 1u);
  EXPECT_TRUE(store->coordinators()->empty());
}

TEST_F(StoreTest, TheSameNumberOfAnotherNodeIsAnotherRecord) {
  commit({record(1, 0)}, "n1");
  EXPECT_EQ(commit({record(1, 0)}, "n2").fresh, 1u);
}

TEST_F(StoreTest, TheWatermarkStopsBeforeWhatIsMissing) {
  const Committed done = commit({record(1, 0), record(2, 1), record(4, 3)});
  ASSERT_EQ(done.watermarks.size(), 1u);
  EXPECT_EQ(done.watermarks[0].node, "n1");
  EXPECT_EQ(done.watermarks[0].watermark.run, kRun);
  EXPECT_EQ(done.watermarks[0].watermark.seq, 2u);
  EXPECT_EQ(commit({record(3, 2)}).watermarks[0].watermark.seq, 4u);
}

TEST_F(StoreTest, TheWatermarkPassesWhatWasThinned) {
  commit({record(1, 0), record(5, 4)});
  EXPECT_EQ(watermark(), 1u);
  EXPECT_EQ(commit({record(5, 1)}).duplicates, 1u);
  EXPECT_EQ(watermark(), 5u);
}

TEST_F(StoreTest, ANewStoreBeginsWhereTheOutboxDoes) {
  commit({record(7, 0), record(8, 7)});
  EXPECT_EQ(watermark(), 8u);
}

TEST_F(StoreTest, ADuplicateIsToldTheWatermarkToo) {
  commit({record(1, 0)});
  EXPECT_EQ(commit({record(1, 0)}).watermarks[0].watermark.seq, 1u);
}

TEST_F(StoreTest, KnowsWhereItStandsInTheStream) {
  EXPECT_EQ(*store->position(), (Position{0, 0}));
  ASSERT_TRUE(store->commit({}, 2, {5, 77}));
  open();
  EXPECT_EQ(*store->position(), (Position{5, 77}));
  EXPECT_EQ(store->counts()->refused, 2u);
}

TEST_F(StoreTest, AnAgentIsShownAsItsLatestEpisodeLeftIt) {
  commit({record(1, 0), record(3, 2), record(2, 1), record(4, 3, "cpu-frequency:0-3")});
  const auto agents = *store->agents();
  ASSERT_EQ(agents.size(), 2u);
  EXPECT_EQ(agents[0].latest.agent, "cpu-frequency:0-3");
  EXPECT_EQ(agents[1].latest, record(3, 2).episode);
  EXPECT_EQ(agents[1].records, 3u);
}

TEST_F(StoreTest, OthersReadItWhileItIsWritten) {
  commit({record(1, 0)});
  auto reader = Store::open_to_read(folder + "/store.db");
  ASSERT_TRUE(reader) << reader.error().message();
  commit({record(2, 1)});
  EXPECT_EQ(reader->counts()->records, 2u);
  EXPECT_EQ(Store::open_to_read(folder + "/none.db").error().code(), std::errc::no_such_file_or_directory);
  EXPECT_FALSE(std::filesystem::exists(folder + "/none.db"));
}

// A node could have as many as it liked: 60,000 were stored.
TEST_F(StoreTest, OneNodeHasAtMostSoManyAgentsAndTheLeastRecentlyHeardGo) {
  store->set_quota({.agents = 16});
  commit({record(1, 0, "resource-limits:/other")}, "n2");
  std::uint64_t seq = 0;
  std::size_t forgotten = 0;
  for (int i = 0; i < 400; ++i) {
    std::vector<Record> some;
    for (int k = 0; k < 3; ++k, ++seq)
      some.push_back(record(seq + 1, seq, "resource-limits:/" + std::to_string(seq)));
    const Committed done = commit(some);
    EXPECT_EQ(done.fresh, 3u);
    EXPECT_EQ(done.watermarks.at(0).watermark.seq, seq) << "its records are confirmed all the same";
    forgotten += done.forgotten.size();
  }
  const auto agents = *store->agents();
  EXPECT_LE(agents.size(), 17u);
  EXPECT_EQ(forgotten, seq + 1 - agents.size());
  EXPECT_EQ(agents.back().node, "n2") << "another node's stay";
  const auto has = [&](std::uint64_t n) {
    return std::any_of(agents.begin(), agents.end(), [&](const FleetAgent& a) {
      return a.latest.agent == "resource-limits:/" + std::to_string(n);
    });
  };
  EXPECT_TRUE(has(seq - 1));
  EXPECT_FALSE(has(0));
  // What they left is removed when it is old.
  const auto done = store->retain({.days = 0.01}, 1'000'000'000'000, 5000);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_GE(done->thinned, seq - 17);
}

TEST_F(StoreTest, OneNodeHasAtMostSoManyRuns) {
  store->set_quota({.runs = 4});
  for (int i = 0; i < 40; ++i) {
    Record r = record(1, 0);
    char run[33];
    std::snprintf(run, sizeof run, "%032x", i);
    r.run = run;
    EXPECT_EQ(commit({r}).watermarks.at(0).watermark.seq, 1u);
  }
  EXPECT_EQ(store->runs()->size(), 4u);
}

TEST_F(StoreTest, RecordsBeyondAGapAreKeptInBoundsAndOnesThatFillItAreAlwaysTaken) {
  store->set_quota({.uncovered = 8});
  std::vector<Record> all;
  for (std::uint64_t seq = 2; seq <= 40; ++seq) all.push_back(record(seq, seq - 1));
  const Committed done = commit(all);
  EXPECT_EQ(done.fresh, 8u);
  EXPECT_EQ(done.over_quota, 31u);
  EXPECT_EQ(store->counts()->refused, 31u);
  EXPECT_EQ(commit({record(1, 0)}).watermarks.at(0).watermark.seq, 9u);
  all.clear();
  for (std::uint64_t seq = 10; seq <= 40; ++seq) all.push_back(record(seq, seq - 1));
  EXPECT_EQ(commit(all).watermarks.at(0).watermark.seq, 40u) << "contiguous ones are no gap";
}

// It used to be sent forever, and nothing behind it.
TEST_F(StoreTest, ARefusedRecordDoesNotHoldUpThoseBehindIt) {
  const auto pass = [&](const std::vector<Record>& records, const std::vector<PassedOver>& over) {
    std::vector<Arrived> arrived;
    for (const Record& r : records) arrived.push_back({{"pool", "n1"}, r});
    return store->commit(arrived, over.size(), {1, ++position}, over)->watermarks.at(0).watermark.seq;
  };
  const auto place = [](std::uint64_t seq, std::uint64_t prev) {
    return PassedOver{"n1", {kRun, seq, prev}};
  };
  EXPECT_EQ(pass({record(1, 0), record(3, 2), record(5, 4)}, {place(4, 3), place(2, 1)}), 5u);
  EXPECT_EQ(pass({}, {place(7, 6)}), 5u) << "what is before it is missing";
  EXPECT_EQ(pass({record(6, 5)}, {place(7, 6)}), 7u);
  EXPECT_EQ(pass({}, {place(3, 2)}), 7u) << "it goes back nowhere";
  EXPECT_EQ(store->counts()->records, 4u);
}

}  // namespace
}  // namespace flash::coordinator
