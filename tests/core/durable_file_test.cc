#include "core/durable_file.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace flash::durable_file_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class DurableFile : public testing::Test {
 protected:
  DurableFile() {
    std::string pattern = testing::TempDir() + "durable-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    path_ = folder_ + "/file";
  }
  ~DurableFile() override { std::filesystem::remove_all(folder_); }

  static std::string text_of(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static mode_t mode_of(const std::string& path) {
    struct stat status {};
    EXPECT_EQ(lstat(path.c_str(), &status), 0);
    return status.st_mode & 07777;
  }

  std::string folder_, path_;
};

TEST_F(DurableFile, ReplacesTheOneBeforeAndLeavesNothingBeside) {
  ASSERT_TRUE(write_durable_file(path_, "one"));
  ASSERT_TRUE(write_durable_file(path_, "two"));
  EXPECT_EQ(text_of(path_), "two");
  ASSERT_TRUE(write_durable_file(path_, "", {.synced = false}));
  EXPECT_EQ(text_of(path_), "");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(DurableFile, TheModeIsLessTheUmaskOrExact) {
  const mode_t old = umask(027);
  EXPECT_TRUE(write_durable_file(path_, "x", {.mode = 0666}));
  EXPECT_EQ(mode_of(path_), 0640u);
  EXPECT_TRUE(write_durable_file(path_, "x", {.mode = 0664, .exactly = true, .group = getegid()}));
  EXPECT_EQ(mode_of(path_), 0664u);
  EXPECT_TRUE(write_durable_file(path_, "x"));
  EXPECT_EQ(mode_of(path_), 0600u);
  umask(old);
}

TEST_F(DurableFile, WhatLiesBesideIsReplacedAndNoLinkIsFollowed) {
  std::ofstream(folder_ + "/victim") << "mine";
  std::filesystem::create_symlink("victim", path_ + ".new");
  std::filesystem::create_symlink("victim", path_);
  ASSERT_TRUE(write_durable_file(path_, "ours"));
  EXPECT_EQ(text_of(folder_ + "/victim"), "mine");
  EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(path_)));
  std::ofstream(path_ + ".half") << "of a process that was killed, and longer than what comes";
  ASSERT_TRUE(write_durable_file(path_, "next", {.beside = ".half"}));
  EXPECT_EQ(text_of(path_), "next");
  EXPECT_FALSE(std::filesystem::exists(path_ + ".half"));
}

TEST_F(DurableFile, AFullDiskLeavesTheOneBefore) {
  ASSERT_TRUE(write_durable_file(path_, "before"));
  // A file size limit stops write() halfway, as a full disk does.
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto written = write_durable_file(path_, std::string(10000, 'x'));
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message(), StartsWith("write " + path_ + ".new: "));
  EXPECT_EQ(text_of(path_), "before");
  EXPECT_FALSE(std::filesystem::exists(path_ + ".new"));
}

TEST_F(DurableFile, ErrorsNameTheFile) {
  const auto nowhere = write_durable_file(folder_ + "/no/file", "x");
  ASSERT_FALSE(nowhere);
  EXPECT_TRUE(nowhere.error().is(std::errc::no_such_file_or_directory));
  EXPECT_THAT(nowhere.error().message(), HasSubstr("open " + folder_ + "/no/file.new"));
  ASSERT_TRUE(std::filesystem::create_directory(path_));
  const auto taken = write_durable_file(path_, "x");
  ASSERT_FALSE(taken);
  EXPECT_THAT(taken.error().message(), StartsWith("rename " + path_ + ".new: "));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".new"));
}

TEST_F(DurableFile, WhoGoesOnWritingHasItOpen) {
  auto file = put_file(path_, "begin");
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(::write(file->get(), " end", 4), 4);
  EXPECT_EQ(text_of(path_), "begin end");
  EXPECT_TRUE(sync_folder_of(path_));
}

}  // namespace
}  // namespace flash::durable_file_test
