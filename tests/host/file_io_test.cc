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

TEST(KeptFile, ReadsTextOfAnyLengthWhole) {
  FakeHost host{file("a", "")};
  const auto kept = KeptFile::open((host.path() / "a").string());
  ASSERT_TRUE(kept);
  std::array<char, 8> buffer;
  // Around the buffer's size, far beyond it, and short again; none ends with a newline where it could be cut.
  for (const std::size_t size : {7u, 8u, 9u, 16u, 4096u, 4097u, 1'000'003u, 3u}) {
    const std::string text = "\n" + std::string(size - 1, '7');
    host.write("a", text);
    const auto read = kept->read(buffer);
    ASSERT_TRUE(read);
    EXPECT_EQ(*read, text) << size;
  }
}

TEST(KeptFile, NamesAFileBeyondItsBoundAndTheBound) {
  FakeHost host{file("a", "")};
  std::filesystem::resize_file(host.path() / "a", KeptFile::kTextMax + 1);
  const auto kept = KeptFile::open((host.path() / "a").string());
  std::array<char, 8> buffer;
  const auto read = kept->read(buffer);
  ASSERT_FALSE(read);
  EXPECT_TRUE(read.error().is(std::errc::file_too_large));
  EXPECT_NE(read.error().message().find("/a: is longer than 16777216 bytes"), std::string::npos);
  std::filesystem::resize_file(host.path() / "a", KeptFile::kTextMax);
  EXPECT_EQ(kept->read(buffer)->size(), KeptFile::kTextMax);
}

TEST(KeptFile, OpensWhatComesAgainAndSaysMeanwhileThatItIsLost) {
  FakeHost host{file("a", "1\n")};
  const KeptFile kept((host.path() / "a").string());
  std::array<char, 16> buffer;
  EXPECT_FALSE(kept.lost());
  EXPECT_EQ(*kept.read(buffer), "1\n");  // the first read opens
  kept.close();
  host.remove("a");
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(vanished(kept.read(buffer).error()));
  EXPECT_TRUE(kept.lost());
  host.write("a", "2\n");
  EXPECT_EQ(*kept.read(buffer), "2\n");
  EXPECT_FALSE(kept.lost());
}

TEST(KeptFile, ClosesADescriptorThatGivesAnError) {
  FakeHost host{dir("a")};
  const KeptFile kept((host.path() / "a").string());  // a folder: it opens, and reading is EISDIR
  std::array<char, 16> buffer;
  EXPECT_FALSE(kept.read(buffer));
  EXPECT_FALSE(kept.is_open());
  EXPECT_TRUE(kept.lost());
  host.remove("a");
  host.write("a", "2\n");
  EXPECT_EQ(*kept.read(buffer), "2\n");
}

TEST(KeptFile, TakesNoSuccessorThatIsNotIts) {
  FakeHost host{file("a", "1\n")};
  const KeptFile kept((host.path() / "a").string());
  std::array<char, 16> buffer;
  bool ours = true;
  const auto is_ours = [&] { return ours; };
  EXPECT_EQ(*kept.read(buffer, is_ours), "1\n");
  kept.close();
  ours = false;
  EXPECT_TRUE(kept.read(buffer, is_ours).error().is(std::errc::no_such_device));
  EXPECT_FALSE(kept.is_open());
}

TEST(KeptFile, OpensTheOlderNameWhereTheNewerIsNotThere) {
  FakeHost host{file("old", "1\n")};
  const KeptFile kept((host.path() / "new").string(), (host.path() / "old").string());
  std::array<char, 16> buffer;
  EXPECT_EQ(*kept.read(buffer), "1\n");
}

TEST(Backoff, TriesEachOfTheFirstThenAtAnEighthAtMostEach64th) {
  Backoff backoff;
  int last = 0;
  for (int call = 1; call <= 5000; ++call) {
    if (!backoff.due()) continue;
    EXPECT_LE(call - last, std::min(1 + call / 8, 64)) << call;
    EXPECT_TRUE(call > 8 || call == last + 1);
    last = call;
  }
  EXPECT_GE(last, 5000 - 64);
  backoff.reset();
  EXPECT_TRUE(backoff.due());
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
