// Purpose: may this learned policy take the seat? What can be said from the snapshot alone, and how it
// behaves on what the agent saw lately. docs/adr/0003-snapshot-guard.md says what each check is for, and what
// it must not refuse.
// Ownership: an agent owns its RecentSteps.
// Thread rule: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "core/policy_snapshot.h"
#include "core/target.h"
#include "core/time.h"
#include "policy/action_space.h"
#include "policy/observation_space.h"

namespace flash {

enum class SnapshotRefusal : std::uint8_t {
  WrongTask,
  OtherLayout,        // its inputs or outputs are not what the agent's are
  Malformed,          // PolicySnapshot::validate(): shape, number, bound
  TooLarge,           // more parameters than a tick may spend time on
  Version,            // not above the last accepted one
  Expiry,             // expired, or further ahead than kLongestLife
  TooMany,            // more offers since the last tick than are looked at
  NotFinite,          // on a state that the agent saw
  IgnoresInput,       // the same output although the states differ clearly, and for any other state
  Extreme,            // every limit at an end of its range all the time, where the fallback was not
  WorseThanFallback,  // by its own critic
};
inline constexpr std::size_t kSnapshotRefusals =
    static_cast<std::size_t>(SnapshotRefusal::WorseThanFallback) + 1;
/// "wrong-task", "other-layout", "malformed", "too-large", "version", "expiry", "too-many", "not-finite", "ignores-input",
/// "extreme", "worse-than-fallback": stable keys.
std::string_view to_string(SnapshotRefusal r);

struct Refusal {
  SnapshotRefusal kind = SnapshotRefusal::Malformed;
  std::errc code = std::errc::invalid_argument;
  std::string message;  // begins with "policy snapshot: "
};

/// Which outputs act on a knob: managed, there, with a finite range. cpu-frequency: not looked at.
using ActingOutputs = std::array<bool, kMaxActionDim>;

/// The last states on which a policy could have acted, with what the fallback wanted.
class RecentSteps {
 public:
  static constexpr std::size_t kKept = 32;
  /// So many say something about behaviour.
  static constexpr std::size_t kEnough = 8;

  struct Step {
    StateVector state;
    std::array<float, kMaxActionDim> fallback{};  // the networks' form; cpu-frequency: {level}
    bool fallback_known = false;
  };

  /// `fallback` is empty where it is not known.
  void push(const StateVector& state, std::span<const float> fallback);
  void clear() { count_ = next_ = 0; }
  std::size_t size() const { return count_; }
  bool enough() const { return count_ >= kEnough; }
  /// In no particular order. REQUIRES: i < size().
  const Step& operator[](std::size_t i) const { return steps_[i]; }

 private:
  std::array<Step, kKept> steps_{};
  std::size_t count_ = 0, next_ = 0;
};

inline constexpr std::size_t kMaxParameters = std::size_t{1} << 15;
inline constexpr Duration kLongestLife = std::chrono::hours(24 * 30);
/// States of which an entry differs by this much (entries are scaled to about [-1,1]) differ clearly.
inline constexpr double kClearly = 0.10;
/// Outputs that differ by less, relative to their size, are the same.
inline constexpr double kSameOutput = 1e-6;
inline constexpr double kAtEnd = 0.999;
/// So near to an end (of [-1,1]) the fallback counts as being there.
inline constexpr double kFallbackThere = 0.2;
/// Discounted reward: 0.05 per step over the 100 steps that a discount of 0.99 looks ahead.
inline constexpr double kWorseByCritic = 5;

std::size_t parameters(const PolicySnapshot& snapshot);

/// What can be said without the agent. Cheap where it refuses for task, version or expiry.
std::optional<Refusal> check_offer(const PolicySnapshot& snapshot, const SpaceLayout& layout, WallTime now,
                                   std::uint64_t last_accepted);

/// On the recent steps of an agent of this layout, which check_offer() has found the policy to be of; with fewer than kEnough of them only finiteness is judged.
/// At most 3 evaluations per step, and 2 per entry of the state.
std::optional<Refusal> check_behaviour(const CompiledPolicy& policy, const SpaceLayout& layout,
                                       const RecentSteps& recent, const ActingOutputs& acts,
                                       EvaluatorScratch& scratch);

}  // namespace flash
