#include "lab/workloads/calibrate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <ostream>

#include "core/json.h"
#include "lab/workloads/text_file.h"
#include "lab/workloads/working_set.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace flash {

namespace {

constexpr std::size_t kTableBytes = 64U << 20;

double clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct UnitTime {
  double cpu_ns = 0;
  double off_cpu_ns = 0;
};

/// Medians over batches; `seconds` of time on the clock.
UnitTime measure_unit(const Segment& segment, std::uint64_t payload, double seconds,
                      std::span<const std::uint8_t> memory) {
  constexpr double kBatchNs = 1e6;
  const std::atomic<bool> never{false};
  SegmentScratch scratch;
  scratch.memory = memory;
  run_units(segment, payload, 1, scratch, never);  // makes its files and texts
  std::vector<double> cpu_ns;
  std::vector<double> off_ns;
  std::uint64_t batch = 1;
  const double end = clock_ns(CLOCK_MONOTONIC) + seconds * 1e9;
  do {
    const double cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    const double wall = clock_ns(CLOCK_MONOTONIC);
    run_units(segment, payload, batch, scratch, never);
    const double cpu_spent = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
    const double wall_spent = clock_ns(CLOCK_MONOTONIC) - wall;
    const auto units = static_cast<double>(batch);
    cpu_ns.push_back(cpu_spent / units);
    off_ns.push_back(std::max(wall_spent - cpu_spent, 0.0) / units);
    if (wall_spent < kBatchNs && batch < (1U << 20)) {
      batch *= 2;
      cpu_ns.clear();
      off_ns.clear();
    }
  } while (clock_ns(CLOCK_MONOTONIC) < end || cpu_ns.size() < 3);
  UnitTime time;
  time.cpu_ns = median(cpu_ns);
  time.off_cpu_ns = median(off_ns);
  return time;
}

const WorkingSet& large_table() {
  static const WorkingSet table(kTableBytes, 0);
  return table;
}

}  // namespace

double nominal_hz() {
#if defined(__x86_64__)
  const double start_ns = clock_ns(CLOCK_MONOTONIC);
  const auto start = __rdtsc();
  double now_ns = start_ns;
  while (now_ns < start_ns + 2e7) {
    now_ns = clock_ns(CLOCK_MONOTONIC);
  }
  return static_cast<double>(__rdtsc() - start) / (now_ns - start_ns) * 1e9;
#else
  return 0;
#endif
}

AffineCost fit_affine(const std::vector<CostPoint>& points) {
  // Least squares of (us + us_per * amount) / measured - 1.
  double s11 = 0, s12 = 0, s22 = 0, t1 = 0, t2 = 0;
  for (const auto& point : points) {
    const double x1 = 1 / point.us;
    const double x2 = point.amount / point.us;
    s11 += x1 * x1;
    s12 += x1 * x2;
    s22 += x2 * x2;
    t1 += x1;
    t2 += x2;
  }
  const double determinant = s11 * s22 - s12 * s12;
  AffineCost cost;
  if (determinant > 1e-9 * s11 * s22) {
    cost.us = (t1 * s22 - t2 * s12) / determinant;
    cost.us_per = (t2 * s11 - t1 * s12) / determinant;
  }
  if (cost.us_per <= 0) {
    cost = {t1 / s11, 0};
  } else if (cost.us < 0) {
    cost = {0, t2 / s22};
  }
  return cost;
}

