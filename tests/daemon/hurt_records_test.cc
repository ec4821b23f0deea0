#include "daemon/hurt_records.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/actuators/temporary_folder.h"

namespace flash::hurt_records_test {

TEST(HurtRecords, AreThereAgainAfterARestart) {
  const TemporaryFolder folder;
  const std::vector<HurtRecord> records = {
      {"web", "shop", 3, 1, WallTime(std::chrono::seconds(1'800'000'000))},
      {"b\"atch", "/a/b", 0, 2, {}},
  };
  ASSERT_TRUE(write_hurt_records(folder.path(), records));
  const auto read = read_hurt_records(folder.path());
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(*read, records);
  ASSERT_TRUE(write_hurt_records(folder.path(), {}));
  EXPECT_TRUE(read_hurt_records(folder.path())->empty());
}

TEST(HurtRecords, NoneThereIsNone) {
  const TemporaryFolder folder;
  const auto read = read_hurt_records(folder.path());
  ASSERT_TRUE(read);
  EXPECT_TRUE(read->empty());
  EXPECT_FALSE(write_hurt_records(folder.path() + "/missing", {}));
}

TEST(HurtRecords, WhatOthersCanWriteIsNotBelieved) {
  const TemporaryFolder folder;
  ASSERT_TRUE(write_hurt_records(folder.path(), {}));
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  EXPECT_FALSE(read_hurt_records(folder.path()));
  EXPECT_FALSE(write_hurt_records(folder.path(), {}));
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
  EXPECT_TRUE(read_hurt_records(folder.path()));
}

TEST(HurtRecords, WhatIsDamagedIsLeftOut) {
  EXPECT_FALSE(parse_hurt_records(""));
  EXPECT_FALSE(parse_hurt_records("{}"));
  EXPECT_FALSE(parse_hurt_records("[1, 2"));
  const auto some = parse_hurt_records(
      R"([{"rule": "r", "target": "t", "hurts": -1, "failures": 0, "until_s": 0},
          {"rule": "r", "target": "t", "hurts": 1e99, "failures": 0, "until_s": 0},
          {"rule": 1}, {"rule": "r", "target": "t", "hurts": 2, "failures": 0, "until_s": 1e300}])");
  ASSERT_TRUE(some);
  ASSERT_EQ(some->size(), 1u);
  EXPECT_EQ(some->front().hurts, 2u);
}

}  // namespace flash::hurt_records_test
