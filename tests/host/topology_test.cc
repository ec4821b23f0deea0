#include "host/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_host.h"

namespace flash {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::string kPolicy = "sys/devices/system/cpu/cpufreq/policy0/";

FakeEntry policy(const std::string& name, const std::string& related) {
  return dir(name, {file("related_cpus", related), file("affected_cpus", related),
                    file("scaling_cur_freq", "1800000\n"), file("scaling_min_freq", "1000000\n"),
                    file("scaling_max_freq", "3000000\n"), file("scaling_governor", "userspace\n"),
                    file("scaling_driver", "acpi-cpufreq\n"), file("cpuinfo_min_freq", "1000000\n"),
                    file("cpuinfo_max_freq", "3000000\n"), file("scaling_setspeed", "1800000\n"),
                    file("scaling_available_governors", "ondemand userspace performance schedutil \n"),
                    file("scaling_available_frequencies", "3000000 1800000 1000000 \n")});
}

FakeHost two_policies() {
  return FakeHost({dir("sys/devices/system/cpu",
                       {file("online", "0-2\n"), file("cpufreq/boost", "1\n"),
                        dir("cpufreq", {policy("policy10", "10 11\n"), policy("policy0", "0 1\n")})})});
}

TEST(OnlineCpus, AreReadFromTheList) {
  EXPECT_THAT(*online_cpus(two_policies().root()), ElementsAre(0, 1, 2));
}
TEST(OnlineCpus, RejectGarbage) {
  FakeHost host{file("sys/devices/system/cpu/online", "all\n")};
  EXPECT_TRUE(online_cpus(host.root()).error().is(std::errc::invalid_argument));
}
TEST(OnlineCpus, SayWhenThereIsNoSuchFile) {
  EXPECT_TRUE(online_cpus(FakeHost{}.root()).error().is(std::errc::no_such_file_or_directory));
}

TEST(CpufreqPolicies, ComeInTheOrderOfTheirNumbers) {
  const auto host = two_policies();
  const auto policies = cpufreq_policies(host.root());
  ASSERT_EQ(policies.size(), 2u);
  EXPECT_EQ(policies[0].name, "policy0");
  EXPECT_EQ(policies[1].name, "policy10");
  EXPECT_THAT(policies[1].related_cpus, ElementsAre(10, 11));
  const int cpus[] = {1, 5};
  EXPECT_EQ(cpufreq_policies_of(host.root(), cpus).size(), 1u);
  const int none[] = {5};
  EXPECT_THAT(cpufreq_policies_of(host.root(), none), IsEmpty());
}

TEST(CpufreqPolicies, AreNoneWithoutADriver) {
  EXPECT_THAT(cpufreq_policies(FakeHost{}.root()), IsEmpty());
}

TEST(CpufreqPolicyReader, ReadsEveryFile) {
  auto host = two_policies();
  auto reader = CpufreqPolicyReader::open(host.root(), "policy0");
  ASSERT_TRUE(reader);
  EXPECT_EQ(*reader->current_khz(), 1800000u);
  EXPECT_EQ(*reader->min_khz(), 1000000u);
  EXPECT_EQ(*reader->max_khz(), 3000000u);
  EXPECT_EQ(*reader->governor(), "userspace");
  EXPECT_EQ(*reader->driver(), "acpi-cpufreq");
  EXPECT_EQ(*reader->hardware_min_khz(), 1000000u);
  EXPECT_EQ(*reader->hardware_max_khz(), 3000000u);
  EXPECT_EQ(**reader->setspeed_khz(), 1800000u);
  EXPECT_THAT(reader->available_governors(),
              ElementsAre("ondemand", "userspace", "performance", "schedutil"));
  EXPECT_THAT(reader->available_khz(), ElementsAre(1000000u, 1800000u, 3000000u));
  EXPECT_TRUE(reader->energy_performance_preference().error().is(std::errc::no_such_file_or_directory));
  host.write(kPolicy + "scaling_setspeed", "<unsupported>\n");
  EXPECT_FALSE(reader->setspeed_khz()->has_value());
}

TEST(CpufreqPolicyReader, LeavesOutBoostFrequenciesWhileBoostIsOff) {
  struct Row {
    const char *node, *own;
    bool boosts;
  };
  // The policy's own switch, where it has one, and not the node's.
  for (const Row& row : {Row{"", "", true}, Row{"1\n", "", true}, Row{"0\n", "", false},
                         Row{"1\n", "0\n", false}, Row{"0\n", "1\n", true}, Row{"what\n", "", true}}) {
    FakeHost host{
        dir("sys/devices/system/cpu/cpufreq/policy0",
            {file("scaling_available_frequencies", "2 1 1\n"), file("scaling_boost_frequencies", "3 \n")})};
    if (*row.node) host.write("sys/devices/system/cpu/cpufreq/boost", row.node);
    if (*row.own) host.write(kPolicy + "boost", row.own);
    const auto list = CpufreqPolicyReader::open(host.root(), "policy0")->available_khz();
    const std::vector<std::uint64_t> with{1, 2, 3}, without{1, 2};
    EXPECT_EQ(list, row.boosts ? with : without) << row.node << row.own;
  }
}

TEST(CpufreqPolicies, OfOfflineCpusSaySo) {
  FakeHost host{dir("sys/devices/system/cpu/cpufreq",
                    {dir("policy0", {file("related_cpus", "0 1\n"), file("affected_cpus", "\n")}),
                     dir("policy2", {file("related_cpus", "2 3\n"), file("affected_cpus", "3\n")}),
                     dir("policy4", {file("related_cpus", "4\n")})})};
  const auto policies = cpufreq_policies(host.root());
  ASSERT_EQ(policies.size(), 3u);
  EXPECT_FALSE(policies[0].online);
  EXPECT_TRUE(policies[1].online);
  EXPECT_TRUE(policies[2].online) << "not told";
}

TEST(CpufreqPolicyReader, RejectsGarbage) {
  auto host = two_policies();
  auto reader = CpufreqPolicyReader::open(host.root(), "policy0");
  host.write(kPolicy + "scaling_cur_freq", "<unknown>\n");
  host.write(kPolicy + "scaling_setspeed", "1.8 GHz\n");
  EXPECT_TRUE(reader->current_khz().error().is(std::errc::invalid_argument));
  EXPECT_TRUE(reader->setspeed_khz().error().is(std::errc::invalid_argument));
}

TEST(CpufreqPolicyReader, SaysWhichPolicyIsNotThere) {
  const auto host = two_policies();
  const auto reader = CpufreqPolicyReader::open(host.root(), "policy4");
  ASSERT_FALSE(reader);
  EXPECT_TRUE(vanished(reader.error()));
  EXPECT_NE(reader.error().message().find("policy4"), std::string::npos);
}

TEST(Boost, IsReadFromEitherSwitch) {
  EXPECT_TRUE(*boost_enabled(two_policies().root()));
  FakeHost intel{file("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n"),
                 file("sys/devices/system/cpu/intel_pstate/status", "active\n")};
  EXPECT_FALSE(*boost_enabled(intel.root()));
  EXPECT_EQ(*pstate_status(intel.root()), "active");
}
TEST(Boost, RejectsGarbage) {
  for (const char* text : {"yes\n", "2\n"}) {
    FakeHost host{file("sys/devices/system/cpu/cpufreq/boost", text)};
    EXPECT_TRUE(boost_enabled(host.root()).error().is(std::errc::invalid_argument)) << text;
  }
}
TEST(Boost, SaysWhenThereIsNone) {
  EXPECT_TRUE(boost_enabled(FakeHost{}.root()).error().is(std::errc::no_such_file_or_directory));
  EXPECT_TRUE(pstate_status(FakeHost{}.root()).error().is(std::errc::no_such_file_or_directory));
}

}  // namespace
}  // namespace flash
