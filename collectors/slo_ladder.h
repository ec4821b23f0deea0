// Purpose: one source per target for request latency, rate and errors, which several can say: the application
// over StatsD, the kernel's request probe. The rule's slo.source chooses; where two speak of the same target,
// they are compared, and who contradicts the kernel is named. A further source is one more SloFeed. No
// source's word that no request came is believed while another sees some. Under "auto" nobody wins over the
// kernel by contradicting it: an application that says less latency than the kernel sees, or no request where
// the kernel counts some, is not the one that is chosen.
// Ownership: owns the collectors of its feeds.
// Thread rule: the control loop's thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "collectors/signal_source.h"
#include "core/ports.h"

namespace flash {

/// One that can say latency.p50, latency.p99, requests.rate and requests.errors.
struct SloFeed {
  SloSource source = SloSource::Statsd;  // never Auto
  std::unique_ptr<Collector> collector;
  /// Why it says nothing of a target that it tracks (or does not track after track()); never empty.
  std::function<std::string(TargetId)> why_not;
  bool always = false;  // costs nothing: asked of every target, to compare and for what others cannot say
};

class SloLadder final : public Collector {
 public:
  explicit SloLadder(std::vector<SloFeed> feeds);

  std::string_view name() const override { return "slo"; }
  void track(const Target& target) override;
  void untrack(TargetId id) override;
  /// Latency and rate come from one feed: the first of the rule's that has latency of now, else the first
  /// whose latency is Stale, else one that saw requests, else one that has a rate at all. Under "auto" one
  /// that the kernel contradicts is passed over while the kernel has latency of now. Errors come from the
  /// first that counts them. A rate of 0 is Degraded while another feed has requests or latency.
  void collect(Now now, ObservationTable& table) override;
  /// The feeds' own, and one per target whose latencies differ (part "slo"). Such a latency is Degraded
  /// unless it is the kernel's: nothing is learned from it. One that differs by about a power of a thousand
  /// is most likely told in another unit: it counts for nothing (Invalid), the kernel's does where the rule
  /// allows it, and the key that says the unit is named.
  std::vector<Degraded> degraded() const override;
  std::vector<SignalSource> sources() const;

 private:
  struct Feed {
    SloFeed is;
    ObservationTable table;
  };
  struct State {
    std::string name;
    SloSource wanted = SloSource::Statsd;
    const Feed* chosen = nullptr;  // in the last tick; null: none
    const Feed* errors = nullptr;
    /// What the kernel thinks of each feed's latency, in the order of the feeds.
    struct Doubt {
      int against = 0;           // ticks in a row that say the other thing than `disagreement`
      int units = 0;             // ticks, since they agreed, that another unit would explain
      int idle = 0;              // ticks in a row that it says no request came, and the kernel counts some
      bool rosier = false;       // it says less than the kernel sees
      std::string disagreement;  // empty: they agree, or only one speaks
      bool wrong_unit = false;
    };
    std::vector<Doubt> doubts;
  };
  bool wants(const State& state, const Feed& feed) const;
  const Observation* row(const Feed& feed, TargetId id) const;
  const Feed* choose(TargetId id, const State& state) const;
  bool contradicted(TargetId id, const State& state, const Feed& feed) const;
  const Feed* kernel() const;
  std::size_t place(const Feed* feed) const;  // beyond the last: none
  void compare(TargetId id, State& state);
  void judge(State::Doubt& doubt, const Feed& feed, const Observation& said, const Observation& seen);
  void fill(TargetId id, const State& state, Observation& out) const;
  std::string why_nothing(TargetId id, const State& state) const;

  std::vector<std::unique_ptr<Feed>> feeds_;
  std::unordered_map<TargetId, State> states_;
};

}  // namespace flash
