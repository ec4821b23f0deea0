// Purpose: the kinds of CPU work a request can do; AWARE (section 2.3) composes applications of such
// segments. A new segment is a function in a segments_*.cc file and a row in segment.cc. Ownership: a
// SegmentScratch belongs to one worker thread. Threads: run_unit uses its scratch only.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "workloads/command_line.h"

namespace flash {

/// Buffers a segment keeps between units, so that a unit measures work and not allocation.
struct SegmentScratch {
  std::uint64_t seed = 1;
  std::vector<double> numbers;
  std::vector<std::uint8_t> input;
  std::vector<std::uint8_t> output;
  std::vector<std::uint32_t> table;
  std::string text;
};

struct Segment {
  std::string_view name;
  std::string_view what;
  /// One unit: a fixed amount of work, 30 to 200 microseconds on a core of 2020. Returns a checksum, so that
  /// no compiler can drop the work.
  std::uint64_t (*run_unit)(SegmentScratch& scratch);
};

std::span<const Segment> segments();
Parsed<const Segment*> find_segment(std::string_view name);

std::uint64_t run_floating_point(SegmentScratch& scratch);
std::uint64_t run_matrix(SegmentScratch& scratch);
std::uint64_t run_text_json(SegmentScratch& scratch);
std::uint64_t run_compress(SegmentScratch& scratch);

/// Memory a worker keeps and uses: page-sized strides of it are written with every request.
class WorkingSet {
 public:
  /// Allocates and touches all of it.
  explicit WorkingSet(std::uint64_t mib);
  /// Writes the next share of the pages (all of them are written every 64 calls).
  void touch();

 private:
  std::vector<std::uint8_t> bytes_;
  std::size_t next_ = 0;
};

/// Runs units until done or stopped; checked between units, so a stop is obeyed within one unit.
std::uint64_t run_units(const Segment& segment, std::uint64_t units, SegmentScratch& scratch,
                        const std::atomic<bool>& stop);

}  // namespace flash
