#include "learner/command_line.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <vector>

namespace flash::learner {
namespace {

Result<CommandLine> parse(std::vector<const char*> arguments) {
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
  EXPECT_NE(parse({"--socket"}).error().message().find("needs PATH"), std::string::npos);
  EXPECT_NE(parse({"--socket="}).error().message().find("needs PATH"), std::string::npos);
  EXPECT_NE(parse({"--version=1"}).error().message().find("takes no argument"), std::string::npos);
  EXPECT_NE(parse({"--log-level", "loud"}).error().message().find("'loud'"), std::string::npos);
}

TEST(LearnerCommandLine, TheManPageHasEveryOptionAndNoOther) {
  std::ifstream file(std::string(FLASH_SOURCE_DIR) + "/docs/man/flash-learner.8");
  ASSERT_TRUE(file);
  std::stringstream text;
  text << file.rdbuf();
  std::string page = text.str();
  for (std::size_t i; (i = page.find("\\-")) != std::string::npos;) page.replace(i, 2, "-");
  const std::size_t begin = page.find(".SH OPTIONS"), end = page.find(".SH", begin + 1);
  ASSERT_NE(end, std::string::npos);
  const std::string options = page.substr(begin, end - begin);
  std::size_t items = 0;
  for (std::size_t i = options.find("\n.TP\n"); i != std::string::npos; i = options.find("\n.TP\n", i + 1)) {
    ++items;
    const std::size_t name = options.find("--", i);
    const std::string option = options.substr(name + 2, options.find_first_of(" \n\"", name) - name - 2);
    bool known = option == "help";
    for (const OptionRow& row : option_table()) known = known || row.name == option;
    EXPECT_TRUE(known) << "the man page has --" << option;
  }
  EXPECT_EQ(items, option_table().size() + 1);
}

}  // namespace
}  // namespace flash::learner
