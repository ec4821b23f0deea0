#include "collectors/slo_ladder.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <tuple>
#include <utility>

namespace flash {
namespace {

constexpr Signal kLatency[] = {Signal::LatencyP50, Signal::LatencyP99};
constexpr Signal kLatencyAndRate[] = {Signal::LatencyP50, Signal::LatencyP99, Signal::RequestRate};

/// What an application times is a part of what its client waits for: differences below both are none.
constexpr double kDifferentRatio = 2;
constexpr double kDifferentMs = 2;
/// A difference, or its end, counts when it was there in so many ticks in a row.
constexpr int kTicks = 5;

bool different(const Sample& a, const Sample& b) {
  const auto [low, high] = std::minmax(a.value, b.value);
  return high > kDifferentRatio * low && high - low > kDifferentMs;
}

/// About 1e3, 1e6 or 1e9 times as much: seconds, milliseconds, microseconds and nanoseconds taken for each
/// other. What is timed differs by a few times, too, so a power of a thousand is met within a factor of four.
bool other_unit(const Sample& a, const Sample& b) {
  constexpr double kWithin = 4;
  const auto [low, high] = std::minmax(a.value, b.value);
  if (!(low > 0) || !different(a, b)) return false;
  for (const double power : {1e3, 1e6, 1e9})
    if (high / low >= power / kWithin && high / low <= power * kWithin) return true;
  return false;
}

std::string milliseconds(double ms) {
  char text[32];
  std::snprintf(text, sizeof text, ms < 0.1 ? "%.2g ms" : ms < 10 ? "%.1f ms" : "%.0f ms", ms);
  return text;
}

/// Of now: a Stale one is the last word of somebody who should have spoken again.
bool fresh(const Sample& sample) {
  return sample.usable() && sample.validity != Validity::Stale;
}

bool saw_requests(const Observation& o) {
  return o[Signal::LatencyP99].usable() ||
         (o[Signal::RequestRate].usable() && o[Signal::RequestRate].value > 0);
}

/// One says that no request came, the other counts some.
bool says_none(const Observation& said, const Observation& seen) {
  const Sample &none = said[Signal::RequestRate], &some = seen[Signal::RequestRate];
  return none.usable() && none.value == 0 && some.trusted() && some.value > 0;
}

/// The signal by which they differ; nullopt: there is none to compare. Percentiles of few requests are not.
struct Comparison {
  bool differ = false;
  bool unit = false;  // as another unit would make them differ
  Signal signal = Signal::LatencyP50;
};
std::optional<Comparison> compared(const Observation& a, const Observation& b) {
  std::optional<Comparison> result;
  for (const Signal s : {Signal::LatencyP99, Signal::LatencyP50}) {
    const bool both = s == Signal::LatencyP50 ? fresh(a[s]) && fresh(b[s]) : a[s].trusted() && b[s].trusted();
    if (both && !(result && result->differ)) result = {different(a[s], b[s]), other_unit(a[s], b[s]), s};
  }
  return result;
}

}  // namespace

SloLadder::SloLadder(std::vector<SloFeed> feeds) {
  for (SloFeed& feed : feeds) feeds_.push_back(std::make_unique<Feed>(Feed{std::move(feed), {}}));
}

/// May the feed say the target's latency?
bool SloLadder::wants(const State& state, const Feed& feed) const {
  return state.wanted == feed.is.source || state.wanted == SloSource::Auto;
}

void SloLadder::track(const Target& target) {
  State& state = states_[target.id] = State{};
  state.name = target.name;
  state.wanted = target.slo_source;
  state.doubts.resize(feeds_.size());
  for (const auto& feed : feeds_) {
    if (!feed->is.always && !wants(state, *feed)) continue;
    feed->table[target.id] = {};
    feed->is.collector->track(target);
  }
}

void SloLadder::untrack(TargetId id) {
  if (states_.erase(id) == 0) return;
  for (const auto& feed : feeds_)
    if (feed->table.erase(id) > 0) feed->is.collector->untrack(id);
}

const Observation* SloLadder::row(const Feed& feed, TargetId id) const {
  const auto found = feed.table.find(id);
  return found == feed.table.end() ? nullptr : &found->second;
}

const SloLadder::Feed* SloLadder::choose(TargetId id, const State& state) const {
  const auto first = [&](auto is_good) -> const Feed* {
    for (const auto& feed : feeds_)
      if (const Observation* o = row(*feed, id); o && wants(state, *feed) && is_good(*feed, *o))
        return feed.get();
    return nullptr;
  };
  const auto speaks_of = [&](const Feed& feed, const Sample& latency) {
    return !contradicted(id, state, feed) && !state.doubts[place(&feed)].wrong_unit && latency.usable();
  };
  const Feed* feed = first([&](const Feed& f, const Observation& o) {
    return speaks_of(f, o[Signal::LatencyP99]) && fresh(o[Signal::LatencyP99]);
  });
  if (!feed)
    feed = first([&](const Feed& f, const Observation& o) { return speaks_of(f, o[Signal::LatencyP99]); });
  if (!feed)
    feed = first([](const Feed&, const Observation& o) {
      return fresh(o[Signal::RequestRate]) && o[Signal::RequestRate].value > 0;
    });
  if (!feed) feed = first([](const Feed&, const Observation& o) { return o[Signal::RequestRate].usable(); });
  return feed;
}

const SloLadder::Feed* SloLadder::kernel() const {
  const Feed* kernel = nullptr;
  for (const auto& feed : feeds_)
    if (feed->is.source == SloSource::Kernel) kernel = feed.get();
  return kernel;
}

/// The kernel knows better, and says so now. What an application says beyond what the kernel sees takes
/// nothing from anybody else by being believed, and may be true: the kernel does not see all of HTTP/2.
bool SloLadder::contradicted(TargetId id, const State& state, const Feed& feed) const {
  const Feed* knows = kernel();
  if (state.wanted != SloSource::Auto || !knows || &feed == knows) return false;
  const Observation *said = row(feed, id), *seen = row(*knows, id);
  if (!said || !seen || !fresh((*seen)[Signal::LatencyP99])) return false;
  const State::Doubt& doubt = state.doubts[place(&feed)];
  return (!doubt.disagreement.empty() && doubt.rosier) || says_none(*said, *seen);
}

std::size_t SloLadder::place(const Feed* feed) const {
  const auto found =
      std::find_if(feeds_.begin(), feeds_.end(), [&](const auto& f) { return f.get() == feed; });
  return static_cast<std::size_t>(found - feeds_.begin());
}

void SloLadder::judge(State::Doubt& doubt, const Feed& feed, const Observation& said,
                      const Observation& seen) {
  doubt.idle = says_none(said, seen) ? std::min(doubt.idle + 1, kTicks) : 0;
  const auto result = compared(said, seen);
  if (!result) return;
  // The figures are those of now and stay: a text that changed would be another line in the journal.
  const auto name = [&] {
    doubt.disagreement = std::string(to_string(feed.is.source)) + " says " +
                         std::string(traits(result->signal).name) + " is " +
                         milliseconds(said[result->signal].value) + ", the kernel sees " +
                         milliseconds(seen[result->signal].value);
  };
  doubt.units = result->differ ? std::min(doubt.units + (result->unit ? 1 : 0), kTicks) : 0;
  doubt.against = result->differ == doubt.disagreement.empty() ? doubt.against + 1 : 0;
  if (doubt.against >= kTicks) {
    doubt.against = 0;
    doubt.wrong_unit = false;
    doubt.disagreement.clear();
    doubt.rosier = result->differ && said[result->signal].value < seen[result->signal].value;
    if (result->differ) name();
  }
  if (doubt.units < kTicks || doubt.disagreement.empty() || doubt.wrong_unit) return;
  doubt.wrong_unit = true;
  name();
  doubt.disagreement +=
      ": most likely another unit, slo." + std::string(to_string(feed.is.source)) + ".unit says which";
}

void SloLadder::compare(TargetId id, State& state) {
  const Feed* knows = kernel();
  const Observation* seen = knows ? row(*knows, id) : nullptr;
  if (!seen) return;
  for (std::size_t i = 0; i < feeds_.size(); ++i)
    if (const Observation* said = row(*feeds_[i], id); said && feeds_[i].get() != knows)
      judge(state.doubts[i], *feeds_[i], *said, *seen);
}

void SloLadder::fill(TargetId id, const State& state, Observation& out) const {
  for (const Signal s : kLatencyAndRate)
    out[s] = state.chosen ? (*row(*state.chosen, id))[s] : Sample::missing();
  out[Signal::ErrorRate] = state.errors ? (*row(*state.errors, id))[Signal::ErrorRate] : Sample::missing();
  if (!state.chosen) return;
  const State::Doubt& doubt = state.doubts[place(state.chosen)];
  for (const Signal s : kLatency) {
    Sample& sample = out[s];
    if (doubt.wrong_unit && sample.usable()) sample = Sample::invalid();
    if (!doubt.disagreement.empty() && sample.trusted()) sample.validity = Validity::Degraded;
  }
  Sample& rate = out[Signal::RequestRate];
  if (!rate.trusted() || rate.value != 0) return;
  for (const auto& feed : feeds_)
    if (const Observation* o = row(*feed, id); o && feed.get() != state.chosen && saw_requests(*o))
      rate.validity = Validity::Degraded;
}

void SloLadder::collect(Now now, ObservationTable& table) {
  for (const auto& feed : feeds_) feed->is.collector->collect(now, feed->table);
  for (auto& [id, state] : states_) {
    compare(id, state);
    state.chosen = choose(id, state);
    state.errors = nullptr;
    for (const auto& feed : feeds_)
      if (const Observation* o = row(*feed, id); o && !state.errors && (*o)[Signal::ErrorRate].usable())
        state.errors = feed.get();
    if (const auto out = table.find(id); out != table.end()) fill(id, state, out->second);
  }
}

std::vector<Degraded> SloLadder::degraded() const {
  std::vector<Degraded> all;
  for (const auto& feed : feeds_)
    for (Degraded& d : feed->is.collector->degraded()) all.push_back(std::move(d));
  for (const auto& [id, state] : states_)
    for (std::size_t i = 0; i < state.doubts.size(); ++i) {
      const State::Doubt& doubt = state.doubts[i];
      if (!doubt.disagreement.empty())
        all.push_back({"slo", state.name + ": " + doubt.disagreement, state.name});
      else if (doubt.idle >= kTicks)
        all.push_back({"slo",
                       state.name + ": " + std::string(to_string(feeds_[i]->is.source)) +
                           " says that no request comes, the kernel counts some",
                       state.name});
    }
  return all;
}

std::string SloLadder::why_nothing(TargetId id, const State& state) const {
  std::string why;
  for (const auto& feed : feeds_)
    if (wants(state, *feed))
      why +=
          (why.empty() ? "" : "; ") + std::string(to_string(feed->is.source)) + ": " + feed->is.why_not(id);
  if (why.empty()) return std::string(to_string(state.wanted)) + " is not to be had here";
  return why;
}

std::vector<SignalSource> SloLadder::sources() const {
  // By signal, then in the order of the feeds, "none" last; one row per reason.
  std::map<std::tuple<Signal, std::size_t, std::string>, std::size_t> rows;
  for (const auto& [id, state] : states_) {
    std::string reason = !state.chosen ? why_nothing(id, state) : std::string();
    if (state.chosen && state.wanted == SloSource::Auto)
      for (const auto& better : feeds_) {
        if (better.get() == state.chosen) break;
        reason += (reason.empty() ? "" : "; ") + std::string(to_string(better->is.source)) + ": " +
                  (state.doubts[place(better.get())].wrong_unit ? "its unit is in doubt"
                   : contradicted(id, state, *better)           ? "the kernel contradicts it"
                                                                : better->is.why_not(id));
      }
    std::string of_latency = reason;
    const bool kernel = state.chosen && state.chosen->is.source == SloSource::Kernel;
    const std::size_t at = place(state.chosen);
    if (kernel ? std::any_of(state.doubts.begin(), state.doubts.end(),
                             [](const State::Doubt& d) { return !d.disagreement.empty(); })
               : at < feeds_.size() && !state.doubts[at].disagreement.empty()) {
      of_latency += (reason.empty() ? "" : "; ") +
                    std::string(kernel ? "what the application says" : "the kernel") + " contradicts it";
    }
    for (const Signal s : kLatency) ++rows[{s, at, of_latency}];
    ++rows[{Signal::RequestRate, at, reason}];
    ++rows[{Signal::ErrorRate, place(state.errors),
            state.errors ? std::string() : "only the application can say it, and it does not"}];
  }
  std::vector<SignalSource> all;
  for (const auto& [key, targets] : rows) {
    const auto& [signal, at, reason] = key;
    const std::string_view source = at < feeds_.size() ? to_string(feeds_[at]->is.source) : "none";
    all.push_back({signal, std::string(source), targets, reason});
  }
  return all;
}

}  // namespace flash
