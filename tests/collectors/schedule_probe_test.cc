// The arithmetic of the schedule probe's histogram. That it counts is tests/system/schedule_system_test.cc.
#include <gtest/gtest.h>

#include "collectors/bpf/schedule.h"

namespace flash {
namespace {

using Waits = std::array<std::uint64_t, FLASH_WAIT_SLOTS>;

TEST(WaitSlots, ReachFromAMicrosecondToTwoSecondsWithFourPerOctave) {
  EXPECT_EQ(wait_slot_begin(0), 0u);
  EXPECT_EQ(wait_slot_begin(1), 1024u);
  EXPECT_EQ(wait_slot_begin(4), 4 * 1024u);
  EXPECT_EQ(wait_slot_begin(7), 7 * 1024u);
  EXPECT_EQ(wait_slot_begin(8), 8 * 1024u);
  EXPECT_EQ(wait_slot_begin(9), 10 * 1024u);
  EXPECT_EQ(wait_slot_begin(79), 7ull * (1 << 18) * 1024);
  for (std::size_t slot = 4; slot < FLASH_WAIT_SLOTS; ++slot)
    EXPECT_LE(wait_slot_begin(slot + 1), wait_slot_begin(slot) * 5 / 4) << slot;
}

TEST(WaitQuantile, LiesWithinTheSlotThatHoldsIt) {
  Waits waits{};
  waits[8] = 99;
  waits[40] = 1;
  EXPECT_GE(wait_quantile(waits, 0.5), static_cast<double>(wait_slot_begin(8)));
  EXPECT_LE(wait_quantile(waits, 0.99), static_cast<double>(wait_slot_begin(9)));
  EXPECT_GT(wait_quantile(waits, 0.999), static_cast<double>(wait_slot_begin(40)));
  EXPECT_LE(wait_quantile(waits, 0.999), static_cast<double>(wait_slot_begin(41)));
}

TEST(WaitQuantile, OfNoWaitIsZero) {
  EXPECT_EQ(wait_quantile(Waits{}, 0.99), 0);
}

}  // namespace
}  // namespace flash
