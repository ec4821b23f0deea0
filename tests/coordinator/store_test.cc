#include "coordinator/store.h"

#include <gmock/gmock.h>
#include <stdlib.h>

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

}  // namespace
}  // namespace flash::coordinator
