// A ledger that was damaged, forged, removed, or lies where others could write it; configuration of others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <random>

#include "actuators/ledger.h"
#include "core/json.h"
#include "tests/actuators/temporary_folder.h"
#include "tests/hostile/flashd_process.h"

namespace flash::hostile {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class HostileLedger : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    cgroup_ = std::make_unique<BusyCgroup>("hostile-ledger");
    original_ = cgroup_->knob();
    config_ = write_config(folder_.path() + "/flashd.json", cgroup_->path(), state());
  }
  void TearDown() override {
    if (HasFailure() && flashd_) std::fputs(flashd_->log().c_str(), stderr);
    flashd_.reset();
  }
  std::string state() const { return folder_.path() + "/state"; }
  std::string ledger() const { return state() + "/ledger"; }
  void start() {
    flashd_ = std::make_unique<Flashd>(std::vector<std::string>{"--config", config_, "--bus", "none"},
                                       folder_.path() + "/log");
  }
  bool controlled() {
    return await([&] { return cgroup_->knob() != original_; });
  }
  /// flashd --restore: its exit status; what it printed is in `said`.
  int restore() {
    Flashd restorer({"--config", config_, "--bus", "none", "--restore", "--json"},
                    folder_.path() + "/restore");
    const int status = restorer.wait();
    said_ = nlohmann::json::parse(restorer.out(), nullptr, false);
    restore_log_ = restorer.log();
    return status;
  }
  void put(const std::string& path, const std::string& text) const {
    std::ofstream(path, std::ios::binary) << text;
  }

  TemporaryFolder folder_;
  std::unique_ptr<BusyCgroup> cgroup_;
  std::string original_, config_, restore_log_;
  nlohmann::json said_;
  std::unique_ptr<Flashd> flashd_;
};

// One flipped bit in line 1, or any of 60 random damages: exit 0 and "restored": true, 34 times with the
// limit still in force.
TEST_F(HostileLedger, ADamagedOneNeverEndsWellWithALimitInForce) {
  start();
  ASSERT_TRUE(controlled()) << flashd_->log();
  std::this_thread::sleep_for(1s);  // several writes
  (void)flashd_->end(SIGKILL);
  const std::string good = text_of(ledger()), ours = cgroup_->knob();
  ASSERT_FALSE(good.empty());
  ASSERT_NE(ours, original_);
  std::mt19937 random(11);
  int back = 0;
  constexpr int kRounds = 60;
  for (int round = 0; round < kRounds; ++round) {
    std::string bad = good;
    const std::size_t at = round == 0 ? 12 : random() % bad.size();
    if (round % 3 == 0)
      bad[at] = static_cast<char>(bad[at] ^ (1 << (random() % 8)));
    else if (round % 3 == 1)
      bad.resize(at);
    else
      for (std::size_t i = at; i < std::min(bad.size(), at + 32); ++i) bad[i] = static_cast<char>(random());
    std::filesystem::remove_all(state());
    std::filesystem::create_directory(state());
    put(ledger(), bad);
    put(cgroup_->knob_path(), ours);
    ASSERT_EQ(cgroup_->knob(), ours);
    const int status = restore();
    const bool restored = cgroup_->knob() == original_;
    back += restored ? 1 : 0;
    EXPECT_TRUE(restored || cgroup_->knob() == ours) << round << ": " << cgroup_->knob();
    ASSERT_TRUE(said_.is_object()) << round << ": " << restore_log_;
    EXPECT_FALSE(status == 0 || said_["restored"] == true)
        << round << ", byte " << at << ": " << said_.dump();
    EXPECT_FALSE(said_["problems"].empty());
  }
  std::printf("%d of %d damaged ledgers were enough to put the limit back\n", back, kRounds);
  EXPECT_GT(back, kRounds / 2);
  put(ledger(), good);
  put(cgroup_->knob_path(), ours);
  EXPECT_EQ(restore(), 0);
  EXPECT_TRUE(said_["restored"] == true) << said_.dump();
  EXPECT_EQ(cgroup_->knob(), original_);
}

