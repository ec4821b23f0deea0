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

TEST(SignalTable, NamesAreUniqueAndFoundAgain) {
  for (const auto& row : signal_table()) EXPECT_EQ(signal_from_name(row.name), row.signal) << row.name;
  EXPECT_FALSE(signal_from_name("cpu.usage "));
}

}  // namespace
}  // namespace flash
