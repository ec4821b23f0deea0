// Purpose: a state vector, and how the tasks make theirs (policy/tasks/) from what was sensed. Every entry is named,
// scaled to about [-1,1] and says whether it may be learned from.
// Ownership: values.
// Thread rule: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/rule.h"
#include "core/signal.h"
#include "core/target.h"
#include "policy/action_space.h"
#include "policy/node_capacity.h"
#include "policy/reward.h"

namespace flash {

/// Of any task; of the entries that say what others of a group do (policy/group.h); of both.
inline constexpr int kMaxTaskDim = 16, kMaxGroupDim = 16;
inline constexpr int kMaxStateDim = kMaxTaskDim + kMaxGroupDim;
static_assert(kMaxStateDim <= 32, "StateVector's bits");

/// Of the task's row (policy/task.h).
int state_dim(Task task);
std::span<const StateEntry> state_entries(Task task);

struct StateVector {
  std::array<float, kMaxStateDim> values{};
  int size = 0;
  std::uint32_t not_trusted = 0;   // bit i: entry i had an input that was not Good
  std::uint32_t not_sensible = 0;  // bit i: entry i had an input that was missing, invalid, stale or a proxy
  bool trusted() const { return not_trusted == 0; }    // may be learned from
  bool sensible() const { return not_sensible == 0; }  // a learned policy may act on it
  std::span<const float> span() const { return {values.data(), static_cast<std::size_t>(size)}; }
};

/// Entries one after the other.
class StateBuilder {
 public:
  StateBuilder() = default;
  explicit StateBuilder(const StateVector& so_far) : v_(so_far) {}
  void add(double value, bool trusted, bool sensible) {
    const std::uint32_t bit = 1U << v_.size;
    if (!std::isfinite(value)) {
      value = 0;
      trusted = sensible = false;
    }
    if (!trusted) v_.not_trusted |= bit;
    if (!sensible) v_.not_sensible |= bit;
    v_.values[static_cast<std::size_t>(v_.size++)] = static_cast<float>(value);
  }
  void add(double value, const Sample& source) {
    add(value, source.trusted(), source.validity == Validity::Good || source.validity == Validity::Degraded);
  }
  StateVector take() const { return v_; }

 private:
  StateVector v_;
};

/// sp_latency and sp_throughput: SLO preservation, 1 without an SLO.
void add_slo(StateBuilder& b, const Slo& slo, const Observation& o, bool saturated);

}  // namespace flash
