#include "policy/observation_space.h"

#include "policy/idle.h"
#include "policy/reward.h"
#include "policy/task.h"

namespace flash {

int state_dim(Task task) {
  return static_cast<int>(task_spec(task).state.size());
}

std::span<const StateEntry> state_entries(Task task) {
  return task_spec(task).state;
}

void add_slo(StateBuilder& b, const Slo& slo, const Observation& o, bool saturated) {
  const SloPreservation sp = slo_preservation(slo, o, saturated);
  const Sample& rate = o[Signal::RequestRate];
  if (!slo.latency_p99_ms)
    b.add(1, true, true);
  else if (idle(o))
    b.add(1, rate);
  else
    b.add(sp.latency, o[Signal::LatencyP99]);
  if (!slo.throughput_rps)
    b.add(1, true, true);
  else
    b.add(sp.throughput, rate);
}

}  // namespace flash
