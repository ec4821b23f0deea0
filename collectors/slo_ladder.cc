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

std::string milliseconds(double ms) {
  char text[32];
  std::snprintf(text, sizeof text, ms < 10 ? "%.1f ms" : "%.0f ms", ms);
  return text;
}

/// The signal by which they differ; nullopt: there is none to compare. Percentiles of few requests are not.
struct Comparison {
  bool differ = false;
  Signal signal = Signal::LatencyP50;
};
std::optional<Comparison> compared(const Observation& a, const Observation& b) {
  std::optional<Comparison> result;
  for (const Signal s : {Signal::LatencyP99, Signal::LatencyP50}) {
    const bool both =
        s == Signal::LatencyP50 ? a[s].usable() && b[s].usable() : a[s].trusted() && b[s].trusted();
    if (both && !(result && result->differ)) result = {different(a[s], b[s]), s};
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
  for (const Signal s : {Signal::LatencyP99, Signal::RequestRate})
    for (const auto& feed : feeds_)
      if (const Observation* o = row(*feed, id); o && wants(state, *feed) && (*o)[s].usable())
        return feed.get();
  return nullptr;
}

void SloLadder::compare(TargetId id, State& state) {
  const Feed* kernel = nullptr;
  for (const auto& feed : feeds_)
    if (feed->is.source == SloSource::Kernel) kernel = feed.get();
  const Observation* seen = kernel ? row(*kernel, id) : nullptr;
  if (!seen) return;
  for (const auto& feed : feeds_) {
    const Observation* said = row(*feed, id);
    if (feed.get() == kernel || !said) continue;
    const auto result = compared(*said, *seen);
    if (!result) continue;
    state.against = result->differ == state.disagreement.empty() ? state.against + 1 : 0;
    if (state.against < kTicks) return;
    state.against = 0;
    // The figures are those of now and stay: a text that changed would be another line in the journal.
    state.disagreement = !result->differ
                             ? ""
                             : std::string(to_string(feed->is.source)) + " says " +
                                   std::string(traits(result->signal).name) + " is " +
                                   milliseconds((*said)[result->signal].value) + ", the kernel sees " +
                                   milliseconds((*seen)[result->signal].value);
    return;
  }
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
    const auto out = table.find(id);
    if (out == table.end()) continue;
    for (const Signal s : kLatencyAndRate)
      out->second[s] = state.chosen ? (*row(*state.chosen, id))[s] : Sample::missing();
    out->second[Signal::ErrorRate] =
        state.errors ? (*row(*state.errors, id))[Signal::ErrorRate] : Sample::missing();
    if (state.disagreement.empty() || !state.chosen || state.chosen->is.source == SloSource::Kernel) continue;
    for (const Signal s : kLatency)
      if (Sample& sample = out->second[s]; sample.trusted()) sample.validity = Validity::Degraded;
  }
}

std::vector<Degraded> SloLadder::degraded() const {
  std::vector<Degraded> all;
  for (const auto& feed : feeds_)
    for (Degraded& d : feed->is.collector->degraded()) all.push_back(std::move(d));
  for (const auto& [id, state] : states_)
    if (!state.disagreement.empty())
      all.push_back({"slo", state.name + ": " + state.disagreement, state.name});
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
  const auto place = [this](const Feed* feed) {
    const auto found =
        std::find_if(feeds_.begin(), feeds_.end(), [&](const auto& f) { return f.get() == feed; });
    return static_cast<std::size_t>(found - feeds_.begin());
  };
  for (const auto& [id, state] : states_) {
    std::string reason = !state.chosen ? why_nothing(id, state) : std::string();
    if (state.chosen && state.wanted == SloSource::Auto)
      for (const auto& better : feeds_) {
        if (better.get() == state.chosen) break;
        reason += (reason.empty() ? "" : "; ") + std::string(to_string(better->is.source)) + ": " +
                  better->is.why_not(id);
      }
    std::string of_latency = reason;
    if (!state.disagreement.empty()) {
      const bool kernel = state.chosen && state.chosen->is.source == SloSource::Kernel;
      of_latency += (reason.empty() ? "" : "; ") +
                    std::string(kernel ? "what the application says" : "the kernel") + " contradicts it";
    }
    for (const Signal s : kLatency) ++rows[{s, place(state.chosen), of_latency}];
    ++rows[{Signal::RequestRate, place(state.chosen), reason}];
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
