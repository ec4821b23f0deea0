// A CPU list: an error, or ascending CPUs within bounds whose canonical text means the same.
#include <cstdint>
#include <string_view>

#include "fuzz/require.h"
#include "host/parse.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flash;
  const auto cpus = parse_cpu_list({reinterpret_cast<const char*>(data), size});
  if (!cpus) return 0;
  for (std::size_t i = 0; i < cpus->size(); ++i) {
    FUZZ_REQUIRE((*cpus)[i] >= 0 && (*cpus)[i] <= kMaxCpu);
    FUZZ_REQUIRE(i == 0 || (*cpus)[i - 1] < (*cpus)[i]);
  }
  const auto again = parse_cpu_list(format_cpu_list(*cpus));
  FUZZ_REQUIRE(again && *again == *cpus);
  return 0;
}
