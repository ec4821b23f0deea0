// Purpose: what the request probe (bpf/requests.h) measures of cgroups, as samples: latency.p50, latency.p99,
// requests.rate. Watches only what is tracked: the probe costs the watched servers throughput.
//
// Validity as StatsdCollector's: latency is Missing in a tick without a request; a tick of fewer than
// `few_requests` borrows the newest ones of at most `look_back` ticks before it, and p99 is Degraded where
// that is not enough; the rate is Missing until the first request was seen, then 0 is an answer: none was
// answered. That is not "none came" while one as slow as the slowest recent one may be under way (latency is
// then Stale), while connections are not followed, or where some speak HTTP/2, whose requests are not
// counted: such a 0 is Degraded.
// Ownership: owns the probe, which it opens when the first target comes.
// Thread rule: the control loop's.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "collectors/bpf/requests.h"
#include "collectors/cgroup_sharers.h"
#include "collectors/kernel_probe.h"
#include "core/ports.h"
#include "host/cgroup_layout.h"
#include "host/host_root.h"

namespace flash {

struct RequestOptions {
  RequestProbeOptions probe;
  int few_requests = 20;  // at most 32
  int look_back = 10;     // ticks
};

/// The requests of one target over ticks.
class RequestHistory {
 public:
  /// The newest tick's, and how many of them have a latency: percentiles of all that counts in it.
  struct Percentiles {
    double p50_ms = 0, p99_ms = 0;
    bool few = false;
  };
  /// `requests`: of this tick. nullopt: none of them has a latency.
  std::optional<Percentiles> add(const LatencySlots& requests, const RequestOptions& options);
  /// What add() said last, while after `quiet` without an answer a request as slow as the slowest recent one
  /// may still be under way; nullopt after that.
  std::optional<Percentiles> held(Duration quiet) const;

 private:
  struct Recent {
    std::uint64_t tick = 0;
    std::uint16_t slot = 0;
  };
  static constexpr std::size_t kRecent = 32;
  void keep(const LatencySlots& requests, std::uint64_t n);

  std::array<Recent, kRecent> recent_{};  // the newest, a ring
  std::uint64_t taken_ = 0;               // in all; the next goes to taken_ % kRecent
  std::uint64_t tick_ = 0;
  std::optional<Percentiles> last_;
};

class RequestCollector final : public Collector, public KernelProbe {
 public:
  /// `layout` is borrowed during the constructor only; null: the host has no cgroups. On another root than
  /// "/" nothing is loaded.
  RequestCollector(const HostRoot& root, const CgroupLayout* layout, RequestOptions options = {});

  std::string_view name() const override { return "requests"; }
  void track(const Target& target) override;
  void untrack(TargetId id) override;
  void collect(Now now, ObservationTable& table) override;
  std::vector<Degraded> degraded() const override;

  std::string_view probe() const override { return "requests"; }
  Duration cost() const override { return probe_.cost(); }
  void pause(const std::string& why) override;
  void resume() override;

  /// Why it says nothing of a target; never empty.
  std::string why_not(TargetId id) const;

 private:
  struct State {
    Target target;
    std::uint64_t id = 0;  // of the cgroup in the v2 hierarchy
    std::string directory;
    flash_requests before{};
    RequestHistory history;
    std::optional<Duration> last;
    Duration answered_at{};  // a request, last
    bool seen = false;       // a request, at any time
    bool dropped = false;    // the kernel had no room for a connection in the last tick
  };
  void retry(bool all);
  Result<std::uint64_t> watch(const Target& target, std::string& directory);
  void collect_one(Now now, State& state, const flash_requests& counts, Observation& out);

  std::optional<CgroupLayout> layout_;
  RequestOptions options_;
  ProbeSlot<RequestProbe> probe_;
  std::string read_trouble_;  // of the last tick
  std::unordered_map<TargetId, State> states_;
  CgroupSharers watched_;  // the targets in states_, by State::id
  struct Refused {
    Target target;
    std::string why;
    bool full = false;  // for want of room: tried again when some comes free
  };
  std::unordered_map<TargetId, Refused> refused_;
  bool room_ = false;  // came free
};

}  // namespace flash
