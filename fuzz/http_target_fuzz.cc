// The target of a request line: never fatal; what is read is within the bounds and clean; what is refused
// says so in one printable line.
#include <cstdint>
#include <string_view>

#include "fuzz/require.h"
#include "http/target.h"

namespace {

void require_clean(const std::string& text) {
  FUZZ_REQUIRE(text.size() <= flash::http::kMaxTarget);
  for (const unsigned char c : text) FUZZ_REQUIRE(c >= 0x20 && c != 0x7f);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flash;
  const auto target = http::parse_target({reinterpret_cast<const char*>(data), size});
  if (!target) {
    require_clean(target.error().message());
    return 0;
  }
  for (const std::string& part : target->path) {
    require_clean(part);
    FUZZ_REQUIRE(!part.empty() && part != "." && part != "..");
  }
  FUZZ_REQUIRE(target->query.size() <= http::kMaxParameters);
  for (const auto& [name, value] : target->query) {
    require_clean(name);
    require_clean(value);
    FUZZ_REQUIRE(target->parameter(name) == value);
  }
  return 0;
}
