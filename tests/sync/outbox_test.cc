#include "sync/outbox.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <filesystem>

#include "coordinator/messages.h"

namespace flash::sync {
namespace {

using testing::ElementsAre;

class OutboxTest : public testing::Test {
 protected:
  OutboxTest() {
    char name[] = "/tmp/flashd-test-XXXXXX";
    folder = mkdtemp(name);
  }
  ~OutboxTest() override { std::filesystem::remove_all(folder); }

  Outbox open(std::size_t most = 1000, const std::string& run = std::string(32, 'a')) {
    auto opened = Outbox::open(folder + "/outbox.db", run, most, &note);
    EXPECT_TRUE(opened) << opened.error().message();
    return std::move(*opened);
  }
  /// Numbers [first, last] of one start of flashd.
  static void add(Outbox& outbox, std::uint64_t first, std::uint64_t last, std::uint64_t epoch = 7) {
    std::vector<Outbox::Item> items;
    for (std::uint64_t n = first; n <= last; ++n)
      items.push_back({epoch, {n, {.agent = "resource-limits:/web", .target = "web", .episode = n}}});
    auto done = outbox.add(items);
    ASSERT_TRUE(done) << done.error().message();
  }
  using Pair = std::pair<std::uint64_t, std::uint64_t>;
  /// (prev, seq) of what is there.
  static std::vector<Pair> links(const Outbox& outbox, std::uint64_t after = 0) {
    std::vector<Pair> out;
    const auto rows = *outbox.after(after, 1000);
    for (const auto& row : rows) out.emplace_back(row.prev, row.seq);
    return out;
  }

  std::string folder, note;
};

TEST_F(OutboxTest, KeepsRecordsInOrderUntilTheyAreConfirmed) {
  Outbox outbox = open();
  add(outbox, 1, 4);
  EXPECT_THAT(links(outbox), ElementsAre(Pair(0, 1), Pair(1, 2), Pair(2, 3), Pair(3, 4)));
  EXPECT_THAT(links(outbox, 3), ElementsAre(Pair(3, 4)));
  ASSERT_TRUE(outbox.confirm(2));
  EXPECT_THAT(links(outbox), ElementsAre(Pair(0, 3), Pair(3, 4)));
  EXPECT_EQ(outbox.counts().confirmed, 2u);
  EXPECT_EQ(outbox.counts().waiting, 2u);
}

TEST_F(OutboxTest, WhatItTookIsARecordOfTheCoordinator) {
  Outbox outbox = open();
  add(outbox, 5, 5);
  const auto rows = *outbox.after(0, 1);
  const auto record = coordinator::decode_record(
      coordinator::encode_record(outbox.run(), rows[0].seq, rows[0].prev, rows[0].episode));
  ASSERT_TRUE(record) << record.error().message();
  EXPECT_EQ(record->episode.episode, 5u);
}

TEST_F(OutboxTest, WhatFlashdSaysAgainIsTakenOnce) {
  Outbox outbox = open();
  add(outbox, 1, 3);
  ASSERT_TRUE(outbox.confirm(3));
  add(outbox, 2, 4);
  EXPECT_THAT(links(outbox), ElementsAre(Pair(0, 4)));
  add(outbox, 1, 1, 8);  // another start of flashd
  EXPECT_THAT(links(outbox), ElementsAre(Pair(0, 4), Pair(4, 5)));
  EXPECT_EQ(outbox.counts().taken, 5u);
}

TEST_F(OutboxTest, ComesBackAsItWas) {
  {
    Outbox outbox = open();
    add(outbox, 1, 3);
    ASSERT_TRUE(outbox.confirm(3));
  }
  Outbox outbox = open(1000, std::string(32, 'b'));
  EXPECT_EQ(outbox.run(), std::string(32, 'a'));
  EXPECT_EQ(outbox.counts().taken, 3u);
  add(outbox, 3, 4);
  EXPECT_THAT(links(outbox), ElementsAre(Pair(0, 4)));  // no number is used twice
}

TEST_F(OutboxTest, ThinsTheOldestAndCountsThem) {
  Outbox outbox = open(8);
  add(outbox, 1, 8);
  EXPECT_EQ(outbox.counts().thinned, 0u);
  add(outbox, 9, 9);
  EXPECT_THAT(links(outbox), ElementsAre(Pair(0, 1), Pair(1, 3), Pair(3, 5), Pair(5, 6), Pair(6, 7),
                                         Pair(7, 8), Pair(8, 9)));
  EXPECT_EQ(outbox.counts().thinned, 2u);
  EXPECT_EQ(outbox.counts().waiting, 7u);
}

TEST_F(OutboxTest, AnotherFileHasAnotherRun) {
  std::filesystem::remove(folder + "/outbox.db");
  EXPECT_EQ(open(1000, std::string(32, 'c')).run(), std::string(32, 'c'));
}

}  // namespace
}  // namespace flash::sync
