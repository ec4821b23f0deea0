#include "collectors/prometheus_collector.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace flash {
namespace {

constexpr double kEnoughSamples = 20;  // as StatsdOptions::few_requests
constexpr int kStaleIntervals = 3;

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

/// What a page says whose counters stood still for clearly longer than they usually do.
ScrapeResult nothing_in(const ScrapeResult& reading) {
  ScrapeResult r = reading;
  r.requests = r.errors = 0;
  r.has_latency = false;
  return r;
}

Sample judged(double value, Validity validity) {
  return {value, validity};
}

}  // namespace

void PrometheusCollector::configure(const std::vector<ScrapedRule>& rules, Duration period) {
  period_ = period;
  std::map<std::string, Page> pages;
  for (const ScrapedRule& rule : rules) {
    const auto known = pages_.find(rule.rule);
    Page& page = pages[rule.rule];
    if (known != pages_.end()) page = std::move(known->second);
    page.is = rule;
  }
  pages_ = std::move(pages);
}

void PrometheusCollector::set_source(bool there, std::string why_not) {
  source_there_ = there;
  source_why_not_ = std::move(why_not);
}

bool PrometheusCollector::take(Now now, const std::string& rule, ScrapeResult result) {
  const auto it = pages_.find(rule);
  if (it == pages_.end()) return false;
  Page& page = it->second;
  page.answered = true;
  page.last = std::move(result);
  if (page.last.state == ScrapeResult::State::Good && page.last.covers_s > 0) {
    page.read = true;
    page.good = page.last;
    page.good_at = now.mono;
    note_growth(now, page);
  }
  return true;
}

void PrometheusCollector::note_growth(Now now, Page& page) {
  const ScrapeResult& r = page.good;
  const bool grew = r.requests > 0 || r.errors > 0 || r.has_latency;
  // The first look counts as one at which they grew: from then on they stand still.
  page.growth.look(now.mono, grew || page.growth.state() == ReportClock::State::Unheard);
  if (!grew) {
    page.still_s += r.covers_s;
    return;
  }
  page.grown = r;
  page.ever_grown = true;
  if (seconds(page.growth.covers()) > 1.5 * r.covers_s) page.grown.covers_s += page.still_s;
  page.still_s = 0;
}

void PrometheusCollector::track(const Target& target) {
  targets_[target.id] = target.rule;
}

void PrometheusCollector::untrack(TargetId id) {
  targets_.erase(id);
}

void PrometheusCollector::fill(Now now, Page& page, Observation& observation) const {
  using State = ScrapeResult::State;
  Sample& p50 = observation[Signal::LatencyP50];
  Sample& p99 = observation[Signal::LatencyP99];
  Sample& rate = observation[Signal::RequestRate];
  Sample& errors = observation[Signal::ErrorRate];
  const Duration holds = page.is.interval + page.is.timeout + 2 * period_;
  const Duration age = now.mono - page.good_at;
  page.late = page.read && age > holds;
  if (page.answered && page.last.state == State::Invalid) {
    p50 = p99 = rate = Sample::invalid();
    return;
  }
  if (!page.read || age > holds + kStaleIntervals * page.is.interval) return;
  const ReportClock::State growth = page.growth.state();
  const bool silent = growth == ReportClock::State::Silent;
  if (!silent && !page.ever_grown) return;  // standing still, and for how long is not known to mean anything
  const ScrapeResult r = silent ? nothing_in(page.good) : page.grown;
  const bool fresh = source_there_ && page.last.state == State::Good && !page.late;
  const bool fine = ReportClock::fits(from_seconds(r.covers_s), period_);
  Validity validity = !fresh ? Validity::Stale : fine ? Validity::Good : Validity::Degraded;
  if (!silent) validity = std::min(validity, page.growth.validity(period_));
  rate = judged(r.requests / r.covers_s, validity);
  if (r.has_errors) errors = judged(r.errors / r.covers_s, validity);
  if (!r.has_latency || !why_no_latency(page, r).empty()) return;
  if (!r.at_least || r.p50_ms < r.p99_ms) p50 = judged(r.p50_ms, validity);
  const bool certain = r.exact && !r.at_least && r.samples >= kEnoughSamples;
  // Above a bound that is the objective, it is missed.
  p99 = judged(r.at_least ? r.p99_ms * (1 + 1e-9) : r.p99_ms,
               certain ? validity : std::min(validity, Validity::Degraded));
}

void PrometheusCollector::collect(Now now, ObservationTable& table) {
  for (const auto& [id, rule] : targets_) {
    const auto row = table.find(id);
    if (row == table.end()) continue;
    for (Signal s : {Signal::LatencyP50, Signal::LatencyP99, Signal::RequestRate, Signal::ErrorRate})
      row->second[s] = Sample::missing();
    if (const auto page = pages_.find(rule); page != pages_.end()) fill(now, page->second, row->second);
  }
}

/// "" too where nobody asks for it, or there was no request.
std::string PrometheusCollector::why_no_latency(const Page& page, const ScrapeResult& r) {
  if (!page.is.latency || !page.read) return "";
  // Above a bound that is below the objective: kept or missed, nobody knows.
  if (r.at_least && r.p99_ms < page.is.objective_ms)
    return "p99 is above the highest bucket, " + number(r.p99_ms) + " ms, which is below the objective of " +
           number(page.is.objective_ms) + " ms: add buckets around it";
  return r.no_latency;
}

std::string PrometheusCollector::trouble_of(const Page& page) const {
  using State = ScrapeResult::State;
  if (!source_there_) return source_why_not_;
  if (!page.answered) return "not read yet";
  switch (page.last.state) {
    case State::Good:
      if (page.late) return "stale: no reading in time";
      if (const std::string why = why_no_latency(page, page.ever_grown ? page.grown : page.good);
          !why.empty())
        return "without latency: " + why;
      return "";
    case State::First:
      return page.last.reason;
    case State::Unreachable:
      return "unreachable: " + page.last.reason;
    case State::Invalid:
      return "invalid: " + page.last.reason;
  }
  return "";
}

std::vector<Degraded> PrometheusCollector::degraded() const {
  std::vector<Degraded> all;
  if (pages_.empty()) return all;
  if (!source_there_) return {{"prometheus", "metrics pages are not read: " + source_why_not_}};
  for (const auto& [rule, page] : pages_) {
    if (!page.answered || page.last.state == ScrapeResult::State::First) continue;  // on its way
    if (const std::string trouble = trouble_of(page); !trouble.empty())
      all.push_back({"prometheus", "the metrics page of rule " + rule + " is " + trouble});
  }
  return all;
}

std::string PrometheusCollector::why_not(TargetId id) const {
  const auto target = targets_.find(id);
  const auto page = target == targets_.end() ? pages_.end() : pages_.find(target->second);
  if (page == pages_.end()) return "its rule names no metrics page";
  const std::string trouble = trouble_of(page->second);
  return trouble.empty() ? "the page counts no request" : trouble;
}

}  // namespace flash
