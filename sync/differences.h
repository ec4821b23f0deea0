// Purpose: what happened between two looks at an application's metrics page: requests, errors, latency
// percentiles.
// Ownership: a value per scrape.
// Thread rule: none needed. No clock: the caller says when.
//
// Counters only grow; one that fell was reset and counts from 0, series by series, where that can be
// (continuity.h). Histograms of several series (one per handler, say) are added up and must have the same
// buckets. Percentiles are interpolated within a bucket as PromQL's histogram_quantile() does, so they are as
// fine as the buckets; of one that has no upper bound only the lower one is known, and a histogram without
// another bucket tells nothing. An interval of few requests borrows from the ones before it, as StatsD's
// collector does. A summary has percentiles of its own making over a time of its own choice: the largest of
// its series is taken, and said not to be exact.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/time.h"
#include "link/metric_selector.h"
#include "link/sync_messages.h"
#include "sync/continuity.h"
#include "sync/exposition.h"

namespace flash::sync {

struct DifferencesOptions {
  double enough_samples = 20;     // an interval with fewer borrows ...
  std::size_t look_back = 10;     // ... from so many intervals before it
  std::size_t max_series = 4096;  // that match, all selectors together
  PageBounds page;
};

class Differences {
 public:
  /// REQUIRES: validate() accepts the scrape.
  explicit Differences(const link::sync::Scrape& scrape, DifferencesOptions options = {});

  /// A page that came at `now` (monotonic). First, Good or Invalid; after an Invalid one the next is compared
  /// with the last one that was read. `content_type`: what the answer said of itself, for the reason why it
  /// is refused.
  link::sync::Reading page(Duration now, std::string_view text, bool openmetrics,
                           std::string_view content_type = {});
  /// What is remembered of pages may take so many bytes from the next page on; a page with more is refused,
  /// and what was remembered is forgotten.
  void may_keep(std::size_t bytes) { may_keep_ = bytes; }
  /// What is remembered now, with what the maps take, about.
  std::size_t kept() const;
  /// No page came.
  link::sync::Reading unreachable(const std::string& reason) const;
  /// One came that cannot be read.
  link::sync::Reading invalid(const std::string& reason) const;

 private:
  struct Histogram {
    std::map<double, double> cumulative;  // by upper bound; +inf is there once complete
  };
  struct Summary {
    double p50 = -1, p99 = -1;  // -1: not given, or of no request (NaN)
    double count = -1;
    bool has_p99 = false;
  };
  /// What the selectors want of one page; series by their labels.
  struct Seen {
    std::map<std::string, Histogram> histograms;
    std::map<std::string, Summary> summaries;
    std::map<std::string, double> requests, errors;
    std::string latency_type, requests_type, errors_type;
    std::optional<double> process_start;
    std::size_t processes = 0;  // that say when they were started
    std::size_t series = 0;
    std::size_t bytes = 0;  // it takes, about
    std::string trouble;
  };
  struct Interval {
    std::vector<double> counts;  // cumulative, one per bound
  };

  void take(const PageSample& sample, Seen& seen) const;
  void take_latency(const PageSample& sample, std::string_view rest, Seen& seen) const;
  void take_counter(const link::MetricSelector& selector, const PageSample& sample,
                    std::map<std::string, double>& into, Seen& seen) const;
  std::string wrong_with(const Seen& seen) const;
  std::string why_no_latency(const Seen& seen) const;
  std::optional<std::vector<double>> bounds_of(const Seen& seen) const;
  link::sync::Reading begin_anew(Duration now, Seen seen, link::sync::ReadingState state, std::string reason);
  void histogram_latency(const Seen& seen, link::sync::Reading& reading);
  void summary_latency(const Seen& seen, link::sync::Reading& reading) const;
  static PageCounters counters_of(const Seen& seen);
  double growth(const std::map<std::string, double>& now, const std::map<std::string, double>& before,
                const char* kind) const;
  link::sync::Reading reading(link::sync::ReadingState state, std::string reason) const;

  link::sync::Reading compared(Duration now, std::string_view text, bool openmetrics,
                               std::string_view content_type);
  void forget();

  std::string rule_;
  DifferencesOptions options_;
  std::size_t may_keep_ = 16u << 20;
  std::optional<link::MetricSelector> latency_, requests_, errors_;
  double to_ms_ = 1000;
  std::optional<Seen> before_;
  Duration before_at_{};
  Continuity continuity_;
  std::vector<double> bounds_;      // of the histograms; the last is +inf
  std::deque<Interval> intervals_;  // newest first
};

/// How many milliseconds one unit of a metric of that name is: what its name ends in
/// (core/time_unit.h), else seconds, Prometheus' base unit.
double milliseconds_per_unit(std::string_view metric);

}  // namespace flash::sync
