#include "cli/options.h"

#include <gtest/gtest.h>

#include <set>

namespace flash::cli {
namespace {

Invocation parsed(std::vector<const char*> words) {
  return parse(words);
}

Exit refused(std::vector<const char*> words, std::string* message = nullptr) {
  try {
    parse(words);
  } catch (const CliError& e) {
    if (message) *message = e.what();
    return e.code();
  }
  return Exit::Ok;
}

TEST(Options, StandBeforeAndAfterTheCommand) {
  const Invocation before = parsed({"--json", "why", "web", "-n", "3"});
  const Invocation after = parsed({"why", "-n3", "web", "--json"});
  for (const auto& i : {before, after}) {
    EXPECT_EQ(i.command->command, Command::Why);
    EXPECT_EQ(i.arguments, std::vector<std::string>{"web"});
    EXPECT_TRUE(i.json);
    EXPECT_EQ(i.lines, 3u);
  }
}

TEST(Options, TakeTheirArgumentAfterAnEqualSign) {
  const Invocation i = parsed({"hold", "web", "--for=10m", "--reason=load = high"});
  EXPECT_EQ(i.hold_s, 600u);
  EXPECT_EQ(i.reason, "load = high");
}

TEST(Options, EndAtTwoDashes) {
  const Invocation i = parsed({"show", "--", "--odd-name"});
  EXPECT_EQ(i.arguments, std::vector<std::string>{"--odd-name"});
}

TEST(Options, RefuseWhatIsNotInTheTable) {
  std::string message;
  EXPECT_EQ(refused({"agents", "--jsno"}, &message), Exit::Usage);
  EXPECT_NE(message.find("--jsno"), std::string::npos);
  EXPECT_EQ(refused({"agnets"}, &message), Exit::Usage);
  EXPECT_NE(message.find("agnets"), std::string::npos);
  EXPECT_EQ(refused({}), Exit::Usage);
  EXPECT_EQ(refused({"agents", "-x"}), Exit::Usage);
}

TEST(Options, GoOnlyWithTheirCommands) {
  EXPECT_EQ(refused({"agents", "--reason", "x"}), Exit::Usage);
  EXPECT_EQ(refused({"status", "-n", "2"}), Exit::Usage);
}

TEST(Options, BoundTheirNumbers) {
  for (const char* n : {"0", "1001", "-1", "1x", "", "99999999999999999999"})
    EXPECT_EQ(refused({"rewards", "web", "--lines", n}), Exit::Usage) << n;
  for (const char* s : {"0.01", "nan", "inf", "1e9", "x"})
    EXPECT_EQ(refused({"watch", "--interval", s}), Exit::Usage) << s;
  EXPECT_EQ(refused({"rewards", "web", "-n"}), Exit::Usage);
  EXPECT_EQ(refused({"agents", "--json=yes"}), Exit::Usage);
}

TEST(Options, CountTheArgumentsOfACommand) {
  EXPECT_EQ(refused({"show"}), Exit::Usage);
  EXPECT_EQ(refused({"show", "a", "b"}), Exit::Usage);
  EXPECT_EQ(refused({"mode"}), Exit::Usage);
  EXPECT_EQ(refused({"mode", "a", "b", "c"}), Exit::Usage);
  EXPECT_EQ(refused({"config", "chekc"}), Exit::Usage);
  EXPECT_EQ(refused({"config", "check", "file"}), Exit::Ok);
}

TEST(Options, AskForATargetOrAllAndAReason) {
  EXPECT_EQ(refused({"hold", "--reason", "x"}), Exit::Usage);
  EXPECT_EQ(refused({"hold", "web", "--all", "--reason", "x"}), Exit::Usage);
  EXPECT_EQ(refused({"hold", "web"}), Exit::Usage);
  EXPECT_EQ(refused({"disable"}), Exit::Usage);
  EXPECT_EQ(refused({"release"}), Exit::Usage);
  EXPECT_EQ(refused({"hold", "--all", "--reason", "x"}), Exit::Ok);
  EXPECT_EQ(refused({"release", "web"}), Exit::Ok);
}

TEST(Options, HelpNeedsNoArguments) {
  EXPECT_TRUE(parsed({"hold", "--help"}).help);
  EXPECT_TRUE(parsed({"-h"}).help);
  EXPECT_TRUE(parsed({"--version"}).version);
}

TEST(Times, AreSumsOfUnits) {
  EXPECT_EQ(parse_seconds("90"), 90u);
  EXPECT_EQ(parse_seconds("90s"), 90u);
  EXPECT_EQ(parse_seconds("1h30m"), 5400u);
  EXPECT_EQ(parse_seconds("30d"), 2592000u);
}

TEST(Times, RefuseWhatIsNoTime) {
  for (const char* t : {"", "0", "m", "10x", "-5m", "1.5h", "31d", "99999999999999999999s", "10 m", "30d1s"})
    EXPECT_THROW(parse_seconds(t), CliError) << t;
}

TEST(Help, NamesEveryCommandAndOption) {
  const std::string text = help_text();
  for (const auto& c : command_table()) {
    EXPECT_NE(text.find("\n  " + std::string(c.name) + " "), std::string::npos) << c.name;
    const std::string one = help_text(c);
    for (const auto& o : option_table())
      EXPECT_EQ(one.find("--" + std::string(o.name) + " ") != std::string::npos, applies(o, c))
          << c.name << " --" << o.name;
  }
  for (const auto& o : option_table())
    EXPECT_NE(text.find("--" + std::string(o.name)), std::string::npos) << o.name;
}

TEST(OptionTable, NamesOnlyCommandsThatExist) {
  std::set<std::string> commands;
  for (const auto& c : command_table()) commands.insert(std::string(c.name));
  for (const auto& o : option_table()) {
    std::size_t hits = 0, words = o.commands.empty() ? 0 : 1;
    for (char c : o.commands) words += c == ' ';
    for (const auto& c : command_table()) hits += !o.commands.empty() && applies(o, c);
    EXPECT_EQ(hits, words) << o.name;
  }
}

}  // namespace
}  // namespace flash::cli
