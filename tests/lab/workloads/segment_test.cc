#include "lab/workloads/segment.h"

#include <gtest/gtest.h>

#include <set>

#include "lab/workloads/calibrate.h"
#include "lab/workloads/working_set.h"

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

TEST(Segments, CostGrowsWithThePayload) {
  const std::atomic<bool> never{false};
  for (const auto& segment : segments()) {
    const auto payload = static_cast<double>(segment.payload_default);
    const UnitCost small = unit_cost(segment, payload);
    const UnitCost large = unit_cost(segment, 4 * payload);
    EXPECT_GT(large.cpu_us + large.off_cpu_us, small.cpu_us + small.off_cpu_us) << segment.name;
    EXPECT_GT(small.cpu_us, 0) << segment.name;
    EXPECT_LT(small.stall_us, small.cpu_us) << segment.name;
  }
}

TEST(Segments, WaitLessForLessMemory) {
  const Segment& lookup = *std::get<const Segment*>(find_segment("table-lookup"));
  const double compute_us = unit_cost(lookup, 500, 0).cpu_us;
  double before = 0;
  for (const double mib : {0.01, 0.5, 2.0, 8.0, 10.0, 64.0, 100.0, 256.0}) {
    const UnitCost cost = unit_cost(lookup, 500, mib);
    EXPECT_GE(cost.stall_us, before) << mib;
    EXPECT_NEAR(cost.cpu_us - cost.stall_us, compute_us, 1e-9) << mib;
    before = cost.stall_us;
  }
  EXPECT_EQ(unit_cost(lookup, 500, 1e6).stall_us, before);
  EXPECT_EQ(unit_cost(lookup, 500, 0).stall_us, 0);
  EXPECT_NEAR(unit_cost(lookup, 500).stall_us / unit_cost(lookup, 500).cpu_us, lookup.profile.stall_share,
              1e-9);
}

TEST(Segments, TakeEveryPayloadThatApplicationsMayAsk) {
  // The smallest ones, and another than before with the same scratch.
  for (const auto& segment : segments()) {
    SegmentScratch scratch;
    for (const std::uint64_t payload : {1, 2, 3, 127, 128, 40, 1}) {
      segment.run_unit(scratch, payload);
    }
  }
}

TEST(Segments, HashIsThatOfTheStandard) {
  // FIPS 180-4 pads; a block that is already padded gives the digest of "abc": ba7816bf 8f01cfea.
  SegmentScratch scratch;
  scratch.input.assign(64, 0);
  scratch.input[0] = 'a' - 1;  // the segment adds one, so that no two units are the same
  scratch.input[1] = 'b';
  scratch.input[2] = 'c';
  scratch.input[3] = 0x80;
  scratch.input[63] = 24;
  EXPECT_EQ(run_hash(scratch, 1), 0xba7816bf8f01cfeaU);
}

TEST(Segments, WhatIsCompressedIsDecompressedToTheSame) {
  for (const std::uint64_t bytes : {1U, 3U, 4U, 300U, 5000U, 200'000U}) {
    SegmentScratch scratch;
    run_decompress(scratch, bytes);
    ASSERT_GE(scratch.output.size(), bytes);
    EXPECT_TRUE(std::equal(scratch.output.begin(), scratch.output.end(), scratch.input.begin())) << bytes;
    // Less of it later: it stops soon after.
    run_decompress(scratch, 1);
    EXPECT_LT(scratch.output.size(), 600U);
  }
}

TEST(Segments, StreamAndFileSegmentsSeeEveryByte) {
  constexpr std::uint64_t kBytes = 100'000;
  std::vector<std::uint8_t> words;
  extend_with_words(words, kBytes);
  words.resize(kBytes);
  std::uint64_t sum = 0;
  for (const auto byte : words) {
    sum += byte;
  }
  SegmentScratch scratch;
  EXPECT_EQ(run_file_read(scratch, kBytes), sum);
  EXPECT_EQ(run_file_read(scratch, kBytes), sum);
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
