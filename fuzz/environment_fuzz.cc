// env.json, alone and as a pool: never fatal; an error is one short line that names the file; what is
// accepted is printed as something that is accepted and prints the same.
#include <cstdint>
#include <string_view>

#include "fuzz/require.h"
#include "lab/sim/environment.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flash;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto one = parse_environment(text, "env.json");
  auto pool = parse_environments(text, "env.json");
  for (const std::string& error :
       {one ? "env.json: " : one.error().message(), pool ? "env.json: " : pool.error().message()}) {
    FUZZ_REQUIRE(error.starts_with("env.json: "));
    FUZZ_REQUIRE(error.size() < 400);
    FUZZ_REQUIRE(error.find('\n') == std::string::npos);
  }
  if (one) pool = std::vector<Environment>{*one};
  if (pool) {
    const std::string printed = to_json_text(*pool);
    const auto again = parse_environments(printed, "env.json");
    FUZZ_REQUIRE(again.has_value());
    FUZZ_REQUIRE(to_json_text(*again) == printed);
  }
  return 0;
}
