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
  Rule two, four;
  two.select.cpus = {0, 1};
  four.select.cpus = {0, 1, 2, 3};
  EXPECT_THAT((*driver.discover(cpus({0, 1}), two))[0].blocked_by, HasSubstr("0-3"));
  EXPECT_EQ((*driver.discover(cpus({0, 1, 2, 3}), four))[0].blocked_by, "");
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

// --- policies that differ

/// What one policy of a host offers. Empty texts: no such file.
struct Offer {
  std::string cpus;
  int min, max;  // MHz
  std::string table = "";
  std::string boost_table = "";
  std::string governors = "userspace performance schedutil";
  std::string affected = "as related";
  int scaling_min = 0, scaling_max = 0;  // MHz, 0: as the hardware's
};

std::string khz(int mhz) {
  return std::to_string(mhz) + "000\n";
}

FakeEntry made(int n, const Offer& o) {
  const bool userspace = o.governors.find("userspace") != std::string::npos;
  std::vector<FakeEntry> files = {
      file("related_cpus", o.cpus + "\n"),
      file("affected_cpus", (o.affected == "as related" ? o.cpus : o.affected) + "\n"),
      file("cpuinfo_min_freq", khz(o.min)),
      file("cpuinfo_max_freq", khz(o.max)),
      file("scaling_min_freq", khz(o.scaling_min ? o.scaling_min : o.min)),
      file("scaling_max_freq", khz(o.scaling_max ? o.scaling_max : o.max)),
      file("scaling_available_governors", o.governors + "\n"),
      file("scaling_driver", "cpufreq-dt\n"),
      file("scaling_governor", userspace ? "userspace\n" : "schedutil\n")};
  if (userspace) files.push_back(file("scaling_setspeed", khz(o.min)));
  if (!o.table.empty()) files.push_back(file("scaling_available_frequencies", o.table + "\n"));
  if (!o.boost_table.empty()) files.push_back(file("scaling_boost_frequencies", o.boost_table + "\n"));
  return dir("policy" + std::to_string(n), std::move(files));
}

struct Unequal {
  const char* name;
  std::vector<Offer> policies;
  std::string switches;        // cpufreq/boost; empty: none
  std::vector<double> steps;   // MHz
  double lower, upper;         // MHz
  std::vector<int> at_lowest;  // MHz per policy that is online
  std::vector<int> at_highest;
};

const std::string kLittle = "408000 816000 1200000 1608000 1800000 ";
const std::string kBig = "408000 816000 1200000 1608000 1800000 2016000 2208000 2400000 ";

