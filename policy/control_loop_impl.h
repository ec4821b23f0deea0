// Purpose: the inside of ControlLoop: its agents, and the phases of a tick. policy/tick*.cc have the phases,
// policy/control_loop.cc everything that comes from outside between two ticks.
// Ownership: see control_loop.h.
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "policy/arbiter.h"
#include "policy/control_loop.h"
#include "policy/group.h"
#include "policy/knob_policy.h"
#include "policy/managed_agent.h"

namespace flash {

struct ControlLoop::Impl {
  LoopOptions options;
  std::vector<Collector*> collectors;
  Actuator& actuator;
  LoopEvents events;
  std::vector<std::unique_ptr<ManagedAgent>> agents;  // in order of being added
  std::unordered_map<TargetId, ManagedAgent*> by_id;
  ObservationTable table;
  MachineSize machine;  // as of this tick; by it what was sensed is judged
  bool disabled = false;
  std::string disabled_reason;
  WallTime last_tick{};
  Duration last_mono{};
  std::uint64_t ticks = 0;
  bool nesting_known = false;  // ManagedAgent::above of all agents
  bool groups_known = false;   // ManagedAgent::group of all agents
  OfferBudget offers;          // what may still be spent on offers until the next tick

  // Reused from tick to tick.
  struct Pending {
    ManagedAgent* agent;
    std::size_t outcome;
  };
  std::vector<KnobChange> changes;
  std::vector<Pending> pending;
  std::vector<CapacityRequest> requests;  // those of request_owner first
  std::vector<ManagedAgent*> request_owner;
  EvaluatorScratch scratch;
  std::vector<float> current_form;
  Proposal proposal;  // of the fallback of the agent whose turn it is
  std::vector<GroupSummary> groups;

  Impl(LoopOptions o, std::vector<Collector*> c, Actuator& a, LoopEvents e)
      : options(o), collectors(std::move(c)), actuator(a), events(std::move(e)) {}

  ManagedAgent* find(TargetId id) const {
    const auto it = by_id.find(id);
    return it == by_id.end() ? nullptr : it->second;
  }
  Mode mode_of(const ManagedAgent& a) const {
    if (a.own_mode) return *a.own_mode;
    return a.rule->mode_given ? a.rule->mode : options.mode;
  }
  bool may_write(const ManagedAgent& a) const { return mode_of(a) == Mode::Control && !a.held && !disabled; }
  std::size_t window_of(const Rule& rule) const {
    return static_cast<std::size_t>(std::max(rule.profile.window_episodes, 1)) *
           static_cast<std::size_t>(std::max(options.episode_steps, 1));
  }
  std::uint32_t episode_steps() const {
    return static_cast<std::uint32_t>(std::max(options.episode_steps, 1));
  }
  std::size_t history_size() const { return std::max<std::size_t>(options.history, 2); }

  /// Of targets that left while policies were out: rule and name.
  struct Remembered {
    std::uint64_t hurts = 0, failures = 0;
    Duration out_until{};
  };
  std::map<std::string, Remembered> remembered;

  // Between ticks (control_loop.cc).
  void fire(ManagedAgent& a);
  Result<void> leave_control(ManagedAgent& a);
  Result<void> mode_changed(ManagedAgent& a, Mode before);
  static bool change_layout(ManagedAgent& a, WallTime now);
  void follow_instances(ManagedAgent& a, WallTime now);
  void end_hold(ManagedAgent& a);
  LifecycleInput lifecycle_input(const ManagedAgent& a) const;
  std::string waiting_for(const ManagedAgent& a) const;

  // The phases of a tick, in order (tick.cc): look() and what it calls for all agents, then conclude() and what it
  // calls for all, then those behind.
  void sense(Now now);
  void find_ceilings();
  std::size_t look(ManagedAgent& a, Now now);
  Decision& next_slot(ManagedAgent& a);
  void see(ManagedAgent& a, const Decision& d, const Observation* before, std::span<const KnobView> knobs);
  void reward(ManagedAgent& a, Decision& d, std::span<const KnobView> knobs);
  void watch_policy(ManagedAgent& a, Decision& d, std::span<const KnobView> knobs, Now now);
  void conclude(ManagedAgent& a, Now now);
  void lifecycle(ManagedAgent& a, Decision& d, Now now);
  void decide(ManagedAgent& a, Decision& d, std::span<const KnobView> knobs, Now now);
  void ask_fallback(ManagedAgent& a);
  bool learned(ManagedAgent& a, Decision& d, Now now);
  void explore(ManagedAgent& a, Decision& d, std::span<const KnobView> knobs);
  void note(ManagedAgent& a, Decision& d);
  void guard(ManagedAgent& a, Decision& d, std::span<const KnobView> knobs);
  void ask(ManagedAgent& a, Decision& d, std::span<const KnobView> knobs, Now now);
  // Of watch_policy(), lifecycle(), decide(), and of targets that come and go (fast_trip.cc).
  void change_stage(ManagedAgent& a, Decision& d, Stage next, std::string why, Now now);
  static void account_contention(ManagedAgent& a);
  void take_out(ManagedAgent& a, Decision& d, std::string why, Now now);
  static void restored(ManagedAgent& a, Now now);
  static void bring_back(ManagedAgent& a, Decision& d, std::span<const KnobView> knobs);
  void remember(const ManagedAgent& a);
  void recall(ManagedAgent& a);
  // Of find_ceilings() and note() (ceilings.cc).
  void find_nesting();
  void find_ceiling(ManagedAgent& a);
  void note_ceilings(const ManagedAgent& a, Decision& d) const;
  // Between look() and conclude(), and of the latter (tick_groups.cc).
  void find_groups();
  void summarise_groups();
  void see_others(ManagedAgent& a);
  // When all agents have decided (tick_capacity.cc).
  void arbitrate();
  void arbitrate(const LimitedResource& row);
  void count_capacity(const LimitedResource& row);
  void nest_requests(const LimitedResource& row);
  TickReport act(Now now);
  void settle(ManagedAgent& a, Decision& d);
  TickReport tick(Now now);
};

}  // namespace flash
