#include "collectors/rapl_collector.h"

#include <gtest/gtest.h>

#include <cmath>

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

TEST_F(Rapl, FindsAModuleThatIsLoadedLaterAndSaysWhenItGoesAway) {
  start({});
  EXPECT_EQ(power().validity, Validity::Missing);
  EXPECT_TRUE(rapl_->degraded().empty()) << "many machines have none";
  const auto load = [&] { host_.add(kPowercap, {zone("intel-rapl:0", "package-0", "100000\n")}); };
  load();
  collect(1);
  energy("intel-rapl:0", "400000\n");
  collect(2);
  EXPECT_EQ(rapl_->state(), "1 package");
  EXPECT_EQ(power().validity, Validity::Good);
  host_.remove(kPowercap + "/intel-rapl:0");
  collect(3);
  EXPECT_FALSE(power().usable());
  ASSERT_EQ(rapl_->degraded().size(), 1u);
  EXPECT_EQ(rapl_->degraded()[0].reason.find("1 of 1 packages cannot be read"), 0u);
  rapl_.reset();
}

TEST_F(Rapl, IgnoresAPackageWithoutARange) {
  start({zone("intel-rapl:0", "package-0", "0\n", "0\n"), zone("intel-rapl:1", "package-1", "0\n", "x\n")});
  EXPECT_EQ(rapl_->state(), "no RAPL");
}

/// Counters of 65.5 kJ, as most packages have, read once per second.
struct Lie {
  std::string name;
  std::vector<double> joules;
  std::vector<double> watts;  // from the second reading on; -1: invalid
};
class RaplCounter : public Rapl, public testing::WithParamInterface<Lie> {};

TEST_P(RaplCounter, WrapsOnlyWhereThatMakesSense) {
  const auto text = [](double joules) { return std::to_string(std::llround(joules * 1e6)) + "\n"; };
  start({zone("intel-rapl:0", "package-0", text(GetParam().joules[0]), "65532610987\n")});
  for (std::size_t i = 1; i < GetParam().joules.size(); ++i) {
    energy("intel-rapl:0", text(GetParam().joules[i]));
    collect(static_cast<int>(i));
    const double watts = GetParam().watts[i - 1];
    if (watts < 0)
      EXPECT_EQ(power().validity, Validity::Invalid) << i << ": " << power().value;
    else
      EXPECT_NEAR(power().value, watts, 1e-3) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Readings, RaplCounter,
    testing::Values(Lie{"wraps", {65500, 65515, 65530, 12.389013, 27.389013}, {15, 15, 15, 15}},
                    Lie{"wraps_in_a_busy_second", {65500, 65515, 65530, 27.389013}, {15, 15, 30}},
                    Lie{"begins_anew", {60000, 60015, 60030, 2, 17}, {15, 15, -1, 15}},
                    Lie{"begins_anew_near_its_range", {65400, 65415, 65430, 2, 17}, {15, 15, -1, 15}},
                    Lie{"begins_anew_at_once", {60000, 2, 17}, {-1, 15}},
                    Lie{"goes_back_a_little", {60000, 60015, 60010, 60045, 60060}, {15, -1, -1, 15}},
                    Lie{"reads_zero_once", {60000, 60015, 0, 60045, 60060}, {15, -1, -1, 15}},
                    Lie{"jumps", {10000, 10015, 25015, 25030}, {15, -1, 15}},
                    Lie{"stands_still", {10000, 10015, 10015, 10015, 10030}, {15, -1, -1, 15}}),
    [](const auto& p) { return p.param.name; });

TEST_F(Rapl, TheZonesLimitsBoundWhatIsBelieved) {
  auto limited = zone("intel-rapl:0", "package-0", "0\n", "65532610987\n");
  limited.entries.push_back(file("constraint_0_max_power_uw", "28000000\n"));
  limited.entries.push_back(file("constraint_0_power_limit_uw", "28000000\n"));
  limited.entries.push_back(file("constraint_1_max_power_uw", "0\n"));
  limited.entries.push_back(file("constraint_1_power_limit_uw", "64000000\n"));
  start({limited});
  energy("intel-rapl:0", "127000000\n");
  collect(1);
  EXPECT_DOUBLE_EQ(power().value, 127);
  energy("intel-rapl:0", "256000000\n");
  collect(2);
  EXPECT_EQ(power().validity, Validity::Invalid) << "129 W of a package of 28 W, 64 W for moments";
}

TEST_F(Rapl, CountersThatStandStillAreNamedAfterAWhile) {
  start({zone("intel-rapl:0", "package-0", "0\n")});
  for (int i = 1; i <= 4; ++i) collect(i);
  EXPECT_TRUE(rapl_->degraded().empty());
  collect(5);
  ASSERT_EQ(rapl_->degraded().size(), 1u);
  EXPECT_NE(rapl_->degraded()[0].reason.find("stand still"), std::string::npos);
  energy("intel-rapl:0", "100\n");
  collect(6);
  EXPECT_TRUE(rapl_->degraded().empty());
}

TEST(MostWatts, AreWhatThePackageIsMadeForAndItsLimitsWithRoom) {
  EXPECT_EQ(most_watts(28, 64, 8), 128);
  EXPECT_EQ(most_watts(125, 0, 16), 500);
  EXPECT_EQ(most_watts(125, 4095, 16), 740) << "a limit that is none";
  EXPECT_EQ(most_watts(0, 0, 4), 260);
  EXPECT_EQ(most_watts(0, 0, 0), 4000);
  EXPECT_EQ(most_watts(0, 4095, 1024), 4000);
}

}  // namespace
}  // namespace flash
