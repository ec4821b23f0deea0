#include "sync/foreign_page.h"

#include <algorithm>
#include <cctype>

namespace flash::sync {
namespace {

struct Magic {
  std::string_view bytes, words;
};
using namespace std::string_view_literals;

constexpr std::size_t kLookedAt = 64;
constexpr std::string_view kSayEncoding =
    ": its answer must say so (Content-Encoding), or the page be served as it is";

constexpr Magic kMagics[] = {
    {"\x1f\x8b"sv, "compressed with gzip"},
    {"\x28\xb5\x2f\xfd"sv, "compressed with zstd"},
    {"\xfd"
     "7zXZ"sv,
     "compressed with xz"},
    {"BZh"sv, "compressed with bzip2"},
    {"PK\x03\x04"sv, "a zip archive"},
    {"\x78\x01"sv, "compressed with deflate"},
    {"\x78\x9c"sv, "compressed with deflate"},
    {"\x78\xda"sv, "compressed with deflate"},
};

bool starts_like(std::string_view text, std::string_view lower) {
  return text.size() >= lower.size() &&
         std::equal(lower.begin(), lower.end(), text.begin(), [](char l, char c) {
           return l == static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
         });
}

/// {"a": ...}, and not {"a"} or {"a",...}, which is a metric whose name has quotes.
bool is_json(std::string_view text) {
  if (text.front() == '[') return true;
  if (text.front() != '{') return false;
  const auto quote = text.find('"', 1), end = quote == text.npos ? quote : text.find('"', quote + 1);
  if (end == text.npos) return true;
  const auto next = text.find_first_not_of(" \t\r\n", end + 1);
  return next == text.npos || (text[next] != ',' && text[next] != '}');
}

}  // namespace

std::string foreign_page(std::string_view body, std::string_view content_type) {
  for (const Magic& m : kMagics)
    if (body.starts_with(m.bytes)) return "the page is " + std::string(m.words) + std::string(kSayEncoding);
  if (body.starts_with("\xff\xfe"sv) || body.starts_with("\xfe\xff"sv) ||
      (body.size() > 1 && (body[0] == '\0') != (body[1] == '\0')))
    return "the page is in UTF-16: it must be UTF-8";
  if (starts_like(content_type, "application/vnd.google.protobuf") ||
      body.substr(0, kLookedAt).find('\0') != body.npos)
    return "the page is no text (protobuf?): the application does not heed that text is asked for";
  const std::size_t begin = body.find_first_not_of(" \t\r\n");
  if (begin == body.npos) return "the page is empty: are metrics switched on there?";
  const std::string_view text = body.substr(begin);
  if (starts_like(text, "<?xml") && !starts_like(content_type, "text/html"))
    return "the page is XML, not metrics: is the path right?";
  if (text.front() == '<') return "the page is HTML, not metrics: a login page, or is the path wrong?";
  if (is_json(text))
    return "the page is JSON, not metrics: is the path right, or is there another one for Prometheus?";
  return "";
}

std::string_view words_for_status(long status) {
  switch (status) {
    case 204:
      return "there is no page: is the path right, and are metrics switched on?";
    case 400:
      return "it refuses the request: is it https, or does it want another host name?";
    case 401:
    case 407:
      return "it wants a login, and flash-sync has none: open the page to this host, or another port for it";
    case 403:
      return "it does not let this host read the page";
    case 404:
    case 410:
      return "there is no such page: is the path right, and are metrics switched on?";
    case 405:
    case 501:
      return "it does not answer GET there: is the path right?";
    case 406:
    case 415:
      return "it has the page in no text format";
    case 426:
      return "it wants another protocol than HTTP/1.1";
    case 429:
      return "it is asked too often: a longer interval_s";
    default:
      break;
  }
  if (status / 100 == 3) return "redirects are not followed: give the address that it leads to";
  if (status / 100 == 5) return "the application, or what is before it, fails";
  return "";
}

}  // namespace flash::sync
