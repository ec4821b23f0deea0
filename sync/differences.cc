#include "sync/differences.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "link/messages.h"
#include "sync/foreign_page.h"

namespace flash::sync {

using link::sync::Reading;
using link::sync::ReadingState;

namespace {

// What a series and a bucket take in a map, about.
constexpr std::size_t kSeriesBytes = 112, kBucketBytes = 64;
constexpr char kTooMuch[] =
    "the series that match take more memory than there is for one of so many pages: select fewer by labels";

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

/// The page's words are never part of it; a host's, a library's or a metric's name may be long.
std::string words(std::string text) {
  if (text.size() > link::kMaxName) text.resize(link::kMaxName);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  return text;
}

/// What a map has for the key, which may be new to it.
template <class Map>
typename Map::mapped_type& entry(Map& map, std::string key, std::size_t& bytes) {
  const auto [at, is_new] = map.try_emplace(std::move(key));
  if (is_new) bytes += kSeriesBytes + at->first.size();
  return at->second;
}

bool is_count(double v) {
  return v >= 0 && v <= 1e15;  // false for NaN
}

/// histogram_quantile() of PromQL.
struct Quantile {
  double value = 0;
  bool above = false;  // in the last bucket: all that is known is its lower bound
  bool none = false;   // in a bucket that ends at 0 or below: that is no latency
};
Quantile quantile(double q, const std::vector<double>& bounds, const std::vector<double>& cumulative) {
  const double rank = q * cumulative.back();
  const auto at = std::lower_bound(cumulative.begin(), cumulative.end(), rank);
  const auto i = static_cast<std::size_t>(at - cumulative.begin());
  if (i + 1 >= bounds.size()) return {std::max(0.0, bounds[bounds.size() - 2]), true, false};
  if (bounds[i] <= 0) return {0, false, true};
  const double low = i == 0 ? 0 : bounds[i - 1];
  const double below = i == 0 ? 0 : cumulative[i - 1];
  const double inside = cumulative[i] - below;
  const double value = inside <= 0 ? bounds[i] : low + (bounds[i] - low) * (rank - below) / inside;
  return {std::max(0.0, value), false, false};
}

// Names of series in PageCounters: one letter per kind of series before the labels.
std::string histogram_series(const std::string& key) {
  return "h" + key;
}
std::string summary_series(const std::string& key) {
  return "s" + key;
}

}  // namespace

double milliseconds_per_unit(std::string_view metric) {
  const TimeUnit named = unit_of_name(metric);
  return milliseconds_in(named == TimeUnit::Auto ? TimeUnit::Seconds : named);
}

Differences::Differences(const link::sync::Scrape& scrape, DifferencesOptions options)
    : rule_(scrape.rule),
      options_(options),
      latency_(selector_of(scrape.latency)),
      requests_(selector_of(scrape.requests)),
      errors_(selector_of(scrape.errors)) {
  if (scrape.unit != TimeUnit::Auto)
    to_ms_ = milliseconds_in(scrape.unit);
  else if (latency_)
    to_ms_ = milliseconds_per_unit(latency_->name);
}

Reading Differences::reading(ReadingState state, std::string reason) const {
  Reading r;
  r.rule = rule_;
  r.state = state;
  r.reason = words(std::move(reason));
  return r;
}

Reading Differences::unreachable(const std::string& reason) const {
  return reading(ReadingState::Unreachable, reason);
}

Reading Differences::invalid(const std::string& reason) const {
  return reading(ReadingState::Invalid, reason);
}

void Differences::take(const PageSample& sample, Seen& seen) const {
  if (!seen.trouble.empty()) return;
  if (sample.name == "process_start_time_seconds" && std::isfinite(sample.value)) {
    ++seen.processes;
    seen.process_start = sample.value;
  }
  if (latency_ && sample.name.starts_with(latency_->name))
    take_latency(sample, sample.name.substr(latency_->name.size()), seen);
  if (requests_) take_counter(*requests_, sample, seen.requests, seen);
  if (errors_) take_counter(*errors_, sample, seen.errors, seen);
  // Those that go on and those that fell are remembered, too, and a bucket for each interval.
  if (3 * seen.bytes > may_keep_) seen.trouble = kTooMuch;
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
      seen.trouble = find_label(sample.labels, "vmrange")
                         ? latency_->name + " has buckets by vmrange, which are not read: it must have le"
                     : le ? "a bucket of " + latency_->name + " whose bound (le) is no number"
                          : "a bucket of " + latency_->name + " without its bound (le)";
    } else if (!is_count(sample.value)) {
      seen.trouble = "a bucket of " + latency_->name + " is no count";
    } else {
      ++seen.series;
      seen.bytes += kBucketBytes;
      Histogram& histogram = entry(seen.histograms, key_of(sample.labels, "le"), seen.bytes);
      if (!histogram.cumulative.emplace(*bound, sample.value).second)
        seen.trouble = "a bucket of " + latency_->name + " is there twice";
    }
  } else if (count) {
    if (!is_count(sample.value)) {
      seen.trouble = latency_->name + "_count is no count";
      return;
    }
    ++seen.series;
    entry(seen.summaries, key_of(sample.labels, "quantile"), seen.bytes).count = sample.value;
  } else if (const std::string* quantile_label = find_label(sample.labels, "quantile")) {
    const auto q = bound_from(*quantile_label);
    if (q && *q == 0.99) entry(seen.summaries, key_of(sample.labels, "quantile"), seen.bytes).has_p99 = true;
    if (!q || std::isnan(sample.value) || sample.value < 0 || std::isinf(sample.value)) return;
    ++seen.series;
    Summary& summary = entry(seen.summaries, key_of(sample.labels, "quantile"), seen.bytes);
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
  std::string key = key_of(sample.labels, "");
  seen.bytes += kSeriesBytes + key.size();
  if (!into.emplace(std::move(key), sample.value).second) seen.trouble = selector.name + " is there twice";
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
      const auto all = seen.summaries.find(key);
      if (all != seen.summaries.end() && all->second.count > 2 * cumulative.rbegin()->second + 10)
        return latency_->name + "_count has more than twice what its +Inf bucket has";
    }
    const bool counted = std::any_of(seen.summaries.begin(), seen.summaries.end(),
                                     [](const auto& s) { return s.second.count >= 0; });
    if (seen.histograms.empty() && summary && !counted && !requests_)
      return "summary " + latency_->name + " has no _count: how many requests there were is not known";
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

