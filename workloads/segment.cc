#include "workloads/segment.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace flash {

namespace {

constexpr std::uint64_t kMiB = 1U << 20;

// Profiles: `flash-workload calibrate` on the machine that docs/APPLICATIONS.md names.
constexpr std::array<Segment, 16> kSegments = {{
    {"floating-point",
     "operations",
     10'000,
     200'000'000,
     1,
     run_floating_point,
     {0.7, 0.00295, 0, 0, 0},
     "dependent multiply-adds and square roots; scales with frequency alone"},
    {"matrix",
     "dimension",
     40,
     1024,
     3,
     run_matrix,
     {0.4, 0.00038, 0, 0, 0},
     "dense product of two matrices, as ML serving does"},
    {"image",
     "dimension",
     40,
     4096,
     2,
     run_image,
     {0, 0.0057, 0, 0, 0},
     "blurs and halves a picture of dimension x dimension pixels"},
    {"sort", "items", 2000, 10'000'000, 1.1, run_sort, {0, 0.0205, 0, 0, 0}, "sorts random numbers"},
    {"hash", "bytes", 16384, 16 * kMiB, 1, run_hash, {1.2, 0.0041, 0, 0, 0}, "SHA-256"},
    {"text-json",
     "bytes",
     2400,
     16 * kMiB,
     1,
     run_text_json,
     {0.5, 0.0189, 0, 0, 0},
     "writes a JSON document, parses it and sums what it says"},
    {"text-search",
     "bytes",
     16384,
     16 * kMiB,
     1,
     run_text_search,
     {1.4, 0.00089, 0, 0, 0},
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
     {0, 0.00275, 0, 0, 0},
     "LZ77 with a hash table over text-like bytes"},
    {"decompress", "bytes", 131072, 16 * kMiB, 1, run_decompress, {0, 0.00183, 0, 0, 0}, "the way back"},
    {"table-scan",
     "items",
     1024,
     10'000'000,
     1,
     run_table_scan,
     {0.4, 0.0076, 0.77, 0, 0},
     "filters and sums rows of 128 bytes in the hot memory"},
    {"table-lookup",
     "lookups",
     500,
     10'000'000,
     1,
     run_table_lookup,
     {0, 0.187, 0.93, 0, 0},
     "dependent random reads of the hot memory, as an index walk"},
    {"file-read",
     "bytes",
     131072,
     16 * kMiB,
     1,
     run_file_read,
     {40, 0.00059, 0, 33, 0.00031},
     "reads a file that is not in the page cache"},
    {"file-write",
     "bytes",
     131072,
     16 * kMiB,
     1,
     run_file_write,
     {80, 0.00012, 0, 4060, 0},
     "writes a file and waits until the disk has it"},
    {"stream",
     "bytes",
     131072,
     16 * kMiB,
     1,
     run_stream,
     {0, 0.00041, 0, 0, 0},
     "passes bytes through a socket in pieces of 16 KiB and sums them"},
    {"remote-call",
     "microseconds",
     1000,
     10'000'000,
     1,
     run_remote_call,
     {19, 0, 0, 54, 1},
     "waits as for the answer of another service or a queue"},
}};

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

UnitCost unit_cost(const Segment& segment, double payload) {
  const SegmentProfile& p = segment.profile;
  const double amount = std::pow(payload, segment.exponent);
  UnitCost cost;
  cost.cpu_us = p.cpu_us + p.cpu_us_per * amount;
  cost.stall_us = cost.cpu_us * p.stall_share;
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
