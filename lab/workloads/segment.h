// Purpose: the kinds of work a request can do; AWARE (2.3, 5.1) and FLASH (A.2) compose applications of 16
// such segments. A new segment is a function in a segments_*.cc file and a row in segment.cc.
// Ownership: a SegmentScratch belongs to one worker thread.
// Thread rule: run_unit uses its scratch only.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/command_line.h"
#include "lab/workloads/net.h"

namespace flash {

/// Nominal frequency of the core that the profiles were measured on (docs/APPLICATIONS.md names it).
inline constexpr double kReferenceHz = 2.3e9;

/// Memory that the table segments walked when their profiles were measured.
inline constexpr double kCalibratedHotMib = 64;

/// Buffers a segment keeps between units, so that a unit measures work and not allocation. They only grow:
/// units of different payloads may alternate.
struct SegmentScratch {
  std::uint64_t seed = 1;
  std::vector<double> numbers;
  std::vector<double> product;
  std::vector<std::uint8_t> input;
  std::vector<std::uint8_t> output;
  std::vector<std::uint32_t> table;
  std::string text;
  std::vector<std::uint8_t> packed;  // input, for decompress
  /// What table segments walk, the hot part of the application's memory; empty: 16 KiB of `small_memory`.
  std::span<const std::uint8_t> memory;
  std::vector<std::uint8_t> small_memory;
  UniqueFd file;                   // of the file segments
  UniqueFd stream_in, stream_out;  // of the stream segment
};

/// Cost of one unit on the reference core. Affine in payload^Segment::exponent; `flash-workload calibrate`
/// measures it and docs/APPLICATIONS.md shows the table.
struct SegmentProfile {
  double cpu_us = 0;          // CPU time whatever the payload
  double cpu_us_per = 0;      // CPU time per payload^exponent
  double stall_share = 0;     // of the CPU time, what waits for memory and does not scale with the frequency
  double off_cpu_us = 0;      // waited without holding a CPU
  double off_cpu_us_per = 0;  // the same per payload^exponent
};

struct Segment {
  std::string_view name;
  std::string_view payload_unit;  // "operations", "bytes", ...
  std::uint64_t payload_default;  // 20 to 250 microseconds of CPU on the reference core
  std::uint64_t payload_max;
  double exponent;  // work grows as payload^exponent: 3 for a matrix product's dimension
  /// Returns a checksum, so that no compiler can drop the work.
  std::uint64_t (*run_unit)(SegmentScratch& scratch, std::uint64_t payload);
  SegmentProfile profile;
  std::string_view what;
};

/// What one unit costs on the reference core.
struct UnitCost {
  double cpu_us = 0;  // with stall_us
  double stall_us = 0;
  double off_cpu_us = 0;
};
/// `hot_mib`: the memory that table segments walk; the profiles are of kCalibratedHotMib.
UnitCost unit_cost(const Segment& segment, double payload, double hot_mib = kCalibratedHotMib);

std::span<const Segment> segments();
Parsed<const Segment*> find_segment(std::string_view name);

std::uint64_t run_floating_point(SegmentScratch& scratch, std::uint64_t operations);
std::uint64_t run_matrix(SegmentScratch& scratch, std::uint64_t dimension);
std::uint64_t run_image(SegmentScratch& scratch, std::uint64_t dimension);
std::uint64_t run_sort(SegmentScratch& scratch, std::uint64_t items);
std::uint64_t run_hash(SegmentScratch& scratch, std::uint64_t bytes);
std::uint64_t run_text_json(SegmentScratch& scratch, std::uint64_t bytes);
std::uint64_t run_text_search(SegmentScratch& scratch, std::uint64_t bytes);
std::uint64_t run_web_page(SegmentScratch& scratch, std::uint64_t bytes);
std::uint64_t run_compress(SegmentScratch& scratch, std::uint64_t bytes);
std::uint64_t run_decompress(SegmentScratch& scratch, std::uint64_t bytes);
std::uint64_t run_table_scan(SegmentScratch& scratch, std::uint64_t items);
std::uint64_t run_table_lookup(SegmentScratch& scratch, std::uint64_t lookups);
std::uint64_t run_file_read(SegmentScratch& scratch, std::uint64_t bytes);
std::uint64_t run_file_write(SegmentScratch& scratch, std::uint64_t bytes);
std::uint64_t run_stream(SegmentScratch& scratch, std::uint64_t bytes);
std::uint64_t run_remote_call(SegmentScratch& scratch, std::uint64_t microseconds);

/// Text of words with much repetition, at least `bytes` long; what is there stays.
void extend_with_words(std::vector<std::uint8_t>& text, std::uint64_t bytes);

/// Runs units until done or stopped; checked between units, so a stop is obeyed within one unit.
std::uint64_t run_units(const Segment& segment, std::uint64_t payload, std::uint64_t units,
                        SegmentScratch& scratch, const std::atomic<bool>& stop);

}  // namespace flash
