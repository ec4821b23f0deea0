#include "workloads/application.h"

#include <algorithm>
#include <array>
#include <optional>

#include "workloads/trace.h"

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
constexpr double kLoadFactor = 4;

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
    const auto parsed = Trace::parse(application.trace);
    if (const auto* trace = std::get_if<Trace>(&parsed)) {
      const bool high = is_high_load(trace->mean_rate());
      result.trace = scaled_trace(application.trace, high ? 1 / kLoadFactor : kLoadFactor);
    }
    return result;
  }
  for (auto& use : result.segments) {
    const auto* update = update_of(*use.segment);
    if (update == nullptr || update->scenario != scenario) {
      continue;
    }
    for (std::size_t i = 0; i < update->before.size(); ++i) {
      if (use.payload == update->before[i]) {
        use.payload = update->after[i];
        break;
      }
    }
  }
  return result;
}

RequestCost request_cost(const Application& application) {
  RequestCost cost;
  for (const auto& use : application.segments) {
    const UnitCost unit = unit_cost(*use.segment, use.payload);
    cost.cycles += use.count * (unit.cpu_us - unit.stall_us) * 1e-6 * kReferenceHz;
    cost.stall_s += use.count * unit.stall_us * 1e-6;
    cost.off_cpu_s += use.count * unit.off_cpu_us * 1e-6;
  }
  return cost;
}

}  // namespace flash
