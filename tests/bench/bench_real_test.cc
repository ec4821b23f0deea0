#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "core/json.h"
#include "tests/bench/run_bench.h"

namespace flash {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// What is in a folder that says `words`, or in the folders below it.
std::vector<std::string> named(const std::string& folder, const std::string& words) {
  std::vector<std::string> found;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(folder, gone)) {
    if (entry.path().filename().string().find(words) != std::string::npos) found.push_back(entry.path());
    if (!entry.is_directory(gone)) continue;
    for (const auto& below : fs::directory_iterator(entry.path(), gone))
      if (below.path().filename().string().find(words) != std::string::npos) found.push_back(below.path());
  }
  return found;
}

/// Refused to this thread and what it starts.
void refuse_ptrace() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ptrace, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(code), code};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

struct Interrupted {
  std::vector<std::string> words;
  int signal;
  bool v1 = false;  // it needs cgroup v1
};

class FlashBenchInterrupted : public testing::TestWithParam<Interrupted> {};

TEST_P(FlashBenchInterrupted, RemovesItsCgroupsAndFiles) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  if (GetParam().v1 && !fs::exists("/sys/fs/cgroup/cpuacct")) return;  // nothing to leave
  char folder[] = "/tmp/flashd-test-XXXXXX";
  ASSERT_TRUE(mkdtemp(folder));
  const std::string said = folder + std::string("/said");
  const pid_t pid = fork();
  if (pid == 0) {
    const int out = open(said.c_str(), O_WRONLY | O_CREAT, 0600);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    setenv("TMPDIR", folder, 1);
    std::string program = std::string(FLASH_BINARY_DIR) + "/bin/flash-bench";
    std::vector<char*> argv = {program.data()};
    for (const std::string& word : GetParam().words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  // Its cgroups are named by its process, or by the child that measures.
  std::vector<std::string> made;
  std::string group;
  for (int i = 0; i < 1000 && made.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::string child =
        text_of("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children");
    child.resize(std::min(child.size(), child.find(' ')));
    for (const std::string& id : {std::to_string(pid), child})
      for (const char* kind : {"bench", "calibrate", "probe", "siege"})
        if (const std::string name = std::string("flashd-test-") + kind + "-" + id;
            !id.empty() && made.empty())
          if (made = named("/sys/fs/cgroup", name); !made.empty()) group = name;
  }
  EXPECT_FALSE(made.empty());
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  kill(pid, GetParam().signal);
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
  EXPECT_THAT(text_of(said), HasSubstr("flash-bench: interrupted\n"));
  if (!group.empty()) {
    EXPECT_THAT(named("/sys/fs/cgroup", group), IsEmpty());
  }
  fs::remove(said);
  EXPECT_TRUE(fs::is_empty(folder));
  fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(
    Commands, FlashBenchInterrupted,
    testing::Values(Interrupted{{"tick", "--real", "--targets", "2", "--ticks", "1000000"}, SIGTERM},
                    Interrupted{{"daemon", "--real", "--targets", "2", "--seconds", "1000"}, SIGHUP},
                    Interrupted{{"siege", "--seconds", "1000"}, SIGTERM},
                    Interrupted{{"calibrate", "--apps", "1", "--seconds", "600"}, SIGINT, true}),
    [](const auto& info) { return info.param.words[0]; });

TEST(FlashBenchReal, TickLeavesNothingWherePtraceIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  BenchRun run;
  std::vector<std::string> left;
  // With a /dev/shm of its own: others measure too.
  std::thread([&] {
    ASSERT_EQ(unshare(CLONE_NEWNS), 0);
    ASSERT_EQ(mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    ASSERT_EQ(mount("none", "/dev/shm", "tmpfs", 0, nullptr), 0);
    refuse_ptrace();
    run = run_bench("tick --targets 2 --ticks 2 --json");
    left = named("/dev/shm", "flash-bench-");
  }).join();
  ASSERT_EQ(run.status, 0) << run.text;
  EXPECT_TRUE(run.json["syscalls_per_target"].is_null()) << run.text;
  EXPECT_THAT(run.json["syscalls_unknown_because"].get<std::string>(), HasSubstr("ptrace"));
  EXPECT_THAT(left, IsEmpty());
}

TEST(FlashBenchReal, TickOnRealCgroupsCostsAndLeavesNone) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const auto run = run_bench("tick --real --targets 5 --ticks 20 --json");
  ASSERT_EQ(run.status, 0) << run.text;
  EXPECT_EQ(run.json["tree"], "real");
  EXPECT_GT(run.json["us_per_target"], 0);
  EXPECT_GT(run.json["syscalls_per_target"], 0);
  EXPECT_EQ(run.json["failures"], 0) << run.text;
  std::string group = run.json["cgroups"];  // "/flashd-test-bench-PID/*"
  group.resize(group.rfind('/'));
  ASSERT_EQ(group.rfind("/flashd-test-bench-", 0), 0U) << group;
  for (const auto& hierarchy : std::filesystem::directory_iterator("/sys/fs/cgroup"))
    EXPECT_FALSE(std::filesystem::exists(hierarchy.path().string() + group)) << hierarchy.path();
  EXPECT_FALSE(std::filesystem::exists("/sys/fs/cgroup" + group));
}

TEST(FlashBenchReal, TheRunningDaemonIsMeasuredAndEndsWell) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const auto run = run_bench("daemon --targets 5 --seconds 3 --json");
  ASSERT_EQ(run.status, 0) << run.text;
  EXPECT_EQ(run.json["exit_status"], 0) << run.text;
  EXPECT_GT(run.json["rss_mib"], 1);
  // One tick per second and what the cgroup watch and the timers need; a busy loop is thousands.
  EXPECT_LT(run.json["wakeups_per_s"], 50);
}

TEST(FlashBenchReal, ASiegeMeasuresEachFloodAndLeavesNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const auto traces = [] {
    auto all = named("/sys/fs/cgroup", "-siege-");
    for (auto& file : named("/tmp", "-siege-")) all.push_back(std::move(file));
    return all;
  };
  const auto before = traces();
  const auto run = run_bench("siege --quick --json");
  ASSERT_EQ(run.status, 0) << run.text;
  ASSERT_TRUE(run.json.is_object()) << run.text;
  std::vector<nlohmann::json> rows = {run.json["quiet"]};
  for (const char* flood : {"statsd", "bus", "churn", "sockets"}) {
    ASSERT_TRUE(run.json["floods"].contains(flood)) << flood;
    rows.push_back(run.json["floods"][flood]);
    EXPECT_GT(rows.back()["attempts"].get<double>(), 0) << flood;
  }
  for (const auto& row : rows) {
    for (const char* key : {"late_ticks", "victim_lines_lost", "root_hold_ms_p99", "rss_peak_mib",
                            "fds_before", "fds_after", "cpu_pct"})
      EXPECT_TRUE(row[key].is_number()) << key << " in " << row;
    EXPECT_GT(row["victim_lines_sent"].get<double>(), 0);
    EXPECT_GT(row["rss_peak_mib"].get<double>(), 1);
  }
  EXPECT_GT(rows[0]["ticks"].get<double>(), 0);
  EXPECT_EQ(rows[0]["root_calls_failed"], 0);
  EXPECT_EQ(traces(), before);
}

}  // namespace
}  // namespace flash
