// The man page and the completions say what the tables say, no less and no more.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "cli/agents.h"
#include "cli/options.h"
#include "core/json.h"

namespace flash::cli {
namespace {

using Set = std::set<std::string>;

std::string file(const std::string& path) {
  std::ifstream in(std::string(FLASH_SOURCE_DIR) + "/" + path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

/// roff without font changes and escapes: "\-\-json" becomes "--json".
std::string plain(const std::string& roff) {
  std::string text = std::regex_replace(roff, std::regex(R"(\\f[BIRP])"), "");
  text = std::regex_replace(text, std::regex(R"(\\-)"), "-");
  return std::regex_replace(text, std::regex("\""), "");
}

std::string section(const std::string& text, const std::string& name) {
  const auto begin = text.find(".SH " + name + "\n");
  if (begin == std::string::npos) return "";
  const auto end = text.find("\n.SH ", begin + 1);
  return text.substr(begin, end == std::string::npos ? end : end - begin + 1);
}

Set matches(const std::string& text, const std::string& pattern) {
  Set out;
  const std::regex regex(pattern);
  for (std::sregex_iterator i(text.begin(), text.end(), regex), end; i != end; ++i) out.insert((*i)[1]);
  return out;
}

Set commands() {
  Set out;
  for (const auto& c : command_table()) out.insert(std::string(c.name));
  return out;
}

Set options() {
  Set out;
  for (const auto& o : option_table()) out.insert("--" + std::string(o.name));
  return out;
}

TEST(ManPage, HasTheCommandsOfTheTable) {
  const std::string text = section(plain(file("docs/man/flashctl.1")), "COMMANDS");
  EXPECT_EQ(matches(text, R"(\.TP\n\.(?:B|BI|BR) ([a-z]+))"), commands());
}

TEST(ManPage, HasTheOptionsOfTheTable) {
  const std::string text = section(plain(file("docs/man/flashctl.1")), "OPTIONS");
  EXPECT_EQ(matches(text, R"(\.TP\n\.(?:B|BI|BR) (?:-[a-z] ?, ?)? ?(--[a-z-]+))"), options());
  for (const auto& o : option_table()) {
    if (o.letter) {
      EXPECT_NE(text.find(std::string(" -") + o.letter + " , "), std::string::npos) << o.letter;
    }
    if (!o.argument.empty()) {
      EXPECT_TRUE(
          std::regex_search(text, std::regex("--" + std::string(o.name) + " +" + std::string(o.argument))))
          << o.name;
    }
  }
}

TEST(ManPage, HasTheExitCodesOfTheTable) {
  const std::string text = section(plain(file("docs/man/flashctl.1")), "EXIT STATUS");
  std::string expected = ".SH EXIT STATUS\n";
  for (const auto& e : exit_table())
    expected += ".TP\n.B " + std::to_string(static_cast<int>(e.code)) + "\n" + std::string(e.meaning) + "\n";
  EXPECT_EQ(text, expected);
}

TEST(ManPage, HasTheJsonKeysOfAnAgent) {
  const std::string text = section(plain(file("docs/man/flashctl.1")), "JSON");
  const nlohmann::json agent = agent_json("/org/flashd/agent/x", nlohmann::json::object());
  for (const auto& [key, value] : agent.items())
    EXPECT_TRUE(std::regex_search(text, std::regex("[ \n]" + key + "[,. (]"))) << key;
}

/// What bash offers after these words.
Set completed(const std::string& words) {
  const std::string script = "cd / && source '" + std::string(FLASH_SOURCE_DIR) +
                             "/cli/completions/flashctl.bash' && COMP_WORDS=(flashctl " + words +
                             ") && COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) && _flashctl && "
                             "printf '%s\\n' \"${COMPREPLY[@]}\"";
  // No flashctl and no bus: only what the file itself knows.
  FILE* pipe = popen(("PATH=/usr/bin:/bin DBUS_SYSTEM_BUS_ADDRESS=unix:path=/dev/null bash --norc -c '" +
                      std::regex_replace(script, std::regex("'"), "'\\''") + "'")
                         .c_str(),
                     "r");
  Set out;
  char line[256];
  while (pipe && std::fgets(line, sizeof line, pipe)) {
    std::string text = line;
    while (!text.empty() && text.back() == '\n') text.pop_back();
    if (!text.empty()) out.insert(text);
  }
  if (pipe) pclose(pipe);
  return out;
}

TEST(BashCompletion, OffersTheCommandsOfTheTable) {
  EXPECT_EQ(completed("''"), commands());
  EXPECT_EQ(completed("--json re"), (Set{"release", "reload", "rewards"}));
}

TEST(BashCompletion, OffersTheOptionsThatGoWithACommand) {
  for (const auto& c : command_table()) {
    Set expected;
    for (const auto& o : option_table())
      if (applies(o, c)) expected.insert("--" + std::string(o.name));
    EXPECT_EQ(completed(std::string(c.name) + " --"), expected) << c.name;
  }
}

TEST(BashCompletion, DoesNotTakeAnOptionsArgumentForTheCommand) {
  EXPECT_EQ(completed("--address status ''"), commands());
}

TEST(ZshCompletion, HasTheCommandsAndOptionsOfTheTable) {
  const std::string text = file("cli/completions/_flashctl");
  EXPECT_EQ(matches(text, R"(\n    '([a-z]+):)"), commands());
  std::string body = text.substr(text.find("_flashctl() {"));
  body = std::regex_replace(body, std::regex("flashctl --json agents"), "");
  EXPECT_EQ(matches(body, R"((--[a-z]+))"), options());
}

}  // namespace
}  // namespace flash::cli
