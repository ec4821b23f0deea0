#include "host/cgroup_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/fake_host.h"

namespace flash {
namespace {

using Kind = CgroupEvent::Kind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// inotify and inodes work on a temporary folder as on cgroupfs; the system tests use the real one.
class CgroupWatchTest : public ::testing::Test {
 protected:
  void make(const std::string& path) {
    std::filesystem::create_directories(host_.path() / "sys/fs/cgroup" / path);
  }
  void remove(const std::string& path) { std::filesystem::remove_all(host_.path() / "sys/fs/cgroup" / path); }
  CgroupWatch watch(CgroupWatchOptions options = {}) {
    auto opened = CgroupWatch::open(*host_.layout(), options);
    EXPECT_TRUE(opened);
    return std::move(*opened);
  }
  /// "+/a/b@2" for each event: what happened, where, how deep.
  static std::vector<std::string> names(const std::vector<CgroupEvent>& events) {
    std::vector<std::string> out;
    for (const auto& e : events)
      out.push_back((e.kind == Kind::Added ? "+" : "-") + e.path + "@" + std::to_string(e.depth));
    return out;
  }
  static Now at(int s) { return {std::chrono::seconds(s), {}}; }

  FakeHost host_{cgroup_v2({dir("a", {dir("b")}), dir("c")})};
};

TEST_F(CgroupWatchTest, FollowsAFileSystemThatWasMountedAnew) {
  auto w = watch({.rescan_every = std::chrono::seconds(5)});
  w.drain(at(0));
  std::filesystem::remove_all(host_.path() / "sys/fs/cgroup");
  EXPECT_THAT(names(w.drain(at(10))), UnorderedElementsAre("-/a/b@2", "-/a@1", "-/c@1"));
  w.drain(at(20));
  EXPECT_NE(w.degraded_reason(), "");
  make("a");
  EXPECT_THAT(names(w.drain(at(30))), UnorderedElementsAre("+/a@1"));
  EXPECT_EQ(w.degraded_reason(), "");
  make("d");
  EXPECT_THAT(names(w.drain(at(31))), UnorderedElementsAre("+/d@1"));
}

TEST_F(CgroupWatchTest, ReportsWhatIsThereParentsFirst) {
  auto w = watch();
  const auto events = w.drain(at(0));
  EXPECT_THAT(names(events), UnorderedElementsAre("+/a@1", "+/a/b@2", "+/c@1"));
  EXPECT_EQ(w.size(), 3u);
  const auto position = [&](const std::string& path) {
    return std::find_if(events.begin(), events.end(), [&](const auto& e) { return e.path == path; });
  };
  EXPECT_LT(position("/a"), position("/a/b"));
  EXPECT_EQ(position("/c")->inode, *inode_of((host_.path() / "sys/fs/cgroup/c").string()));
  EXPECT_THAT(w.drain(at(1)), IsEmpty());
}

TEST_F(CgroupWatchTest, FollowsCreationAndRemovalBelowNewFolders) {
  auto w = watch();
  w.drain(at(0));
  make("d/e/f");
  EXPECT_THAT(names(w.drain(at(1))), ElementsAre("+/d@1", "+/d/e@2", "+/d/e/f@3"));
  make("d/e/f/g");
  EXPECT_THAT(names(w.drain(at(2))), ElementsAre("+/d/e/f/g@4"));
  remove("d");
  EXPECT_THAT(names(w.drain(at(3))), ElementsAre("-/d/e/f/g@4", "-/d/e/f@3", "-/d/e@2", "-/d@1"));
  EXPECT_EQ(w.size(), 3u);
}

TEST_F(CgroupWatchTest, WakesUpItsDescriptor) {
  auto w = watch();
  w.drain(at(0));
  pollfd poll{w.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&poll, 1, 0), 0);
  make("d");
  EXPECT_EQ(::poll(&poll, 1, 1000), 1);
}

TEST_F(CgroupWatchTest, ReportsRecreationInOneDrainAsOldGoneAndNewThere) {
  auto w = watch();
  w.drain(at(0));
  const auto path = (host_.path() / "sys/fs/cgroup/c").string();
  const auto before = *inode_of(path);
  // A temporary folder may give a freed inode again, cgroupfs does not: the old one is held by its new name.
  std::filesystem::rename(path, host_.path() / "kept");
  make("c");
  const auto after = *inode_of(path);
  ASSERT_NE(before, after);
  EXPECT_THAT(w.drain(at(1)), ElementsAre(CgroupEvent{Kind::Removed, "/c", before, 1},
                                          CgroupEvent{Kind::Added, "/c", after, 1}));
}

TEST_F(CgroupWatchTest, SaysNothingOfWhatCameAndWentBetweenTwoDrains) {
  auto w = watch();
  w.drain(at(0));
  make("d/e");
  remove("d");
  EXPECT_THAT(names(w.drain(at(1))), IsEmpty());
  EXPECT_EQ(w.size(), 3u);
}

TEST_F(CgroupWatchTest, FollowsRenames) {
  auto w = watch();
  w.drain(at(0));
  std::filesystem::rename(host_.path() / "sys/fs/cgroup/a", host_.path() / "sys/fs/cgroup/z");
  EXPECT_THAT(names(w.drain(at(1))), ElementsAre("-/a/b@2", "-/a@1", "+/z@1", "+/z/b@2"));
}

TEST_F(CgroupWatchTest, ScansFromTimeToTimeWhereItHasTooFewWatches) {
  auto w = watch({.max_watches = 2});
  EXPECT_THAT(names(w.drain(at(0))), UnorderedElementsAre("+/a@1", "+/a/b@2", "+/c@1"));
  EXPECT_NE(w.degraded_reason(), "");
  make("a/b/x");
  make("c/y");
  std::vector<CgroupEvent> events;
  for (int s = 1; s <= 4; ++s)
    for (auto& e : w.drain(at(s))) events.push_back(e);
  EXPECT_LT(events.size(), 2u) << "at most one of both folders is watched";
  for (auto& e : w.drain(at(6))) events.push_back(e);
  EXPECT_THAT(names(events), UnorderedElementsAre("+/a/b/x@3", "+/c/y@2"));
  remove("a");
  remove("c");
  w.drain(at(20));
  EXPECT_EQ(w.size(), 0u);
}

TEST_F(CgroupWatchTest, ComparesTheWholeTreeAfterAnOverflow) {
  auto w = watch();
  w.drain(at(0));
  // More events than the kernel's queue holds (fs.inotify.max_queued_events, 16384 by default).
  const auto limit_text = read_file("/proc/sys/fs/inotify/max_queued_events");
  ASSERT_TRUE(limit_text);
  const int limit = std::stoi(*limit_text);
  if (limit > 100000) GTEST_SKIP() << "fs.inotify.max_queued_events is too large to overflow quickly";
  remove("c");
  for (int i = 0; i <= limit / 2; ++i) {
    const auto path = (host_.path() / "sys/fs/cgroup/flood").string() + static_cast<char>('a' + i % 2);
    ASSERT_EQ(::mkdir(path.c_str(), 0755), 0);
    ASSERT_EQ(::rmdir(path.c_str()), 0);
  }
  make("late");
  EXPECT_THAT(names(w.drain(at(1))), UnorderedElementsAre("-/c@1", "+/late@1"));
  make("later");
  EXPECT_THAT(names(w.drain(at(2))), ElementsAre("+/later@1"));
}

TEST_F(CgroupWatchTest, DoesWhatItsBudgetAllowsAndSaysThatMoreIsLeft) {
  for (int i = 0; i < 100; ++i) make("many/" + std::to_string(i));
  auto w = watch();
  std::size_t found = 0, rounds = 0;
  for (pollfd poll{w.fd(), POLLIN, 0}; rounds == 0 || ::poll(&poll, 1, 0) == 1; ++rounds) {
    const auto events = w.drain(at(0), 10);
    EXPECT_LE(events.size(), 10u);
    found += events.size();
    ASSERT_LT(rounds, 1000u);
  }
  EXPECT_EQ(found, 104u) << "a, a/b, c, many and the hundred";
  EXPECT_GE(rounds, 10u);
  remove("many");
  EXPECT_EQ(w.drain(at(1)).size(), 101u);
}

TEST_F(CgroupWatchTest, LooksIntoCgroupsOfOthersOnlyWhereARuleMayMatch) {
  make("tenant/docker");
  make("other/x");
  std::filesystem::permissions(host_.path() / "sys/fs/cgroup/tenant", std::filesystem::perms::all);
  std::filesystem::permissions(host_.path() / "sys/fs/cgroup/other", std::filesystem::perms::all);
  auto w = watch();
  w.follow_in_open([](std::string_view path) { return path == "/other"; });
  EXPECT_THAT(names(w.drain(at(0))),
              UnorderedElementsAre("+/a@1", "+/a/b@2", "+/c@1", "+/tenant@1", "+/other@1", "+/other/x@2"));
  make("tenant/flood");
  make("other/y");
  const auto events = w.drain(at(1));
  EXPECT_THAT(names(events), ElementsAre("+/other/y@2"));
  EXPECT_TRUE(events[0].foreign) << "below what others may write";
  w.follow_in_open([](std::string_view path) { return path == "/tenant"; });
  EXPECT_THAT(names(w.drain(at(2))),
              UnorderedElementsAre("+/tenant/docker@2", "+/tenant/flood@2", "-/other/x@2", "-/other/y@2"));
}

TEST_F(CgroupWatchTest, ReportsAgainWhatChangedHands) {
  auto w = watch();
  w.follow_in_open([](std::string_view) { return true; });
  for (const auto& e : w.drain(at(0))) EXPECT_FALSE(e.foreign) << e.path;
  std::filesystem::permissions(host_.path() / "sys/fs/cgroup/a", std::filesystem::perms::all);
  const auto events = w.drain(at(1));
  EXPECT_THAT(names(events), ElementsAre("+/a/b@2"));
  EXPECT_TRUE(events[0].foreign) << "its name is not root's word any more; that of /a still is";
  // What changes without changing hands is no news.
  std::filesystem::permissions(host_.path() / "sys/fs/cgroup/c", std::filesystem::perms(0700));
  EXPECT_THAT(w.drain(at(2)), IsEmpty());
}

}  // namespace
}  // namespace flash
