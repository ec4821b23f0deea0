// The knob board, its ledger and the restorer against the running kernel's cgroups, v1 or v2. Needs root.
// Everything happens in cgroups named flashd-test-act-PID, which are removed again.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "actuators/cgroup_driver.h"
#include "actuators/knob_board.h"
#include "actuators/ledger.h"
#include "actuators/restore.h"
#include "host/cgroup_layout.h"
#include "host/file_io.h"
#include "tests/actuators/temporary_folder.h"

namespace flash {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr KnobKind kCpu = KnobKind::CpuLimit;
constexpr KnobKind kMemory = KnobKind::MemoryLimit;
constexpr CgroupController kControllers[] = {CgroupController::Cpu, CgroupController::Memory};

Now at(double s) {
  return {from_seconds(s), WallTime(from_seconds(1.7e9 + s))};
}

class Actuators : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    auto found = CgroupLayout::detect(HostRoot());
    ASSERT_TRUE(found) << found.error().message();
    layout = *std::move(found);
    if (layout.version(CgroupController::Cpu) == CgroupVersion::V2)
      for (const char* c : {"+cpu", "+memory"})
        std::ofstream(layout.mount(CgroupController::Cpu) + "/cgroup.subtree_control") << c;
    make("");
    if (layout.version(CgroupController::Cpu) == CgroupVersion::V2)
      for (const char* c : {"+cpu", "+memory"})
        std::ofstream(layout.directory(CgroupController::Cpu, top()) + "/cgroup.subtree_control") << c;
  }
  void TearDown() override {
    for (auto it = made.rbegin(); it != made.rend(); ++it) ::rmdir(it->c_str());
  }
  static std::string top() { return "/flashd-test-act-" + std::to_string(::getpid()); }

  Target make(const std::string& below) {
    Target t;
    t.name = t.cgroup = top() + below;
    for (const auto c : kControllers) {
      const auto directory = layout.directory(c, t.cgroup);
      if (::mkdir(directory.c_str(), 0755) == 0) made.push_back(directory);
    }
    t.id = {TargetKind::Cgroup, inode_of(layout.directory(layout.reference(), t.cgroup)).value_or(0)};
    return t;
  }
  void remove(const Target& t) {
    for (const auto c : kControllers) ::rmdir(layout.directory(c, t.cgroup).c_str());
  }
  /// The kernel's own text, by fresh opens.
  std::string kernel(const Target& t, KnobKind kind) const {
    const bool cpu = kind == kCpu;
    const auto c = cpu ? CgroupController::Cpu : CgroupController::Memory;
    const std::string directory = layout.directory(c, t.cgroup) + "/";
    if (layout.version(c) == CgroupVersion::V2)
      return read_file(directory + (cpu ? "cpu.max" : "memory.high")).value_or("?");
    if (!cpu) return read_file(directory + "memory.limit_in_bytes").value_or("?");
    return read_file(directory + "cpu.cfs_quota_us").value_or("?") +
           read_file(directory + "cpu.cfs_period_us").value_or("?");
  }
  void by_hand(const Target& t, double cores) const {
    const auto directory = layout.directory(CgroupController::Cpu, t.cgroup);
    const auto quota = std::to_string(static_cast<long>(cores * 100000));
    const auto done = layout.version(CgroupController::Cpu) == CgroupVersion::V2
                          ? write_file(directory + "/cpu.max", quota + " 100000")
                          : write_file(directory + "/cpu.cfs_quota_us", quota);
    ASSERT_TRUE(done) << done.error().message();
  }
  Ledger open_ledger(const std::string& directory) const {
    auto opened = Ledger::open(directory, boot_id(HostRoot()));
    if (!opened) throw std::runtime_error(opened.error().message());
    return *std::move(opened);
  }

  CgroupLayout layout;
  TemporaryFolder state;
  std::vector<std::string> made;
};

