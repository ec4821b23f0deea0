// Purpose: what the control loop keeps of one (task, target). Only policy/control_loop_impl.h (and tests)
// includes it.
// Ownership: the loop owns its agents.
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/decision.h"
#include "core/rule.h"
#include "core/target.h"
#include "policy/arbiter.h"
#include "policy/contention.h"
#include "policy/control_loop.h"
#include "policy/drift.h"
#include "policy/exploration.h"
#include "policy/group.h"
#include "policy/guard.h"
#include "policy/lifecycle.h"
#include "policy/node_capacity.h"
#include "policy/objective_account.h"
#include "policy/observation_space.h"
#include "policy/power_scale.h"
#include "policy/seat.h"
#include "policy/snapshot_guard.h"
#include "policy/task.h"

namespace flash {

/// The newest rewards, trusted or not, for sparklines.
class RewardHistory {
 public:
  void push(double r) {
    if (ring_.size() < kKept) {
      ring_.push_back(r);
    } else {
      ring_[next_] = r;
      next_ = (next_ + 1) % kKept;
    }
    last_ = r;
  }
  double last() const { return last_; }
  std::vector<double> newest(std::size_t n) const {
    n = std::min(n, ring_.size());
    std::vector<double> out;
    out.reserve(n);
    for (std::size_t i = ring_.size() - n; i < ring_.size(); ++i)
      out.push_back(ring_[(next_ + i) % ring_.size()]);
    return out;
  }

 private:
  static constexpr std::size_t kKept = 600;
  std::vector<double> ring_;
  std::size_t next_ = 0;
  double last_ = 0;
};

inline const KnobView* find_knob(std::span<const KnobView> knobs, const KnobId& kind) {
  for (const KnobView& k : knobs)
    if (k.kind == kind) return &k;
  return nullptr;
}

/// NaN: not known.
inline double value_in_force(const KnobView& k) {
  return k.current.usable() && k.lease != LeaseState::Gone ? k.current.value
                                                           : std::numeric_limits<double>::quiet_NaN();
}

struct ManagedAgent {
  ManagedAgent(Target t, std::shared_ptr<const Rule> r, std::size_t window, Random stream)
      : target(std::move(t)),
        rule(std::move(r)),
        spec(&task_spec(target.task())),
        layout(space_layout(*spec, *rule)),
        fallback(spec->fallback()),
        explorer(stream),
        objective(spec->objective_slack, spec->objective_known),
        rewards(window),
        proof(window) {
    spec->start(memory);
  }

  /// Of a CPU set, those that are online.
  int cpus() const {
    const auto all = static_cast<double>(target.cpus.size());
    return std::max(1, static_cast<int>(std::min(all, capacity.in_force.cores)));
  }

  Target target;
  std::shared_ptr<const Rule> rule;
  const TaskSpec* spec;
  std::vector<KnobId> instances;  // managed knobs of which there is one per device, domain or interface
  SpaceLayout layout;
  TaskMemory memory;
  TaskFallback fallback;
  std::optional<Mode> own_mode;

  // Life cycle.
  Stage stage = Stage::Initialized;
  std::vector<StageChange> stages;   // newest last, at most AgentView::kStagesKept
  std::uint64_t stage_episodes = 0;  // whole episodes in this stage
  std::uint64_t failures = 0;        // falls back to OFFLINE that SERVING has not yet made good
  std::uint64_t good_episodes = 0;   // in SERVING since the last of them, or the last that was forgiven
  std::uint64_t failed_version = 0;
  FadingMean fallback_reward;

  // Policies that hurt (fast_trip.cc).
  Contention contention;  // of the step that ended
  ContentionTrip trip;
  std::optional<Duration> watched_at;
  double missed_s = 0, missed_of_s = 0;  // of the second that the account looks at
  std::uint64_t hurts = 0;               // times that are not forgiven
  double good_s = 0;                     // that policies have been in charge since, without hurting
  Duration out_until{};                  // on the monotonic clock: no policy is in charge before
  Action rules_asked;                    // by the rules, in the decision whose step it is
  Action rules_gave;                     // in force when the rules, or nobody, were last in charge
  Action restore, restore_most;          // limits to be brought back; as far as their range allows
  Duration restore_until{};

  Controller controller = Controller::None;
  std::string controller_reason = "not decided yet";
  std::uint64_t episode = 0;
  std::uint32_t step = 0;
  std::uint64_t seq = 0;

  bool held = false;
  bool left_behind = false;  // control was left, and not every knob could be restored yet
  std::optional<Duration> held_until_mono;
  std::optional<WallTime> held_until;
  std::string hold_reason;

  // The learned policy.
  PolicySeat seat;
  RecentSteps recent;
  ActingOutputs acts{};
  Drift drift;
  bool drift_changed = false;
  std::uint64_t refusals_told = 0;
  Explorer explorer;
  std::uint64_t last_objection = 0;  // seq of the last decision that a guard changed or refused

  NodeCapacity capacity;          // the node's, within the limits above the target: of this tick
  ManagedAgent* above = nullptr;  // the nearest agent of its task of a cgroup above it
  std::uint64_t capacity_of_tick = 0;

  ObjectiveAccount objective;
  bool held_to_rules = false;  // the last decision was the rules', or held to what they ask for
  KnobMap<FlapRecord> flaps;
  StateVector state;
  TaskStep seen;  // of this tick, as its task is told
  std::vector<KnobNow> knobs_seen;

  static constexpr std::size_t kAlone = std::numeric_limits<std::size_t>::max();
  std::size_t group = kAlone;  // which of the loop's groups it is in
  GroupMember in_group;        // what it added to that one's summary in this tick

  RewardHistory history_of_rewards;
  RewardWindow rewards;  // trusted, for people
  RewardWindow proof;    // trusted and earned under control in this stage by who is judged: the R of Alg. 1
  std::size_t unjudged = 0;  // steps in a row that the policy was in charge and no reward could be trusted
  PowerScale power;

  Action in_force, in_force_before;  // during the step that ends now, and the one before it
  bool in_control = false;           // the last decision was executed, not only recommended

  KnobMap<double> given;  // what of a limit counts as given (policy/arbiter.h) while ours is in force
  std::size_t request = CapacityRequest::kNone;  // which of the requests for the resource in turn is its

  std::deque<Decision> history;
  AgentChange change;
};

}  // namespace flash
