// What flash-workload's service and load generator read from a connection: never fatal; what is complete lies
// within the buffer and is the same when more follows; bounds hold.
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/require.h"
#include "workloads/http.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flash;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const HttpRequest request = parse_http_request(text);
  if (request.state == HttpParse::Complete) {
    FUZZ_REQUIRE(request.size > 0 && request.size <= size);
    FUZZ_REQUIRE(!request.method.empty() && !request.path.empty());
    const HttpRequest again = parse_http_request(text.substr(0, request.size));
    FUZZ_REQUIRE(again.state == HttpParse::Complete && again.size == request.size &&
                 again.path == request.path && again.keep_alive == request.keep_alive);
  } else {
    FUZZ_REQUIRE(request.state == HttpParse::Malformed || size <= kHttpHeadMax);
  }
  const HttpResponse response = parse_http_response(text);
  if (response.state == HttpParse::Complete) {
    FUZZ_REQUIRE(response.size > 0 && response.size <= size);
    FUZZ_REQUIRE(response.status >= 100 && response.status <= 999);
    FUZZ_REQUIRE(parse_http_response(text.substr(0, response.size)).state == HttpParse::Complete);
  }
  if (size > kHttpHeadMax) return 0;
  // What it writes itself it reads.
  const std::string own = format_http_response(200, text, true);
  const HttpResponse read = parse_http_response(own);
  FUZZ_REQUIRE(read.state == HttpParse::Complete && read.status == 200 && read.size == own.size() &&
               read.keep_alive);
  return 0;
}
