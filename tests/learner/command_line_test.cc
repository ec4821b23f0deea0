#include "learner/command_line.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/man_page.h"

namespace flash::learner {
namespace {

Result<CommandLine> parse(std::vector<std::string_view> arguments) {
  return parse_command_line(arguments);
}

TEST(LearnerCommandLine, DefaultsAreTheInstalledPaths) {
  auto line = parse({});
  ASSERT_TRUE(line);
  EXPECT_EQ(line->command, CommandLine::Command::Run);
  EXPECT_EQ(line->socket, "/run/flashd/learner.sock");
  EXPECT_EQ(line->state_directory, "/var/lib/flash-learner");
}

TEST(LearnerCommandLine, TakesValuesAsOwnArgumentOrAfterEquals) {
  EXPECT_EQ(parse({"--socket", "/a"})->socket, "/a");
  EXPECT_EQ(parse({"--socket=/a"})->socket, "/a");
  EXPECT_EQ(parse({"--log-level", "debug"})->log_level, LOG_DEBUG);
  EXPECT_EQ(parse({"--flashd-user", "nobody"})->flashd_user, "nobody");
}

TEST(LearnerCommandLine, NamesWhatItDoesNotUnderstand) {
  EXPECT_NE(parse({"--sockett", "x"}).error().message().find("'--sockett'"), std::string::npos);
  EXPECT_NE(parse({"start"}).error().message().find("'start'"), std::string::npos);
  EXPECT_NE(parse({"--socket"}).error().message().find("--socket needs a value (PATH)"), std::string::npos);
  EXPECT_NE(parse({"--socket="}).error().message().find("--socket: is empty"), std::string::npos);
  EXPECT_NE(parse({"--version=1"}).error().message().find("takes no value"), std::string::npos);
  EXPECT_NE(parse({"--log-level", "loud"}).error().message().find("'loud'"), std::string::npos);
}

TEST(LearnerCommandLine, TheManPageHasEveryOptionAndNoOther) {
  CommandLine line;
  EXPECT_EQ(documented_options("flash-learner.8"), names_of(option_rows(line)));
}

}  // namespace
}  // namespace flash::learner
