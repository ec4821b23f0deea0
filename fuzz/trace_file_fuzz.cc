// A recorded trace, and the spelling of one: read or refused with file and line; rates that are finite, not
// negative and add up to the integral. The first line is the spelling, the rest the file.
#include <cmath>
#include <cstdint>
#include <string_view>

#include "fuzz/require.h"
#include "lab/workloads/trace.h"
#include "lab/workloads/trace_file.h"

namespace {

void check(const flash::Parsed<flash::PiecewiseRate>& parsed) {
  if (const auto* error = std::get_if<flash::UsageError>(&parsed)) {
    FUZZ_REQUIRE(error->message.starts_with("t.csv:"));
    return;
  }
  const auto& rate = std::get<flash::PiecewiseRate>(parsed);
  const double period_s = rate.period_s();
  FUZZ_REQUIRE(std::isfinite(period_s) && period_s > 0);
  double before = 0;
  for (int i = 0; i <= 16; ++i) {
    const double t_s = period_s * i / 8;
    FUZZ_REQUIRE(rate.rate_at(t_s) >= 0 && rate.rate_at(t_s) <= flash::kTraceRateMax);
    const double integral = rate.integral(t_s);
    FUZZ_REQUIRE(std::isfinite(integral) && integral >= before - 1e-6 * (1 + before));
    before = integral;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flash;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto end = text.find('\n');
  const std::string_view spelling = text.substr(0, end);
  const std::string_view file = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  if (!check_trace(spelling) && !spelling.starts_with("azure") && !spelling.starts_with("series")) {
    const auto trace = Trace::parse(spelling);
    FUZZ_REQUIRE(std::holds_alternative<Trace>(trace));
    FUZZ_REQUIRE(std::isfinite(std::get<Trace>(trace).mean_rate()));
    FUZZ_REQUIRE(!check_trace(trace_of_other_load(spelling)));
  }
  TraceSelection selection;
  selection.row = 1 + size % 3;
  selection.load = static_cast<LoadClass>(size / 3 % 3);
  selection.column = spelling;
  for (auto* read : {azure_trace, series}) {
    CsvReader rows(file, "t.csv");
    check(read(rows, selection));
  }
  return 0;
}