SegmentProfile measure_profile(const Segment& segment, double seconds) {
  constexpr double kFactors[] = {0.25, 1, 4};
  std::vector<CostPoint> cpu;
  std::vector<CostPoint> off_cpu;
  double in_cache_ns = 0;
  double in_memory_ns = 0;
  for (const double factor : kFactors) {
    // So that the work, not the payload, grows by it.
    const double scaled =
        static_cast<double>(segment.payload_default) * std::pow(factor, 1 / segment.exponent);
    const auto payload = static_cast<std::uint64_t>(std::max(std::round(scaled), 1.0));
    const double amount = std::pow(static_cast<double>(payload), segment.exponent);
    const auto time = measure_unit(segment, payload, seconds / 4, large_table().hot());
    cpu.push_back({amount, time.cpu_ns / 1e3});
    off_cpu.push_back({amount, std::max(time.off_cpu_ns / 1e3, 1e-3)});
    if (factor == 1) {
      in_memory_ns = time.cpu_ns;
      in_cache_ns = measure_unit(segment, payload, seconds / 4, {}).cpu_ns;
    }
  }
  const AffineCost on = fit_affine(cpu);
  const AffineCost off = fit_affine(off_cpu);
  SegmentProfile profile;
  profile.cpu_us = on.us;
  profile.cpu_us_per = on.us_per;
  profile.stall_share = std::clamp(1 - in_cache_ns / in_memory_ns, 0.0, 1.0);
  profile.off_cpu_us = off.us;
  profile.off_cpu_us_per = off.us_per;
  return profile;
}

std::vector<OptionRow> option_rows(CalibrateOptions& o) {
  return {
      {"--segment", "NAME", "only this one (all)", parsed_into(o.segment, find_segment)},
      {"--seconds", "N", "time to measure each segment (0.5)", real_into(o.seconds, 0.05, 60)},
      {"--json", "FILE", "write the result there; - for standard output", text_into(o.json)},
  };
}

double measure_unit_ns(const Segment& segment, double seconds) {
  return measure_unit(segment, segment.payload_default, seconds, large_table().hot()).cpu_ns;
}

int run(const CalibrateOptions& options, std::ostream& out, std::ostream& err) {
  nlohmann::ordered_json json;
  json["tool"] = "flash-workload";
  json["version"] = FLASH_VERSION;
  json["nominal_ghz"] = std::round(nominal_hz() / 1e7) / 100;
  auto& rows = json["segments"] = nlohmann::ordered_json::array();
  std::ostream& lines = options.json == "-" ? err : out;
  for (const auto& segment : segments()) {
    if (options.segment != nullptr && options.segment != &segment) {
      continue;
    }
    const double unit_ns = measure_unit_ns(segment, options.seconds / 2);
    const SegmentProfile p = measure_profile(segment, options.seconds);
    const auto units = static_cast<std::uint64_t>(std::max(1.0, std::round(1e7 / unit_ns)));
    char line[300];
    std::snprintf(
        line, sizeof line,
        "%-15s %8.1f us per unit of %lu %s, %6lu units take 10 ms; CPU %.3g + %.3g us x payload^%g, "
        "%.0f %% stalls; off CPU %.3g + %.3g us x payload^%g\n",
        std::string(segment.name).c_str(), unit_ns / 1000, segment.payload_default,
        std::string(segment.payload_unit).c_str(), units, p.cpu_us, p.cpu_us_per, segment.exponent,
        100 * p.stall_share, p.off_cpu_us, p.off_cpu_us_per, segment.exponent);
    lines << line << std::flush;
    rows.push_back({{"name", segment.name},
                    {"unit_ns", unit_ns},
                    {"units_per_10ms", units},
                    {"payload_unit", segment.payload_unit},
                    {"payload", segment.payload_default},
                    {"exponent", segment.exponent},
                    {"cpu_us", p.cpu_us},
                    {"cpu_us_per", p.cpu_us_per},
                    {"stall_share", p.stall_share},
                    {"off_cpu_us", p.off_cpu_us},
                    {"off_cpu_us_per", p.off_cpu_us_per}});
  }
  lines << "Times are CPU time, not counted cycles: cycles = (CPU time - stalls) x " << json["nominal_ghz"]
        << " GHz (nominal).\n";
  if (!options.json.empty()) {
    if (auto error = write_text(options.json, json.dump(2) + "\n", out)) {
      err << "flash-workload calibrate: " << error->message << "\n";
      return 1;
    }
  }
  return 0;
}

}  // namespace flash
