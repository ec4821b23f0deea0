// Every signal that is made of a kernel counter, against every way in which a counter lies: what is
// impossible on this machine is never shown as a rate, and two ticks later the right rate is.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "collectors/registry.h"
#include "tests/support/fake_host.h"

namespace flash::counters_that_lie {
namespace {

using Text = std::function<std::string(std::uint64_t)>;

/// One counter's file, and what it grows by per second at a rate that this machine can do, but not a thousand
/// times of it.
struct Source {
  std::string name;
  Signal signal;
  std::string path;
  Text text;
  double unit;  // counter's units per second
  double rate;  // the signal's value then
  bool cpus = false;
};

std::string n(std::uint64_t v) {
  return std::to_string(v);
}

const std::string kCgroup = "sys/fs/cgroup/a/", kZone = "sys/class/powercap/intel-rapl:0/";

std::string psi(const char* row, std::uint64_t v) {
  const std::string some = row == std::string("some") ? n(v) : "0";
  const std::string full = row == std::string("full") ? n(v) : "0";
  const std::string averages = " avg10=0.00 avg60=0.00 avg300=0.00 total=";
  return "some" + averages + some + "\nfull" + averages + full + "\n";
}
Text pressure(const char* row) {
  return [row](std::uint64_t v) { return psi(row, v); };
}

std::string cpu_stat(std::uint64_t usage, std::uint64_t throttled) {
  return "usage_usec " + n(usage) + "\nnr_periods 0\nnr_throttled 0\nthrottled_usec " + n(throttled) + "\n";
}

/// Two CPUs; one of them works.
std::string proc_stat(std::uint64_t busy) {
  const std::string idle = " 0 0 1000000 0 0 0 0 0 0\n";
  return "cpu  " + n(busy) + idle + "cpu0 " + n(busy) + idle + "cpu1 0" + idle + "intr 0\n";
}

const std::vector<Source>& sources() {
  static const std::vector<Source> all = {
      {"cpu_usage", Signal::CpuUsage, kCgroup + "cpu.stat", [](std::uint64_t v) { return cpu_stat(v, 0); },
       1e6, 1},
      {"throttled_time", Signal::CpuThrottledTime, kCgroup + "cpu.stat",
       [](std::uint64_t v) { return cpu_stat(0, v); }, 1e6, 1},
      {"high_events", Signal::MemoryHighEvents, kCgroup + "memory.events",
       [](std::uint64_t v) { return "high " + n(v) + "\noom_kill 0\n"; }, 1e5, 1e5},
      {"oom_kills", Signal::MemoryOomKills, kCgroup + "memory.events",
       [](std::uint64_t v) { return "high 0\noom_kill " + n(v) + "\n"; }, 30, 30},
      {"io_read", Signal::IoReadBytes, kCgroup + "io.stat",
       [](std::uint64_t v) { return "8:0 rbytes=" + n(v) + " wbytes=0 rios=0 wios=0\n"; }, 1e9, 1e9},
      {"io_write", Signal::IoWriteBytes, kCgroup + "io.stat",
       [](std::uint64_t v) { return "8:0 rbytes=0 wbytes=" + n(v) + " rios=0 wios=0\n"; }, 1e9, 1e9},
      {"cpu_pressure", Signal::CpuPressureSome, kCgroup + "cpu.pressure", pressure("some"), 5e5, 0.5},
      {"memory_pressure_some", Signal::MemoryPressureSome, kCgroup + "memory.pressure", pressure("some"), 5e5,
       0.5},
      {"memory_pressure_full", Signal::MemoryPressureFull, kCgroup + "memory.pressure", pressure("full"), 5e5,
       0.5},
      {"io_pressure_some", Signal::IoPressureSome, kCgroup + "io.pressure", pressure("some"), 5e5, 0.5},
      {"io_pressure_full", Signal::IoPressureFull, kCgroup + "io.pressure", pressure("full"), 5e5, 0.5},
      {"node_pressure", Signal::NodeCpuPressureSome, "proc/pressure/cpu", pressure("some"), 5e5, 0.5},
      {"node_memory_pressure", Signal::NodeMemoryPressureFull, "proc/pressure/memory", pressure("full"), 5e5,
       0.5},
      {"node_usage", Signal::NodeCpuUsage, "proc/stat", proc_stat, 100, 1},
      {"cpu_set_usage", Signal::CpuUsage, "proc/stat", proc_stat, 100, 1, true},
      {"power", Signal::Power, kZone + "energy_uj", [](std::uint64_t v) { return n(v) + "\n"; }, 15e6, 15,
       true},
  };
  return all;
}

/// Readings, in seconds of the ordinary rate; kUnread: the file holds nothing that can be read.
struct Lie {
  std::string name;
  std::vector<double> readings;
  bool unread = false;
};
const double kUnread = std::nan("");
const std::vector<Lie>& lies() {
  static const std::vector<Lie> all = {
      {"none", {1000, 1001, 1002, 1003, 1004, 1005}},
      {"begins_anew", {1000, 1001, 1002, 0, 1, 2, 3, 4}},
      {"begins_at_less", {1000, 1001, 1002, 700, 701, 702, 703}},
      {"dips", {1000, 1001, 1002, 300, 1004, 1005, 1006}},
      {"dips_to_zero", {1000, 1001, 1002, 0, 1004, 1005, 1006}},
      {"dips_a_little", {1000, 1001, 1002, 1001.5, 1004, 1005, 1006}},
      {"dips_for_two_ticks", {1000, 1001, 1002, 300, 301, 1005, 1006, 1007}},
      {"jumps", {1000, 1001, 1002, 2002, 2003, 2004, 2005}},
      {"spikes", {1000, 1001, 1002, 5000, 1004, 1005, 1006}},
      {"between_two", {1000, 500, 1002, 502, 1004, 504, 505, 506, 507}},
      {"is_not_read_for_a_while", {1000, 1001, 1002, kUnread, kUnread, kUnread, 1006, 1007, 1008}, true},
  };
  return all;
}

class KernelCounter : public testing::TestWithParam<std::tuple<std::size_t, std::size_t>> {};

TEST_P(KernelCounter, IsNeverShownAsMoreThanItIs) {
  const Source& source = sources()[std::get<0>(GetParam())];
  const Lie& lie = lies()[std::get<1>(GetParam())];
  FakeHost host{
      cgroup_v2({dir("a", {file("cpu.stat", cpu_stat(0, 0)), file("cpu.max", "max 100000\n"),
                           file("memory.events", "high 0\noom_kill 0\n"), file("io.stat", ""),
                           file("cpu.pressure", psi("", 0)), file("memory.pressure", psi("", 0)),
                           file("io.pressure", psi("", 0))})}),
      proc({file("stat", proc_stat(0)), file("pressure/cpu", psi("", 0)), file("pressure/memory", psi("", 0)),
            file("meminfo", "MemTotal: 4096 kB\nMemFree: 1 kB\nMemAvailable: 2048 kB\n"),
            file("self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")}),
      sys({file("devices/system/cpu/present", "0-1\n"), file("devices/system/cpu/online", "0-1\n"),
           dir("class/powercap/intel-rapl:0", {file("name", "package-0\n"), file("energy_uj", "0\n"),
                                               file("max_energy_range_uj", "262143328850\n")})})};
  const auto layout = host.layout();
  ASSERT_TRUE(layout);
  const HostRoot root = host.root();
  auto collectors = build_collectors({&root, &*layout});
  Target a, cpus;
  a.cgroup = "/a";
  a.id = {TargetKind::Cgroup, host.cgroup("/a")->inode()};
  cpus.id = {TargetKind::CpuSet, 1};
  cpus.cpus = {0};
  ObservationTable table;
  for (const Target& t : {a, cpus})
    for (const auto& c : collectors) c->track(t);

  std::vector<Sample> seen;
  Duration now = std::chrono::seconds(1000);
  for (const double reading : lie.readings) {
    host.write(source.path, std::isnan(reading)
                                ? "what\n"
                                : source.text(static_cast<std::uint64_t>(reading * source.unit)));
    now += std::chrono::seconds(1);
    MachineSize machine;
    table[a.id] = table[cpus.id] = {};
    for (const auto& c : collectors) {
      c->collect({now, {}}, table);
      c->measure(machine);
    }
    Observation& o = table[source.cpus ? cpus.id : a.id];
    judge(o, machine);
    seen.push_back(o[source.signal]);
    // Kills are a number and no rate: those of four ticks are seen when they are read.
    const double ticks = source.signal == Signal::MemoryOomKills && lie.unread ? 4 : 1;
    EXPECT_TRUE(!seen.back().usable() || seen.back().value <= 1.2 * ticks * source.rate)
        << seen.back().value << " at reading " << seen.size();
  }
  for (std::size_t i = seen.size() - 2; i < seen.size(); ++i) {
    EXPECT_TRUE(seen[i].trusted()) << to_string(seen[i].validity) << " at reading " << i + 1;
    EXPECT_NEAR(seen[i].value, source.rate, 0.01 * source.rate);
  }
}

INSTANTIATE_TEST_SUITE_P(AllSources, KernelCounter,
                         testing::Combine(testing::Range<std::size_t>(0, sources().size()),
                                          testing::Range<std::size_t>(0, lies().size())),
                         [](const auto& p) {
                           return sources()[std::get<0>(p.param)].name + "_" +
                                  lies()[std::get<1>(p.param)].name;
                         });

}  // namespace
}  // namespace flash::counters_that_lie
