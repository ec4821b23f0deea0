#include "workloads/http.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "core/command_line.h"

namespace flash {

namespace {

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

struct Head {
  HttpParse state = HttpParse::Incomplete;
  std::string_view start_line;
  bool close = false;
  std::size_t content_length = 0;
  std::size_t size = 0;
};

Head parse_head(std::string_view buffer) {
  Head head;
  const auto end = buffer.substr(0, kHttpHeadMax).find("\r\n\r\n");
  if (end == std::string_view::npos) {
    head.state = buffer.size() >= kHttpHeadMax ? HttpParse::Malformed : HttpParse::Incomplete;
    return head;
  }
  head.size = end + 4;
  head.state = HttpParse::Malformed;
  std::string_view lines = buffer.substr(0, end);
  const auto next_line = [&lines] {
    const auto cut = lines.find("\r\n");
    const auto line = lines.substr(0, cut);
    lines = cut == std::string_view::npos ? std::string_view() : lines.substr(cut + 2);
    return line;
  };
  head.start_line = next_line();
  while (!lines.empty()) {
    const auto line = next_line();
    const auto colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0) {
      return head;
    }
    const auto name = line.substr(0, colon);
    const auto value = trimmed(line.substr(colon + 1));
    if (equals_ignoring_case(name, "connection")) {
      head.close = equals_ignoring_case(value, "close");
    } else if (equals_ignoring_case(name, "content-length")) {
      const auto length = parse_integer(value);
      if (!length || *length > kHttpHeadMax) {
        return head;
      }
      head.content_length = *length;
    } else if (equals_ignoring_case(name, "transfer-encoding")) {
      return head;  // neither side of this room sends chunks
    }
  }
  head.state = HttpParse::Complete;
  return head;
}

struct StatusRow {
  int status;
  std::string_view reason;
};
constexpr StatusRow kReasons[] = {
    {200, "OK"}, {400, "Bad Request"}, {404, "Not Found"}, {405, "Method Not Allowed"}};

}  // namespace

HttpRequest parse_http_request(std::string_view buffer) {
  const Head head = parse_head(buffer);
  HttpRequest request;
  request.state = head.state;
  if (head.state != HttpParse::Complete) {
    return request;
  }
  const auto first = head.start_line.find(' ');
  const auto second = head.start_line.rfind(' ');
  if (first == std::string_view::npos || second <= first + 1 || first == 0 ||
      !head.start_line.substr(second + 1).starts_with("HTTP/1.") || head.content_length != 0) {
    request.state = HttpParse::Malformed;
    return request;
  }
  request.method = head.start_line.substr(0, first);
  request.path = head.start_line.substr(first + 1, second - first - 1);
  request.keep_alive = !head.close && head.start_line.ends_with("HTTP/1.1");
  request.size = head.size;
  return request;
}

HttpResponse parse_http_response(std::string_view buffer) {
  const Head head = parse_head(buffer);
  HttpResponse response;
  response.state = head.state;
  if (head.state != HttpParse::Complete) {
    return response;
  }
  std::optional<std::uint64_t> status;
  if (head.start_line.starts_with("HTTP/1.") && head.start_line.size() >= 12 && head.start_line[8] == ' ') {
    status = parse_integer(head.start_line.substr(9, 3));
  }
  if (!status || *status < 100 || *status > 599) {
    response.state = HttpParse::Malformed;
    return response;
  }
  response.status = static_cast<int>(*status);
  response.keep_alive = !head.close;
  response.size = head.size + head.content_length;
  if (buffer.size() < response.size) {
    response.state = HttpParse::Incomplete;
  }
  return response;
}

std::string format_http_response(int status, std::string_view body, bool keep_alive) {
  const auto* row = std::find_if(std::begin(kReasons), std::end(kReasons),
                                 [status](const StatusRow& r) { return r.status == status; });
  const std::string_view reason = row == std::end(kReasons) ? "Unknown" : row->reason;
  return "HTTP/1.1 " + std::to_string(status) + " " + std::string(reason) +
         "\r\nContent-Type: text/plain\r\nContent-Length: " + std::to_string(body.size()) +
         (keep_alive ? "" : "\r\nConnection: close") + "\r\n\r\n" + std::string(body);
}

}  // namespace flash
