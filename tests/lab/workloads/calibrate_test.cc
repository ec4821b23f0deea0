#include "lab/workloads/calibrate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace flash {
namespace {

TEST(FitAffine, FindsTheLineThatMadeThePoints) {
  const AffineCost cost = fit_affine({{1, 5}, {4, 11}, {16, 35}});
  EXPECT_NEAR(cost.us, 3, 1e-9);
  EXPECT_NEAR(cost.us_per, 2, 1e-9);
}

TEST(FitAffine, MakesNoCoefficientNegative) {
  const AffineCost falling = fit_affine({{1, 5}, {4, 4}, {16, 3}});
  EXPECT_EQ(falling.us_per, 0);
  EXPECT_GT(falling.us, 3);
  const AffineCost steep = fit_affine({{1, 1}, {4, 8}, {16, 40}});
  EXPECT_EQ(steep.us, 0);
  EXPECT_GT(steep.us_per, 1);
}

TEST(FitAffine, TakesASinglePoint) {
  const AffineCost cost = fit_affine({{2, 8}});
  EXPECT_NEAR(cost.us + 2 * cost.us_per, 8, 1e-9);
}

const Segment& segment(std::string_view name) {
  return *std::get<const Segment*>(find_segment(name));
}

TEST(MeasureProfile, TellsWhatWaitsForMemoryFromWhatDoesNot) {
  // Loose: other work on the machine is part of it.
  EXPECT_GT(measure_profile(segment("table-lookup"), 0.1).stall_share, 0.6);
  EXPECT_LT(measure_profile(segment("floating-point"), 0.1).stall_share, 0.5);
}

TEST(MeasureProfile, TellsWaitingFromComputing) {
  const SegmentProfile profile = measure_profile(segment("remote-call"), 0.1);
  // No wait is shorter than asked for; a busy machine makes it longer.
  EXPECT_GT(profile.off_cpu_us + 1000 * profile.off_cpu_us_per, 500);
  EXPECT_LT(profile.cpu_us + 1000 * profile.cpu_us_per, 500);
}

TEST(NominalFrequency, IsOneThatProcessorsHaveOrUnknown) {
  const double hz = nominal_hz();
  EXPECT_TRUE(hz == 0 || (hz > 5e8 && hz < 1e10)) << hz;
}

}  // namespace
}  // namespace flash