const Unequal kUnequal[] = {
    {"two clusters, the smaller first",
     {{"0 1", 408, 1800, kLittle}, {"2 3", 408, 2400, kBig}},
     "",
     {408, 816, 1200, 1608, 1800, 2016, 2208, 2400},
     408,
     2400,
     {408, 408},
     {1800, 2400}},
    {"two clusters, the bigger first",
     {{"0 1", 408, 2400, kBig}, {"2 3", 408, 1800, kLittle}},
     "",
     {408, 816, 1200, 1608, 1800, 2016, 2208, 2400},
     408,
     2400,
     {408, 408},
     {2400, 1800}},
    {"three clusters without a common frequency",
     {{"0", 400, 1800, "400000 1000000 1800000"},
      {"1", 600, 2200, "600000 1400000 2200000"},
      {"2", 700, 3000, "700000 2000000 3000000"}},
     "",
     {400, 1000, 1400, 1800, 2000, 2200, 3000},
     400,
     3000,
     {400, 600, 700},
     {1800, 2200, 3000}},
    {"the table descends, with duplicates",
     {{"0 1 2 3", 800, 2400, "2400000 1600000 1600000 800000 800000 "}},
     "",
     {800, 1600, 2400},
     800,
     2400,
     {800},
     {2400}},
    {"boost frequencies without a switch",
     {{"0 1 2 3", 408, 1992, kLittle, "1992000 "}},
     "",
     {408, 816, 1200, 1608, 1800, 1992},
     408,
     1992,
     {408},
     {1992}},
    {"boost is on",
     {{"0 1 2 3", 408, 1992, kLittle, "1992000 "}},
     "1",
     {408, 816, 1200, 1608, 1800, 1992},
     408,
     1992,
     {408},
     {1992}},
    {"boost is off, and the range has it left out",
     {{"0 1 2 3", 408, 1800, kLittle, "1992000 "}},
     "0",
     {408, 816, 1200, 1608, 1800},
     408,
     1800,
     {408},
     {1800}},
    {"boost is off, and the range still has it",
     {{"0 1 2 3", 408, 1992, kLittle, "1992000 "}},
     "0",
     {408, 816, 1200, 1608, 1800},
     408,
     1800,
     {408},
     {1800}},
    {"boost of one cluster",
     {{"0 1", 408, 1800, kLittle}, {"2 3", 408, 2600, kBig, "2600000"}},
     "1",
     {408, 816, 1200, 1608, 1800, 2016, 2208, 2400, 2600},
     408,
     2600,
     {408, 408},
     {1800, 2600}},
    {"the range goes on beyond the table",
     {{"0 1", 408, 1992, kLittle}},
     "",
     {408, 816, 1200, 1608, 1800, 1992},
     408,
     1992,
     {408},
     {1992}},
    {"the range begins below the table",
     {{"0 1", 300, 1800, kLittle}},
     "",
     {408, 816, 1200, 1608, 1800},
     408,
     1800,
     {408},
     {1800}},
    {"turbo as acpi-cpufreq writes it",
     {{"0", 1200, 2601, "2601000 2600000 1900000 1200000"}},
     "",
     {1200, 1900, 2601},
     1200,
     2601,
     {1200},
     {2601}},
    {"one policy has a table, another none",
     {{"0 1", 400, 900, "400000 900000"}, {"2 3", 550, 1150}},
     "",
     {400, 600, 700, 800, 900, 1000, 1100, 1150},
     400,
     1150,
     {400, 550},
     {900, 1150}},
    {"no table at all, cores of two kinds",
     {{"0", 800, 5200, "", "", "performance powersave"}, {"1", 400, 3900, "", "", "performance powersave"}},
     "",
     {},
     400,
     5200,
     {800, 400},
     {5200, 3900}},
    {"tables without the userspace governor",
     {{"0 1", 408, 1800, kLittle, "", "schedutil"},
      {"2 3", 600, 2000, "600000 900000 2000000", "", "schedutil"}},
     "",
     {408, 816, 900, 1200, 1608, 1800, 2000},
     408,
     2000,
     {408, 600},
     {1800, 2000}},
    {"the first policy is offline",
     {{"0 1", 408, 2400, kBig, "", "userspace", ""}, {"2 3", 408, 1800, kLittle}},
     "",
     {408, 816, 1200, 1608, 1800},
     408,
     1800,
     {0, 408},
     {0, 1800}},
    {"a sibling is offline",
     {{"0 1 2 3", 408, 1800, kLittle, "", "userspace", "0 2 3"}},
     "",
     {408, 816, 1200, 1608, 1800},
     408,
     1800,
     {408},
     {1800}},
    {"somebody set limits, which stay",
     {{"0 1", 408, 2400, kBig, "", "userspace", "as related", 1000, 2100}},
     "",
     {1200, 1608, 1800, 2016},
     1200,
     2016,
     {1200},
     {2016}},
};

