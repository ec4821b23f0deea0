#include "actuators/cpufreq_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_host.h"

namespace flash {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kTop = "sys/devices/system/cpu/cpufreq";

FakeEntry policy(int n, const std::string& cpus, const std::string& driver = "acpi-cpufreq",
                 const std::string& governors = "ondemand userspace performance schedutil",
                 const std::string& governor = "ondemand") {
  return dir("policy" + std::to_string(n),
             {file("related_cpus", cpus + "\n"), file("affected_cpus", cpus + "\n"),
              file("cpuinfo_min_freq", "1000000\n"), file("cpuinfo_max_freq", "3000000\n"),
              file("scaling_min_freq", "1000000\n"), file("scaling_max_freq", "3000000\n"),
              file("scaling_available_frequencies", "3000000 2200000 1000000 \n"),
              file("scaling_available_governors", governors + "\n"), file("scaling_driver", driver + "\n"),
              file("scaling_governor", governor + "\n"), file("scaling_setspeed", "<unsupported>\n")});
}

Target cpus(std::vector<int> list) {
  Target t;
  t.id = {TargetKind::CpuSet, 9};
  t.name = "cpus";
  t.cpus = std::move(list);
  return t;
}

std::string at(const FakeHost& host, const std::string& file) {
  return host.read(kTop + "/" + file);
}

TEST(CpufreqDriver, UsesUserspaceWhereItExistsAndPutsAllBack) {
  FakeHost host{dir(kTop, {policy(0, "0"), policy(1, "1")})};
  CpufreqDriver driver(host.root(), {});
  const auto found = *driver.discover(cpus({0, 1}), {});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].ref.locator, "policy0,policy1");
  EXPECT_EQ(found[0].lower, 1e6);
  EXPECT_EQ(found[0].upper, 3e6);
  EXPECT_THAT(found[0].steps, ElementsAre(1e6, 2.2e6, 3e6));
  const auto original = *driver.read(found[0].ref);
  EXPECT_EQ(original.value, 3e6);
  EXPECT_EQ(original.mode, "ondemand,ondemand");
  EXPECT_EQ(
      original.raw,
      "policy0 governor=ondemand min=1000000 max=3000000\npolicy1 governor=ondemand min=1000000 max=3000000");
  ASSERT_TRUE(driver.write(found[0].ref, 2.2e6));
  EXPECT_EQ(at(host, "policy1/scaling_governor"), "userspace");
  EXPECT_EQ(at(host, "policy1/scaling_setspeed"), "2200000");
  EXPECT_EQ(at(host, "policy1/scaling_max_freq"), "3000000\n") << "limits stay";
  EXPECT_EQ(driver.read(found[0].ref)->value, 2.2e6);
  ASSERT_TRUE(driver.restore(found[0].ref, original.raw));
  EXPECT_EQ(driver.read(found[0].ref)->raw, original.raw);
}

TEST(CpufreqDriver, ClampsWhereThereIsNoUserspaceGovernor) {
  FakeHost host{dir(kTop, {policy(0, "0", "intel_pstate", "performance powersave", "powersave")})};
  CpufreqDriver driver(host.root(), {});
  const auto found = *driver.discover(cpus({0}), {});
  const auto original = *driver.read(found[0].ref);
  EXPECT_EQ(original.value, 3e6) << "powersave of intel_pstate follows the load";
  ASSERT_TRUE(driver.write(found[0].ref, 2e6));
  EXPECT_EQ(at(host, "policy0/scaling_min_freq"), "2000000");
  EXPECT_EQ(at(host, "policy0/scaling_max_freq"), "2000000");
  EXPECT_EQ(at(host, "policy0/scaling_governor"), "powersave\n");
  EXPECT_EQ(driver.read(found[0].ref)->value, 2e6);
  ASSERT_TRUE(driver.write(found[0].ref, 2.5e6));
  EXPECT_EQ(driver.read(found[0].ref)->value, 2.5e6);
  ASSERT_TRUE(driver.write(found[0].ref, 9e6));
  EXPECT_EQ(driver.read(found[0].ref)->value, 3e6);
  ASSERT_TRUE(driver.restore(found[0].ref, original.raw));
  EXPECT_EQ(driver.read(found[0].ref)->raw, original.raw);
}

