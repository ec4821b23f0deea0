#include "host/file_io.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "tests/support/fake_host.h"

namespace flash {
namespace {

TEST(KeptFile, SeesEachNewText) {
  FakeHost host{file("a", "1\n")};
  const auto kept = KeptFile::open((host.path() / "a").string());
  ASSERT_TRUE(kept);
  std::array<char, 16> buffer;
  EXPECT_EQ(*kept->read(buffer), "1\n");
  host.write("a", "22\n");
  EXPECT_EQ(*kept->read(buffer), "22\n");
}

TEST(KeptFile, CutsLongTextAfterACompleteLine) {
  FakeHost host{file("a", "one 1\ntwo 2\n")};
  const auto kept = KeptFile::open((host.path() / "a").string());
  ASSERT_TRUE(kept);
  std::array<char, 8> buffer;
  EXPECT_EQ(*kept->read(buffer), "one 1\n");
}

TEST(KeptFile, SaysWhichFileIsAbsent) {
  FakeHost host{};
  const auto kept = KeptFile::open((host.path() / "absent").string());
  ASSERT_FALSE(kept);
  EXPECT_TRUE(vanished(kept.error()));
  EXPECT_NE(kept.error().message().find("absent"), std::string::npos);
  std::array<char, 8> buffer;
  EXPECT_TRUE(KeptFile().read(buffer).error().is(std::errc::no_such_file_or_directory));
}

TEST(ReadFile, RefusesMoreThanTheLimit) {
  FakeHost host{file("exact", "12345"), file("long", std::string(10000, 'x'))};
  EXPECT_EQ(*read_file((host.path() / "exact").string(), 5), "12345");
  EXPECT_TRUE(read_file((host.path() / "exact").string(), 4).error().is(std::errc::file_too_large));
  EXPECT_EQ(read_file((host.path() / "long").string())->size(), 10000u);
}

TEST(WriteFile, CreatesNothing) {
  FakeHost host{file("a", "old text\n")};
  ASSERT_TRUE(write_file((host.path() / "a").string(), "1"));
  EXPECT_EQ(host.read("a"), "1");
  EXPECT_TRUE(write_file((host.path() / "b").string(), "1").error().is(std::errc::no_such_file_or_directory));
}

}  // namespace
}  // namespace flash
