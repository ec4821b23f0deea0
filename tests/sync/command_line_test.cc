#include "sync/command_line.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/man_page.h"

namespace flash::sync {
namespace {

Result<CommandLine> parse(std::vector<std::string_view> arguments) {
  return parse_command_line(arguments);
}

TEST(SyncCommandLine, DefaultsAreTheInstalledPaths) {
  auto line = parse({});
  ASSERT_TRUE(line);
  EXPECT_EQ(line->socket, "/run/flashd/sync.sock");
  EXPECT_EQ(line->listen, "127.0.0.1:9942");
  EXPECT_EQ(line->textfile, "/run/flash-sync/flashd.prom");
}

TEST(SyncCommandLine, NoneSwitchesOff) {
  auto line = parse({"--listen", "none", "--textfile=none", "--metrics-interval", "2.5"});
  ASSERT_TRUE(line);
  EXPECT_EQ(line->listen, "");
  EXPECT_EQ(line->textfile, "");
  EXPECT_EQ(line->metrics_interval_s, 2.5);
}

TEST(SyncCommandLine, NamesWhatItDoesNotUnderstand) {
  EXPECT_NE(parse({"--sockett", "x"}).error().message().find("'--sockett'"), std::string::npos);
  EXPECT_NE(parse({"start"}).error().message().find("'start'"), std::string::npos);
  EXPECT_NE(parse({"--socket"}).error().message().find("--socket needs a value (PATH)"), std::string::npos);
  EXPECT_NE(parse({"--version=1"}).error().message().find("takes no value"), std::string::npos);
  EXPECT_NE(parse({"--metrics-interval", "0"}).error().message().find("from 1 to 3600"), std::string::npos);
  EXPECT_NE(parse({"--log-level", "loud"}).error().message().find("'loud'"), std::string::npos);
}

TEST(SyncCommandLine, ATokenInTheWrongPlaceIsNotRepeated) {
  constexpr std::string_view kToken = "flash1.pGF2AWF0ZXRva2Vu-_";
  ASSERT_EQ(parse({"enroll", kToken})->token, kToken);
  for (const std::vector<std::string_view>& wrong : {std::vector{kToken},
                                                     {"enrol", kToken},
                                                     {kToken, "enroll"},
                                                     {"enroll", kToken, kToken},
                                                     {"--node", kToken, "enroll"},
                                                     {"enroll=flash1.pGF2AWF0ZXRva2Vu-_"},
                                                     {"--flash1.pGF2AWF0ZXRva2Vu-_"}}) {
    const auto line = parse(wrong);
    ASSERT_FALSE(line);
    EXPECT_EQ(line.error().message().find("pGF2"), std::string::npos) << line.error().message();
  }
  EXPECT_EQ(parse({kToken}).error().message(), "COMMAND: 'flash1....' is not enroll");
}

TEST(SyncCommandLine, TheManPageHasEveryOptionAndNoOther) {
  CommandLine line;
  auto options = names_of(option_rows(line));
  options.erase("COMMAND");
  EXPECT_EQ(documented_options("flash-sync.8"), options);
}

}  // namespace
}  // namespace flash::sync