// A forged ledger made root write to files of the forger's choice.
TEST_F(HostileLedger, AForgedOneLeadsNowhere) {
  const auto layout = CgroupLayout::detect(HostRoot());
  ASSERT_TRUE(layout);
  const bool v2 = layout->version(CgroupController::Cpu) == CgroupVersion::V2;
  const std::string victim = folder_.path() + "/victim";
  std::filesystem::create_directory(victim);
  const std::string file = victim + (v2 ? "/cpu.max" : "/cpu.cfs_quota_us");
  put(file, v2 ? "50000 100000\n" : "50000\n");
  put(victim + "/cpu.cfs_period_us", "100000\n");
  std::filesystem::create_directory(folder_.path() + "/policy0");
  for (const char* f : {"scaling_governor", "scaling_min_freq", "scaling_max_freq"})
    put(folder_.path() + "/policy0/" + f, "1000\n");
  const std::string up = "/../../../../../../../..";
  const std::string inode = std::to_string(*inode_of(victim));
  {
    std::filesystem::create_directory(state());
    auto forged = Ledger::open(state(), boot_id(HostRoot()));
    ASSERT_TRUE(forged) << forged.error().message();
    const TargetId id{TargetKind::Cgroup, 1};
    const std::vector<KnobRef> refs = {
        {KnobKind::CpuLimit, id, "cgroupfs", inode + " " + up + victim},
        {KnobKind::CpuLimit, id, "cgroupfs", inode + " /" + cgroup_->path() + up + victim},
        {KnobKind::CpuFrequency,
         {TargetKind::CpuSet, 1},
         "cpufreq",
         "../../../../../.." + folder_.path() + "/policy0"}};
    for (const KnobRef& ref : refs) {
      LedgerIntent intent{0, &ref, 2, v2 ? "max 100000" : "-1 100000", 0.5};
      if (ref.driver == "cpufreq") intent.raw = "../../../../../../tmp/policy0 governor=evil min=1 max=2";
      ASSERT_TRUE(forged->begin(Now{}, std::span(&intent, 1)));
    }
    std::filesystem::copy(ledger(), folder_.path() + "/forged");
  }
  std::filesystem::rename(folder_.path() + "/forged", ledger());
  EXPECT_EQ(restore(), 1);
  EXPECT_EQ(text_of(file), v2 ? "50000 100000\n" : "50000\n");
  EXPECT_EQ(text_of(folder_.path() + "/policy0/scaling_governor"), "1000\n");
  ASSERT_EQ(said_["items"].size(), 3u) << said_.dump() << restore_log_;
  for (const auto& item : said_["items"]) EXPECT_FALSE(item["restored"]) << item.dump();
}

// Control went on without a ledger: after a crash the limit stayed.
TEST_F(HostileLedger, OneThatIsRemovedWhileInControlIsWrittenAnew) {
  start();
  ASSERT_TRUE(controlled()) << flashd_->log();
  std::filesystem::remove_all(state());
  EXPECT_TRUE(await([&] { return std::filesystem::exists(ledger()); })) << flashd_->log();
  EXPECT_TRUE(await([&] { return flashd_->log().find("had been removed") != std::string::npos; }));
  (void)flashd_->end(SIGKILL);
  EXPECT_EQ(restore(), 0) << said_.dump();
  EXPECT_EQ(cgroup_->knob(), original_);
}

// What was wrong at the start stayed wrong until a restart.
TEST_F(HostileLedger, WhereItCannotBeOpenedNothingIsWrittenUntilItCan) {
  struct Row {
    const char* what;
    std::function<void()> spoil, mend;
    const char* says;
  };
  const std::vector<Row> rows = {
      {"of another user",
       [&] {
         std::filesystem::create_directory(state());
         ASSERT_EQ(::chown(state().c_str(), 65534, 65534), 0);
       },
       [&] { ASSERT_EQ(::chown(state().c_str(), 0, 0), 0); }, "belongs to another user"},
      {"writable for all",
       [&] {
         std::filesystem::create_directory(state());
         ASSERT_EQ(::chmod(state().c_str(), 0777), 0);
       },
       [&] { ASSERT_EQ(::chmod(state().c_str(), 0750), 0); }, "others can write it"},
      {"a file in its place", [&] { put(state(), "x"); }, [&] { std::filesystem::remove(state()); },
       "Not a directory"},
  };
  for (const Row& row : rows) {
    std::filesystem::remove_all(state());
    row.spoil();
    start();
    // The ledger's own line: others say the same of the directory, and earlier.
    EXPECT_TRUE(await([&] { return flashd_->log().find("no knob is written") != std::string::npos; }))
        << flashd_->log();
    EXPECT_THAT(flashd_->log(), HasSubstr(row.says)) << row.what;
    EXPECT_EQ(cgroup_->knob(), original_) << row.what;
    row.mend();
    EXPECT_TRUE(controlled()) << row.what << ": not tried again; " << flashd_->log();
    EXPECT_EQ(flashd_->end(SIGTERM), 0);
    EXPECT_EQ(cgroup_->knob(), original_) << row.what;
  }
}

