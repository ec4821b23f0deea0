// A target as the HTTP API's questions: never fatal; what is read is within the bounds, what is refused says
// so in one printable line.
#include <cstdint>
#include <string_view>

#include "coordinator/api_query.h"
#include "fuzz/require.h"

namespace {

template <class T>
void require_said(const flash::Result<T>& query) {
  if (query) return;
  FUZZ_REQUIRE(!query.error().message().empty());
  for (const unsigned char c : query.error().message()) FUZZ_REQUIRE(c >= 0x20 && c != 0x7f);
}

void require_bounds(const flash::coordinator::Paging& page) {
  using namespace flash::coordinator;
  FUZZ_REQUIRE(page.limit >= 1 && page.limit <= kMaxPage && page.offset <= kMaxOffset);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flash;
  using namespace flash::coordinator;
  const auto target = http::parse_target({reinterpret_cast<const char*>(data), size});
  if (!target) return 0;
  const auto agents = agents_query(*target);
  require_said(agents);
  if (agents) {
    require_bounds(agents->page);
    FUZZ_REQUIRE(agents->text.size() <= kMaxWord && agents->node.size() <= kMaxWord);
  }
  const auto nodes = nodes_query(*target);
  require_said(nodes);
  if (nodes) require_bounds(nodes->page);
  const auto curves = curves_query(*target);
  require_said(curves);
  if (curves) FUZZ_REQUIRE(curves->application.size() <= kMaxWord && cells_of(curves->range) > 0);
  const auto map = map_query(*target);
  require_said(map);
  if (map) FUZZ_REQUIRE(map->model == target->parameter("model").value_or(""));
  return 0;
}