/// Whatever comes, this page has no percentiles. Empty: it can have some.
std::string Differences::why_no_latency(const Seen& seen) const {
  if (!latency_) return {};
  if (!bounds_.empty())
    return bounds_.size() > 1 ? std::string()
                              : "histogram " + latency_->name +
                                    " has no finite bucket (a native histogram?): give it buckets near the "
                                    "objective, which the text format shows";
  if (seen.summaries.empty()) return {};  // announced, nothing counted yet
  if (seen.latency_type == "histogram")
    return "histogram " + latency_->name +
           " shows no buckets (a native histogram?): give it buckets near the objective, which the text "
           "format shows";
  const bool p99 = std::any_of(seen.summaries.begin(), seen.summaries.end(),
                               [](const auto& s) { return s.second.has_p99; });
  return p99 ? std::string()
             : "summary " + latency_->name + " has no 0.99 quantile: give it one, or use a histogram";
}

void Differences::histogram_latency(const Seen& seen, Reading& reading) {
  Interval interval;
  interval.counts.assign(bounds_.size(), 0);
  for (const auto& [key, histogram] : seen.histograms) {
    const auto it = before_->histograms.find(key);
    const bool goes_on = it != before_->histograms.end() && continuity_.goes_on(histogram_series(key));
    std::size_t i = 0;
    for (const auto& [bound, count] : histogram.cumulative)
      interval.counts[i++] += goes_on ? count - it->second.cumulative.at(bound) : count;
  }
  // Differences of rows that add up need not add up themselves, where a page was made while it counted.
  for (std::size_t i = 1; i < interval.counts.size(); ++i)
    interval.counts[i] = std::max(interval.counts[i], interval.counts[i - 1]);
  const double fresh = interval.counts.empty() ? 0 : interval.counts.back();
  if (!requests_) reading.requests = fresh;
  intervals_.push_front(std::move(interval));
  if (intervals_.size() > options_.look_back + 1) intervals_.pop_back();
  if (fresh <= 0 || bounds_.size() < 2) return;
  std::vector<double> sum(bounds_.size(), 0);
  for (const Interval& i : intervals_) {
    for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += i.counts[k];
    if (sum.back() >= options_.enough_samples) break;
  }
  const Quantile p50 = quantile(0.50, bounds_, sum), p99 = quantile(0.99, bounds_, sum);
  if (p99.none) {
    reading.no_latency = words("nearly all requests of histogram " + latency_->name +
                               " lie in a bucket that ends at 0: its unit is too coarse");
    return;
  }
  reading.has_latency = true;
  reading.samples = sum.back();
  reading.p50_ms = p50.value * to_ms_;
  reading.p99_ms = std::max(reading.p50_ms, p99.value * to_ms_);
  reading.at_least = p99.above;
  // All in a single bucket: what is interpolated is the bucket's width.
  reading.exact = !p99.above && bounds_.size() > 2;
}

