#include "link/cbor.h"

#include "core/utf8.h"

namespace flash::link::cbor {

Error invalid(const std::string& what) {
  return Error(std::errc::invalid_argument, what);
}

std::string at(std::string_view list, std::size_t i) {
  return std::string(list) + "[" + std::to_string(i) + "].";
}

void begin(Writer& w, int version, std::string_view type, std::size_t fields) {
  w.head(Writer::kMap, fields + 2);
  w.field("v", static_cast<std::uint32_t>(version));
  w.field("t", type);
}

namespace {

constexpr std::size_t kMaxDepth = 4;  // message, list, entry, value

/// One pass over the bytes before anything is built from them, because nlohmann's reader recurses as deep as
/// the sender likes: well formed, shallow, definite lengths that the message holds, and only the kinds of
/// values that messages are made of. Returns how many map entries there are.
Result<std::size_t> scan(std::string_view bytes) {
  std::array<std::uint64_t, kMaxDepth + 1> open = {1};  // items still to come, per level
  std::size_t depth = 0, i = 0, entries = 0;
  const auto wrong = [&](std::string_view what) {
    return invalid("byte " + std::to_string(i) + ": " + std::string(what));
  };
  while (true) {
    while (depth > 0 && open[depth] == 0) --depth;
    if (open[depth] == 0) break;  // depth 0: the message is whole
    --open[depth];
    if (i >= bytes.size()) return wrong("the message ends early");
    const unsigned first = static_cast<unsigned char>(bytes[i]);
    const unsigned major = first >> 5, info = first & 31;
    if (info >= 28) return wrong("indefinite length");
    const std::size_t extra = info < 24 ? 0 : std::size_t{1} << (info - 24);
    if (bytes.size() - i - 1 < extra) return wrong("the message ends early");
    std::uint64_t n = info;
    if (extra > 0) {
      n = 0;
      for (std::size_t k = 1; k <= extra; ++k) n = n << 8 | static_cast<unsigned char>(bytes[i + k]);
    }
    const std::size_t left = bytes.size() - i - 1 - extra;
    switch (major) {
      case 0:
        break;
      case 1:
        if (n > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
          return wrong("a number below -2^63");
        break;
      case 2:
      case 3:
        if (n > left) return wrong("a length beyond the message");
        if (major == 3 && !is_utf8(bytes.substr(i + 1 + extra, n))) return wrong("text that is not UTF-8");
        i += n;
        break;
      case 4:
      case 5:
        if (n > left / (major - 3)) return wrong("a length beyond the message");
        if (depth == kMaxDepth) return wrong("nested too deep");
        open[++depth] = n * (major - 3);
        if (major == 5) entries += n;
        break;
      case 7:
        if (info == 20 || info == 21 || (info >= 25 && info <= 27)) break;  // false, true, floats
        [[fallthrough]];
      default:
        return wrong("a kind of value that no message has");
    }
    i += 1 + extra;
  }
  if (i != bytes.size()) return wrong("more follows the message");
  return entries;
}

std::size_t count_entries(const json& j) {
  std::size_t n = j.is_object() ? j.size() : 0;
  if (j.is_structured())
    for (const json& part : j) n += count_entries(part);
  return n;
}

}  // namespace

Result<json> parse(std::string_view bytes) {
  if (bytes.size() > kMaxMessage)
    return Error(std::errc::message_size,
                 std::to_string(bytes.size()) + " bytes, at most " + std::to_string(kMaxMessage));
  FLASH_TRY(const std::size_t entries, scan(bytes));
  json j = json::from_cbor(bytes.begin(), bytes.end(), true, false);
  if (!j.is_object()) return invalid("not a map with text keys");
  if (count_entries(j) != entries) return invalid("a key is there twice");
  return j;
}

Fields fields_of(const json& j) {
  Fields f(j);
  (void)f.find("v");
  (void)f.find("t");
  return f;
}

Result<std::string> type_of(const json& j, int expected) {
  const auto version = j.find("v");
  if (version == j.end() || !version->is_number_unsigned()) return invalid("v: not a version");
  if (*version != expected)
    return Error(std::errc::protocol_not_supported,
                 "version " + version->dump() + ", this end speaks " + std::to_string(expected));
  const auto type = j.find("t");
  if (type == j.end() || !type->is_string()) return invalid("t: not a type");
  return type->get<std::string>();
}

std::string shown(std::string_view text) {
  std::string begin(text.substr(0, 32));
  for (char& c : begin)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  return begin;
}

Error unknown_type(const std::string& type) {
  return invalid("t: unknown type '" + shown(type) + "'");
}

}  // namespace flash::link::cbor
