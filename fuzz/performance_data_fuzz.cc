// Measurements of applications in configurations, CSV files made by others. What is accepted is usable:
// positive times, configurations of one width, all finite.
#include <cmath>
#include <cstdint>
#include <string_view>

#include "fuzz/require.h"
#include "lab/experiments/rcs_data.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto set =
      flash::lab::parse_performance({reinterpret_cast<const char*>(data), size}, "measurements.csv");
  if (!set) {
    FUZZ_REQUIRE(set.error().message().starts_with("measurements.csv"));
    return 0;
  }
  FUZZ_REQUIRE(!set->instances.empty() && set->configuration.size() == set->everywhere.size());
  for (const auto& instance : set->instances) {
    FUZZ_REQUIRE(!instance.runs.empty() && instance.context.size() == set->context.size());
    for (const auto& run : instance.runs) {
      FUZZ_REQUIRE(run.time > 0 && std::isfinite(run.time));
      FUZZ_REQUIRE(run.configuration.size() == set->configuration.size());
      FUZZ_REQUIRE(run.metrics.size() == set->metrics.size());
      for (double x : run.configuration) FUZZ_REQUIRE(std::isfinite(x));
    }
  }
  return 0;
}
