// Purpose: what a client asks for: the target of its request line, read strictly. One spelling per meaning;
// what is not understood is refused, never guessed.
// Ownership: values.
// Thread rule: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"

namespace flash::http {

inline constexpr std::size_t kMaxTarget = 2048;  // bytes, as they come
inline constexpr std::size_t kMaxParameters = 16;

struct Target {
  std::vector<std::string> path;  // its segments: "/api/v1/nodes/a%2Fb" is api, v1, nodes, a/b; "/" is none
  std::vector<std::pair<std::string, std::string>> query;  // each name once

  /// nullopt: not given.
  std::optional<std::string_view> parameter(std::string_view name) const;
};

/// "/path?name=value&name=value" with percent-encoding (RFC 3986; "+" is a plus). EINVAL says what is wrong:
/// longer than the bounds, no leading "/", an empty segment or ".", "..", a half escape, an escaped control
/// character, not UTF-8, a parameter without "=" or given twice, a fragment.
Result<Target> parse_target(std::string_view text);

}  // namespace flash::http
