// Purpose: what applications show on their metrics pages: request latency, rate and errors of the targets of
// each rule that names a page. flash-sync fetches the pages (flashd has no network); this side judges how far
// what it says can be trusted: it is another process and may be away, late or wrong.
// Which source of a target wins is slo_ladder's business.
//
// Validity: a reading holds until the next one is due and a little longer. Good: it covers at most two ticks.
// Degraded: more than that (what it says of several decisions cannot be told apart), or for p99 few requests,
// or a percentile that is not exact, or only known to be above the objective. Missing, though the page is
// good: latency that is only known to be above some bound below the objective, or of no bucket at all. A look
// at which the counters stand still is no "no request": workers and exporters behind a page put their share
// on it every few seconds (report_clock.h). What they said last holds as long as it covers, then is Stale; a
// rate of 0 is an answer once they stood still for clearly longer than they usually do. Stale: the page did
// not answer since, for at most three intervals; then Missing. Invalid: it answered with something that is no
// such page.
// Ownership: values.
// Thread rule: the control loop's thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "collectors/report_clock.h"
#include "core/ports.h"

namespace flash {

/// What is scraped for a rule.
struct ScrapedRule {
  std::string rule;
  Duration interval = std::chrono::seconds(1), timeout = std::chrono::milliseconds(500);
  bool latency = true;      // is latency asked for at all
  double objective_ms = 0;  // of p99; 0: there is none
};

/// What flash-sync says of a page, as differences to the look before.
struct ScrapeResult {
  enum class State : std::uint8_t { First, Good, Unreachable, Invalid };
  State state = State::Good;
  std::string reason;   // unless Good
  double covers_s = 0;  // > 0 where Good
  double requests = 0, errors = 0;
  bool has_errors = false;
  bool has_latency = false;
  double p50_ms = 0, p99_ms = 0;
  double samples = 0;
  bool exact = true;
  bool at_least = false;   // p99_ms is only a bound from below, and p50_ms where it is the same
  std::string no_latency;  // why a good page never has one
};

class PrometheusCollector final : public Collector {
 public:
  std::string_view name() const override { return "prometheus"; }
  /// Rules with a page, and the time between two ticks. What is known of rules that stay is kept.
  void configure(const std::vector<ScrapedRule>& rules, Duration period);
  /// flash-sync is there, or why not. While it is not, readings grow stale.
  void set_source(bool there, std::string why_not);
  /// False: no such rule.
  bool take(Now now, const std::string& rule, ScrapeResult result);

  void track(const Target& target) override;
  void untrack(TargetId id) override;
  /// Missing for targets whose rule has no page.
  void collect(Now now, ObservationTable& table) override;
  std::vector<Degraded> degraded() const override;
  /// Why nothing is said of the target; never empty.
  std::string why_not(TargetId id) const;

 private:
  struct Page {
    ScrapedRule is;
    bool answered = false;  // anything was said of it
    ScrapeResult last;
    bool read = false;  // it was Good once
    ScrapeResult good;  // the newest good one
    Duration good_at{};
    // Of the page's counters: when they grew, the reading that said so, of how long it is by now.
    ReportClock growth;
    ScrapeResult grown;
    bool ever_grown = false;
    double still_s = 0;  // that they have stood still since
    bool late = false;   // as of the last collect(): beyond the time that a reading holds
  };
  void fill(Now now, Page& page, Observation& observation) const;
  static std::string why_no_latency(const Page& page, const ScrapeResult& reading);
  static void note_growth(Now now, Page& page);
  std::string trouble_of(const Page& page) const;

  std::map<std::string, Page> pages_;
  std::unordered_map<TargetId, std::string> targets_;  // -> rule, of all
  Duration period_ = std::chrono::seconds(1);
  bool source_there_ = false;
  std::string source_why_not_ = "flash-sync is not connected";
};

}  // namespace flash
