// Purpose: the small part of HTTP/1.1 (RFC 9112) that the service and its load generator speak: bodiless GET
// requests, responses with Content-Length, keep-alive. Ownership: views into the caller's buffer. Threads:
// pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace flash {

enum class HttpParse { Incomplete, Complete, Malformed };

inline constexpr std::size_t kHttpHeadMax = 8192;

struct HttpRequest {
  HttpParse state = HttpParse::Incomplete;
  std::string_view method;
  std::string_view path;
  bool keep_alive = true;
  std::size_t size = 0;  // bytes of the buffer that it took
};
HttpRequest parse_http_request(std::string_view buffer);

struct HttpResponse {
  HttpParse state = HttpParse::Incomplete;
  int status = 0;
  bool keep_alive = true;
  std::size_t size = 0;
};
HttpResponse parse_http_response(std::string_view buffer);

std::string format_http_response(int status, std::string_view body, bool keep_alive);

}  // namespace flash
