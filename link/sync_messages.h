// Purpose: what crosses the socket between flashd and flash-sync: one CBOR map per SOCK_SEQPACKET message,
// {"v": 4, "t": TYPE, ...}, with every bound, as messages.h has it for the learner.
// Ownership: values.
// Thread rule: pure functions.
//
// flashd listens, flash-sync connects. After connecting:
//   flashd     -> Hello, then Scrapes: what to scrape (again whenever that changes)
//   flash-sync -> Hello, then a Reading per scrape, WantMetrics when it needs flashd's own metrics
//   flashd     -> per WantMetrics: a Family per metric, then MetricsEnd
//   flashd     -> where flash-sync's Hello wants them: an EpisodeEnd per agent and episode, again after the
//                 connection broke
//   flash-sync -> EpisodesStored, when they are on its disk; NearestPair, when the coordinator knows one
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/result.h"
#include "core/time_unit.h"
#include "link/describe.h"
#include "link/episode.h"
#include "link/metric_selector.h"
#include "link/neighbour.h"

namespace flash::link::sync {

inline constexpr int kVersion = 4;
inline constexpr std::size_t kMaxScrapes = 128;     // 128 of the longest ones fit a message
inline constexpr std::size_t kMaxLabels = 8;        // of a family of flashd's
inline constexpr std::size_t kMaxSamples = 512;     // per Family message; a larger family comes in several
inline constexpr std::size_t kMaxFamilies = 1024;   // messages between two MetricsEnd
inline constexpr std::size_t kEpisodeWindow = 256;  // EpisodeEnds that flashd says beyond EpisodesStored

inline constexpr double kMaxCount = 1e15;  // requests between two answers
inline constexpr double kMaxLatencyMs = 1e9;

inline constexpr bound::OneOf kUnit{std::array{TimeUnit::Auto, TimeUnit::Seconds, TimeUnit::Milliseconds,
                                               TimeUnit::Microseconds, TimeUnit::Nanoseconds},
                                    "a unit of time"};

/// An application's metrics page, as a rule gives it (/rules/NAME/slo/prometheus).
struct Scrape {
  std::string rule;
  std::string url;
  double interval_s = 1;
  double timeout_s = 0.5;
  std::string latency;             // selector (metric_selector.h) of a histogram or summary; empty: none
  std::string requests;            // of a counter; empty: the latency metric's count
  std::string errors;              // of a counter; empty: none
  TimeUnit unit = TimeUnit::Auto;  // of the latency metric; Auto: what its name ends in, else seconds
  bool operator==(const Scrape&) const = default;
};
template <class V, Of<Scrape> E>
void describe(V& v, E& m) {
  v("rule", m.rule, bound::Name{});
  v("url", m.url, bound::Sound{wrong_with_url});
  v("interval_s", m.interval_s, bound::Within{0.1, 3600});
  v("timeout_s", m.timeout_s, bound::Within{0.05, 60});
  v("latency", m.latency, bound::Sound{wrong_with_selector, true});
  v("requests", m.requests, bound::Sound{wrong_with_selector, true});
  v("errors", m.errors, bound::Sound{wrong_with_selector, true});
  v("unit", m.unit, kUnit);
}
void also(cbor::Check& c, const Scrape& m);

struct HelloDown {
  static constexpr std::string_view kType = "hello";
  std::string software;     // "flashd 0.1.0"
  std::uint64_t epoch = 0;  // random, one per start of flashd; numbers of episodes count within it
};
template <class V, Of<HelloDown> E>
void describe(V& v, E& m) {
  v("software", m.software, bound::Name{});
  v("epoch", m.epoch);
}

/// All there are; replaces what was said before.
struct Scrapes {
  static constexpr std::string_view kType = "scrapes";
  std::vector<Scrape> scrapes;
};
template <class V, Of<Scrapes> E>
void describe(V& v, E& m) {
  v("scrapes", m.scrapes, bound::List{0, kMaxScrapes, "scrapes"});
}

enum class FamilyType : std::uint8_t { Gauge, Counter, Info };
std::string_view to_string(FamilyType t);  // "gauge", "counter", "info"
inline constexpr bound::OneOf kFamilyType{
    std::array{FamilyType::Gauge, FamilyType::Counter, FamilyType::Info}, "a type of metric"};

/// One metric of flashd with samples: sample i has labels[k] = label_values[i * labels.size() + k].
struct Family {
  static constexpr std::string_view kType = "family";
  std::string name;  // without "_total"
  FamilyType type = FamilyType::Gauge;
  std::string unit;  // "seconds", "bytes"; empty: none
  std::string help;
  std::vector<std::string> labels;
  std::vector<std::string> label_values;
  std::vector<double> values;
};
template <class V, Of<Family> E>
void describe(V& v, E& m) {
  v("name", m.name, bound::Name{});
  v("type", m.type, kFamilyType);
  v("unit", m.unit, bound::Name{.may_be_empty = true});
  v("help", m.help, bound::Name{});
  v("labels", m.labels, bound::Texts{kMaxLabels, "labels", {}});
  v("label_values", m.label_values,
    bound::Texts{kMaxLabels * kMaxSamples, "values", bound::Name{.may_be_empty = true}});
  v("values", m.values, bound::Values{kMaxSamples, "samples"});
}
void also(cbor::Check& c, const Family& m);

struct MetricsEnd {
  static constexpr std::string_view kType = "metrics-end";
};
template <class V, Of<MetricsEnd> E>
void describe(V&, E&) {}

struct EpisodeEnd {
  static constexpr std::string_view kType = "episode";
  std::uint64_t number = 0;  // from 1, without gaps but where flashd had to drop some
  Episode episode;
};
template <class V, Of<EpisodeEnd> E>
void describe(V& v, E& m) {
  v("number", m.number, bound::FromOne{});
  v("episode", m.episode);
}

struct HelloUp {
  static constexpr std::string_view kType = "hello";
  std::string software;  // "flash-sync 0.1.0"
  std::uint64_t pid = 0;
  bool wants_episodes = false;
};
template <class V, Of<HelloUp> E>
void describe(V& v, E& m) {
  v("software", m.software, bound::Name{});
  v("pid", m.pid);
  v("wants_episodes", m.wants_episodes);
}

enum class ReadingState : std::uint8_t {
  First,        // answered; differences need a second answer
  Good,         // the numbers below hold
  Unreachable,  // no answer: refused, timed out, wrong status
  Invalid,      // an answer that is no metrics page, or without what is asked for
};
std::string_view to_string(ReadingState s);  // "first", "good", "unreachable", "invalid"
inline constexpr bound::OneOf kReadingState{
    std::array{ReadingState::First, ReadingState::Good, ReadingState::Unreachable, ReadingState::Invalid},
    "a state"};

/// What one scrape said, as differences to the one before.
struct Reading {
  static constexpr std::string_view kType = "reading";
  std::string rule;
  ReadingState state = ReadingState::Good;
  std::string reason;   // in words, unless good
  double covers_s = 0;  // time since the previous answer
  double requests = 0;  // in that time
  bool has_errors = false;
  double errors = 0;  // in that time
  bool has_latency = false;
  double p50_ms = 0, p99_ms = 0;
  double samples = 0;  // requests that the percentiles are of
  bool exact = true;   // false: a summary's over a time of its own, or the buckets are too coarse
  // p99 is above the highest bucket, and p99_ms that one's bound; so is p50 where equal.
  bool at_least = false;
  // Why there never is one, though the page is good; empty: there is, or was no request.
  std::string no_latency;
};
template <class V, Of<Reading> E>
void describe(V& v, E& m) {
  v("rule", m.rule, bound::Name{});
  v("state", m.state, kReadingState);
  v("reason", m.reason, bound::Name{.may_be_empty = true});
  v("covers_s", m.covers_s, bound::Within{0, 1e6});
  v("requests", m.requests, bound::Within{0, kMaxCount});
  v("has_errors", m.has_errors);
  v("errors", m.errors, bound::Within{0, kMaxCount});
  v("has_latency", m.has_latency);
  v("p50_ms", m.p50_ms, bound::Within{0, kMaxLatencyMs});
  v("p99_ms", m.p99_ms, bound::Within{0, kMaxLatencyMs});
  v("samples", m.samples, bound::Within{0, kMaxCount});
  v("exact", m.exact);
  v("at_least", m.at_least);
  v("no_latency", m.no_latency, bound::Name{.may_be_empty = true});
}
void also(cbor::Check& c, const Reading& m);

struct WantMetrics {
  static constexpr std::string_view kType = "want-metrics";
};
template <class V, Of<WantMetrics> E>
void describe(V&, E&) {}

struct EpisodesStored {
  static constexpr std::string_view kType = "episodes-stored";
  std::uint64_t number = 0;  // all up to this are on disk
};
template <class V, Of<EpisodesStored> E>
void describe(V& v, E& m) {
  v("number", m.number);
}

/// What the coordinator knows for an agent that is new.
struct NearestPair {
  static constexpr std::string_view kType = "nearest-pair";
  std::string agent;  // as Episode has it
  Neighbour neighbour;
};
template <class V, Of<NearestPair> E>
void describe(V& v, E& m) {
  v("agent", m.agent, bound::Name{});
  v("neighbour", m.neighbour);
}

using Down = std::variant<HelloDown, Scrapes, Family, MetricsEnd, EpisodeEnd>;
using Up = std::variant<HelloUp, Reading, WantMetrics, EpisodesStored, NearestPair>;

/// Within the bounds? EINVAL names the field.
Result<void> validate(const Down& message);
Result<void> validate(const Up& message);

/// REQUIRES: validate() passes (asserted).
std::string encode(const Down& message);
std::string encode(const Up& message);

/// As decode_down() and decode_up() of messages.h.
Result<Down> decode_down(std::string_view bytes);
Result<Up> decode_up(std::string_view bytes);

}  // namespace flash::link::sync
