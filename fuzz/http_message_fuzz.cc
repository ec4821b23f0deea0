// What flash-workload's service and load generator read from a connection, and the URLs that are asked for:
// never fatal; what is complete lies within the bytes and is the same when they come one by one; bounds hold.
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/require.h"
#include "lab/workloads/http.h"
#include "lab/workloads/load_target.h"

namespace {

using namespace flash;

void try_request(std::string_view text) {
  const HttpRequest request = parse_http_request(text);
  if (request.state != HttpParse::Complete) {
    FUZZ_REQUIRE(request.state == HttpParse::Malformed || text.size() <= kHttpHeadMax);
    return;
  }
  FUZZ_REQUIRE(request.size > 0 && request.size <= text.size());
  FUZZ_REQUIRE(!request.method.empty() && !request.path.empty());
  const HttpRequest again = parse_http_request(text.substr(0, request.size));
  FUZZ_REQUIRE(again.state == HttpParse::Complete && again.size == request.size &&
               again.path == request.path && again.keep_alive == request.keep_alive);
}

void try_response(std::string_view text) {
  HttpResponseReader whole, piecewise;
  const std::size_t taken = whole.read(text);
  FUZZ_REQUIRE(taken <= text.size());
  FUZZ_REQUIRE(whole.state() != HttpParse::Incomplete || taken == text.size());
  std::size_t taken_piecewise = 0;
  while (taken_piecewise < text.size() && piecewise.state() == HttpParse::Incomplete) {
    taken_piecewise += piecewise.read(text.substr(taken_piecewise, 1));
  }
  FUZZ_REQUIRE(piecewise.state() == whole.state() && piecewise.status() == whole.status() &&
               piecewise.keep_alive() == whole.keep_alive());
  if (whole.state() == HttpParse::Complete) {
    FUZZ_REQUIRE(taken_piecewise == taken && taken > 0);
    FUZZ_REQUIRE(whole.read("HTTP/1.1 200 OK\r\n\r\n") == 0);
  }
  whole.end_of_stream();
  FUZZ_REQUIRE(whole.state() != HttpParse::Incomplete);
  if (whole.state() == HttpParse::Complete) {
    FUZZ_REQUIRE(whole.status() >= 200 && whole.status() <= 999 && whole.trouble().empty());
  } else {
    FUZZ_REQUIRE(!whole.keep_alive() && !whole.trouble().empty());
  }
}

void try_target(std::string_view text) {
  const auto parsed = parse_load_target(text);
  if (const auto* error = std::get_if<UsageError>(&parsed)) {
    FUZZ_REQUIRE(!error->message.empty());
    return;
  }
  const auto& target = std::get<LoadTarget>(parsed);
  // One request, whatever was typed.
  const std::string request = format_http_request(target.host_field, target.path);
  if (request.size() > kHttpHeadMax) return;
  const HttpRequest read = parse_http_request(request);
  FUZZ_REQUIRE(read.state == HttpParse::Complete && read.size == request.size() && read.path == target.path &&
               read.method == "GET" && read.keep_alive);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try_request(text);
  try_response(text);
  try_target(text);
  // What it writes itself it reads.
  const std::string own = format_http_response(200, text, true);
  HttpResponseReader reader;
  FUZZ_REQUIRE(reader.read(own) == own.size());
  FUZZ_REQUIRE(reader.state() == HttpParse::Complete && reader.status() == 200 && reader.keep_alive());
  return 0;
}
