// Purpose: the learned policy's seat: takes offers of new snapshots, keeps the last good one, counts what was
// refused and why.
// Ownership: an agent owns its seat, the seat its policy.
// Thread rule: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "core/policy_snapshot.h"
#include "core/result.h"
#include "core/time.h"
#include "policy/snapshot_guard.h"

namespace flash {

struct SnapshotCounters {
  std::uint64_t offered = 0, accepted = 0;
  std::uint64_t withdrawn = 0;  // accepted, and refused later: on more observations, or for a new layout
  std::array<std::uint64_t, kSnapshotRefusals> refused{};  // by SnapshotRefusal; withdrawn ones too
  std::string last_refusal;                                // stays after a later acceptance
  WallTime last_refusal_at{};
  bool last_was_refused = false;
  std::uint64_t refusals() const;
};

/// What all agents together may spend between two ticks on looking at offers, however many are sent.
struct OfferBudget {
  static constexpr std::size_t kParameters = std::size_t{1} << 20;
  std::size_t parameters = kParameters;
};

class PolicySeat {
 public:
  /// Offers looked at per agent between two ticks; of those one may be accepted.
  static constexpr int kLookedAt = 4;

  /// Before each tick: the counts of offers start over.
  void new_tick() {
    looked_at_ = 0;
    accepted_now_ = false;
  }

  /// Refused: the last good one stays, the error says why.
  Result<void> offer(WallTime now, const SpaceLayout& layout, const PolicySnapshot& snapshot,
                     const RecentSteps& recent, const ActingOutputs& acts, OfferBudget& budget,
                     EvaluatorScratch& scratch);
  /// The policy in the seat against what was seen since; one that is refused now leaves the seat. True: gone.
  bool look_again(WallTime now, const SpaceLayout& layout, const RecentSteps& recent,
                  const ActingOutputs& acts, EvaluatorScratch& scratch);

  /// The agent's numbers have another layout from now on. Who sits here leaves, refused; versions go on.
  void leave(WallTime now, const SpaceLayout& layout);

  const CompiledPolicy* policy() const { return policy_.get(); }
  const PolicySnapshot* snapshot() const { return policy_ ? &policy_->snapshot : nullptr; }
  bool ready(WallTime now) const { return policy_ && policy_->snapshot.expires > now; }
  std::uint64_t accepted_version() const { return accepted_version_; }
  const SnapshotCounters& counters() const { return counters_; }
  /// "3 of 5 offered policies were refused, the last one: ..."; nothing if none was.
  void append_refusals(std::string& out) const;

 private:
  Result<void> refused(WallTime now, const Refusal& refusal);

  std::unique_ptr<const CompiledPolicy> policy_;
  std::uint64_t accepted_version_ = 0;
  SnapshotCounters counters_;
  int looked_at_ = 0;
  bool accepted_now_ = false;
};

}  // namespace flash
