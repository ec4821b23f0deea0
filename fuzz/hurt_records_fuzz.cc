// hurts.json in the state directory: never fatal; what is read is within bounds and reads the same again.
#include <cstdint>
#include <string_view>

#include "daemon/hurt_records.h"
#include "fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flash;
  const auto records = parse_hurt_records({reinterpret_cast<const char*>(data), size});
  if (!records) {
    FUZZ_REQUIRE(!records.error().message().empty());
    return 0;
  }
  for (const HurtRecord& r : *records) {
    FUZZ_REQUIRE(r.hurts <= 1 << 20 && r.failures <= 1 << 20);
    FUZZ_REQUIRE(r.out_until.time_since_epoch() >= Duration{});
  }
  const auto again = parse_hurt_records(hurt_records_text(*records));
  FUZZ_REQUIRE(again && again->size() == records->size());
  for (std::size_t i = 0; i < again->size(); ++i) FUZZ_REQUIRE((*again)[i].hurts == (*records)[i].hurts);
  return 0;
}