TEST_F(Actuators, WriteReadBackAndRestoreRealLimits) {
  const Target t = make("/a");
  const auto cpu = kernel(t, kCpu), memory = kernel(t, kMemory);
  Ledger ledger = open_ledger(state.path());
  CgroupDriver driver(HostRoot(), layout);
  KnobBoard board({&driver}, ledger);
  ASSERT_TRUE(board.adopt(t, Rule{}));
  board.observe(at(0));
  const KnobChange changes[] = {{t.id, kCpu, 0.5}, {t.id, kMemory, 64.0 * 1024 * 1024 + 100}};
  for (const auto& o : board.apply(at(0), changes)) EXPECT_EQ(o.status, WriteStatus::Written) << o.message;
  EXPECT_THAT(kernel(t, kCpu), HasSubstr("50000"));
  EXPECT_THAT(kernel(t, kMemory), HasSubstr("67108864")) << "rounded down to a page";
  EXPECT_THAT(board.verify(), IsEmpty());
  board.observe(at(1));
  EXPECT_EQ(board.knobs(t.id)[1].lease, LeaseState::Ours) << "the kernel's rounding is no foreign write";
  EXPECT_TRUE(board.restore_all().complete());
  EXPECT_EQ(kernel(t, kCpu), cpu);
  EXPECT_EQ(kernel(t, kMemory), memory);
}

TEST_F(Actuators, YieldToAChangeByHand) {
  const Target t = make("/a");
  Ledger ledger = open_ledger(state.path());
  CgroupDriver driver(HostRoot(), layout);
  KnobBoard board({&driver}, ledger);
  ASSERT_TRUE(board.adopt(t, Rule{}));
  board.observe(at(0));
  const KnobChange change{t.id, kCpu, 0.5};
  board.apply(at(0), std::span(&change, 1));
  by_hand(t, 0.8);
  board.observe(at(1));
  EXPECT_EQ(board.knobs(t.id)[0].lease, LeaseState::Yielded);
  EXPECT_TRUE(board.restore_all().complete());
  EXPECT_THAT(kernel(t, kCpu), HasSubstr("80000"));
}

TEST_F(Actuators, NestedLimitsGrowAndShrinkInTheOrderThatTheKernelTakes) {
  const Target parent = make("/p"), child = make("/p/c");
  Ledger ledger = open_ledger(state.path());
  CgroupDriver driver(HostRoot(), layout);
  KnobBoard board({&driver}, ledger);
  ASSERT_TRUE(board.adopt(child, Rule{}));
  ASSERT_TRUE(board.adopt(parent, Rule{}));
  for (const double cores : {0.5, 2.0, 0.3}) {
    board.observe(at(0));
    const KnobChange changes[] = {{child.id, kCpu, cores}, {parent.id, kCpu, cores}};
    for (const auto& o : board.apply(at(0), changes)) EXPECT_EQ(o.status, WriteStatus::Written) << o.message;
  }
  EXPECT_TRUE(board.restore_all().complete());
}

