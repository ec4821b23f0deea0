// Purpose: the text that applications' /metrics pages are made of: the Prometheus text format 0.0.4 and
// OpenMetrics 1.0, read strictly and within bounds. It comes from outside: fuzz/exposition_fuzz.cc.
// Ownership: what is handed to the callbacks lives during the call.
// Thread rule: pure.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

#include "core/result.h"
#include "link/metric_selector.h"

namespace flash::sync {

/// Larger or longer is refused.
struct PageBounds {
  std::size_t bytes = 4u << 20;
  std::size_t samples = 100'000;
  std::size_t labels = 32;         // of one sample
  std::size_t label_bytes = 1024;  // of one value
  std::size_t name_bytes = 256;
};

struct PageSample {
  std::string_view name;  // "http_requests_total", "latency_seconds_bucket"
  link::Labels labels;    // in the page's order, none twice
  double value = 0;       // may be NaN or infinite
};

struct PageCallbacks {
  std::function<void(std::string_view name, std::string_view type)> type;  // "# TYPE name type"
  std::function<void(const PageSample&)> sample;
};

/// One page. `openmetrics`: it said so, and must end in "# EOF". EINVAL names the line: "line 7: ...". What
/// the callbacks saw before an error is not to be used.
Result<void> parse_page(std::string_view text, bool openmetrics, const PageCallbacks& callbacks,
                        const PageBounds& bounds = {});

}  // namespace flash::sync
