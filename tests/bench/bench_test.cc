#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "tests/bench/run_bench.h"

namespace flash {
namespace {

using ::testing::HasSubstr;

// Upper bounds here are far above the aims (20 us, 16 MiB): they catch a tick that costs ten times more, on a
// busy machine and in a build with sanitizers.
constexpr double kUsPerTarget = 1000;
constexpr double kRssMib = 512;

TEST(FlashBench, TickPrintsTheKeysPeopleReadOnBothFakeTrees) {
  for (const std::string tree : {"v1", "v2"}) {
    SCOPED_TRACE(tree);
    const auto run = run_bench("tick --targets 3 --ticks 20 --json --tree " + tree);
    ASSERT_EQ(run.status, 0) << run.text;
    ASSERT_TRUE(run.json.is_object()) << run.text;
    EXPECT_EQ(run.json["targets"], 3);
    EXPECT_EQ(run.json["tree"], tree);
    EXPECT_GT(run.json["us_per_target"], 0);
    EXPECT_LT(run.json["us_per_target"], kUsPerTarget);
    EXPECT_GT(run.json["rss_mib"], 1);
    EXPECT_LT(run.json["rss_mib"], kRssMib);
    EXPECT_GT(run.json["syscalls_per_target"], 0) << run.text;
    EXPECT_LT(run.json["syscalls_per_target"], 100);
    EXPECT_EQ(run.json["failures"], 0);
  }
}

TEST(FlashBench, ControlModeWritesAndRecommendModeDoesNot) {
  const auto control = run_bench("tick --targets 3 --ticks 100 --no-syscalls --json");
  ASSERT_EQ(control.status, 0) << control.text;
  EXPECT_GT(control.json["writes_per_tick"], 0);
  const auto recommend = run_bench("tick --targets 3 --ticks 100 --no-syscalls --json --mode recommend");
  ASSERT_EQ(recommend.status, 0) << recommend.text;
  EXPECT_EQ(recommend.json["writes_per_tick"], 0);
}

TEST(FlashBench, SeveralNumbersOfTargetsMakeAListOfRuns) {
  const auto run = run_bench("tick --targets 1,2 --ticks 5 --no-syscalls --json");
  ASSERT_EQ(run.status, 0) << run.text;
  ASSERT_EQ(run.json["runs"].size(), 2U);
  EXPECT_EQ(run.json["runs"][1]["targets"], 2);
}

TEST(FlashBench, LeavesNothingInSharedMemory) {
  const auto run = run_bench("tick --targets 2 --ticks 2 --json");
  ASSERT_EQ(run.status, 0) << run.text;
  const std::string directory = run.json["directory"];
  EXPECT_THAT(directory, ::testing::StartsWith("/dev/shm/flash-bench-"));
  EXPECT_FALSE(std::filesystem::exists(directory));
}

// What is not flash-bench's own is another package's, outside the path of commands.
class FlashBenchInstalled : public testing::Test {
 protected:
  FlashBenchInstalled() {
    char name[] = "/tmp/flashd-test-XXXXXX";
    root_ = mkdtemp(name);
    std::filesystem::create_directories(root_ + "/bin");
    std::filesystem::copy(std::string(FLASH_BINARY_DIR) + "/bin/flash-bench", root_ + "/bin/flash-bench");
  }
  ~FlashBenchInstalled() override { std::filesystem::remove_all(root_); }

  void install(const std::string& folder, const std::string& says) {
    std::filesystem::create_directories(root_ + folder);
    const std::string program = root_ + folder + "/flash-bench-meta";
    std::ofstream(program) << "#!/bin/sh\necho " << says << " \"$@\"\n";
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  }
  BenchRun run() { return run_program(root_ + "/bin/flash-bench adapt --seed 2"); }

  std::string root_;
};

TEST_F(FlashBenchInstalled, SaysWhichPackageACommandIsOf) {
  EXPECT_EQ(run().status, 1);
  EXPECT_THAT(run().text,
              HasSubstr("flash-bench-meta is not installed: it comes with package flash-learner"));
}

TEST_F(FlashBenchInstalled, FindsTheProgramsOfOtherPackages) {
  install("/libexec/flashd", "installed");
  EXPECT_EQ(run().text, "installed adapt --seed 2\n");
  install("/bin", "built");
  EXPECT_EQ(run().text, "built adapt --seed 2\n");
}

// Small figures that any machine reaches even when it is busy; the aims are in flash-bench(1)'s figures.
TEST(FlashBenchLearner, PrintsTheKeysPeopleRead) {
  const auto run = run_bench("learner --agents 4 --seconds 1 --python /bin/false --json");
  ASSERT_EQ(run.status, 0) << run.text;
  ASSERT_TRUE(run.json.is_object()) << run.text;
  for (const char* agents : {"1", "10", "100", "1000"})
    for (const char* key : {"p50", "p99", "cold_p50", "cold_p99"})
      EXPECT_GT(run.json["decision_us"][agents][key], 0) << agents << key;
  EXPECT_LT(run.json["decision_us"]["1000"]["p50"], 1e6);
  EXPECT_GT(run.json["decision_us"]["1000"]["p50"], run.json["decision_us"]["10"]["p50"]);
  EXPECT_GT(run.json["snapshot_swap_us"]["p50"], 0);
  for (const char* algorithm : {"ddpg", "q", "tabular-q", "td3+bc"}) {
    EXPECT_GT(run.json["update_us"][algorithm], 0) << algorithm;
    EXPECT_GE(run.json["update_p99_us"][algorithm], run.json["update_us"][algorithm]) << algorithm;
  }
  EXPECT_GT(run.json["rss_mib"], 1) << run.text;
  EXPECT_GT(run.json["cpu_share"], 0);
  EXPECT_EQ(run.json["learner"]["agents"], 4);
  EXPECT_TRUE(run.json["vs_pytorch"]["update"].is_null());
  EXPECT_THAT(run.json["pytorch"].get<std::string>(), HasSubstr("ended with status 1"));
}

TEST(FlashBenchLearner, RefusesWhatItDoesNotKnow) {
  for (const char* arguments : {"learner fly", "learner --fast", "learner --seconds", "learner --seconds 0",
                                "learner --json=yes", "learner --learner flash-learner"}) {
    const auto run = run_bench(arguments);
    EXPECT_EQ(run.status, 2) << arguments;
    EXPECT_THAT(run.text, HasSubstr("flash-bench learner --help"));
  }
}

TEST(FlashBench, RefusesWhatItDoesNotKnow) {
  for (const char* arguments : {"", "fly", "tick --target 3", "tick --targets 0", "tick --targets 1,,2",
                                "tick --targets", "tick --json=yes", "tick --mode fast"}) {
    const auto run = run_bench(arguments);
    EXPECT_EQ(run.status, 2) << arguments;
    EXPECT_THAT(run.text, HasSubstr("flash-bench --help"));
  }
}

}  // namespace
}  // namespace flash
