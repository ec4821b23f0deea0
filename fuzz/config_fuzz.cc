// Configuration texts, split at 0x1e into main file and drop-ins: never fatal; either errors or a
// configuration, each error one line; what describe() says of an accepted one is accepted and says the same.
#include <cstdint>
#include <string>
#include <string_view>

#include "core/json.h"
#include "daemon/config.h"
#include "fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flash;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<ConfigText> texts;
  while (true) {
    const auto end = rest.find('\x1e');
    texts.push_back({"f" + std::to_string(texts.size()), std::string(rest.substr(0, end))});
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  const auto result = parse_config(texts);
  FUZZ_REQUIRE(result.config.has_value() == result.errors.empty());
  FUZZ_REQUIRE(result.errors.size() <= kConfigMaxErrors + 1);
  for (const auto& error : result.errors) FUZZ_REQUIRE(error.find('\n') == std::string::npos);
  if (result) {
    const auto described = describe(*result.config);
    const auto again = parse_config({{"described", described.dump()}});
    FUZZ_REQUIRE(again.config.has_value());
    FUZZ_REQUIRE(describe(*again.config) == described);
  }
  return 0;
}