TEST_F(Actuators, AMemoryLimitThatTheKernelRefusesUndoesTheTargetAlone) {
  if (layout.version(CgroupController::Memory) != CgroupVersion::V1)
    GTEST_SKIP() << "memory.high on v2 is never refused";
  const Target t = make("/a"), other = make("/b");
  // A child that holds memory which cannot be reclaimed, and cannot swap.
  const auto procs = layout.directory(CgroupController::Memory, t.cgroup) + "/cgroup.procs";
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (!write_file(procs, std::to_string(::getpid()))) ::_exit(1);
    const std::size_t size = 48 << 20;
    auto* memory = static_cast<char*>(
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
    for (std::size_t i = 0; i < size; i += 4096) memory[i] = 1;
    if (::mlock(memory, size) != 0) ::_exit(2);
    (void)!::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char byte = 0;
  ::close(ready[1]);
  const bool up = ::read(ready[0], &byte, 1) == 1;
  ::close(ready[0]);
  if (up) {
    Ledger ledger = open_ledger(state.path());
    CgroupDriver driver(HostRoot(), layout);
    KnobBoard board({&driver}, ledger);
    ASSERT_TRUE(board.adopt(t, Rule{}));
    ASSERT_TRUE(board.adopt(other, Rule{}));
    board.observe(at(0));
    const auto before = kernel(t, kCpu);
    const KnobChange changes[] = {{t.id, kCpu, 0.5}, {t.id, kMemory, 1 << 20}, {other.id, kCpu, 0.5}};
    const auto out = board.apply(at(0), changes);
    EXPECT_EQ(out[1].status, WriteStatus::Failed);
    EXPECT_THAT(out[1].message, HasSubstr("busy"));
    EXPECT_EQ(out[0].status, WriteStatus::Undone);
    EXPECT_EQ(kernel(t, kCpu), before);
    EXPECT_EQ(out[2].status, WriteStatus::Written);
    EXPECT_TRUE(board.restore_all().complete());
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(up);
}

TEST_F(Actuators, ACgroupRemovedInMidTransactionCostsOneTarget) {
  const Target a = make("/a"), b = make("/b");
  // Removes the first cgroup between the two knobs of the transaction.
  struct Removing final : KnobDriver {
    Removing(CgroupDriver& d, std::function<void()> f) : inner(d), between(std::move(f)) {}
    std::string_view name() const override { return inner.name(); }
    Result<std::vector<KnobInfo>> discover(const Target& t, const Rule& r) override {
      return inner.discover(t, r);
    }
    Result<KnobReading> read(const KnobRef& r) override { return inner.read(r); }
    Result<void> write(const KnobRef& r, double v) override {
      if (++writes == 2) between();
      return inner.write(r, v);
    }
    void close(const KnobRef& r) override { inner.close(r); }
    Result<void> restore(const KnobRef& r, const std::string& raw) override { return inner.restore(r, raw); }
    CgroupDriver& inner;
    std::function<void()> between;
    int writes = 0;
  };
  CgroupDriver inner(HostRoot(), layout);
  Removing driver(inner, [&] { remove(a); });
  Ledger ledger = open_ledger(state.path());
  KnobBoard board({&driver}, ledger);
  ASSERT_TRUE(board.adopt(a, Rule{}));
  ASSERT_TRUE(board.adopt(b, Rule{}));
  board.observe(at(0));
  const KnobChange changes[] = {{a.id, kCpu, 0.5}, {a.id, kMemory, 64 << 20}, {b.id, kCpu, 0.5}};
  const auto out = board.apply(at(0), changes);
  EXPECT_EQ(out[1].status, WriteStatus::Failed);
  EXPECT_EQ(out[2].status, WriteStatus::Written) << out[2].message;
  for (const auto& view : board.knobs(a.id)) EXPECT_EQ(view.lease, LeaseState::Gone);
  // Another one of the same name is not the one that we changed.
  const Target again = make("/a");
  const auto original = kernel(again, kCpu);
  EXPECT_TRUE(board.restore_all().complete());
  EXPECT_EQ(kernel(again, kCpu), original);
  remove(again);
}

TEST_F(Actuators, AFullDiskUnderTheLedgerMeansNoWrite) {
  const Target t = make("/a");
  const auto cpu = kernel(t, kCpu), memory = kernel(t, kMemory);
  // In a child with its own mount namespace, so that the mount cannot stay.
  const pid_t child = ::fork();
  if (child == 0) {
    const auto fail = [](int code) { ::_exit(code); };
    if (::unshare(CLONE_NEWNS) != 0) fail(10);
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) fail(11);
    if (::mount("tmpfs", state.path().c_str(), "tmpfs", 0, "size=32k,mode=0700") != 0) fail(12);
    auto ledger = Ledger::open(state.path(), "boot");
    if (!ledger) fail(13);
    {
      std::ofstream filler(state.path() + "/filler", std::ios::binary);
      for (int i = 0; i < 64 && filler; ++i) filler << std::string(1024, 'x') << std::flush;
    }
    CgroupDriver driver(HostRoot(), layout);
    KnobBoard board({&driver}, *ledger);
    if (!board.adopt(t, Rule{})) fail(14);
    board.observe(at(0));
    // The ledger's own page may have room for a few records; then there is none.
    bool refused = false;
    for (int i = 0; i < 200 && !refused; ++i) {
      const auto before = kernel(t, kCpu);
      const KnobChange changes[] = {{t.id, kCpu, 0.5 + i * 0.01}, {t.id, kMemory, (64 + i) * 1048576.0}};
      const auto out = board.apply(at(i), changes);
      if (out[0].status != WriteStatus::Failed) continue;
      refused = true;
      if (out[0].message.find("No space left") == std::string::npos) fail(15);
      if (out[1].status != WriteStatus::Failed) fail(16);
      if (kernel(t, kCpu) != before) fail(17);
      if (board.degraded().empty() || board.degraded()[0].part != "ledger") fail(18);
    }
    if (!refused) fail(19);
    // Restoring needs no room.
    if (!board.restore_all().complete()) fail(20);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "exit " << WEXITSTATUS(status);
  EXPECT_EQ(kernel(t, kCpu), cpu);
  EXPECT_EQ(kernel(t, kMemory), memory);
}

// 200 times: a process changes the knobs of several cgroups as fast as it can, is killed at a random moment,
// and a fresh process restores from what the ledger says. Every knob equals its original each time.
TEST_F(Actuators, EveryKnobIsBackAfterKillAtRandomPoints) {
  constexpr int kRounds = 200;
  std::vector<Target> targets = {make("/a"), make("/b"), make("/p"), make("/p/c")};
  by_hand(targets[1], 1.25);  // an original that is a limit
  std::vector<std::string> originals;
  const auto all = [&] {
    std::vector<std::string> texts;
    for (const auto& t : targets)
      for (const KnobKind kind : {kCpu, kMemory}) texts.push_back(kernel(t, kind));
    return texts;
  };
  originals = all();
  std::mt19937 random(20260101);
  std::uniform_int_distribution<int> microseconds(0, 40000);
  int found_changed = 0, mid_write = 0;
  for (int round = 0; round < kRounds; ++round) {
    int started[2];
    ASSERT_EQ(::pipe(started), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      auto ledger = Ledger::open(state.path(), boot_id(HostRoot()));
      if (!ledger) ::_exit(1);
      CgroupDriver driver(HostRoot(), layout);
      KnobBoard board({&driver}, *ledger);
      for (const auto& t : targets)
        if (!board.adopt(t, Rule{})) ::_exit(2);
      std::mt19937 values(static_cast<unsigned>(round));
      std::uniform_real_distribution<double> cores(0.2, 3), mib(16, 256);
      for (int i = 0;; ++i) {
        board.observe(at(i));
        std::vector<KnobChange> changes;
        const double nested = cores(values);
        for (std::size_t k = 0; k < targets.size(); ++k) {
          changes.push_back({targets[k].id, kCpu, k < 2 ? cores(values) : nested});
          changes.push_back({targets[k].id, kMemory, mib(values) * 1048576});
        }
        board.apply(at(i), changes);
        if (i == 0 && ::write(started[1], "x", 1) != 1) ::_exit(4);
        // Now and then all is put back and taken again: originals come and go in the ledger.
        if (i % 256 == 255 && !board.restore_all().complete()) ::_exit(3);
      }
    }
    // Every fourth round any time after the start, else any time after the first transaction.
    ::close(started[1]);
    char byte = 0;
    if (round % 4 != 0) {
      ASSERT_EQ(::read(started[0], &byte, 1), 1);
    }
    ::close(started[0]);
    ::usleep(static_cast<useconds_t>(microseconds(random)));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "round " << round << ": ended by itself, " << WEXITSTATUS(status);
    found_changed += all() != originals;

    const pid_t restorer = ::fork();
    if (restorer == 0) {
      auto ledger = Ledger::open(state.path(), boot_id(HostRoot()));
      if (!ledger) ::_exit(101);
      bool announced = false;
      for (const auto& [id, e] : ledger->entries()) announced |= e.open_intent;
      CgroupDriver driver(HostRoot(), layout);
      KnobDriver* drivers[] = {&driver};
      const auto done = restore_from_ledger(*ledger, drivers, RestoreRequest::AsMarked);
      for (const std::string& problem : done.problems) std::fprintf(stderr, "%s\n", problem.c_str());
      for (const RestoreReport::Item& item : done.report.items)
        if (!item.restored) std::fprintf(stderr, "not restored: %s\n", item.message.c_str());
      if (!done.report.complete() || !done.problems.empty()) ::_exit(102);
      ::_exit(announced ? 7 : 0);
    }
    ::waitpid(restorer, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_LT(WEXITSTATUS(status), 100) << "round " << round;
    mid_write += WEXITSTATUS(status) == 7;
    ASSERT_EQ(all(), originals) << "round " << round;
  }
  RecordProperty("rounds_with_changed_knobs", found_changed);
  RecordProperty("rounds_killed_between_announcing_and_confirming", mid_write);
  // The test would prove nothing if the kills came too early.
  EXPECT_GT(found_changed, kRounds / 2);
  EXPECT_GT(mid_write, 0);
}

}  // namespace
}  // namespace flash
