#include "collectors/statsd_application.h"

#include <algorithm>
#include <cmath>

namespace flash {

void StatsdApplication::add(double value_ms, double stands_for, std::uint64_t tick) {
  if (!std::isfinite(value_ms) || !std::isfinite(stands_for)) return;
  latency_ms.add(value_ms, stands_for);
  weight += stands_for;
  ++samples;
  recent[taken++ % kRecent] = {value_ms, stands_for, tick};
  if (stands_for > heaviest.weight) heaviest = {value_ms, stands_for, tick};
}

TimeUnit StatsdNamed::unit() const {
  // The largest, where several are given: a latency that reads too high takes nothing away.
  for (const TimeUnit u :
       {TimeUnit::Seconds, TimeUnit::Milliseconds, TimeUnit::Microseconds, TimeUnit::Nanoseconds})
    if (of_unit[static_cast<std::size_t>(u)] > 0) return u;
  return TimeUnit::Auto;
}

bool StatsdNamed::contradicted() const {
  return unit() != TimeUnit::Auto && of_unit[static_cast<std::size_t>(unit())] != targets;
}

void StatsdApplication::judge_latency(std::uint64_t enough, std::uint64_t tick, std::uint64_t oldest) {
  if (samples == 0) return;
  // One line does not outweigh all others, whatever it says of its sample rate.
  if (const double others = weight - heaviest.weight; samples > 1 && heaviest.weight > others)
    latency_ms.lighten(heaviest.latency_ms, heaviest.weight - others);
  p50_ms = latency_ms.quantile(0.50);
  std::uint64_t n = samples;
  for (std::uint64_t back = samples; n < enough && back < std::min<std::uint64_t>(taken, kRecent); ++back) {
    const Recent& r = recent[(taken - 1 - back) % kRecent];
    if (r.tick < oldest || r.tick >= tick) break;
    latency_ms.add(r.latency_ms, r.weight);
    ++n;
  }
  p99_ms = std::max(p50_ms, latency_ms.quantile(0.99));
  few = n < enough;
}

Sample StatsdApplication::said_rate(Duration now, Duration tick, bool lost) {
  // A counter that fell silent while latencies come is no word on them, nor is its first one: of what time?
  const bool no_word = counters.state() == ReportClock::State::Silent || counters.covers() == Duration{};
  const bool counts = counts_requests && !(no_word && latencies.speaks());
  const ReportClock& clock = counts ? counters : latencies;
  const double came = counts ? requests : weight;
  if (clock.state() == ReportClock::State::Spoke) {
    rate.reset();
    if (clock.covers() > Duration{}) rate = came / seconds(clock.covers());
  }
  if (came != 0) {
    requests_at = now;
    had_requests = true;
  }
  if (clock.state() == ReportClock::State::Silent) rate = 0;
  if (!rate) return Sample::missing();
  Validity validity = clock.state() == ReportClock::State::Silent ? Validity::Good : clock.validity(tick);
  if (*rate == 0 && validity != Validity::Stale) {
    // Another worker of it may have had some and say so next.
    const bool long_ago = !had_requests || now - requests_at > clock.longest_pause() + tick / 2;
    validity = latencies.speaks() || lost || !long_ago ? Validity::Degraded : Validity::Good;
  }
  return {*rate, validity};
}

Sample StatsdApplication::said_errors(Duration tick) {
  // One that counts requests flushes errors with them; of one that counts nothing, none came as long as it
  // speaks.
  const bool counts = counts_requests || counts_errors;
  const ReportClock& clock = counts ? counters : latencies;
  if (clock.state() == ReportClock::State::Spoke) {
    error_rate.reset();
    if (clock.covers() > Duration{}) error_rate = errors / seconds(clock.covers());
  }
  const bool silent = clock.state() == ReportClock::State::Silent;
  if (silent) error_rate = 0;
  if (!error_rate) return Sample::missing();
  return {*error_rate, silent ? Validity::Good : clock.validity(tick)};
}

void StatsdApplication::say(Duration now, Duration tick, bool lost) {
  latencies.look(now, samples > 0);
  counters.look(now, counted);
  Validity validity = latencies.validity(tick);
  says[Signal::LatencyP50] = says[Signal::LatencyP99] = Sample::missing();
  if (validity != Validity::Missing) {
    if (names_another_unit) validity = std::min(validity, Validity::Degraded);
    says[Signal::LatencyP50] = {p50_ms, validity};
    says[Signal::LatencyP99] = {p99_ms, few ? std::min(validity, Validity::Degraded) : validity};
  }
  says[Signal::RequestRate] = said_rate(now, tick, lost);
  says[Signal::ErrorRate] = said_errors(tick);
}

void StatsdApplication::clear_tick() {
  latency_ms.clear();
  weight = 0;
  heaviest = {};
  cut = false;
  samples = 0;
  requests = errors = 0;
  counted = false;
}

}  // namespace flash
