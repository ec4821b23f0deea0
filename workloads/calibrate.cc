#include "workloads/calibrate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <ostream>

#include "workloads/report.h"

namespace flash {

namespace {

double thread_cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

}  // namespace

std::vector<OptionRow> option_rows(CalibrateOptions& o) {
  return {
      {"--segment", "NAME", "only this one (all)", parsed_into(o.segment, find_segment)},
      {"--seconds", "N", "CPU time to measure each segment (0.5)", real_into(o.seconds, 0.05, 60)},
      {"--json", "FILE", "write the result there; - for standard output", text_into(o.json)},
  };
}

double measure_unit_ns(const Segment& segment, double seconds) {
  constexpr int kBatch = 20;
  const std::atomic<bool> never{false};
  SegmentScratch scratch;
  std::vector<double> unit_ns;
  const double end = thread_cpu_ns() + seconds * 1e9;
  for (double before = thread_cpu_ns(); before < end;) {
    run_units(segment, segment.payload_default, kBatch, scratch, never);
    const double after = thread_cpu_ns();
    unit_ns.push_back((after - before) / kBatch);
    before = after;
  }
  const auto middle = unit_ns.begin() + static_cast<std::ptrdiff_t>(unit_ns.size() / 2);
  std::nth_element(unit_ns.begin(), middle, unit_ns.end());
  return *middle;
}

int run(const CalibrateOptions& options, std::ostream& out, std::ostream& err) {
  nlohmann::ordered_json json;
  json["tool"] = "flash-workload";
  json["version"] = FLASH_VERSION;
  auto& rows = json["segments"] = nlohmann::ordered_json::array();
  std::ostream& lines = options.json == "-" ? err : out;
  for (const auto& segment : segments()) {
    if (options.segment != nullptr && options.segment != &segment) {
      continue;
    }
    const double unit_ns = measure_unit_ns(segment, options.seconds);
    const auto units = static_cast<std::uint64_t>(std::max(1.0, std::round(1e7 / unit_ns)));
    char line[200];
    std::snprintf(line, sizeof line, "%-16s %8.1f us per unit  %6lu units take 10 ms   %s\n",
                  std::string(segment.name).c_str(), unit_ns / 1000, units,
                  std::string(segment.what).c_str());
    lines << line << std::flush;
    rows.push_back({{"name", segment.name}, {"unit_ns", unit_ns}, {"units_per_10ms", units}});
  }
  if (!options.json.empty()) {
    if (auto error = write_text(options.json, json.dump(2) + "\n", out)) {
      err << "flash-workload calibrate: " << error->message << "\n";
      return 1;
    }
  }
  return 0;
}

}  // namespace flash
