#include "lab/workloads/http.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "core/command_line.h"

namespace flash {

namespace {

constexpr std::size_t kChunkLineMax = 4096;  // with extensions, which mean nothing here
constexpr int kInterimMax = 16;

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Cuts the first of the parts that `separator` parts off the text, without blanks around it.
std::string_view next_part(std::string_view& text, char separator) {
  const auto cut = text.find(separator);
  const auto part = text.substr(0, cut);
  text = cut == std::string_view::npos ? std::string_view() : text.substr(cut + 1);
  return trimmed(part);
}

bool lists(const std::optional<std::string>& field, std::string_view token) {
  std::string_view list = field ? *field : std::string_view();
  while (!list.empty()) {
    if (equals_ignoring_case(next_part(list, ','), token)) {
      return true;
    }
  }
  return false;
}

/// The fields of a head that say where a message ends. Several of one name are one list (RFC 9110, 5.3).
struct Framing {
  std::optional<std::string> connection, content_length, transfer_encoding;
  /// nullopt: none was given, or what is no length; all that are in the list must agree.
  std::optional<std::uint64_t> length() const {
    std::string_view list = content_length ? *content_length : std::string_view();
    const auto first = parse_integer(next_part(list, ','));
    while (!list.empty()) {
      if (parse_integer(next_part(list, ',')) != first) {
        return std::nullopt;
      }
    }
    return first;
  }
};

/// Cuts a line off; it ends with CR LF, or with LF alone (RFC 9112, 2.2).
std::string_view next_line(std::string_view& lines) {
  const auto cut = lines.find('\n');
  auto line = lines.substr(0, cut);
  lines = cut == std::string_view::npos ? std::string_view() : lines.substr(cut + 1);
  if (line.ends_with('\r')) {
    line.remove_suffix(1);
  }
  return line;
}

/// nullopt: a line is no field.
std::optional<Framing> read_fields(std::string_view lines) {
  Framing framing;
  std::optional<std::string>* value = nullptr;  // of the field before, if it is one of ours
  bool any = false;
  while (!lines.empty()) {
    const auto line = next_line(lines);
    if (line.empty()) {
      break;
    }
    if (line.front() == ' ' || line.front() == '\t') {  // a folded value goes on (RFC 9112, 5.2)
      if (!any) {
        return std::nullopt;
      }
      if (value != nullptr) {
        (*value)->append(" ").append(trimmed(line));
      }
      continue;
    }
    const auto colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0) {
      return std::nullopt;
    }
    any = true;
    const auto name = trimmed(line.substr(0, colon));
    value = equals_ignoring_case(name, "connection")          ? &framing.connection
            : equals_ignoring_case(name, "content-length")    ? &framing.content_length
            : equals_ignoring_case(name, "transfer-encoding") ? &framing.transfer_encoding
                                                              : nullptr;
    if (value != nullptr) {
      *value = (*value ? **value + "," : "") + std::string(trimmed(line.substr(colon + 1)));
    }
  }
  return framing;
}

struct StatusRow {
  int status;
  std::string_view reason;
};
constexpr StatusRow kReasons[] = {
    {200, "OK"}, {400, "Bad Request"}, {404, "Not Found"}, {405, "Method Not Allowed"}};

}  // namespace

HttpRequest parse_http_request(std::string_view buffer) {
  HttpRequest request;
  const auto end = buffer.substr(0, kHttpHeadMax).find("\r\n\r\n");
  if (end == std::string_view::npos) {
    request.state = buffer.size() >= kHttpHeadMax ? HttpParse::Malformed : HttpParse::Incomplete;
    return request;
  }
  request.state = HttpParse::Malformed;
  std::string_view lines = buffer.substr(0, end);
  const auto start_line = next_line(lines);
  const auto framing = read_fields(lines);
  const auto first = start_line.find(' ');
  const auto second = start_line.rfind(' ');
  if (!framing || first == std::string_view::npos || second <= first + 1 || first == 0 ||
      !start_line.substr(second + 1).starts_with("HTTP/1.") || framing->transfer_encoding ||
      (framing->content_length && framing->length() != 0)) {
    return request;
  }
  request.state = HttpParse::Complete;
  request.method = start_line.substr(0, first);
  request.path = start_line.substr(first + 1, second - first - 1);
  request.keep_alive = !lists(framing->connection, "close") && start_line.ends_with("HTTP/1.1");
  request.size = end + 4;
  return request;
}

