#include "collectors/cpufreq_collector.h"

#include <gtest/gtest.h>

#include "tests/support/fake_host.h"

namespace flash {
namespace {

FakeEntry policy(int number, const std::string& cpus, const std::string& current,
                 const std::string& min = "1000000\n", const std::string& max = "3000000\n") {
  return dir("policy" + std::to_string(number),
             {file("related_cpus", cpus), file("scaling_cur_freq", current), file("scaling_min_freq", min),
              file("scaling_max_freq", max)});
}

constexpr TargetId kCpuSet = {TargetKind::CpuSet, 1};
constexpr TargetId kCgroup = {TargetKind::Cgroup, 2};
const std::string kBase = "sys/devices/system/cpu/cpufreq";

class Cpufreq : public testing::Test {
 protected:
  explicit Cpufreq() : host_{sys({dir("devices/system/cpu/cpufreq")})} {}
  void start(const std::vector<FakeEntry>& policies, std::vector<int> cpus = {0}) {
    host_.add(kBase, policies);
    cpufreq_ = std::make_unique<CpufreqCollector>(host_.root());
    Target set, cgroup;
    set.id = kCpuSet;
    set.cpus = std::move(cpus);
    cgroup.id = kCgroup;
    for (const Target& target : {set, cgroup}) {
      cpufreq_->track(target);
      table_[target.id];
    }
    collect();
  }
  void collect() { cpufreq_->collect({}, table_); }
  const Sample& of(TargetId id, Signal s) { return table_[id][s]; }

  FakeHost host_;
  std::unique_ptr<CpufreqCollector> cpufreq_;
  ObservationTable table_;
};

TEST_F(Cpufreq, ReadsThePoliciesOfACpuSetAndTheNodesMeanForACgroup) {
  start({policy(0, "0 1\n", "1500000\n"), policy(2, "2 3\n", "2500000\n", "800000\n", "3500000\n")}, {1});
  EXPECT_EQ(of(kCpuSet, Signal::Frequency).value, 1500000);
  EXPECT_EQ(of(kCpuSet, Signal::FrequencyMin).value, 1000000);
  EXPECT_EQ(of(kCpuSet, Signal::FrequencyMax).value, 3000000);
  EXPECT_EQ(of(kCgroup, Signal::Frequency).value, 2000000);
  EXPECT_EQ(of(kCgroup, Signal::FrequencyMin).value, 800000);
  EXPECT_EQ(of(kCgroup, Signal::FrequencyMax).value, 3500000);
  EXPECT_EQ(of(kCgroup, Signal::Frequency).validity, Validity::Good);
  EXPECT_TRUE(cpufreq_->degraded().empty());
}

TEST_F(Cpufreq, SeesAChangeThroughItsKeptDescriptors) {
  start({policy(0, "0\n", "1500000\n")});
  host_.write(kBase + "/policy0/scaling_cur_freq", "1800000\n");
  collect();
  EXPECT_EQ(of(kCpuSet, Signal::Frequency).value, 1800000);
}

TEST_F(Cpufreq, AnUnparsableFrequencyIsInvalid) {
  start({policy(0, "0\n", "<unknown>\n")});
  EXPECT_EQ(of(kCpuSet, Signal::Frequency).validity, Validity::Invalid);
  EXPECT_EQ(of(kCpuSet, Signal::FrequencyMax).validity, Validity::Good);
}

TEST_F(Cpufreq, AFrequencyOfZeroIsInvalid) {
  start({policy(0, "0\n", "0\n")});
  EXPECT_EQ(of(kCpuSet, Signal::Frequency).validity, Validity::Invalid);
}

TEST_F(Cpufreq, CpusWithoutAPolicyAreMissing) {
  start({policy(0, "0\n", "1500000\n")}, {7});
  EXPECT_EQ(of(kCpuSet, Signal::Frequency).validity, Validity::Missing);
}

TEST_F(Cpufreq, NamesTheMissingDriverAndFindsOneThatIsLoadedLater) {
  start({});
  EXPECT_EQ(of(kCpuSet, Signal::Frequency).validity, Validity::Missing);
  ASSERT_EQ(cpufreq_->degraded().size(), 1u);
  EXPECT_EQ(cpufreq_->degraded()[0].part, "cpufreq");
  EXPECT_EQ(cpufreq_->degraded()[0].reason.find("no cpufreq driver"), 0u);
  host_.add(kBase, {policy(0, "0\n", "1500000\n")});
  collect();
  EXPECT_EQ(of(kCpuSet, Signal::Frequency).value, 1500000);
  EXPECT_TRUE(cpufreq_->degraded().empty());
}

TEST_F(Cpufreq, FindsAPolicyThatCameBackWithItsCpusWhileOthersStayed) {
  start({policy(0, "0\n", "1500000\n"), policy(1, "1\n", "2500000\n")}, {1});
  EXPECT_EQ(of(kCpuSet, Signal::Frequency).value, 2500000);
  host_.remove(kBase + "/policy1");
  collect();
  EXPECT_EQ(of(kCpuSet, Signal::Frequency).validity, Validity::Missing);
  host_.add(kBase, {dir("policy1")});  // its files come a moment later
  collect();
  host_.add(kBase, {policy(1, "1\n", "1800000\n")});
  collect();
  EXPECT_EQ(of(kCpuSet, Signal::Frequency).value, 1800000);
}

TEST_F(Cpufreq, IgnoresFoldersThatAreNoPolicy) {
  start({policy(0, "0\n", "1500000\n"), dir("ondemand"), dir("policyX"), dir("policy1")});
  EXPECT_EQ(of(kCgroup, Signal::Frequency).value, 1500000);
}

}  // namespace
}  // namespace flash
