// Results of experiments, JSON files that may come from other machines, each taken for every experiment's.
// What is accepted becomes a page without script whose pictures have only numbers; what is not names the
// file.
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/require.h"
#include "lab/report/report.h"

namespace {

/// Whether the page's own markup is as it should be: outside text is in no tag, where "Linf" would be a
/// picture's point at infinity, but stands between tags, where it may be a method's name.
bool markup_is_sound(std::string_view page) {
  for (auto from = page.find('<'); from != page.npos; from = page.find('<', from + 1)) {
    const std::string_view tag = page.substr(from, page.find('>', from) - from);
    for (const char* wrong : {"<script", "nan", "inf"})
      if (tag.find(wrong) != tag.npos) return false;
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flash::lab;
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
    FUZZ_REQUIRE(markup_is_sound(*page));
  }
  return 0;
}
