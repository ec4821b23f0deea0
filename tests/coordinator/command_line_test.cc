#include "coordinator/command_line.h"

#include <gmock/gmock.h>

#include "tests/support/man_page.h"

namespace flash::coordinator {
namespace {

using testing::HasSubstr;

Result<CommandLine> parse(std::vector<std::string_view> arguments) {
  return parse_command_line(arguments);
}

TEST(CoordinatorCommandLine, RunsUnlessToldOtherwise) {
  EXPECT_EQ(parse({})->command, CommandLine::Command::Run);
  const auto fleet = parse({"--json", "fleet", "--store=/s"});
  ASSERT_TRUE(fleet) << fleet.error().message();
  EXPECT_EQ(fleet->command, CommandLine::Command::Fleet);
  EXPECT_TRUE(fleet->json);
  EXPECT_EQ(fleet->store, "/s");
}

TEST(CoordinatorCommandLine, APasswordOnTheCommandLineIsRefused) {
  EXPECT_EQ(parse({"--nats", "tls://hub:4222"})->nats.url, "tls://hub:4222");
  EXPECT_THAT(parse({"--nats", "nats://me:secret@hub"}).error().message(), HasSubstr("belong in a file"));
}

TEST(CoordinatorCommandLine, TheServersOfAClusterAreEachLookedAt) {
  EXPECT_EQ(parse({"--nats", "tls://a:1,tls://b:2"})->nats.url, "tls://a:1,tls://b:2");
  EXPECT_THAT(parse({"--nats", "tls://a:1,tls://me:secret@b:2"}).error().message(),
              HasSubstr("belong in a file"));
  EXPECT_THAT(parse({"--nats", "tls://a:1,"}).error().message(), HasSubstr("'' is not"));
}

TEST(CoordinatorCommandLine, TheStreamIsAsLargeAndAsOftenThereAsAsked) {
  const auto line = parse({"--replicas", "3", "--stream-mib", "16"});
  ASSERT_TRUE(line) << line.error().message();
  EXPECT_EQ(line->stream.replicas, 3);
  EXPECT_EQ(line->stream.bytes, 16 << 20);
}

TEST(CoordinatorCommandLine, ANodeIsEnrolledByName) {
  const auto enroll = parse({"enroll", "web1", "--for", "15m"});
  ASSERT_TRUE(enroll) << enroll.error().message();
  EXPECT_EQ(enroll->command, CommandLine::Command::Enroll);
  EXPECT_EQ(enroll->node, "web1");
  EXPECT_EQ(enroll->token_lifetime_s, 900);
  EXPECT_THAT(parse({"enroll"}).error().message(), HasSubstr("need the name of a node"));
  EXPECT_THAT(parse({"enroll", "web.*"}).error().message(), HasSubstr("'web.*' is not"));
  EXPECT_THAT(parse({"setup", "web1"}).error().message(), HasSubstr("one word too many"));
  for (const char* wrong : {"", "1", "0m", "1w", "-1h", "99999999999d"})
    EXPECT_THAT(parse({"enroll", "web1", "--for", wrong}).error().message(), HasSubstr("is not a time"))
        << wrong;
  EXPECT_EQ(parse({"setup", "--server", "a", "--server=10.0.0.1"})->servers.size(), 2u);
  EXPECT_FALSE(parse({"setup", "--nats-listen", "4222"}));
}

TEST(CoordinatorCommandLine, NamesWhatItDoesNotUnderstand) {
  EXPECT_THAT(parse({"--nats", "http://hub"}).error().message(), HasSubstr("'http://hub' is not"));
  EXPECT_THAT(parse({"--nats", "nats://"}).error().message(), HasSubstr("'nats://' is not"));
  EXPECT_THAT(parse({"flee"}).error().message(), HasSubstr("'flee'"));
}

TEST(CoordinatorCommandLine, TheManPageHasEveryOptionAndNoOther) {
  CommandLine line;
  auto options = names_of(option_rows(line));
  options.erase("COMMAND");
  EXPECT_EQ(documented_options("flash-coordinator.8"), options);
}

}  // namespace
}  // namespace flash::coordinator
