#include "daemon/command_line.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace flash {
namespace {

Result<CommandLine> parse(std::vector<const char*> arguments) {
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

TEST(CommandLine, NamesWhatItDoesNotUnderstand) {
  EXPECT_NE(parse({"--confg", "x"}).error().message().find("'--confg'"), std::string::npos);
  EXPECT_NE(parse({"start"}).error().message().find("'start'"), std::string::npos);
  EXPECT_NE(parse({"--config"}).error().message().find("needs FILE"), std::string::npos);
  EXPECT_NE(parse({"--once=1"}).error().message().find("takes no argument"), std::string::npos);
  EXPECT_NE(parse({"--cause", "war"}).error().message().find("'war'"), std::string::npos);
  EXPECT_FALSE(parse({"--root", "relative"}));
  EXPECT_FALSE(parse({"--restore", "--once"}));
}

TEST(CommandLine, TheManPageHasEveryOptionAndNoOther) {
  std::ifstream file(std::string(FLASH_SOURCE_DIR) + "/docs/man/flashd.8");
  ASSERT_TRUE(file);
  std::stringstream text;
  text << file.rdbuf();
  std::string page = text.str();
  for (std::size_t i; (i = page.find("\\-")) != std::string::npos;) page.replace(i, 2, "-");
  const std::size_t begin = page.find(".SH OPTIONS");
  const std::size_t end = page.find(".SH SAFETY");
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  const std::string options = page.substr(begin, end - begin);
  std::size_t items = 0;
  for (std::size_t i = options.find("\n.TP\n"); i != std::string::npos; i = options.find("\n.TP\n", i + 1)) {
    ++items;
    const std::size_t name = options.find("--", i);
    const std::size_t stop = options.find_first_of(" \n\"", name);
    const std::string option = options.substr(name + 2, stop - name - 2);
    bool known = option == "help";
    for (const OptionRow& row : option_table()) known = known || row.name == option;
    EXPECT_TRUE(known) << "flashd.8 has --" << option << ", flashd does not";
  }
  EXPECT_EQ(items, option_table().size() + 1);  // and --help
  for (const OptionRow& row : option_table()) {
    EXPECT_NE(options.find("--" + std::string(row.name)), std::string::npos) << "--" << row.name;
    EXPECT_NE(help_text().find("--" + std::string(row.name)), std::string::npos) << "--" << row.name;
  }
}

}  // namespace
}  // namespace flash
