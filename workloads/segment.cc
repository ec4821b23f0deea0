#include "workloads/segment.h"

#include <algorithm>
#include <array>

namespace flash {

namespace {

constexpr std::array<Segment, 4> kSegments = {{
    {"floating-point", "dependent multiply-adds and square roots; scales with frequency alone",
     run_floating_point},
    {"matrix", "dense matrix product from the first-level cache, as ML serving does", run_matrix},
    {"text-json", "writes a JSON document, parses it and sums what it says", run_text_json},
    {"compress", "LZ77 with a hash table over text-like bytes", run_compress},
}};

constexpr std::size_t kPage = 4096;

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

WorkingSet::WorkingSet(std::uint64_t mib) : bytes_(mib << 20) {
  for (std::size_t i = 0; i < bytes_.size(); i += kPage) {
    bytes_[i] = static_cast<std::uint8_t>(i / kPage + 1);
  }
}

void WorkingSet::touch() {
  constexpr std::size_t kCallsPerRound = 64;
  const std::size_t pages = bytes_.size() / kPage;
  for (std::size_t i = 0; i < (pages + kCallsPerRound - 1) / kCallsPerRound; ++i) {
    ++bytes_[next_ * kPage];
    next_ = (next_ + 1) % pages;
  }
}

std::uint64_t run_units(const Segment& segment, std::uint64_t units, SegmentScratch& scratch,
                        const std::atomic<bool>& stop) {
  std::uint64_t checksum = 0;
  for (std::uint64_t i = 0; i < units && !stop.load(std::memory_order_relaxed); ++i) {
    checksum = checksum * 31 + segment.run_unit(scratch);
  }
  return checksum;
}

}  // namespace flash
