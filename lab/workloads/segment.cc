#include "lab/workloads/segment.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace flash {

namespace {

constexpr std::uint64_t kMiB = 1U << 20;

// Profiles: medians of three runs of `flash-workload calibrate --seconds 1.5` on the machine that
// docs/APPLICATIONS.md names.
constexpr std::array<Segment, 16> kSegments = {{
    {"floating-point",
     "operations",
     10'000,
     200'000'000,
     1,
     run_floating_point,
     {0.12, 0.00341, 0, 0, 0},
     "dependent multiply-adds and square roots; scales with frequency alone"},
    {"matrix",
     "dimension",
     40,
     1024,
     3,
     run_matrix,
     {0, 0.00048, 0, 0, 0},
     "dense product of two matrices, as ML serving does"},
    {"image",
     "dimension",
     40,
     4096,
     2,
     run_image,
     {0, 0.0059, 0, 0, 0},
     "blurs and halves a picture of dimension x dimension pixels"},
    {"sort", "items", 2000, 10'000'000, 1.1, run_sort, {0, 0.0215, 0, 0, 0}, "sorts random numbers"},
    {"hash", "bytes", 16384, 16 * kMiB, 1, run_hash, {0.24, 0.00425, 0, 0, 0}, "SHA-256"},
    {"text-json",
     "bytes",
     2400,
     16 * kMiB,
     1,
     run_text_json,
     {0.68, 0.0201, 0, 0, 0},
     "writes a JSON document, parses it and sums what it says"},
    {"text-search",
     "bytes",
     16384,
     16 * kMiB,
     1,
     run_text_search,
     {0.78, 0.00113, 0, 0, 0},
     "splits a text into words and counts them"},
    {"web-page",
     "bytes",
     16384,
     16 * kMiB,
     1,
     run_web_page,
     {0, 0.0011, 0, 0, 0},
     "fills a template with escaped rows"},
    {"compress",
     "bytes",
     16384,
     16 * kMiB,
     1,
     run_compress,
     {0, 0.00278, 0, 0, 0},
     "LZ77 with a hash table over text-like bytes"},
    {"decompress", "bytes", 32768, 16 * kMiB, 1, run_decompress, {3.1, 0.00218, 0, 0, 0}, "the way back"},
    {"table-scan",
     "items",
     1024,
     10'000'000,
     1,
     run_table_scan,
     {0, 0.0058, 0.65, 0, 0},
     "filters and sums rows of 128 bytes in the hot memory"},
    {"table-lookup",
     "lookups",
     500,
     10'000'000,
     1,
     run_table_lookup,
     {0.18, 0.152, 0.91, 0, 0},
     "dependent random reads of the hot memory, as an index walk"},
    {"file-read",
     "bytes",
     131072,
     16 * kMiB,
     1,
     run_file_read,
     {21, 0.00064, 0, 39, 0.0004},
     "reads a file that is not in the page cache"},
    {"file-write",
     "bytes",
     131072,
     16 * kMiB,
     1,
     run_file_write,
     {19, 0.00014, 0, 71, 0.00022},
     "writes a file and waits until the disk has it"},
    {"stream",
     "bytes",
     131072,
     16 * kMiB,
     1,
     run_stream,
     {0.07, 0.00043, 0, 0, 0},
     "passes bytes through a socket in pieces of 16 KiB and sums them"},
    {"remote-call",
     "microseconds",
     1000,
     10'000'000,
     1,
     run_remote_call,
     {18, 0, 0, 53, 1},
     "waits as for the answer of another service or a queue"},
}};

/// What a read of memory of this size waits, relative to kCalibratedHotMib: a larger part of less memory is
/// in the caches and the TLB. table-lookup on the reference core, between two sizes by the logarithm.
double stall_factor(double mib) {
  struct Point {
    double mib, factor;
  };
  constexpr Point kPoints[] = {{1.0 / 64, 0}, {1, 0.035}, {4, 0.15}, {8, 0.23},
                               {16, 0.45},    {32, 0.73}, {64, 1},   {256, 1.25}};
  const auto* above = std::find_if(std::begin(kPoints), std::end(kPoints),
                                   [mib](const Point& point) { return point.mib >= mib; });
  if (above == std::begin(kPoints) || above == std::end(kPoints)) {
    return above == std::end(kPoints) ? std::end(kPoints)[-1].factor : 0;
  }
  const Point& low = above[-1];
  const double way = std::log(mib / low.mib) / std::log(above->mib / low.mib);
  return low.factor + way * (above->factor - low.factor);
}

}  // namespace

std::span<const Segment> segments() {
  return kSegments;
}

Parsed<const Segment*> find_segment(std::string_view name) {
  std::string known;
  for (const auto& segment : kSegments) {
    if (segment.name == name) {
      return &segment;
    }
    known += (known.empty() ? "" : ", ") + std::string(segment.name);
  }
  return UsageError{"unknown segment '" + std::string(name) + "'; known: " + known};
}

UnitCost unit_cost(const Segment& segment, double payload, double hot_mib) {
  const SegmentProfile& p = segment.profile;
  const double amount = std::pow(payload, segment.exponent);
  const double calibrated_us = p.cpu_us + p.cpu_us_per * amount;
  UnitCost cost;
  cost.stall_us = calibrated_us * p.stall_share * stall_factor(hot_mib);
  cost.cpu_us = calibrated_us * (1 - p.stall_share) + cost.stall_us;
  cost.off_cpu_us = p.off_cpu_us + p.off_cpu_us_per * amount;
  return cost;
}

std::uint64_t run_units(const Segment& segment, std::uint64_t payload, std::uint64_t units,
                        SegmentScratch& scratch, const std::atomic<bool>& stop) {
  std::uint64_t checksum = 0;
  for (std::uint64_t i = 0; i < units && !stop.load(std::memory_order_relaxed); ++i) {
    checksum = checksum * 31 + segment.run_unit(scratch, payload);
  }
  return checksum;
}

}  // namespace flash
