// Purpose: what one application said over StatsD, tick by tick, and what that makes of its latency, rate and
// errors (statsd_collector.h says by which rules).
// Ownership: values; bounded, whatever is sent.
// Thread rule: one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "collectors/ddsketch.h"
#include "collectors/report_clock.h"
#include "core/signal.h"
#include "core/time.h"
#include "core/time_unit.h"

namespace flash {

/// Targets that name an application.
struct StatsdNamed {
  std::size_t targets = 0;
  std::array<std::size_t, 5> of_unit{};  // by TimeUnit, what their rules say
  void add(TimeUnit unit) { ++targets, ++of_unit[static_cast<std::size_t>(unit)]; }
  void remove(TimeUnit unit) { --targets, --of_unit[static_cast<std::size_t>(unit)]; }
  TimeUnit unit() const;      // Auto: none is given
  bool contradicted() const;  // several are
};

/// What was heard in this tick, what is remembered of those before, and what it comes to.
struct StatsdApplication {
  StatsdNamed named;
  DDSketch latency_ms;
  double weight = 0;          // of this tick's latency samples: the requests they stand for
  std::uint64_t samples = 0;  // latency samples in this tick, unweighted
  struct Recent {
    double latency_ms = 0, weight = 0;
    std::uint64_t tick = 0;
  };
  static constexpr std::size_t kRecent = 64;
  Recent heaviest{};                     // of this tick
  std::array<Recent, kRecent> recent{};  // the newest samples, a ring
  std::uint64_t taken = 0;               // samples in all; the next goes to taken % kRecent
  double requests = 0;
  double errors = 0;
  bool counted = false;          // a counter of requests or errors came in this tick
  bool counts_requests = false;  // has sent a request counter at any time
  bool counts_errors = false;
  bool cut = false;                 // lines of its senders were dropped in this tick: they sent too much
  bool names_another_unit = false;  // a timer, which is in ms, has a name that ends in another unit

  // What it said last, and when that was.
  ReportClock latencies, counters;
  double p50_ms = 0, p99_ms = 0;
  bool few = false;
  std::optional<double> rate, error_rate;
  Duration requests_at{};  // the newest tick that had any
  bool had_requests = false;
  Observation says;  // of this tick

  void add(double latency_ms, double weight, std::uint64_t tick);
  /// p50 and p99; a tick of few samples gets the newest of earlier ticks, from `oldest` on, up to `enough`.
  void judge_latency(std::uint64_t enough, std::uint64_t tick, std::uint64_t oldest);
  /// The tick ends. `lost`: lines that may have been its own were not read.
  void say(Duration now, Duration tick, bool lost);
  Sample said_rate(Duration now, Duration tick, bool lost);
  Sample said_errors(Duration tick);
  void clear_tick();
};

}  // namespace flash
