// The real flash-learner against flashd's end of the socket: killed while steps flow, and on a disk that
// fills up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <set>
#include <thread>

#include "learner/trajectory_store.h"
#include "tests/actuators/temporary_folder.h"
#include "tests/learner/fake_flashd.h"

namespace flash {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kEpisode = 10;

class Learner {
 public:
  Learner(const std::string& socket, const std::string& state, const std::string& log) {
    pid_ = fork();
    if (pid_ != 0) return;
    if (!std::freopen(log.c_str(), "a", stderr)) _exit(126);
    // As the unit has it; else the process starts itself again, which costs time here.
    setenv("OMP_NUM_THREADS", "1", 1);
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    const std::string program = FLASH_BINARY_DIR "/bin/flash-learner";
    execl(program.c_str(), program.c_str(), "--socket", socket.c_str(), "--state-directory", state.c_str(),
          static_cast<char*>(nullptr));
    _exit(127);
  }
  ~Learner() {
    if (pid_ > 0) end(SIGKILL);
  }
  /// The wait status.
  int end(int signal) {
    kill(pid_, signal);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
};

class LearnerSystem : public ::testing::Test {
 protected:
  LearnerSystem() {
    flashd_.hello.settings.learning_starts = 20;
    flashd_.hello.settings.publish_interval_s = 0.2;
    flashd_.hello.settings.replay_steps = 200;
    for (const std::string& name : agents_) flashd_.add(announce(name, "resource-limits:/" + name));
  }
  std::string state() const { return folder_.path() + "/state"; }
  std::string log() const {
    std::ifstream file(folder_.path() + "/log");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::unique_ptr<Learner> start() const {
    return std::make_unique<Learner>(folder_.path() + "/socket", state(), folder_.path() + "/log");
  }
  /// The next step of every agent.
  void tick() {
    ++seq_;
    for (const std::string& name : agents_) {
      link::Step s = step(seq_, kEpisode, Stage::Online);
      s.agent = name;
      s.time_us = std::chrono::duration_cast<std::chrono::microseconds>(
                      std::chrono::system_clock::now().time_since_epoch())
                      .count();
      // Within the action space and not all the same.
      s.action = {static_cast<float>(seq_ % 7) / 7, -static_cast<float>(seq_ % 3) / 3};
      flashd_.step(s);
    }
  }
  /// Lets time pass, with a tick each 5 ms or without. True as soon as `until` is.
  bool live(
      milliseconds longest, bool ticks, const std::function<bool()>& until = [] { return false; }) {
    const auto end = Clock::now() + longest;
    while (Clock::now() < end) {
      if (ticks) tick();
      flashd_.process();
      if (until()) return true;
      std::this_thread::sleep_for(milliseconds(5));
    }
    return until();
  }
  bool all_acknowledged() {
    for (const auto& [agent, steps] : flashd_.unacknowledged)
      if (!steps.empty()) return false;
    return true;
  }
  /// Every step of every agent exactly once, episodes neither lost nor doubled.
  void expect_all_stored() {
    std::string note;
    auto store = TrajectoryStore::open(state() + "/trajectories.sqlite", &note);
    ASSERT_TRUE(store) << store.error().message();
    EXPECT_THAT(note, IsEmpty());
    EXPECT_THAT(*store->verify(), IsEmpty());
    EXPECT_EQ(store->counts()->steps, seq_ * agents_.size());
    for (const std::string& name : agents_) {
      const auto episodes = *store->episodes("resource-limits:/" + name, SIZE_MAX);
      ASSERT_EQ(episodes.size(), (seq_ + kEpisode - 1) / kEpisode) << name;
      for (std::size_t i = 0; i < episodes.size(); ++i) {
        EXPECT_EQ(episodes[i].episode, episodes.size() - 1 - i);
        EXPECT_EQ(episodes[i].steps, i == 0 ? (seq_ - 1) % kEpisode + 1 : kEpisode);
      }
    }
  }

  TemporaryFolder folder_;
  FakeFlashd flashd_{folder_.path() + "/socket"};
  std::vector<std::string> agents_ = {"limits_1", "limits_2", "limits_3"};
  std::uint64_t seq_ = 0;
};

TEST_F(LearnerSystem, Killed100TimesLosesAndDoublesNothingAndVersionsOnlyGrow) {
  Random random(20261120);
  int stored_something = 0;
  for (int round = 0; round < 100; ++round) {
    auto learner = start();
    const int round_connections = flashd_.connections;
    const std::uint64_t before = flashd_.acknowledged["limits_1"];
    // Most lives are long enough to commit something; some end before they are connected.
    const auto connected = [&] { return flashd_.connections > round_connections; };
    if (round % 5 != 0) {
      ASSERT_TRUE(live(std::chrono::seconds(20), true, connected)) << log();
    }
    live(milliseconds(random.below(1700)), true);
    stored_something += flashd_.acknowledged["limits_1"] > before ? 1 : 0;
    const int status = learner->end(SIGKILL);
    ASSERT_TRUE(WIFSIGNALED(status)) << "it ended by itself:\n" << log();
  }
  auto learner = start();
  EXPECT_TRUE(live(std::chrono::seconds(30), false, [&] {
    return flashd_.connected() && all_acknowledged();
  })) << log();
  const int status = learner->end(SIGTERM);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status << "\n" << log();
  expect_all_stored();
  EXPECT_GE(stored_something, 25) << "too few rounds lived long enough to prove anything";
  std::map<std::string, std::uint64_t> last;
  for (const auto& [agent, policy] : flashd_.offers) {
    EXPECT_GT(policy.version, last[agent]) << agent;
    last[agent] = policy.version;
  }
  EXPECT_GE(flashd_.offers.size(), 25U);
  std::printf("%llu steps of each of %zu agents, %zu policies, %d of 100 lives stored something\n",
              static_cast<unsigned long long>(seq_), agents_.size(), flashd_.offers.size(), stored_something);
}

TEST_F(LearnerSystem, StoppedForAWhileGoesOnWhereItWas) {
  auto learner = start();
  ASSERT_TRUE(live(std::chrono::seconds(20), true, [&] { return flashd_.acknowledged["limits_1"] > 20; }))
      << log();
  ASSERT_EQ(kill(flashd_.hello_up->pid, SIGSTOP), 0);
  live(std::chrono::seconds(3), true);
  ASSERT_EQ(kill(flashd_.hello_up->pid, SIGCONT), 0);
  EXPECT_TRUE(live(std::chrono::seconds(20), false, [&] { return all_acknowledged(); })) << log();
  learner->end(SIGTERM);
  EXPECT_EQ(flashd_.connections, 1);
  expect_all_stored();
}

TEST_F(LearnerSystem, ASecondLearnerOfTheSameStateEndsWithAReason) {
  auto learner = start();
  ASSERT_TRUE(live(std::chrono::seconds(20), true, [&] { return flashd_.connected(); }));
  Learner second(folder_.path() + "/socket", state(), folder_.path() + "/log2");
  std::this_thread::sleep_for(std::chrono::seconds(2));
  const int status = second.end(0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << status;
}

TEST_F(LearnerSystem, AHundredAgentsFitIn200Mib) {
  constexpr std::uint32_t kStates = 16;
  constexpr std::uint64_t kSteps =
      400;  // an offline policy takes the seat after 500 updates, 1.5 per transition
  flashd_.agents.clear();
  flashd_.hello.settings = {};
  flashd_.hello.settings.learning_starts = 50;
  std::vector<link::Announce> agents;
  for (int i = 0; i < 100; ++i) {
    const bool frequency = i % 2 == 0;
    link::Announce a = announce((frequency ? "frequency_" : "limits_") + std::to_string(i));
    if (frequency) a.layout = {Task::CpuFrequency, {}, {"cpu-frequency"}, 10, ""};
    a.key = std::string(to_string(a.layout.task)) + ":" + std::to_string(i);
    a.layout.state.clear();
    for (std::uint32_t k = 0; k < kStates; ++k) a.layout.state.push_back("s" + std::to_string(k));
    flashd_.add(a);
    agents.push_back(a);
  }
  auto learner = start();
  Random random(7);
  const auto tick_all = [&] {
    ++seq_;
    for (const link::Announce& a : agents) {
      link::Step s = step(seq_, 100, Stage::Offline);
      s.agent = a.agent;
      s.time_us = std::chrono::duration_cast<std::chrono::microseconds>(
                      std::chrono::system_clock::now().time_since_epoch())
                      .count();
      s.state.assign(kStates, 0);
      for (float& x : s.state) x = static_cast<float>(random.uniform());
      if (a.layout.task == Task::CpuFrequency)
        s.action = s.fallback = {static_cast<float>(random.below(10))};
      else
        s.action = {static_cast<float>(random.uniform(-1, 1)), static_cast<float>(random.uniform(-1, 1))};
      s.reward = static_cast<float>(random.uniform());
      flashd_.step(s);
    }
  };
  ASSERT_TRUE(live(std::chrono::seconds(30), false, [&] { return flashd_.connected(); })) << log();
  double most = 0;
  const auto watch = [&] {
    most = std::max(most, flashd_.status[""].rss_mib);
    return false;
  };
  while (seq_ < kSteps) {
    tick_all();
    live(milliseconds(20), false, watch);
  }
  // Until all have learned and offered what they learned: a minute of a CPU, of which a learner, that is
  // nice, has little on a busy host.
  live(std::chrono::seconds(900), false, [&] {
    watch();
    std::set<std::string> offered;
    for (const auto& [agent, policy] : flashd_.offers) offered.insert(agent);
    return offered.size() == agents.size();
  });
  live(std::chrono::seconds(6), false, watch);
  std::set<std::string> offered;
  for (const auto& [agent, policy] : flashd_.offers) offered.insert(agent);
  EXPECT_EQ(offered.size(), agents.size()) << log();
  std::printf(
      "most %.0f MiB, in the end %.0f MiB, %llu updates, median %.0f us (limits), %.0f us (frequency)\n",
      most, flashd_.status[""].rss_mib, static_cast<unsigned long long>(flashd_.status[""].updates),
      flashd_.status["limits_1"].update_us, flashd_.status["frequency_0"].update_us);
  EXPECT_GT(most, 50);
  EXPECT_LE(flashd_.status[""].rss_mib, 200);
}

/// The same with the state on a file system of 1 MiB.
class LearnerOnASmallDisk : public LearnerSystem {
 protected:
  void SetUp() override {
    ASSERT_EQ(mkdir(state().c_str(), 0750), 0);
    ASSERT_EQ(mount("tmpfs", state().c_str(), "tmpfs", 0, "size=1m"), 0) << strerror(errno);
  }
  void TearDown() override { umount2(state().c_str(), MNT_DETACH); }
  std::string filler() const { return state() + "/filler"; }
  void fill() const {
    std::ofstream file(filler(), std::ios::app | std::ios::binary);
    const std::string page(4096, 'x');
    while (file << page << std::flush) {
    }
  }
};

TEST_F(LearnerOnASmallDisk, NothingIsAcknowledgedOrLostWhileItIsFullAndAllIsStoredAfterwards) {
  auto learner = start();
  ASSERT_TRUE(live(std::chrono::seconds(20), true, [&] { return flashd_.acknowledged["limits_1"] > 20; }))
      << log();
  live(milliseconds(1500), false);
  fill();
  // Room that SQLite still has in its WAL is used up.
  EXPECT_TRUE(live(std::chrono::seconds(30), true, [&] {
    return log().find("cannot be stored") != std::string::npos;
  })) << log();
  const std::uint64_t acknowledged = flashd_.acknowledged["limits_1"];
  live(std::chrono::seconds(6), true);
  EXPECT_EQ(flashd_.acknowledged["limits_1"], acknowledged);
  EXPECT_THAT(flashd_.status[""].doing, HasSubstr("cannot store"));
  // What was there can be read, and is all there.
  {
    auto store = TrajectoryStore::open(state() + "/trajectories.sqlite", nullptr);
    ASSERT_TRUE(store) << store.error().message();
    EXPECT_GE(*store->last_seq("resource-limits:/limits_1", flashd_.hello.epoch, "limits_1"), acknowledged);
  }
  ASSERT_EQ(unlink(filler().c_str()), 0);
  EXPECT_TRUE(live(std::chrono::seconds(30), false, [&] { return all_acknowledged(); })) << log();
  EXPECT_THAT(log(), HasSubstr("can be written again"));
  learner->end(SIGTERM);
  expect_all_stored();
}

TEST_F(LearnerOnASmallDisk, TheStoreAloneKeepsWhatItHasAndTakesTheSameBatchLater) {
  std::string note;
  auto store = TrajectoryStore::open(state() + "/trajectories.sqlite", &note);
  ASSERT_TRUE(store) << store.error().message();
  const RunId run = store->begin_run(announce(), 1)->id;
  std::uint64_t seq = 0;
  const auto batch = [&](std::uint64_t first) {
    std::vector<link::Step> steps;
    for (std::uint64_t i = first; i < first + 50; ++i) steps.push_back(step(i));
    std::vector<TrajectoryStore::Entry> entries;
    for (const link::Step& s : steps) entries.push_back({run, &s});
    return store->append(entries);
  };
  while (true) {
    auto done = batch(seq + 1);
    if (!done) {
      EXPECT_TRUE(done.error().is(std::errc::no_space_on_device)) << done.error().message();
      break;
    }
    seq += 50;
    ASSERT_LT(seq, 100'000U);
  }
  EXPECT_EQ(store->counts()->steps, seq);
  EXPECT_THAT(*store->verify(), IsEmpty());
  // A new process finds the same, if it can open it at all on a full disk: never a file moved aside.
  *store = std::move(*TrajectoryStore::open(state() + "/trajectories.sqlite", &note));
  EXPECT_THAT(note, IsEmpty());
  EXPECT_EQ(store->counts()->steps, seq);
  ASSERT_EQ(mount("tmpfs", state().c_str(), "tmpfs", MS_REMOUNT, "size=4m"), 0) << strerror(errno);
  ASSERT_TRUE(batch(seq + 1));
  EXPECT_EQ(store->counts()->steps, seq + 50);
  EXPECT_THAT(*store->verify(), IsEmpty());
  EXPECT_FALSE(std::ifstream(state() + "/trajectories.sqlite.damaged-1"));
}

}  // namespace
}  // namespace flash
