#include "sync/differences.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "link/messages.h"

namespace flash::sync {

using link::sync::Reading;
using link::sync::ReadingState;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::optional<link::MetricSelector> selector_of(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return *link::parse_metric_selector(text);
}

/// The series' identity: its labels in order, without the one that tells its parts apart.
std::string key_of(const link::Labels& labels, std::string_view without) {
  std::vector<const std::pair<std::string, std::string>*> sorted;
  for (const auto& l : labels)
    if (l.first != without) sorted.push_back(&l);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
  std::string key;
  for (const auto* l : sorted) key.append(l->first).append(1, '\0').append(l->second).append(1, '\0');
  return key;
}

const std::string* find_label(const link::Labels& labels, std::string_view name) {
  const auto it = std::find_if(labels.begin(), labels.end(), [&](const auto& l) { return l.first == name; });
  return it == labels.end() ? nullptr : &it->second;
}

std::optional<double> bound_from(const std::string& text) {
  if (text == "+Inf" || text == "Inf") return kInfinity;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

bool is_count(double v) {
  return v >= 0 && v <= 1e15;  // false for NaN
}

/// Growth of a counter; one that fell began anew.
double growth(double now, const double* before) {
  return before && *before <= now ? now - *before : now;
}

double growth(const std::map<std::string, double>& now, const std::map<std::string, double>& before) {
  double sum = 0;
  for (const auto& [key, value] : now) {
    const auto it = before.find(key);
    sum += growth(value, it == before.end() ? nullptr : &it->second);
  }
  return sum;
}

/// histogram_quantile() of PromQL; `above`: it lies in the last bucket, so all that is known is its lower
/// bound.
double quantile(double q, const std::vector<double>& bounds, const std::vector<double>& cumulative,
                bool& above) {
  const double rank = q * cumulative.back();
  const auto at = std::lower_bound(cumulative.begin(), cumulative.end(), rank);
  const auto i = static_cast<std::size_t>(at - cumulative.begin());
  if (i + 1 >= bounds.size()) {
    above = true;
    return bounds.size() < 2 ? 0 : std::max(0.0, bounds[bounds.size() - 2]);
  }
  const double low = i == 0 ? std::min(0.0, bounds[0]) : bounds[i - 1];
  const double below = i == 0 ? 0 : cumulative[i - 1];
  const double inside = cumulative[i] - below;
  const double value = inside <= 0 ? bounds[i] : low + (bounds[i] - low) * (rank - below) / inside;
  return std::max(0.0, value);
}

}  // namespace

double milliseconds_per_unit(std::string_view metric) {
  struct Suffix {
    std::string_view text;
    double factor;
  };
  // "_ms" ends in no other of them; "_milliseconds" does not end in "_seconds".
  static constexpr Suffix kSuffixes[] = {{"_milliseconds", 1}, {"_ms", 1},    {"_microseconds", 1e-3},
                                         {"_us", 1e-3},        {"_ns", 1e-6}, {"_nanoseconds", 1e-6}};
  for (const Suffix& s : kSuffixes)
    if (metric.ends_with(s.text)) return s.factor;
  return 1000;
}

Differences::Differences(const link::sync::Scrape& scrape, DifferencesOptions options)
    : rule_(scrape.rule),
      options_(options),
      latency_(selector_of(scrape.latency)),
      requests_(selector_of(scrape.requests)),
      errors_(selector_of(scrape.errors)) {
  if (latency_) to_ms_ = milliseconds_per_unit(latency_->name);
}

Reading Differences::reading(ReadingState state, std::string reason) const {
  Reading r;
  r.rule = rule_;
  r.state = state;
  // The page's words are never part of it; a host's or a library's may be long.
  if (reason.size() > link::kMaxName) reason.resize(link::kMaxName);
  for (char& c : reason)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  r.reason = std::move(reason);
  return r;
}

Reading Differences::unreachable(const std::string& reason) const {
  return reading(ReadingState::Unreachable, reason);
}

void Differences::take(const PageSample& sample, Seen& seen) const {
  if (!seen.trouble.empty()) return;
  if (latency_ && sample.name.starts_with(latency_->name))
    take_latency(sample, sample.name.substr(latency_->name.size()), seen);
  if (requests_) take_counter(*requests_, sample, seen.requests, seen);
  if (errors_) take_counter(*errors_, sample, seen.errors, seen);
  if (seen.series > options_.max_series)
    seen.trouble = "more than " + std::to_string(options_.max_series) + " series match";
}

void Differences::take_latency(const PageSample& sample, std::string_view rest, Seen& seen) const {
  const bool bucket = rest == "_bucket", count = rest == "_count";
  if ((!bucket && !count && !rest.empty()) || !link::matches(*latency_, sample.labels)) return;
  if (bucket) {
    const std::string* le = find_label(sample.labels, "le");
    const auto bound = le ? bound_from(*le) : std::nullopt;
    if (!bound) {
      seen.trouble = "a bucket of " + latency_->name + " without its bound (le)";
    } else if (!is_count(sample.value)) {
      seen.trouble = "a bucket of " + latency_->name + " is no count";
    } else {
      ++seen.series;
      if (!seen.histograms[key_of(sample.labels, "le")].cumulative.emplace(*bound, sample.value).second)
        seen.trouble = "a bucket of " + latency_->name + " is there twice";
    }
  } else if (count) {
    if (!is_count(sample.value)) {
      seen.trouble = latency_->name + "_count is no count";
      return;
    }
    ++seen.series;
    seen.summaries[key_of(sample.labels, "quantile")].count = sample.value;
  } else if (const std::string* quantile_label = find_label(sample.labels, "quantile")) {
    const auto q = bound_from(*quantile_label);
    if (!q || std::isnan(sample.value) || sample.value < 0 || std::isinf(sample.value)) return;
    ++seen.series;
    Summary& summary = seen.summaries[key_of(sample.labels, "quantile")];
    if (*q == 0.5) summary.p50 = sample.value;
    if (*q == 0.99) summary.p99 = sample.value;
  }
}

void Differences::take_counter(const link::MetricSelector& selector, const PageSample& sample,
                               std::map<std::string, double>& into, Seen& seen) const {
  if (!sample.name.starts_with(selector.name)) return;
  const std::string_view rest = sample.name.substr(selector.name.size());
  if ((!rest.empty() && rest != "_total") || !link::matches(selector, sample.labels)) return;
  if (!is_count(sample.value)) {
    seen.trouble = selector.name + " is no count";
    return;
  }
  ++seen.series;
  if (!into.emplace(key_of(sample.labels, ""), sample.value).second)
    seen.trouble = selector.name + " is there twice";
}

/// Is what was asked for there? A metric that is announced (# TYPE) but has no series yet has counted
/// nothing.
std::string Differences::wrong_with(const Seen& seen) const {
  if (!seen.trouble.empty()) return seen.trouble;
  if (latency_) {
    const std::string& type = seen.latency_type;
    if (!type.empty() && type != "histogram" && type != "summary" && type != "untyped" && type != "unknown")
      return latency_->name + " is a " + type + ", neither histogram nor summary";
    const bool summary = std::any_of(seen.summaries.begin(), seen.summaries.end(),
                                     [](const auto& s) { return s.second.p99 >= 0; });
    if (seen.histograms.empty() && !summary && seen.summaries.empty() && type.empty())
      return "no histogram or summary " + latency_->name + " with these labels";
    for (const auto& [key, histogram] : seen.histograms) {
      const auto& cumulative = histogram.cumulative;
      if (cumulative.rbegin()->first != kInfinity)
        return "a histogram of " + latency_->name + " has no +Inf bucket";
      for (auto it = std::next(cumulative.begin()); it != cumulative.end(); ++it)
        if (it->second < std::prev(it)->second) return "the buckets of " + latency_->name + " do not add up";
    }
  }
  const auto counter = [](const std::optional<link::MetricSelector>& selector, const std::string& type,
                          const std::map<std::string, double>& series) -> std::string {
    if (!selector) return {};
    if (!type.empty() && type != "counter" && type != "untyped" && type != "unknown")
      return selector->name + " is a " + type + ", not a counter";
    return series.empty() && type.empty() ? "no counter " + selector->name + " with these labels"
                                          : std::string();
  };
  if (auto wrong = counter(requests_, seen.requests_type, seen.requests); !wrong.empty()) return wrong;
  return counter(errors_, seen.errors_type, seen.errors);
}

/// Of all histograms; nullopt: they differ. Empty: there is none.
std::optional<std::vector<double>> Differences::bounds_of(const Seen& seen) const {
  std::vector<double> bounds;
  for (const auto& [key, histogram] : seen.histograms) {
    std::vector<double> own;
    for (const auto& [bound, count] : histogram.cumulative) own.push_back(bound);
    if (bounds.empty())
      bounds = std::move(own);
    else if (bounds != own)
      return std::nullopt;
  }
  return bounds;
}

void Differences::histogram_latency(const Seen& seen, Reading& reading) {
  Interval interval;
  interval.counts.assign(bounds_.size(), 0);
  for (const auto& [key, histogram] : seen.histograms) {
    const auto it = before_->histograms.find(key);
    const Histogram* before = it == before_->histograms.end() ? nullptr : &it->second;
    if (before) {
      // One bucket that fell says that all began anew.
      const bool fell =
          std::any_of(histogram.cumulative.begin(), histogram.cumulative.end(), [&](const auto& b) {
            const auto old = before->cumulative.find(b.first);
            return old != before->cumulative.end() && old->second > b.second;
          });
      if (fell) before = nullptr;
    }
    std::size_t i = 0;
    for (const auto& [bound, count] : histogram.cumulative) {
      const double* old = nullptr;
      if (before)
        if (const auto b = before->cumulative.find(bound); b != before->cumulative.end()) old = &b->second;
      interval.counts[i++] += growth(count, old);
    }
  }
  // Differences of rows that add up need not add up themselves, where a page was made while it counted.
  for (std::size_t i = 1; i < interval.counts.size(); ++i)
    interval.counts[i] = std::max(interval.counts[i], interval.counts[i - 1]);
  const double fresh = interval.counts.empty() ? 0 : interval.counts.back();
  if (!requests_) reading.requests = fresh;
  intervals_.push_front(std::move(interval));
  if (intervals_.size() > options_.look_back + 1) intervals_.pop_back();
  if (fresh <= 0) return;
  std::vector<double> sum(bounds_.size(), 0);
  for (const Interval& i : intervals_) {
    for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += i.counts[k];
    if (sum.back() >= options_.enough_samples) break;
  }
  bool above = false, median_above = false;
  reading.has_latency = true;
  reading.samples = sum.back();
  reading.p50_ms = quantile(0.50, bounds_, sum, median_above) * to_ms_;
  reading.p99_ms = std::max(reading.p50_ms, quantile(0.99, bounds_, sum, above) * to_ms_);
  reading.exact = !above;
}

void Differences::summary_latency(const Seen& seen, Reading& reading) const {
  double p50 = -1, p99 = -1, fresh = 0;
  for (const auto& [key, summary] : seen.summaries) {
    if (summary.count >= 0) {
      const auto it = before_->summaries.find(key);
      const bool known = it != before_->summaries.end() && it->second.count >= 0;
      fresh += growth(summary.count, known ? &it->second.count : nullptr);
    }
    p50 = std::max(p50, summary.p50);
    p99 = std::max(p99, summary.p99);
  }
  if (!requests_) reading.requests = fresh;
  if (fresh <= 0 || p99 < 0) return;
  reading.has_latency = true;
  reading.exact = false;
  reading.samples = fresh;
  reading.p99_ms = p99 * to_ms_;
  reading.p50_ms = std::clamp(p50, 0.0, p99) * to_ms_;
}

Reading Differences::page(Duration now, std::string_view text, bool openmetrics) {
  Seen seen;
  PageCallbacks callbacks;
  callbacks.type = [&](std::string_view name, std::string_view type) {
    const auto note = [&](const std::optional<link::MetricSelector>& selector, std::string& into) {
      if (selector && (name == selector->name || selector->name == std::string(name) + "_total")) into = type;
    };
    note(latency_, seen.latency_type);
    note(requests_, seen.requests_type);
    note(errors_, seen.errors_type);
  };
  callbacks.sample = [&](const PageSample& sample) { take(sample, seen); };
  if (auto parsed = parse_page(text, openmetrics, callbacks, options_.page); !parsed)
    return reading(ReadingState::Invalid, parsed.error().message());
  if (auto wrong = wrong_with(seen); !wrong.empty()) return reading(ReadingState::Invalid, wrong);
  auto bounds = bounds_of(seen);
  if (!bounds)
    return reading(ReadingState::Invalid, "the series of " + latency_->name + " have different buckets");
  if (bounds->empty()) *bounds = bounds_;  // announced, nothing counted yet
  const bool other_buckets = !bounds_.empty() && *bounds != bounds_;
  if (other_buckets) intervals_.clear();
  bounds_ = std::move(*bounds);
  if (!before_ || other_buckets || now <= before_at_) {
    before_ = std::move(seen);
    before_at_ = now;
    return reading(ReadingState::First, other_buckets ? "its buckets have changed: differences begin anew"
                                                      : "answered once: differences need a second answer");
  }
  Reading r = reading(ReadingState::Good, "");
  r.covers_s = std::min(seconds(now - before_at_), 1e6);
  if (requests_) r.requests = growth(seen.requests, before_->requests);
  r.has_errors = errors_.has_value();
  if (errors_) r.errors = growth(seen.errors, before_->errors);
  if (latency_) {
    if (!bounds_.empty())
      histogram_latency(seen, r);
    else
      summary_latency(seen, r);
  }
  r.p99_ms = std::min(r.p99_ms, 1e9);
  r.p50_ms = std::min(r.p50_ms, r.p99_ms);
  r.requests = std::min(r.requests, 1e15);
  r.errors = std::min(r.errors, 1e15);
  r.samples = std::min(r.samples, 1e15);
  before_ = std::move(seen);
  before_at_ = now;
  return r;
}

}  // namespace flash::sync
