#include "core/signal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace flash {
namespace {

TEST(Judge, TurnsImpossibleValuesInvalid) {
  Observation o;
  o[Signal::CpuUsage] = Sample::good(-1);
  o[Signal::LatencyP99] = Sample::good(std::nan(""));
  o[Signal::CpuPressureSome] = Sample::good(7);
  o[Signal::MemoryUsage] = Sample::good(std::numeric_limits<double>::infinity());
  EXPECT_EQ(judge(o), 4);
  EXPECT_EQ(o[Signal::CpuUsage].validity, Validity::Invalid);
  EXPECT_EQ(o[Signal::LatencyP99].validity, Validity::Invalid);
}

TEST(Judge, LeavesGoodValuesAndUnlimitedLimitsAlone) {
  Observation o;
  o[Signal::CpuUsage] = Sample::good(1.5);
  o[Signal::CpuLimit] = Sample::good(std::numeric_limits<double>::infinity());
  EXPECT_EQ(judge(o), 0);
  EXPECT_TRUE(o[Signal::CpuLimit].trusted());
  EXPECT_EQ(o[Signal::Pids].validity, Validity::Missing);
}

TEST(Judge, KnowsWhatTheMachineCanDo) {
  struct Row {
    Signal signal;
    double can, cannot;  // on two CPUs with 4 GB
  };
  for (const auto& [signal, can, cannot] :
       {Row{Signal::CpuUsage, 2.5, 5}, Row{Signal::NodeCpuUsage, 2, 5}, Row{Signal::TaskClock, 2, 5},
        Row{Signal::CpuThrottledTime, 20, 2000}, Row{Signal::Instructions, 1e11, 1e12},
        Row{Signal::Cycles, 1e10, 1e11}, Row{Signal::ContextSwitches, 1e6, 1e8},
        Row{Signal::IoReadBytes, 1e10, 1e12}, Row{Signal::IoWriteBytes, 1e10, 1e12},
        Row{Signal::MemoryHighEvents, 1e6, 1e9}, Row{Signal::MemoryOomKills, 100, 1e6},
        Row{Signal::MemoryUsage, 4e9, 7e9}, Row{Signal::MemoryWorkingSet, 4e9, 7e9},
        Row{Signal::NodeMemoryAvailable, 4e9, 7e9}}) {
    Observation o;
    o[signal] = Sample::good(can);
    EXPECT_EQ(judge(o, {2, 4e9}), 0) << traits(signal).name;
    o[signal] = Sample::good(cannot);
    EXPECT_EQ(judge(o), 0) << traits(signal).name << " on a machine that nobody has looked at";
    EXPECT_EQ(judge(o, {2, 4e9}), 1) << traits(signal).name;
    EXPECT_EQ(o[signal].validity, Validity::Invalid);
  }
}

TEST(SignalTable, NamesAreUniqueAndFoundAgain) {
  for (const auto& row : signal_table()) EXPECT_EQ(signal_from_name(row.name), row.signal) << row.name;
  EXPECT_FALSE(signal_from_name("cpu.usage "));
}

}  // namespace
}  // namespace flash