// A disk without room at the start.
TEST_F(HostileLedger, AfterAFullDiskItIsTriedAgain) {
  const auto before = ::signal(SIGXFSZ, SIG_IGN);  // as ENOSPC: an error, and inherited
  rlimit normal{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &normal), 0);
  rlimit none = normal;
  none.rlim_cur = 0;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  start();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &normal), 0);
  ::signal(SIGXFSZ, before);
  std::this_thread::sleep_for(1s);
  EXPECT_EQ(cgroup_->knob(), original_);
  ASSERT_EQ(::prlimit(flashd_->pid(), RLIMIT_FSIZE, &normal, nullptr), 0);
  EXPECT_TRUE(controlled());
  EXPECT_EQ(flashd_->end(SIGTERM), 0);
  EXPECT_EQ(cgroup_->knob(), original_);
}

// Whoever could write a drop-in told root what to control.
TEST_F(HostileLedger, ConfigurationThatOthersCanWriteIsRefusedByName) {
  const std::string drop_ins = config_ + ".d", drop_in = drop_ins + "/50-tenant.json";
  std::filesystem::create_directory(drop_ins);
  put(drop_in, "{}");
  struct Row {
    std::string path;
    uid_t uid;
    mode_t mode;
    const char* says;
  };
  const std::vector<Row> rows = {
      {drop_in, 65534, 0644, "belongs to another user"},  {drop_in, 0, 0666, "others can write it"},
      {config_, 65534, 0644, "belongs to another user"},  {config_, 0, 0646, "others can write it"},
      {drop_ins, 65534, 0755, "belongs to another user"}, {drop_ins, 0, 01777, "others can write it"}};
  for (const Row& row : rows) {
    struct stat was {};
    ASSERT_EQ(::stat(row.path.c_str(), &was), 0);
    ASSERT_EQ(::chown(row.path.c_str(), row.uid, 0), 0);
    ASSERT_EQ(::chmod(row.path.c_str(), row.mode), 0);
    start();
    EXPECT_EQ(flashd_->wait(), 1) << row.path;
    EXPECT_THAT(flashd_->log(), HasSubstr(row.path + ": " + row.says));
    Flashd check({"--config", config_, "--check-config"}, folder_.path() + "/check");
    EXPECT_EQ(check.wait(), 1);
    EXPECT_THAT(check.log(), HasSubstr(row.path + ": " + row.says));
    ASSERT_EQ(::chown(row.path.c_str(), 0, 0), 0);
    ASSERT_EQ(::chmod(row.path.c_str(), was.st_mode & 07777), 0);
  }
  EXPECT_EQ(cgroup_->knob(), original_);
  start();
  EXPECT_TRUE(controlled()) << flashd_->log();
  EXPECT_EQ(flashd_->end(SIGTERM), 0);
}

// The configuration is no longer to be believed when the restorer runs, and said where the ledger is.
TEST_F(HostileLedger, TheRestorerFindsTheLedgerWithoutTheConfiguration) {
  start();
  ASSERT_TRUE(controlled()) << flashd_->log();
  (void)flashd_->end(SIGKILL);
  put(config_, "{ broken");
  EXPECT_EQ(restore(), 0) << restore_log_;
  EXPECT_EQ(cgroup_->knob(), original_);
}

}  // namespace
}  // namespace flash::hostile
