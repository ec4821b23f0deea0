#include "policy/reward.h"

#include <algorithm>
#include <cmath>

#include "policy/explain.h"
#include "policy/idle.h"

namespace flash {
SloPreservation slo_preservation(const Slo& slo, const Observation& o, bool saturated) {
  SloPreservation sp;
  const Sample& rate = o[Signal::RequestRate];
  if (slo.latency_p99_ms) {
    const Sample& p99 = o[Signal::LatencyP99];
    if (p99.usable()) {
      sp.latency = p99.value > *slo.latency_p99_ms ? *slo.latency_p99_ms / p99.value : 1.0;
      sp.trusted = sp.trusted && p99.trusted();
      sp.measured = true;
    } else {
      sp.known = sp.trusted = idle(o);
    }
  }
  if (slo.throughput_rps) {
    if (rate.usable()) {
      sp.throughput = saturated ? share_of(rate.value, *slo.throughput_rps) : 1.0;
      sp.measured = true;
    } else {
      sp.known = false;
    }
    sp.trusted = sp.trusted && rate.trusted();
  }
  sp.value = std::min(sp.latency, sp.throughput);
  return sp;
}

bool cpu_saturated(const Observation& o, double cores, double throttled_floor) {
  const Sample& throttled = o[Signal::CpuThrottled];
  if (throttled.usable() && throttled.value >= throttled_floor) return true;
  const Sample& usage = o[Signal::CpuUsage];
  return !usage.usable() || usage.value >= kSaturation * cores;
}

}  // namespace flash
