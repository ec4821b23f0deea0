#include "collectors/rapl_collector.h"

#include <gtest/gtest.h>

#include "tests/support/fake_host.h"

namespace flash {
namespace {

using std::chrono::seconds;

const std::string kPowercap = "sys/class/powercap";
constexpr TargetId kPackage = {TargetKind::CpuSet, 1};
constexpr TargetId kContainer = {TargetKind::Cgroup, 2};

FakeEntry zone(const std::string& folder, const std::string& name, const std::string& energy,
               const std::string& range = "1000000\n") {
  return dir(folder,
             {file("name", name + "\n"), file("energy_uj", energy), file("max_energy_range_uj", range)});
}

class Rapl : public testing::Test {
 protected:
  Rapl() : host_{sys({dir("class/powercap")})} {}
  void start(const std::vector<FakeEntry>& zones) {
    host_.add(kPowercap, zones);
    rapl_ = std::make_unique<RaplCollector>(host_.root());
    for (const TargetId id : {kPackage, kContainer}) {
      Target target;
      target.id = id;
      rapl_->track(target);
      table_[id];
    }
    collect(0);
  }
  void collect(int second) { rapl_->collect({seconds(second), {}}, table_); }
  void energy(const std::string& folder, const std::string& text) {
    host_.write(kPowercap + "/" + folder + "/energy_uj", text);
  }
  const Sample& power(TargetId id = kPackage) { return table_[id][Signal::Power]; }

  FakeHost host_;
  std::unique_ptr<RaplCollector> rapl_;
  ObservationTable table_;
};

TEST_F(Rapl, SumsThePackagesForACpuSet) {
  start({zone("intel-rapl:0", "package-0", "100000\n"), zone("intel-rapl:1", "package-1", "200000\n")});
  EXPECT_EQ(power().validity, Validity::Missing) << "a rate needs two ticks";
  energy("intel-rapl:0", "400000\n");
  energy("intel-rapl:1", "300000\n");
  collect(2);
  EXPECT_EQ(power().validity, Validity::Good);
  EXPECT_DOUBLE_EQ(power().value, 0.2);
  EXPECT_EQ(power(kContainer).validity, Validity::Missing);
  EXPECT_EQ(rapl_->state(), "2 packages");
}

TEST_F(Rapl, FollowsACounterThatWraps) {
  start({zone("intel-rapl:0", "package-0", "900000\n")});
  energy("intel-rapl:0", "100000\n");
  collect(1);
  EXPECT_DOUBLE_EQ(power().value, 0.2);
}

TEST_F(Rapl, CountsNoZoneTwice) {
  start({zone("intel-rapl:0", "package-0", "0\n"), zone("intel-rapl:0:0", "core", "0\n"),
         zone("intel-rapl:1", "psys", "0\n"), zone("intel-rapl-mmio:0", "package-0", "0\n"),
         dir("intel-rapl")});
  EXPECT_EQ(rapl_->state(), "1 package");
}

TEST_F(Rapl, AnUnparsableCounterIsInvalidUntilItCanBeReadAgain) {
  start({zone("intel-rapl:0", "package-0", "0\n")});
  energy("intel-rapl:0", "much\n");
  collect(1);
  EXPECT_EQ(power().validity, Validity::Invalid);
  energy("intel-rapl:0", "500000\n");
  collect(2);
  EXPECT_EQ(power().validity, Validity::Missing);
  energy("intel-rapl:0", "600000\n");
  collect(3);
  EXPECT_DOUBLE_EQ(power().value, 0.1);
}

TEST_F(Rapl, ACounterBeyondItsRangeIsInvalid) {
  start({zone("intel-rapl:0", "package-0", "0\n")});
  energy("intel-rapl:0", "1000001\n");
  collect(1);
  EXPECT_EQ(power().validity, Validity::Invalid);
}

TEST_F(Rapl, IsSilentAndNamedWhereThereIsNone) {
  start({});
  EXPECT_EQ(power().validity, Validity::Missing);
  EXPECT_TRUE(rapl_->degraded().empty());
  EXPECT_EQ(rapl_->state(), "no RAPL");
}

TEST_F(Rapl, IgnoresAPackageWithoutARange) {
  start({zone("intel-rapl:0", "package-0", "0\n", "0\n"), zone("intel-rapl:1", "package-1", "0\n", "x\n")});
  EXPECT_EQ(rapl_->state(), "no RAPL");
}

}  // namespace
}  // namespace flash
