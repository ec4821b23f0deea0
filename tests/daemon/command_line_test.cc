#include "daemon/command_line.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/man_page.h"

namespace flash {
namespace {

Result<CommandLine> parse(std::vector<std::string_view> arguments) {
  return parse_command_line(arguments);
}

TEST(CommandLine, DefaultsRunWithTheInstalledConfiguration) {
  auto line = parse({});
  ASSERT_TRUE(line);
  EXPECT_EQ(line->command, Command::Run);
  EXPECT_EQ(line->config, "/etc/flashd/flashd.json");
  EXPECT_EQ(line->root, "/");
}

TEST(CommandLine, TakesValuesAsOwnArgumentOrAfterEquals) {
  EXPECT_EQ(parse({"--config", "/a.json"})->config, "/a.json");
  EXPECT_EQ(parse({"--config=/a.json"})->config, "/a.json");
  EXPECT_EQ(parse({"--restore", "--cause", "upgrade"})->cause, Cause::Upgrade);
}

TEST(CommandLine, ReplayNeedsAModelAndTakesATarget) {
  const auto line = parse({"--replay", "j", "--model=m", "--target", "web", "--largest", "3", "--json"});
  ASSERT_TRUE(line);
  EXPECT_EQ(line->command, Command::Replay);
  EXPECT_EQ(line->journal + " " + line->model + " " + line->target, "j m web");
  EXPECT_EQ(line->largest, 3u);
  EXPECT_NE(parse({"--replay", "j"}).error().message().find("--model"), std::string::npos);
  EXPECT_FALSE(parse({"--model", "m"}));
  EXPECT_FALSE(parse({"--replay", "j", "--model", "m", "--once"}));
  for (const char* bad : {"-1", "1001", "3x", ""})
    EXPECT_FALSE(parse({"--replay", "j", "--model", "m", "--largest", bad})) << bad;
}

TEST(CommandLine, HelpIsGivenWhateverElseIsWrong) {
  for (const char* word : {"--help", "-h"}) {
    const auto line = parse({"--nonsense", word});
    ASSERT_TRUE(line) << word;
    EXPECT_EQ(line->command, Command::Help);
  }
}

TEST(CommandLine, NamesWhatItDoesNotUnderstand) {
  EXPECT_NE(parse({"--confg", "x"}).error().message().find("'--confg'"), std::string::npos);
  EXPECT_NE(parse({"start"}).error().message().find("'start'"), std::string::npos);
  EXPECT_NE(parse({"--config"}).error().message().find("--config needs a value (FILE)"), std::string::npos);
  EXPECT_NE(parse({"--once=1"}).error().message().find("takes no value"), std::string::npos);
  EXPECT_NE(parse({"--cause", "war"}).error().message().find("'war'"), std::string::npos);
  EXPECT_FALSE(parse({"--root", "relative"}));
  EXPECT_FALSE(parse({"--restore", "--once"}));
}

TEST(CommandLine, TheManPageHasEveryOptionAndNoOther) {
  CommandLine line;
  EXPECT_EQ(documented_options("flashd.8"), names_of(option_rows(line)));
}

}  // namespace
}  // namespace flash
