// The files that container engines keep. The first byte chooses the parser; names and paths that come out are
// plain, whatever goes in.
#include <cstdint>
#include <string_view>

#include "fuzz/require.h"
#include "host/container_files.h"

namespace {

void check(const flash::ContainerRecord& record) {
  for (const auto& name : {record.name, record.pod_uid, record.manager})
    FUZZ_REQUIRE(name.empty() || flash::is_container_name(name));
  FUZZ_REQUIRE(record.data_dir.empty() || flash::is_plain_path(record.data_dir));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flash;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'd':
      if (const auto record = docker_container(text)) check(*record);
      break;
    case 'o':
      if (const auto record = oci_container(text)) check(*record);
      break;
    case 's':
      if (const auto names = storage_names(text))
        for (const auto& [id, name] : *names) FUZZ_REQUIRE(is_container_name(id) && is_container_name(name));
      break;
    case 'r':
      if (const auto root = docker_data_root(text)) FUZZ_REQUIRE(root->empty() || is_plain_path(*root));
      break;
    case 't':
      for (const auto* table : {"", "storage"})
        if (const auto path = toml_path(text, table, "state")) FUZZ_REQUIRE(is_plain_path(*path));
      break;
    default:
      break;
  }
  return 0;
}