TEST(CpufreqDriver, PutsBackASetspeedThatWasThere) {
  FakeHost host{dir(kTop, {policy(0, "0", "acpi-cpufreq", "userspace performance", "userspace")})};
  host.write(kTop + "/policy0/scaling_setspeed", "1000000\n");
  CpufreqDriver driver(host.root(), {});
  const auto found = *driver.discover(cpus({0}), {});
  const auto original = *driver.read(found[0].ref);
  EXPECT_THAT(original.raw, HasSubstr("setspeed=1000000"));
  ASSERT_TRUE(driver.write(found[0].ref, 3e6));
  ASSERT_TRUE(driver.restore(found[0].ref, original.raw));
  EXPECT_EQ(driver.read(found[0].ref)->raw, original.raw);
}

TEST(CpufreqDriver, NoCpufreqMeansNoKnob) {
  FakeHost host{proc({})};
  CpufreqDriver driver(host.root(), {});
  EXPECT_THAT(*driver.discover(cpus({0}), {}), IsEmpty());
  Target cgroup;
  EXPECT_THAT(*driver.discover(cgroup, {}), IsEmpty());
}

TEST(CpufreqDriver, APolicyThatReachesBeyondTheSetIsBlocked) {
  FakeHost host{dir(kTop, {policy(0, "0 1 2 3")})};
  CpufreqDriver driver(host.root(), {});
  EXPECT_THAT((*driver.discover(cpus({0, 1}), {}))[0].blocked_by, HasSubstr("0-3"));
  EXPECT_EQ((*driver.discover(cpus({0, 1, 2, 3}), {}))[0].blocked_by, "");
}

TEST(CpufreqDriver, AnotherTuningDaemonBlocksUnlessClaimed) {
  FakeHost host{dir(kTop, {policy(0, "0")})};
  CpufreqDriver driver(host.root(), [] { return std::string("TuneD controls CPU frequency"); });
  EXPECT_EQ((*driver.discover(cpus({0}), {}))[0].blocked_by, "TuneD controls CPU frequency");
  Rule rule;
  rule.frequency.claim = true;
  EXPECT_EQ((*driver.discover(cpus({0}), rule))[0].blocked_by, "");
}

TEST(CpufreqDriver, AnOfflinePolicyDoesNotStopTheOthers) {
  FakeHost host{dir(kTop, {policy(0, "0"), policy(1, "1")})};
  CpufreqDriver driver(host.root(), {});
  const auto ref = (*driver.discover(cpus({0, 1}), {}))[0].ref;
  const auto original = *driver.read(ref);
  ASSERT_TRUE(driver.write(ref, 2.2e6));
  host.remove(kTop + "/policy0");
  EXPECT_EQ(driver.read(ref)->mode, "userspace");
  ASSERT_TRUE(driver.write(ref, 1e6));
  EXPECT_EQ(at(host, "policy1/scaling_setspeed"), "1000000");
  EXPECT_FALSE(driver.restore(ref, original.raw)) << "policy0 is not proven";
  EXPECT_EQ(at(host, "policy1/scaling_governor"), "ondemand") << "but policy1 is back";
  host.remove(kTop + "/policy1");
  EXPECT_TRUE(vanished(driver.read(ref).error()));
}

TEST(CpufreqDriver, RefusesAnOriginalThatIsNone) {
  FakeHost host{dir(kTop, {policy(0, "0")})};
  CpufreqDriver driver(host.root(), {});
  for (const char* bad :
       {"policy0", "policy0 governor", "policy0 governor=x min=1", "policy0 governor=x max=y"})
    EXPECT_FALSE(driver.restore({}, bad)) << bad;
}

TEST(CpufreqDriver, WhatIsNoFrequencyIsAnError) {
  FakeHost host{dir(kTop, {policy(0, "0")})};
  CpufreqDriver driver(host.root(), {});
  const auto ref = (*driver.discover(cpus({0}), {}))[0].ref;
  EXPECT_FALSE(driver.write(ref, kUnlimited));
  EXPECT_FALSE(driver.write(ref, 0));
  host.write(kTop + "/policy0/scaling_max_freq", "fast\n");
  EXPECT_FALSE(driver.read(ref));
}

}  // namespace
}  // namespace flash
