// A cgroup's path and a docker config, named by whoever runs containers: what is recognised is a part of it.
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/require.h"
#include "host/cgroup_id.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flash;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Container container = container_of(text);
  FUZZ_REQUIRE(container.runtime.empty() == container.id.empty());
  FUZZ_REQUIRE(text.find(container.id) != text.npos);
  FUZZ_REQUIRE(text.starts_with(system_unit_path(text)));
  (void)unit_of(text);
  (void)below_kubepods(text);
  if (const auto name = docker_name(text)) FUZZ_REQUIRE(!name->empty());
  return 0;
}
