// Results of experiments, JSON files that may come from other machines, each taken for every experiment's.
// What is accepted becomes a page without script whose pictures have only numbers; what is not names the
// file.
#include <cstdint>
#include <string>
#include <string_view>

#include "bench/report.h"
#include "fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flash::bench;
  for (const Experiment& e : experiments()) {
    const std::string name = std::string(e.name) + ".json";
    const auto result = parse_result({reinterpret_cast<const char*>(data), size}, name);
    if (!result) {
      FUZZ_REQUIRE(result.error().message().starts_with(name));
      return 0;
    }
    const auto page = report_page({*result}, {});
    if (!page) {
      FUZZ_REQUIRE(page.error().message().starts_with(name));
      continue;
    }
    for (const char* wrong : {"<script", "=\"nan", "=\"-nan", "=\"inf", "=\"-inf", "Mnan", "Lnan", "Linf"})
      FUZZ_REQUIRE(page->find(wrong) == std::string::npos);
  }
  return 0;
}
