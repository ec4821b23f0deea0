#include "host/safe_path.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/actuators/temporary_folder.h"
#include "tests/support/unprivileged.h"

namespace flash {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class SafePath : public ::testing::Test {
 protected:
  SafePath() {
    fs::create_directories(base() + "/a/b");
    fs::create_directory(folder.path() + "/outside");
    for (const char* f : {"/base/a/file", "/outside/file"}) std::ofstream(folder.path() + f) << "as it was";
    fs::create_directory_symlink("../outside", base() + "/up");
    fs::create_directory_symlink("a", base() + "/within");
    fs::create_symlink("file", base() + "/a/link");
    fs::create_directory_symlink(base(), folder.path() + "/base_link");
  }
  std::string base() const { return folder.path() + "/base"; }
  std::string text(const std::string& path) const {
    std::ifstream in(folder.path() + path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  TemporaryFolder folder;
};

TEST_F(SafePath, OpensPlainNamesBelowTheBase) {
  for (const char* name : {"", "/", "a", "/a", "//a", "a/b", "a/file"})
    EXPECT_TRUE(open_beneath(base(), name, O_PATH)) << name;
  EXPECT_TRUE(open_beneath(folder.path() + "/base_link", "a/file", O_RDONLY))
      << "the base may be reached over links";
  EXPECT_EQ(*inode_beneath(base(), "a/file"), *inode_of(base() + "/a/file"));
  ASSERT_TRUE(write_beneath(base(), "a/file", "new"));
  EXPECT_EQ(text("/base/a/file"), "new");
}

TEST_F(SafePath, GoesNowhereElse) {
  for (const char* name :
       {"..", "../outside/file", "a/../../outside/file", "/../outside/file", "a/../a/file", ".", "./a",
        "a/./b", "a//b", "a/", "up", "up/file", "within", "within/file", "a/link"}) {
    EXPECT_FALSE(open_beneath(base(), name, O_RDONLY)) << name;
    EXPECT_FALSE(inode_beneath(base(), name)) << name;
    EXPECT_FALSE(write_beneath(base(), name, "hostile")) << name;
  }
  EXPECT_FALSE(open_beneath(base(), std::string("a\0/x", 4), O_RDONLY));
  for (const char* file : {"/outside/file", "/base/a/file"}) EXPECT_EQ(text(file), "as it was");
  EXPECT_TRUE(open_beneath(base(), "gone", O_RDONLY).error().is(std::errc::no_such_file_or_directory));
}

TEST_F(SafePath, ADirectoryIsBelievedWhereNobodyElseCanChangeIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  struct Row {
    const char* directory;
    uid_t uid;
    gid_t gid;
    mode_t mode;
    bool good;
  };
  const std::vector<Row> rows = {
      {"/base", 0, 0, 0755, true},        {"/base", 0, 0, 0775, true},      {"/base", 65534, 0, 0755, false},
      {"/base", 0, 0, 0757, false},       {"/base", 0, 65534, 0775, false}, {"/base", 0, 65534, 0755, true},
      {"/base/a", 65534, 0, 0755, false}, {"/base/a", 0, 0, 01777, false},
  };
  for (const Row& row : rows) {
    const std::string path = folder.path() + row.directory;
    ASSERT_EQ(::chown(path.c_str(), row.uid, row.gid), 0);
    ASSERT_EQ(::chmod(path.c_str(), row.mode), 0);
    const auto done = check_directory(base() + "/a");
    // What is above may have the sticky bit; "/base/a" itself may not.
    EXPECT_EQ(static_cast<bool>(done), row.good)
        << row.directory << " " << row.uid << ":" << row.gid << " " << std::oct << row.mode;
    if (!done) {
      EXPECT_THAT(done.error().message(), HasSubstr(path + ": "));
      EXPECT_THAT(done.error().message(), HasSubstr("owner uid " + std::to_string(row.uid)));
    }
    ASSERT_EQ(::chown(path.c_str(), 0, 0), 0);
    ASSERT_EQ(::chmod(path.c_str(), 0755), 0);
  }
  ASSERT_EQ(::chmod(base().c_str(), 01777), 0);
  EXPECT_TRUE(check_directory(base() + "/a")) << "as below /tmp";
  EXPECT_TRUE(check_directory(base() + "/gone").error().is(std::errc::no_such_file_or_directory));
  EXPECT_TRUE(check_directory(base() + "/a/file").error().is(std::errc::not_a_directory));
}

TEST(WhyNotWritable, NamesOwnerAndMode) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  TemporaryFolder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  const std::string open = folder.path() + "/open", closed = folder.path() + "/closed";
  ASSERT_TRUE(fs::create_directory(closed));
  for (const std::string& file : {open, closed + "/file"}) {
    std::ofstream(file) << "x";
    ASSERT_EQ(::chown(file.c_str(), 1000, 0), 0);
    ASSERT_EQ(::chmod(file.c_str(), 0644), 0);
  }
  ASSERT_EQ(::chmod(closed.c_str(), 0700), 0);
  EXPECT_EQ(why_not_writable(open), "") << "root, with its capabilities";
  EXPECT_EQ(why_not_writable(folder.path() + "/none"), "");
  EXPECT_TRUE(holds_unprivileged([&] {
    return why_not_writable(open) == "belongs to uid 1000 (mode 0644), and flashd has no CAP_DAC_OVERRIDE" &&
           why_not_writable(closed + "/file") ==
               closed + " belongs to uid 0 (mode 0700), and flashd has no CAP_DAC_OVERRIDE";
  }));
}

}  // namespace
}  // namespace flash
