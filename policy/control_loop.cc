#include "policy/control_loop.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "policy/control_loop_impl.h"
#include "policy/explain.h"

namespace flash {
namespace {

Error not_managed(TargetId id) {
  return Error(std::errc::no_such_file_or_directory, agent_name(id) + " is not managed");
}

bool any(const AgentChange& c) {
  return c.added || c.removed || c.stage || c.mode || c.controller || c.episode || c.layout;
}

}  // namespace

void ControlLoop::Impl::fire(ManagedAgent& a) {
  if (!any(a.change)) return;
  const AgentChange change = std::exchange(a.change, AgentChange{});
  if (events.changed) events.changed(a.target.id, change);
}

/// What the agent's numbers mean may have changed: what was seen and learned before says nothing of them then.
bool ControlLoop::Impl::change_layout(ManagedAgent& a, WallTime now) {
  SpaceLayout layout = space_layout(*a.spec, *a.rule, a.instances);
  const bool other = layout.digest() != a.layout.digest();
  if (other) {
    a.seat.leave(now, layout);
    a.explorer.cancel();
    a.recent.clear();
    a.drift = {};
  }
  a.layout = std::move(layout);
  return other;
}

/// Which devices, domains or interfaces the target has, as of now.
void ControlLoop::Impl::follow_instances(ManagedAgent& a, WallTime now) {
  std::vector<KnobId> there;
  for (const KnobView& k : actuator.knobs(a.target.id))
    if (!k.kind.instance.empty() && manages(*a.rule, k.kind)) there.push_back(k.kind);
  std::sort(there.begin(), there.end());
  if (there == a.instances) return;
  a.instances = std::move(there);
  if (change_layout(a, now)) a.change.layout = true;
}

/// Control was left: what we wrote goes back to its original ("recommend writes nothing" must be true of
/// what is in force as well). A hold keeps the values until it ends.
Result<void> ControlLoop::Impl::leave_control(ManagedAgent& a) {
  if (a.held || disabled) return {};
  const RestoreReport report = actuator.release(a.target.id);
  // Tried again in the next ticks: v1 refuses a child's original while its parent's limit is still ours.
  a.left_behind = !report.complete();
  FLASH_CHECK(actuator.adopt(a.target, *a.rule));
  for (const auto& item : report.items)
    if (!item.restored)
      return Error(std::errc::io_error,
                   knob_name(item.ref.kind) + " of " + a.target.name + " was not restored: " + item.message);
  return {};
}
Result<void> ControlLoop::Impl::mode_changed(ManagedAgent& a, Mode before) {
  const Mode mode = mode_of(a);
  if (mode == before) return {};
  a.change.mode = true;
  Result<void> done;
  if (mode == Mode::Control) a.left_behind = false;
  if (before == Mode::Control) done = leave_control(a);
  fire(a);
  return done;
}

void ControlLoop::Impl::end_hold(ManagedAgent& a) {
  a.held = false;
  a.held_until.reset();
  a.held_until_mono.reset();
  a.hold_reason.clear();
  actuator.unhold(a.target.id);
  if (mode_of(a) != Mode::Control) static_cast<void>(leave_control(a));
}

LifecycleInput ControlLoop::Impl::lifecycle_input(const ManagedAgent& a) const {
  LifecycleInput in;
  in.rewards = a.proof.stats();
  in.unjudged = a.unjudged;
  in.min_rewards = (static_cast<std::size_t>(episode_steps()) + 1) / 2;
  in.policy_ready = a.seat.ready(last_tick);
  in.executing = may_write(a);
  if (const PolicySnapshot* snapshot = a.seat.snapshot()) in.estimate = snapshot->estimate;
  in.version = a.seat.accepted_version();
  in.failed_version = a.failed_version;
  const std::uint64_t episodes = retry_episodes(a.failures);
  in.seconds_to_wait = a.out_until > last_mono ? seconds(a.out_until - last_mono) : 0;
  in.hurts = a.hurts;
  in.episodes_to_wait = episodes > a.stage_episodes ? episodes - a.stage_episodes : 0;
  in.fallback_reward = a.fallback_reward.mean();
  in.fallback_count = a.fallback_reward.count();
  return in;
}

std::string ControlLoop::Impl::waiting_for(const ManagedAgent& a) const {
  StageVerdict verdict = judge_stage(a.stage, lifecycle_input(a), a.rule->profile);
  if (verdict.next == a.stage) return std::move(verdict.words);
  const std::uint32_t steps = episode_steps();
  std::string out;
  appendf(out, "goes %s at the end of the episode, in %u steps", std::string(to_string(verdict.next)).c_str(),
          a.step < steps ? steps - a.step : 0);
  return out;
}

ControlLoop::ControlLoop(LoopOptions options, std::vector<Collector*> collectors, Actuator& actuator,
                         LoopEvents events)
    : impl_(std::make_unique<Impl>(options, std::move(collectors), actuator, std::move(events))) {}
ControlLoop::~ControlLoop() = default;

Result<void> ControlLoop::add_target(Now now, Target target, std::shared_ptr<const Rule> rule) {
  const TargetId id = target.id;
  if (impl_->find(id)) return Error(std::errc::file_exists, agent_name(id) + " is managed already");
  FLASH_CHECK(impl_->actuator.adopt(target, *rule));
  const std::size_t window = impl_->window_of(*rule);
  auto agent = std::make_unique<ManagedAgent>(std::move(target), std::move(rule), window,
                                              Random(impl_->options.seed).fork(std::hash<TargetId>{}(id)));
  agent->stages.push_back({Stage::Initialized, now.wall, "taken up"});
  impl_->recall(*agent);
  for (Collector* c : impl_->collectors) c->track(agent->target);
  impl_->nesting_known = impl_->groups_known = false;
  impl_->table[id] = Observation{};
  impl_->by_id[id] = agent.get();
  impl_->agents.push_back(std::move(agent));
  ManagedAgent& a = *impl_->agents.back();
  // Kept in force by an earlier daemon whose rule controlled, while this one's does not.
  const auto knobs = impl_->actuator.knobs(id);
  if (impl_->mode_of(a) != Mode::Control &&
      std::any_of(knobs.begin(), knobs.end(), [](const KnobView& k) { return k.lease == LeaseState::Ours; }))
    static_cast<void>(impl_->leave_control(a));  // what cannot be restored stays in the ledger
  impl_->follow_instances(a, now.wall);
  a.change.added = true;
  impl_->fire(a);
  return {};
}

RestoreReport ControlLoop::remove_target(Now, TargetId id, bool gone) {
  ManagedAgent* a = impl_->find(id);
  if (!a) return {};
  RestoreReport report;
  if (gone)
    impl_->actuator.forget(id);
  else
    report = impl_->actuator.release(id);
  for (Collector* c : impl_->collectors) c->untrack(id);
  impl_->table.erase(id);
  impl_->by_id.erase(id);
  impl_->nesting_known = impl_->groups_known = false;
  impl_->remember(*a);
  const auto it =
      std::find_if(impl_->agents.begin(), impl_->agents.end(), [a](const auto& p) { return p.get() == a; });
  const std::unique_ptr<ManagedAgent> removed = std::move(*it);
  impl_->agents.erase(it);
  removed->change = AgentChange{};
  removed->change.removed = true;
  impl_->fire(*removed);
  return report;
}

Result<void> ControlLoop::change_rule(Now now, TargetId id, std::shared_ptr<const Rule> rule) {
  ManagedAgent* a = impl_->find(id);
  if (!a) return not_managed(id);
  const Mode before = impl_->mode_of(*a);
  a->rule = std::move(rule);
  a->target.rule = a->rule->name;
  impl_->change_layout(*a, now.wall);
  impl_->groups_known = false;
  const std::size_t window = impl_->window_of(*a->rule);
  a->rewards.resize(window);
  a->proof.resize(window);
  Result<void> adopted;
  if (!impl_->disabled) adopted = impl_->actuator.adopt(a->target, *a->rule);
  // Also when adopting failed: a rule that no longer controls must not leave our values in force.
  auto done = impl_->mode_changed(*a, before);
  return adopted ? std::move(done) : std::move(adopted);
}

void ControlLoop::change_options(const LoopOptions& options) {
  std::vector<Mode> before;
  before.reserve(impl_->agents.size());
  for (const auto& a : impl_->agents) before.push_back(impl_->mode_of(*a));
  impl_->options = options;
  for (std::size_t i = 0; i < impl_->agents.size(); ++i) {
    ManagedAgent& a = *impl_->agents[i];
    const std::size_t window = impl_->window_of(*a.rule);
    a.rewards.resize(window);
    a.proof.resize(window);
    while (a.history.size() > impl_->history_size()) a.history.pop_front();
    static_cast<void>(impl_->mode_changed(a, before[i]));
  }
}

TickReport ControlLoop::tick(Now now) {
  return impl_->tick(now);
}

Result<void> ControlLoop::offer_snapshot(Now now, TargetId id,
                                         std::shared_ptr<const PolicySnapshot> snapshot) {
  ManagedAgent* a = impl_->find(id);
  if (!a) return not_managed(id);
  if (!snapshot) return Error(std::errc::invalid_argument, "policy snapshot: none given");
  return a->seat.offer(now.wall, a->layout, *snapshot, a->recent, a->acts, impl_->offers, impl_->scratch);
}

void ControlLoop::set_mode(Now, Mode mode) {
  LoopOptions options = impl_->options;
  options.mode = mode;
  change_options(options);
}

Result<void> ControlLoop::set_mode(Now, TargetId id, std::optional<Mode> mode) {
  ManagedAgent* a = impl_->find(id);
  if (!a) return not_managed(id);
  const Mode before = impl_->mode_of(*a);
  a->own_mode = mode;
  return impl_->mode_changed(*a, before);
}

Result<void> ControlLoop::hold(Now now, TargetId id, std::optional<Duration> duration, std::string reason) {
  ManagedAgent* a = impl_->find(id);
  if (!a) return not_managed(id);
  a->held = true;
  a->held_until.reset();
  a->held_until_mono.reset();
  if (duration) {
    a->held_until = now.wall + *duration;
    a->held_until_mono = now.mono + *duration;
  }
  a->hold_reason = reason;
  impl_->actuator.hold(id, now, a->held_until_mono, std::move(reason));
  return {};
}

Result<void> ControlLoop::unhold(Now, TargetId id) {
  ManagedAgent* a = impl_->find(id);
  if (!a) return not_managed(id);
  if (a->held) impl_->end_hold(*a);
  return {};
}

RestoreReport ControlLoop::disable(Now, std::string reason) {
  impl_->disabled = true;
  impl_->disabled_reason = std::move(reason);
  return impl_->actuator.restore_all();
}

void ControlLoop::enable(Now now) {
  if (!impl_->disabled) return;
  impl_->disabled = false;
  impl_->disabled_reason.clear();
  for (const auto& a : impl_->agents) {
    // restore_all() released the leases; adopting takes the knobs up again with what is there now. A target
    // that vanished meanwhile has none, and is removed by its owner.
    static_cast<void>(impl_->actuator.adopt(a->target, *a->rule));
    if (a->held) impl_->actuator.hold(a->target.id, now, a->held_until_mono, a->hold_reason);
  }
}

bool ControlLoop::disabled() const {
  return impl_->disabled;
}
const std::string& ControlLoop::disabled_reason() const {
  return impl_->disabled_reason;
}

std::vector<TargetId> ControlLoop::agents() const {
  std::vector<TargetId> ids;
  ids.reserve(impl_->agents.size());
  for (const auto& a : impl_->agents) ids.push_back(a->target.id);
  return ids;
}

std::optional<AgentView> ControlLoop::view(TargetId id) const {
  const ManagedAgent* a = impl_->find(id);
  if (!a) return std::nullopt;
  AgentView v;
  v.target = &a->target;
  v.rule = a->rule.get();
  v.layout = &a->layout;
  v.mode = impl_->mode_of(*a);
  v.stage = a->stage;
  v.stage_since = a->stages.back().since;
  v.controller = a->controller;
  v.controller_reason = a->controller_reason;
  v.rewards = a->rewards.stats();
  v.rewards.last = a->history_of_rewards.last();
  v.episode = a->episode;
  v.step = a->step;
  v.own_mode = a->own_mode;
  v.held = a->held;
  v.held_until = a->held_until;
  v.hold_reason = a->hold_reason;
  v.snapshot = a->seat.snapshot();
  v.knobs = impl_->actuator.knobs(id);
  v.stages = a->stages;
  v.waiting_for = impl_->waiting_for(*a);
  v.fallback_reward = a->fallback_reward.mean();
  v.fallback_rewards = a->fallback_reward.count();
  v.drift = a->drift;
  v.snapshots = a->seat.counters();
  v.explored_of_last_100 = a->explorer.varied_of_last_100();
  return v;
}

const std::deque<Decision>* ControlLoop::history(TargetId id) const {
  const ManagedAgent* a = impl_->find(id);
  return a ? &a->history : nullptr;
}

std::vector<double> ControlLoop::rewards(TargetId id, std::size_t n) const {
  const ManagedAgent* a = impl_->find(id);
  return a ? a->history_of_rewards.newest(n) : std::vector<double>{};
}

const LoopOptions& ControlLoop::options() const {
  return impl_->options;
}

}  // namespace flash
