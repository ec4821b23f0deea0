// A datagram of StatsD lines: never fatal, every line counted once, quantiles in order, no rate of 0 that is
// trusted while latencies come.
#include <cstdint>
#include <string_view>

#include "collectors/statsd_collector.h"
#include "fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flash;
  static auto* statsd = [] {
    auto* collector = StatsdCollector::open({})->release();
    Target target;
    target.id = {TargetKind::Cgroup, 1};
    target.application = "web";
    collector->track(target);
    return collector;
  }();
  static Duration time{};
  ObservationTable table;
  const Observation& o = table[{TargetKind::Cgroup, 1}];

  statsd->ingest({reinterpret_cast<const char*>(data), size});
  const StatsdCounters& c = statsd->counters();
  FUZZ_REQUIRE(c.lines == c.used + c.unused + c.unassigned + c.refused + c.events + c.malformed);
  time += std::chrono::seconds(1);
  statsd->collect({time, {}}, table);
  const Sample& p50 = o[Signal::LatencyP50];
  const Sample& p99 = o[Signal::LatencyP99];
  FUZZ_REQUIRE(p50.usable() == p99.usable());
  FUZZ_REQUIRE(p50.value >= 0 && p50.value <= p99.value);
  const Sample& rate = o[Signal::RequestRate];
  FUZZ_REQUIRE(!(rate.trusted() && rate.value == 0) || p99.validity <= Validity::Stale);
  return 0;
}
