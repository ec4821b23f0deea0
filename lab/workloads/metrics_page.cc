#include "lab/workloads/metrics_page.h"

#include <chrono>
#include <cmath>
#include <cstdio>

#include "core/command_line.h"

namespace flash {

std::string metrics_page(const LatencyHistogram& latency, std::uint64_t over_objective,
                         const std::string& application) {
  const std::string label = "app=\"" + application + "\"";
  const std::string count = std::to_string(latency.count());
  std::string page =
      "# HELP http_request_duration_seconds Time from the arrival of a request to its answer.\n"
      "# TYPE http_request_duration_seconds histogram\n";
  const auto buckets = latency.buckets();
  std::size_t next = 0;
  std::uint64_t below = 0;
  for (int decade = -4; decade <= 0; ++decade) {
    for (int digit = 1; digit <= 9; ++digit) {
      const double bound = digit * std::pow(10.0, decade);
      while (next < buckets.size() && std::chrono::duration<double>(buckets[next].middle).count() <= bound)
        below += buckets[next++].count;
      char text[32];
      std::snprintf(text, sizeof text, "%g", bound);
      page += "http_request_duration_seconds_bucket{" + label + ",le=\"" + text + "\"} " +
              std::to_string(below) + "\n";
    }
  }
  page += "http_request_duration_seconds_bucket{" + label + ",le=\"+Inf\"} " + count + "\n";
  page += "http_request_duration_seconds_sum{" + label + "} " +
          number_text(latency.mean_ms() * static_cast<double>(latency.count()) / 1000) + "\n";
  page += "http_request_duration_seconds_count{" + label + "} " + count + "\n";
  page += "# HELP http_requests_total Requests answered.\n# TYPE http_requests_total counter\n";
  page += "http_requests_total{" + label + "} " + count + "\n";
  page +=
      "# HELP http_requests_over_objective_total Of those, how many took longer than the objective.\n"
      "# TYPE http_requests_over_objective_total counter\n";
  return page + "http_requests_over_objective_total{" + label + "} " + std::to_string(over_objective) + "\n";
}

}  // namespace flash
