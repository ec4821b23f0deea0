#include "lab/workloads/application.h"

#include <algorithm>
#include <array>

#include "lab/workloads/trace.h"
#include "lab/workloads/working_set.h"

namespace flash {

namespace {

/// A payload of `before` becomes the one of `after` at the same place. AWARE 2.3.
struct PayloadUpdate {
  int scenario;
  std::array<std::string_view, 5> segments;
  std::array<double, 3> before;
  std::array<double, 3> after;
};

constexpr double kKiB = 1024;
constexpr PayloadUpdate kUpdates[] = {
    {0,
     {"file-read", "file-write", "stream", "compress", "decompress"},
     {128 * kKiB, 256 * kKiB, 384 * kKiB},
     {512 * kKiB, 768 * kKiB, 1024 * kKiB}},
    {1, {"table-scan"}, {1024, 1024, 1024}, {10240, 10240, 10240}},
    // 10^8 to "20^8", read as 2 * 10^8: twice the operations.
    {2, {"floating-point"}, {1e5, 3e5, 1e6}, {2e5, 6e5, 2e6}},
    {3, {"image"}, {40, 40, 40}, {160, 160, 160}},
    {4, {"text-json", "text-search", "web-page"}, {250, 500, kKiB}, {2 * kKiB, 3 * kKiB, 5 * kKiB}},
    {5, {"matrix"}, {50, 50, 50}, {150, 150, 150}},
};
constexpr int kLoadScenario = 6;

constexpr double kUpdateGrowthMax = 2;

double segments_us(std::span<const SegmentUse> segments, double hot_mib) {
  double us = 0;
  for (const auto& use : segments) {
    const UnitCost unit = unit_cost(*use.segment, use.payload, hot_mib);
    us += use.count * (unit.cpu_us + unit.off_cpu_us);
  }
  return us;
}

const PayloadUpdate* update_of(const Segment& segment) {
  for (const auto& update : kUpdates) {
    if (std::find(update.segments.begin(), update.segments.end(), segment.name) != update.segments.end()) {
      return &update;
    }
  }
  return nullptr;
}

}  // namespace

std::span<const double> payload_choices(const Segment& segment, bool updated) {
  const auto* update = update_of(segment);
  if (update == nullptr) {
    return {};
  }
  return updated ? update->after : update->before;
}

Application updated(const Application& application, int scenario) {
  Application result = application;
  if (scenario == kLoadScenario) {
    result.trace = trace_of_other_load(application.trace);
    return result;
  }
  std::vector<SegmentUse*> changed;
  for (auto& use : result.segments) {
    const auto* update = update_of(*use.segment);
    if (update == nullptr || update->scenario != scenario) {
      continue;
    }
    const auto from = std::find(update->before.begin(), update->before.end(), use.payload);
    if (from != update->before.end()) {
      use.payload = update->after[static_cast<std::size_t>(from - update->before.begin())];
      changed.push_back(&use);
    }
  }
  // A matrix product of thrice the dimension takes 27 times as long, at the same load and objective: nothing
  // that is decided about such an application would matter any more.
  const double hot_mib = application.memory_mib * application.hot_share;
  const double before_us = segments_us(application.segments, hot_mib);
  const double after_us = segments_us(result.segments, hot_mib);
  if (after_us > kUpdateGrowthMax * before_us) {
    double changed_us = 0;
    for (const auto* use : changed) {
      changed_us += segments_us({use, 1}, hot_mib);
    }
    const double kept = (kUpdateGrowthMax * before_us - (after_us - changed_us)) / changed_us;
    for (auto* use : changed) {
      use->count = std::max(static_cast<int>(use->count * kept), 1);
    }
  }
  return result;
}

RequestCost request_cost(const Application& application) {
  // Measured as the segments' profiles were (docs/APPLICATIONS.md).
  constexpr double kHttpUs = 35;
  constexpr double kMemoryUsPerKib = 0.34;
  constexpr double kTouchStallUs = 0.045;
  const double hot_mib = application.memory_mib * application.hot_share;
  const double hot_pages = hot_mib * 1024 * 1024 / kPageBytes;
  RequestCost cost;
  cost.cycles = (kHttpUs + kMemoryUsPerKib * application.memory_per_request_kib) * 1e-6 * kReferenceHz;
  cost.stall_s = hot_pages / kCallsPerRound * kTouchStallUs * 1e-6;
  for (const auto& use : application.segments) {
    const UnitCost unit = unit_cost(*use.segment, use.payload, hot_mib);
    cost.cycles += use.count * (unit.cpu_us - unit.stall_us) * 1e-6 * kReferenceHz;
    cost.stall_s += use.count * unit.stall_us * 1e-6;
    cost.off_cpu_s += use.count * unit.off_cpu_us * 1e-6;
  }
  return cost;
}

}  // namespace flash