void Differences::summary_latency(const Seen& seen, Reading& reading) const {
  double p50 = -1, p99 = -1, fresh = 0;
  bool counted = false;
  for (const auto& [key, summary] : seen.summaries) {
    if (summary.count >= 0) {
      const auto it = before_->summaries.find(key);
      const bool goes_on = it != before_->summaries.end() && continuity_.goes_on(summary_series(key));
      fresh += summary.count - (goes_on ? it->second.count : 0);
      counted = true;
    }
    p50 = std::max(p50, summary.p50);
    p99 = std::max(p99, summary.p99);
  }
  if (!requests_) reading.requests = fresh;
  if (!counted) fresh = reading.requests;
  if (fresh <= 0 || p99 < 0) return;
  reading.has_latency = true;
  reading.exact = false;
  reading.samples = fresh;
  reading.p99_ms = p99 * to_ms_;
  reading.p50_ms = std::clamp(p50, 0.0, p99) * to_ms_;
}

PageCounters Differences::counters_of(const Seen& seen) {
  PageCounters all;
  if (seen.processes == 1) all.process_start = seen.process_start;
  for (const auto& [key, histogram] : seen.histograms) {
    CountedSeries& series = all.series[histogram_series(key)];
    series.kind = Counted::Latency;
    for (const auto& [bound, count] : histogram.cumulative) series.counts.push_back(count);
  }
  for (const auto& [key, summary] : seen.summaries)
    if (summary.count >= 0 && !seen.histograms.contains(key))
      all.series[summary_series(key)] = {Counted::Latency, {summary.count}};
  for (const auto& [key, count] : seen.requests) all.series["r" + key] = {Counted::Requests, {count}};
  for (const auto& [key, count] : seen.errors) all.series["e" + key] = {Counted::Errors, {count}};
  return all;
}

double Differences::growth(const std::map<std::string, double>& now,
                           const std::map<std::string, double>& before, const char* kind) const {
  double sum = 0;
  for (const auto& [key, value] : now) sum += value - (continuity_.goes_on(kind + key) ? before.at(key) : 0);
  return sum;
}

Reading Differences::begin_anew(Duration now, Seen seen, ReadingState state, std::string reason) {
  before_ = std::move(seen);
  before_at_ = now;
  intervals_.clear();
  return reading(state, std::move(reason));
}

std::size_t Differences::kept() const {
  return (before_ ? before_->bytes : 0) + continuity_.bytes() +
         (intervals_.size() + 1) * bounds_.size() * sizeof(double);
}

void Differences::forget() {
  before_.reset();
  bounds_ = {};
  intervals_ = {};
  continuity_ = {};
}

Reading Differences::page(Duration now, std::string_view text, bool openmetrics,
                          std::string_view content_type) {
  Reading r = compared(now, text, openmetrics, content_type);
  if (kept() > may_keep_) r = reading(ReadingState::Invalid, kTooMuch);
  if (r.reason == kTooMuch) forget();
  return r;
}

Reading Differences::compared(Duration now, std::string_view text, bool openmetrics,
                              std::string_view content_type) {
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
  if (auto parsed = parse_page(text, openmetrics, callbacks, options_.page); !parsed) {
    const std::string instead = foreign_page(text, content_type);
    return reading(ReadingState::Invalid, instead.empty() ? parsed.error().message() : instead);
  }
  if (text.find_first_not_of(" \t\r\n") == text.npos)
    return reading(ReadingState::Invalid, foreign_page(text, content_type));
  if (auto wrong = wrong_with(seen); !wrong.empty()) return reading(ReadingState::Invalid, wrong);
  auto bounds = bounds_of(seen);
  if (!bounds)
    return reading(ReadingState::Invalid, "the series of " + latency_->name + " have different buckets");
  if (bounds->empty()) *bounds = bounds_;  // announced, nothing counted yet
  const bool other_buckets = !bounds_.empty() && *bounds != bounds_;
  bounds_ = std::move(*bounds);
  if (other_buckets && continuity_.note_change())
    return begin_anew(now, std::move(seen), ReadingState::Invalid,
                      "its buckets change again and again: several processes answer in turn, or the "
                      "histogram makes its own buckets; give it fixed ones");
  if (!before_ || other_buckets || now <= before_at_)
    return begin_anew(now, std::move(seen), ReadingState::First,
                      other_buckets ? "its buckets have changed: differences begin anew"
                                    : "answered once: differences need a second answer");
  const double covers_s = std::min(seconds(now - before_at_), 1e6);
  if (auto verdict = continuity_.judge(counters_of(*before_), counters_of(seen), covers_s);
      !verdict.doubt.empty())
    return begin_anew(now, std::move(seen), verdict.several ? ReadingState::Invalid : ReadingState::First,
                      std::move(verdict.doubt));
  Reading r = reading(ReadingState::Good, "");
  r.covers_s = covers_s;
  if (requests_) r.requests = growth(seen.requests, before_->requests, "r");
  r.has_errors = errors_.has_value();
  if (errors_) r.errors = growth(seen.errors, before_->errors, "e");
  r.no_latency = words(why_no_latency(seen));
  if (latency_) {
    if (!bounds_.empty())
      histogram_latency(seen, r);
    else
      summary_latency(seen, r);
  }
  if (r.has_latency) r.no_latency.clear();
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
