// An application file, single or a pool: read or refused with the file's name; what was read prints and reads
// back the same, can be updated, and costs a finite amount.
#include <cmath>
#include <cstdint>
#include <string_view>

#include "fuzz/require.h"
#include "lab/workloads/application.h"
#include "lab/workloads/trace.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flash;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto one = parse_application(text, "app.json");
  std::vector<Application> pool;
  if (const auto* application = std::get_if<Application>(&one)) {
    pool.push_back(*application);
  } else {
    FUZZ_REQUIRE(std::get<UsageError>(one).message.starts_with("app.json: "));
    const auto many = parse_applications(text, "pool.json");
    if (const auto* error = std::get_if<UsageError>(&many)) {
      FUZZ_REQUIRE(error->message.starts_with("pool.json: "));
      return 0;
    }
    pool = std::get<std::vector<Application>>(many);
  }
  const std::string printed = to_json_text(pool);
  const auto again = parse_applications(printed, "printed");
  FUZZ_REQUIRE((std::holds_alternative<std::vector<Application>>(again)));
  FUZZ_REQUIRE(to_json_text(std::get<std::vector<Application>>(again)) == printed);
  for (const auto& application : pool) {
    const RequestCost cost = request_cost(application);
    FUZZ_REQUIRE(std::isfinite(cost.cycles) && cost.cycles > 0);
    FUZZ_REQUIRE(std::isfinite(cost.stall_s) && cost.stall_s >= 0);
    FUZZ_REQUIRE(std::isfinite(cost.off_cpu_s) && cost.off_cpu_s >= 0);
    FUZZ_REQUIRE(!check_trace(application.trace));
    // The last scenario may open the trace's file.
    for (int scenario = 0; scenario + 1 < kUpdateScenarios; ++scenario) {
      const Application after = updated(application, scenario);
      FUZZ_REQUIRE(after.segments.size() == application.segments.size());
    }
  }
  return 0;
}
