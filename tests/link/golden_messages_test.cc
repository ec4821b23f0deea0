// The bytes of every type of message on both links, filled in and with nothing in it, as they were when
// tests/link/golden_messages.txt was written. Both ends come from one release, but a change of the wire is one
// that somebody meant: FLASH_UPDATE=1 writes the file again.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "link/messages.h"
#include "link/sync_messages.h"
#include "tests/link/sample_messages.h"
#include "tests/link/sample_sync_messages.h"

namespace flash::link::golden_messages_test {
namespace {

const std::string kFile = FLASH_SOURCE_DIR "/tests/link/golden_messages.txt";

/// As little as the bounds let a message have.
std::vector<Down> bare_down() {
  Step step{.agent = "a", .seq = 1};
  const Neighbour neighbour{.model = "m", .node = "n", .agent = "a", .embedding = {0}};
  return {HelloDown{.software = "f", .episode_steps = 1},
          Announce{.agent = "a", .key = "k", .layout = {Task::ResourceLimits, {"s"}, {"a"}, 0, ""}},
          Gone{"a"},
          Steps{{step}},
          Verdict{.agent = "a", .reason = "r"},
          NearestPair{"a", neighbour}};
}

std::vector<Up> bare_up() {
  return {HelloUp{.software = "l"}, Stored{.agent = "a"},       Acknowledge{},
          Offer{{"a"}, "p"},        Embedded{"a", "m", {0.0f}}, Status{.doing = "d"}};
}

std::vector<sync::Down> bare_sync_down() {
  return {sync::HelloDown{.software = "f"},
          sync::Scrapes{{{.rule = "r", .url = "http://h/", .requests = "c"}}},
          sync::Family{.name = "m", .help = "h"}, sync::MetricsEnd{},
          sync::EpisodeEnd{1, Episode{.agent = "a", .target = "t"}}};
}

std::vector<sync::Up> bare_sync_up() {
  const Neighbour neighbour{.model = "m", .node = "n", .agent = "a", .embedding = {0}};
  return {sync::HelloUp{.software = "s"},
          sync::Reading{.rule = "r", .state = sync::ReadingState::First, .reason = "w"}, sync::WantMetrics{},
          sync::EpisodesStored{}, sync::NearestPair{"a", neighbour}};
}

/// Every name of every enum, every flag of a step, and the numbers at which a head grows by a byte.
std::vector<Down> edges_down() {
  std::vector<Down> all;
  for (Stage stage : {Stage::Initialized, Stage::Offline, Stage::Online, Stage::Serving})
    for (Controller by : {Controller::None, Controller::Fallback, Controller::Learned})
      all.push_back(Steps{{{.agent = "a", .seq = 1, .stage = stage, .controller = by}}});
  for (int flag = 0; flag < 5; ++flag)
    all.push_back(Steps{{{.agent = "a",
                          .seq = 1,
                          .explored = flag == 0,
                          .end_of_episode = flag == 1,
                          .state_trusted = flag == 2,
                          .reward_given = flag == 3,
                          .reward_trusted = flag == 4}}});
  for (std::uint64_t n : {23ull, 24ull, 255ull, 256ull, 65535ull, 65536ull, 4294967295ull, 4294967296ull,
                          9223372036854775807ull}) {
    const auto signed_n = static_cast<std::int64_t>(n);
    all.push_back(Steps{{{.agent = "a", .seq = n, .time_us = signed_n}}});
    all.push_back(Steps{{{.agent = "a", .seq = n, .time_us = -signed_n - 1}}});
  }
  all.push_back(Announce{.agent = "f", .key = "k", .layout = {Task::CpuFrequency, {"s"}, {"a"}, 11, ""}});
  return all;
}

std::vector<sync::Down> edges_sync_down() {
  std::vector<sync::Down> all;
  for (TimeUnit unit : {TimeUnit::Auto, TimeUnit::Seconds, TimeUnit::Milliseconds, TimeUnit::Microseconds,
                        TimeUnit::Nanoseconds})
    all.push_back(sync::Scrapes{{{.rule = "r", .url = "http://h/", .requests = "c", .unit = unit}}});
  for (auto type : {sync::FamilyType::Gauge, sync::FamilyType::Counter, sync::FamilyType::Info})
    all.push_back(sync::Family{.name = "m", .type = type, .help = "h"});
  for (Stage stage : {Stage::Initialized, Stage::Offline, Stage::Online, Stage::Serving})
    all.push_back(sync::EpisodeEnd{
        1, Episode{.agent = "a", .task = Task::CpuFrequency, .target = "t", .stage = stage, .time_us = 1}});
  return all;
}

std::vector<sync::Up> edges_sync_up() {
  std::vector<sync::Up> all;
  for (auto state : {sync::ReadingState::First, sync::ReadingState::Unreachable, sync::ReadingState::Invalid})
    all.push_back(sync::Reading{.rule = "r", .state = state, .reason = "w", .has_errors = true, .errors = 2});
  sync::Reading above = sync::sample_reading();
  above.exact = false;
  above.at_least = true;
  all.push_back(above);
  return all;
}

std::string hex(const std::string& bytes) {
  std::string text;
  for (unsigned char c : bytes) {
    text += "0123456789abcdef"[c >> 4];
    text += "0123456789abcdef"[c & 15];
  }
  return text;
}

/// A line per message. Each is also read and written again here.
template <class Message, class Decode>
void add(std::string& lines, const std::string& link, const std::vector<Message>& messages, Decode decode) {
  for (const Message& message : messages) {
    const std::string bytes = encode(message);
    lines += link + " " + hex(bytes) + "\n";
    const auto back = decode(bytes);
    ASSERT_TRUE(back) << back.error().message();
    EXPECT_EQ(hex(encode(*back)), hex(bytes));
  }
}

TEST(GoldenMessages, TheBytesOnTheWireAreAsTheyWere) {
  std::string lines;
  for (const auto& some : {sample_down(), bare_down(), edges_down()}) add(lines, "down", some, decode_down);
  for (const auto& some : {sample_up(), bare_up()}) add(lines, "up", some, decode_up);
  for (const auto& some : {sync::sample_down(), bare_sync_down(), edges_sync_down()})
    add(lines, "sync-down", some, sync::decode_down);
  for (const auto& some : {sync::sample_up(), bare_sync_up(), edges_sync_up()})
    add(lines, "sync-up", some, sync::decode_up);
  if (std::getenv("FLASH_UPDATE")) std::ofstream(kFile) << lines;
  std::ifstream file(kFile);
  const std::string before{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(lines, before) << "run this test with FLASH_UPDATE=1 where it is meant";
}

}  // namespace
}  // namespace flash::link::golden_messages_test