std::size_t HttpResponseReader::read(std::string_view bytes) {
  std::size_t taken = 0;
  while (state_ == HttpParse::Incomplete && taken < bytes.size()) {
    begun_ = true;
    const auto rest = bytes.substr(taken);
    switch (part_) {
      case Part::ToTheEnd:
        taken += rest.size();
        break;
      case Part::Length:
      case Part::Chunk: {
        const auto part = std::min<std::uint64_t>(left_, rest.size());
        taken += static_cast<std::size_t>(part);
        left_ -= part;
        if (left_ == 0 && part_ == Part::Length) {
          state_ = HttpParse::Complete;
        } else if (left_ == 0) {
          part_ = Part::ChunkEnd;
        }
        break;
      }
      case Part::Head:
      case Part::ChunkSize:
      case Part::ChunkEnd:
      case Part::Trailer: {
        const auto cut = rest.find('\n');
        const auto line = rest.substr(0, cut == std::string_view::npos ? cut : cut + 1);
        const auto most =
            part_ == Part::Head || part_ == Part::Trailer ? kHttpResponseHeadMax : kChunkLineMax;
        if (text_.size() + line.size() > most) {
          malformed(part_ == Part::Head ? "an endless head" : "an endless line between chunks");
          break;
        }
        taken += line.size();
        text_ += line;
        if (cut != std::string_view::npos) {
          take_line();
        }
        break;
      }
    }
  }
  return taken;
}

/// text_ ends with a whole line, and its end, from line_begin_ on.
void HttpResponseReader::take_line() {
  std::string_view rest = std::string_view(text_).substr(line_begin_);
  const std::string_view line = next_line(rest);
  const bool first = line_begin_ == 0;
  switch (part_) {
    case Part::Head:
      if (first && !line.starts_with("HTTP/1.")) {
        return malformed("no HTTP/1 answer");
      }
      if (line.empty()) {
        return take_head();
      }
      line_begin_ = text_.size();
      return;
    case Part::ChunkSize:
      return take_chunk_size(line);
    case Part::ChunkEnd:
      if (!line.empty()) {
        return malformed("a chunk that is longer than its size");
      }
      part_ = Part::ChunkSize;
      text_.clear();
      return;
    case Part::Trailer:
      line_begin_ = text_.size();
      if (line.empty()) {
        state_ = HttpParse::Complete;
      }
      return;
    case Part::Length:
    case Part::ToTheEnd:
    case Part::Chunk:
      return;
  }
}

void HttpResponseReader::take_head() {
  std::string_view lines = text_;
  const std::string_view start_line = next_line(lines);
  // "HTTP/1.1 200 OK", where the words may be missing.
  std::optional<std::uint64_t> status;
  if (start_line.size() >= 12 && start_line[8] == ' ' && (start_line.size() == 12 || start_line[12] == ' ')) {
    status = parse_integer(start_line.substr(9, 3));
  }
  if (!status || *status < 100) {
    return malformed("an impossible status line");
  }
  const auto framing = read_fields(lines);
  if (!framing) {
    return malformed("a head line that is no field");
  }
  if (*status == 101) {
    return malformed("another protocol that nobody asked for");
  }
  const bool old = start_line[7] == '0';
  status_ = static_cast<int>(*status);
  keep_alive_ = old ? lists(framing->connection, "keep-alive") : !lists(framing->connection, "close");
  text_.clear();
  line_begin_ = 0;
  if (*status < 200) {
    if (++interim_ > kInterimMax) {
      malformed("endless interim answers");
    }
    return;  // the next head follows
  }
  if (*status == 204 || *status == 304) {
    state_ = HttpParse::Complete;
  } else if (framing->transfer_encoding) {
    std::string_view codings = *framing->transfer_encoding, last;
    while (!codings.empty()) {
      last = next_part(codings, ',');
    }
    part_ = equals_ignoring_case(last, "chunked") ? Part::ChunkSize : Part::ToTheEnd;
    // A length beside it, or an HTTP/1.0 that knew no chunks, may mean another end to somebody in between.
    keep_alive_ = keep_alive_ && part_ == Part::ChunkSize && !framing->content_length && !old;
  } else if (framing->content_length) {
    const auto length = framing->length();
    if (!length) {
      return malformed("an impossible Content-Length");
    }
    left_ = *length;
    part_ = Part::Length;
    if (left_ == 0) {
      state_ = HttpParse::Complete;
    }
  } else {
    part_ = Part::ToTheEnd;
    keep_alive_ = false;
  }
}

void HttpResponseReader::take_chunk_size(std::string_view line) {
  const auto digits = trimmed(line.substr(0, line.find(';')));
  std::uint64_t size = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), size, 16);
  if (error != std::errc{} || end != digits.data() + digits.size()) {
    return malformed("an impossible size of a chunk");
  }
  text_.clear();
  left_ = size;
  part_ = size > 0 ? Part::Chunk : Part::Trailer;
}

void HttpResponseReader::end_of_stream() {
  if (state_ != HttpParse::Incomplete) {
    return;
  }
  if (part_ == Part::ToTheEnd) {
    state_ = HttpParse::Complete;
  } else {
    malformed(begun_ ? "an answer cut short" : "a connection closed without an answer");
  }
}

void HttpResponseReader::malformed(std::string_view trouble) {
  state_ = HttpParse::Malformed;
  trouble_ = trouble;
  keep_alive_ = false;
}

std::string format_http_request(std::string_view host, std::string_view path) {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: " + std::string(host) +
         "\r\nUser-Agent: flash-workload/" FLASH_VERSION "\r\nAccept: */*\r\n\r\n";
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
