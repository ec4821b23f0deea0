// Purpose: which series of a metrics page are meant: a metric's name with matchers of labels, as PromQL
// writes them: http_request_duration_seconds{handler="/api",code!="500"}. And which addresses may be scraped.
// Ownership: values.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"

namespace flash::link {

inline constexpr std::size_t kMaxUrl = 1024;      // bytes
inline constexpr std::size_t kMaxSelector = 256;  // bytes
inline constexpr std::size_t kMaxMatchers = 16;

struct LabelMatcher {
  std::string label;
  std::string value;
  bool equal = true;  // false: !=
  bool operator==(const LabelMatcher&) const = default;
};

struct MetricSelector {
  std::string name;
  std::vector<LabelMatcher> matchers;  // all must match; an absent label counts as ""
  bool operator==(const MetricSelector&) const = default;
};

using Labels = std::vector<std::pair<std::string, std::string>>;

/// [a-zA-Z_:][a-zA-Z0-9_:]* for metrics; labels without ':'.
bool is_metric_name(std::string_view text);
bool is_label_name(std::string_view text);

/// EINVAL says what is wrong and where.
Result<MetricSelector> parse_metric_selector(std::string_view text);
bool matches(const MetricSelector& selector, const Labels& labels);

/// What is wrong with an address to scrape, nullopt: nothing. http or https, a host, no user or password (the
/// configuration is no place for secrets), no fragment, printable ASCII.
std::optional<std::string> wrong_with_url(std::string_view url);
std::optional<std::string> wrong_with_selector(std::string_view text);

}  // namespace flash::link