TEST(UnequalPolicies, EveryStepIsReachedAndAtTheEndsEveryPolicyIsAtItsOwn) {
  for (const Unequal& c : kUnequal) {
    SCOPED_TRACE(c.name);
    std::vector<FakeEntry> entries;
    std::vector<std::string> names;
    Rule rule;
    for (const Offer& o : c.policies) {
      const int first = std::stoi(o.cpus);
      names.push_back("policy" + std::to_string(first));
      entries.push_back(made(first, o));
      for (std::size_t at = 0; at < o.cpus.size(); at += 2) rule.select.cpus.push_back(o.cpus[at] - '0');
    }
    if (!c.switches.empty()) entries.push_back(file("boost", c.switches + "\n"));
    FakeHost host{dir(kTop, entries)};
    CpufreqDriver driver(host.root(), {});
    const auto found = *driver.discover(cpus(rule.select.cpus), rule);
    ASSERT_EQ(found.size(), 1u);
    const KnobInfo& info = found[0];
    EXPECT_EQ(info.blocked_by, "");
    EXPECT_EQ(info.lower, c.lower * 1000);
    EXPECT_EQ(info.upper, c.upper * 1000);
    std::vector<double> mhz;
    for (double step : info.steps) mhz.push_back(step / 1000);
    EXPECT_EQ(mhz, c.steps);
    const auto in_force = [&](std::size_t i) {
      if (c.policies[i].affected.empty()) return 0;
      const bool userspace = c.policies[i].governors.find("userspace") != std::string::npos;
      return std::stoi(at(host, names[i] + (userspace ? "/scaling_setspeed" : "/scaling_max_freq"))) / 1000;
    };
    // Up and down again: what was written is what is read, so that no step is asked for twice.
    std::vector<double> way =
        info.steps.empty() ? std::vector<double>{info.lower, 2e6, info.upper} : info.steps;
    way.insert(way.end(), way.rbegin(), way.rend());
    for (double step : way) {
      ASSERT_TRUE(driver.write(info.ref, step)) << step;
      EXPECT_EQ(driver.read(info.ref)->value, step);
      for (std::size_t i = 0; i < names.size(); ++i) {
        const bool up = step == info.upper, down = step == info.lower;
        if (up || down) {
          EXPECT_EQ(in_force(i), (up ? c.at_highest : c.at_lowest)[i]) << names[i];
        }
      }
    }
  }
}

TEST(UnequalPolicies, ARangeThatTheHardwareAnswersWithTheTablesEndIsTheTables) {
  FakeHost host{dir(kTop, {made(0, {"0", 1000, 4200, "1000000 2000000 3800000"})})};
  host.write(kTop + "/policy0/scaling_setspeed", khz(3800));
  CpufreqDriver driver(host.root(), {});
  const auto before = (*driver.discover(cpus({0}), {}))[0];
  EXPECT_EQ(before.upper, 4.2e6);
  EXPECT_THAT(before.steps, ElementsAre(1e6, 2e6, 3.8e6, 4.2e6));
  // What is written goes elsewhere from now on: the file that is kept open goes on saying 3.8 GHz.
  const auto setspeed = host.path() / kTop / "policy0/scaling_setspeed";
  std::filesystem::rename(setspeed, host.path() / "before");
  host.write(kTop + "/policy0/scaling_setspeed", "");
  ASSERT_TRUE(driver.write(before.ref, 4.2e6));
  EXPECT_EQ(at(host, "policy0/scaling_setspeed"), "4200000") << "it was asked";
  const auto after = (*driver.discover(cpus({0}), {}))[0];
  EXPECT_EQ(after.upper, 3.8e6);
  EXPECT_THAT(after.steps, ElementsAre(1e6, 2e6, 3.8e6));
  for (const char* name : {"/policy0/cpuinfo_max_freq", "/policy0/scaling_max_freq"})
    host.write(kTop + name, khz(4300));
  EXPECT_EQ((*driver.discover(cpus({0}), {}))[0].upper, 4.3e6) << "another range is asked for anew";
}

TEST(UnequalPolicies, ACpuThatComesOnlineIsAStrangerOnlyToARuleThatNamesOthers) {
  FakeHost host{dir(kTop, {made(0, {"0 1", 408, 1800, kLittle, "", "userspace", "0"})})};
  CpufreqDriver driver(host.root(), {});
  Rule named;
  named.select.cpus = {0};
  EXPECT_EQ((*driver.discover(cpus({0}), {}))[0].blocked_by, "");
  EXPECT_EQ((*driver.discover(cpus({0}), named))[0].blocked_by, "");
  host.write(kTop + "/policy0/affected_cpus", "0 1\n");
  EXPECT_EQ((*driver.discover(cpus({0}), {}))[0].blocked_by, "") << "all CPUs";
  EXPECT_THAT((*driver.discover(cpus({0}), named))[0].blocked_by, HasSubstr("0-1"));
}

}  // namespace
}  // namespace flash
