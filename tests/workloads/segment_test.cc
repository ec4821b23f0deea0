#include "workloads/segment.h"

#include <gtest/gtest.h>

#include <set>

#include "workloads/calibrate.h"
#include "workloads/working_set.h"

namespace flash {
namespace {

TEST(Segments, HaveDistinctNamesAndAreFoundByThem) {
  std::set<std::string_view> names;
  for (const auto& segment : segments()) {
    EXPECT_TRUE(names.insert(segment.name).second) << segment.name;
    EXPECT_EQ(std::get<const Segment*>(find_segment(segment.name)), &segment);
  }
}

TEST(Segments, DoTheSameWorkFromTheSameSeed) {
  const std::atomic<bool> never{false};
  for (const auto& segment : segments()) {
    SegmentScratch a;
    SegmentScratch b;
    const auto payload = segment.payload_default;
    EXPECT_EQ(run_units(segment, payload, 3, a, never), run_units(segment, payload, 3, b, never))
        << segment.name;
  }
}

TEST(Segments, CompressionShortensText) {
  SegmentScratch scratch;
  const auto size = run_compress(scratch, 16384);
  EXPECT_GT(size, 0U);
  EXPECT_LT(size, scratch.input.size() * 3 / 4);
}

TEST(Segments, StopBetweenUnits) {
  const std::atomic<bool> stopped{true};
  SegmentScratch scratch;
  EXPECT_EQ(run_units(segments().front(), 1, UINT64_MAX, scratch, stopped), 0U);
}

TEST(Segments, CostBetweenOneAndTenThousandMicroseconds) {
  for (const auto& segment : segments()) {
    const double unit_ns = measure_unit_ns(segment, 0.05);
    EXPECT_GT(unit_ns, 1e3) << segment.name;
    EXPECT_LT(unit_ns, 1e7) << segment.name;
  }
}

TEST(WorkingSet, TouchesNothingWhenEmpty) {
  WorkingSet none(0, 0);
  none.touch();
  WorkingSet some(1 << 20, 1 << 20);
  for (int i = 0; i < 200; ++i) {
    some.touch();
  }
}

}  // namespace
}  // namespace flash
