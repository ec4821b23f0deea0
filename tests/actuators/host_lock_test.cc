#include "actuators/host_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "tests/actuators/temporary_folder.h"

namespace flash {
namespace {

using ::testing::HasSubstr;

TEST(HostLock, OnlyOneHasItAndTheOtherHearsWho) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/run/flashd/lock";
  auto first = HostLock::take(path, "/var/lib/one");
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_EQ(first->previous_directory(), "");
  const auto second = HostLock::take(path, "/var/lib/two");
  ASSERT_FALSE(second);
  EXPECT_TRUE(second.error().is(std::errc::operation_would_block));
  EXPECT_THAT(second.error().message(),
              HasSubstr("pid " + std::to_string(::getpid()) + ", state directory /var/lib/one"));
  EXPECT_EQ(HostLock::last_directory(path), "/var/lib/one");
}

TEST(HostLock, TellsWhereTheLedgerOfTheOneBeforeIs) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/lock";
  { ASSERT_TRUE(HostLock::take(path, "/var/lib/a much longer\nname of a directory")); }
  {
    const auto next = HostLock::take(path, "/b");
    ASSERT_TRUE(next);
    EXPECT_EQ(next->previous_directory(), "/var/lib/a much longer\nname of a directory");
  }
  EXPECT_EQ(HostLock::last_directory(path), "/b");
  for (const char* text : {"", "12", "12\n", "12\n/x", "\n"}) {
    std::ofstream(path) << text;
    EXPECT_EQ(HostLock::last_directory(path), "") << text;
  }
}

TEST(HostLock, IsNoLinkAndNobodyElses) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  TemporaryFolder folder;
  const std::string path = folder.path() + "/lock";
  std::filesystem::create_symlink("elsewhere", path);
  EXPECT_FALSE(HostLock::take(path, "/x"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/elsewhere"));
  std::filesystem::remove(path);
  std::ofstream(path) << "1\n/evil\n";
  ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
  EXPECT_THAT(HostLock::take(path, "/x").error().message(), HasSubstr("belongs to another user"));
  EXPECT_EQ(HostLock::last_directory(path), "");
  std::filesystem::remove(path);
  ASSERT_EQ(::chmod(folder.path().c_str(), 0777), 0);
  EXPECT_THAT(HostLock::take(path, "/x").error().message(), HasSubstr("others can write it"));
}

}  // namespace
}  // namespace flash
