#include "policy/control_loop.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

#include "policy/action_space.h"
#include "policy/arbiter.h"
#include "policy/fallback_frequency.h"
#include "policy/fallback_limits.h"
#include "policy/guard.h"
#include "policy/learning_view.h"
#include "policy/observation_space.h"
#include "policy/reward.h"
#include "policy/words.h"

namespace flash {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kRewardsKept = 600;

Error not_managed(TargetId id) {
  return Error(std::errc::no_such_file_or_directory, agent_name(id) + " is not managed");
}

const KnobView* find_knob(std::span<const KnobView> knobs, KnobKind kind) {
  for (const KnobView& k : knobs)
    if (k.kind == kind) return &k;
  return nullptr;
}

double value_in_force(const KnobView& k) {
  return k.current.usable() && k.lease != LeaseState::Gone ? k.current.value : kNaN;
}

/// A CPU limit in whole percents of a CPU. systemd keeps CPUQuota= so: anything finer becomes another value
/// at the next daemon-reload, which would look like somebody else's. Rounded towards the value in force, so
/// that no guard's verdict is exceeded, and never out of the range.
double whole_percent(double value, double current, const KnobRange& range) {
  if (std::isinf(value)) return value;
  // The quotient of two decimal numbers may miss its whole number by a little.
  const double percents = value * 100;
  const double down = std::floor(percents + 1e-6) / 100, up = std::ceil(percents - 1e-6) / 100;
  if (value < current) return up <= std::min(current, range.upper) ? up : value;
  return down >= std::max(current, range.lower) ? down : value;
}

/// The newest rewards, trusted or not, for sparklines.
class RewardHistory {
 public:
  void push(double r) {
    if (ring_.size() < kRewardsKept) {
      ring_.push_back(r);
    } else {
      ring_[next_] = r;
      next_ = (next_ + 1) % kRewardsKept;
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
  std::vector<double> ring_;
  std::size_t next_ = 0;
  double last_ = 0;
};

struct Agent {
  Agent(Target t, std::shared_ptr<const Rule> r, std::size_t window)
      : target(std::move(t)), rule(std::move(r)), rewards(window), proof(window) {}

  Target target;
  std::shared_ptr<const Rule> rule;
  std::optional<Mode> own_mode;

  Stage stage = Stage::Initialized;
  WallTime stage_since{};
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

  std::shared_ptr<const PolicySnapshot> snapshot;
  std::shared_ptr<const CompiledPolicy> compiled;
  std::uint64_t accepted_version = 0;
  std::string snapshot_refusal;  // of the last one offered; empty: accepted

  LimitsFallback limits;
  std::array<FlapRecord, kKnobCount> flaps;
  StateVector state;

  RewardHistory history_of_rewards;
  RewardWindow rewards;  // trusted, for people
  RewardWindow proof;    // trusted and earned under control in this stage: the R of Alg. 1
  double gain = kNaN;    // Reward::ips_gain of the last step, NaN: unknown
  double highest_power = 0;

  Action in_force, in_force_before;  // during the step that ends now, and the one before it
  bool in_control = false;           // the last decision was executed, not only recommended

  std::deque<Decision> history;
  AgentChange change;
};

bool any(const AgentChange& c) {
  return c.added || c.removed || c.stage || c.mode || c.controller || c.episode;
}

}  // namespace

struct ControlLoop::Impl {
  LoopOptions options;
  std::vector<Collector*> collectors;
  Actuator& actuator;
  LoopEvents events;
  std::vector<std::unique_ptr<Agent>> agents;  // in order of being added
  std::unordered_map<TargetId, Agent*> by_id;
  ObservationTable table;
  bool disabled = false;
  std::string disabled_reason;

  // Reused from tick to tick.
  struct Pending {
    Agent* agent;
    std::size_t outcome;
  };
  std::vector<KnobChange> changes;
  std::vector<Pending> pending;
  std::vector<MemoryRequest> memory;
  std::vector<Agent*> memory_owner;
  EvaluatorScratch scratch;
  Action fallback_action;
  std::string fallback_words;
  std::vector<Alternative> fallback_alternatives;

  Impl(LoopOptions o, std::vector<Collector*> c, Actuator& a, LoopEvents e)
      : options(o), collectors(std::move(c)), actuator(a), events(std::move(e)) {}

  Agent* find(TargetId id) const {
    const auto it = by_id.find(id);
    return it == by_id.end() ? nullptr : it->second;
  }
  Mode mode_of(const Agent& a) const {
    if (a.own_mode) return *a.own_mode;
    return a.rule->mode_given ? a.rule->mode : options.mode;
  }
  bool may_write(const Agent& a) const { return mode_of(a) == Mode::Control && !a.held && !disabled; }
  std::size_t window_of(const Rule& rule) const {
    return static_cast<std::size_t>(std::max(rule.profile.window_episodes, 1)) *
           static_cast<std::size_t>(std::max(options.episode_steps, 1));
  }
  std::uint32_t episode_steps() const {
    return static_cast<std::uint32_t>(std::max(options.episode_steps, 1));
  }
  std::size_t history_size() const { return std::max<std::size_t>(options.history, 2); }

  void fire(Agent& a) {
    if (!any(a.change)) return;
    const AgentChange change = std::exchange(a.change, AgentChange{});
    if (events.changed) events.changed(a.target.id, change);
  }

  /// Control was left: what we wrote goes back to its original ("recommend writes nothing" must be true of
  /// what is in force as well). A hold keeps the values until it ends.
  Result<void> leave_control(Agent& a) {
    if (a.held || disabled) return {};
    const RestoreReport report = actuator.release(a.target.id);
    // Tried again in the next ticks: v1 refuses a child's original while its parent's limit is still ours.
    a.left_behind = !report.complete();
    FLASH_CHECK(actuator.adopt(a.target, *a.rule));
    for (const auto& item : report.items)
      if (!item.restored)
        return Error(std::errc::io_error, std::string(traits(item.ref.kind).name) + " of " + a.target.name +
                                              " was not restored: " + item.message);
    return {};
  }
  Result<void> mode_changed(Agent& a, Mode before) {
    const Mode mode = mode_of(a);
    if (mode == before) return {};
    a.change.mode = true;
    Result<void> done;
    if (mode == Mode::Control) a.left_behind = false;
    if (before == Mode::Control) done = leave_control(a);
    fire(a);
    return done;
  }

  void end_hold(Agent& a) {
    a.held = false;
    a.held_until.reset();
    a.held_until_mono.reset();
    a.hold_reason.clear();
    actuator.unhold(a.target.id);
    if (mode_of(a) != Mode::Control) static_cast<void>(leave_control(a));
  }

  void sense(Now now) {
    for (auto& [id, observation] : table) observation = Observation{};
    for (Collector* c : collectors) c->collect(now, table);
    actuator.observe(now);
  }

  Decision& next_slot(Agent& a) {
    Decision d;
    if (a.history.size() >= history_size()) {
      d = std::move(a.history.front());  // its strings and vectors keep their memory
      a.history.pop_front();
    }
    d.controller_reason.clear();
    d.explanation.clear();
    d.explored = false;
    d.exploration.clear();
    d.model_version = 0;
    d.alternatives.clear();
    d.attributions.clear();
    d.learning.state.clear();
    d.learning.state_trusted = false;
    d.learning.action.clear();
    d.learning.fallback.clear();
    d.learning.end_of_episode = false;
    d.verdicts.clear();
    d.outcomes.clear();
    d.reward = Reward{};
    d.current = d.proposed = d.allowed = Action{};
    d.seq = ++a.seq;
    return a.history.emplace_back(std::move(d));
  }

  void reward(Agent& a, Decision& d, const Observation* before, std::span<const KnobView> knobs);
  void lifecycle(Agent& a, Now now);
  void decide(Agent& a, Decision& d, const Observation* before, std::span<const KnobView> knobs, Now now);
  bool learned(Agent& a, Decision& d, std::span<const KnobView> knobs, Now now);
  void guard(Agent& a, Decision& d, std::span<const KnobView> knobs);
  void arbitrate();
  void ask(Agent& a, Decision& d, std::span<const KnobView> knobs, Now now);
  TickReport act(Now now);
  void settle(Agent& a, Decision& d);
  TickReport tick(Now now);
};

/// For the decision of the previous tick, from what was in force since then.
void ControlLoop::Impl::reward(Agent& a, Decision& d, const Observation* before,
                               std::span<const KnobView> knobs) {
  if (!before) return;
  const Observation& o = d.observation;
  const Sample& watts = o[Signal::Power];
  if (watts.trusted()) a.highest_power = std::max(a.highest_power, watts.value);

  if (a.target.task() == Task::ResourceLimits) {
    LimitsStep step;
    step.now = &o;
    step.in_force = a.in_force;
    if (const KnobView* k = find_knob(knobs, KnobKind::CpuLimit))
      step.cpu_range = knob_range(*a.rule, *k, options.capacity);
    if (const KnobView* k = find_knob(knobs, KnobKind::MemoryLimit))
      step.memory_range = knob_range(*a.rule, *k, options.capacity);
    d.reward = limits_reward(*a.rule, options.capacity, step);
  } else {
    FrequencyStep step;
    step.before = before;
    step.now = &o;
    if (const KnobView* k = find_knob(knobs, KnobKind::CpuFrequency))
      step.range = knob_range(*a.rule, *k, options.capacity);
    if (a.in_force.has(KnobKind::CpuFrequency)) step.khz_now = a.in_force[KnobKind::CpuFrequency];
    if (a.in_force_before.has(KnobKind::CpuFrequency))
      step.khz_before = a.in_force_before[KnobKind::CpuFrequency];
    step.cpus = static_cast<int>(std::max<std::size_t>(a.target.cpus.size(), 1));
    step.gain_before = a.gain;
    step.highest_power = a.highest_power;
    d.reward = frequency_reward(*a.rule, step);
    if (a.rule->reward.kind == RewardKind::Default) a.gain = d.reward.ips_gain;
  }
  // Another writer changed a knob in between: what was in force during the step is not known.
  for (const KnobView& k : knobs)
    if (a.in_force.has(k.kind) && !same_setting(k.kind, a.in_force[k.kind], value_in_force(k)))
      d.reward.trusted = false;

  a.history_of_rewards.push(d.reward.value);
  if (d.reward.trusted) {
    a.rewards.push(d.reward.value);
    if (a.in_control) a.proof.push(d.reward.value);
  }
}

void ControlLoop::Impl::lifecycle(Agent& a, Now now) {
  if (a.step < episode_steps()) return;
  a.step = 0;
  ++a.episode;
  a.change.episode = true;
  LifecycleInput in;
  in.rewards = a.proof.stats();
  in.min_rewards = (static_cast<std::size_t>(episode_steps()) + 1) / 2;
  in.policy_ready = a.snapshot && a.snapshot->expires > now.wall;
  const Stage next = next_stage(a.stage, in, a.rule->profile);
  if (next == a.stage) return;
  a.stage = next;
  a.stage_since = now.wall;
  a.change.stage = true;
  // The fallback's rewards must not vouch for the learned policy: R starts anew with the stage.
  a.proof.clear();
}

/// The seat: the policy snapshot if the stage says so and it can be trusted now; says why not otherwise.
bool ControlLoop::Impl::learned(Agent& a, Decision& d, std::span<const KnobView> knobs, Now now) {
  std::string& why = d.controller_reason;
  if (!a.snapshot) {
    why += "no policy snapshot: flash-learner is absent or has not published one";
    if (!a.snapshot_refusal.empty()) why.append("; the last offer was refused: ").append(a.snapshot_refusal);
    return false;
  }
  if (a.stage == Stage::Initialized || a.stage == Stage::Offline) {
    appendf(why, "stage %s: the fallback is in charge until the learned policy may go online",
            std::string(to_string(a.stage)).c_str());
    return false;
  }
  if (a.snapshot->expires <= now.wall) {
    appendf(why, "snapshot expired %.0f s ago", std::floor(seconds(now.wall - a.snapshot->expires)));
    return false;
  }
  if (!a.state.sensible()) {
    why += "state not trusted: ";
    const auto entries = state_entries(a.target.task());
    for (std::size_t i = 0; i < entries.size(); ++i)
      if (a.state.not_sensible & (1U << i)) {
        why.append(entries[i].name).append(" is not measured");
        break;
      }
    return false;
  }
  a.compiled->actor.prepare(scratch);
  const std::span<const float> y = a.compiled->actor.evaluate(a.state.span(), scratch);
  for (float v : y)
    if (!std::isfinite(v)) {
      why += "the policy's output is not a number";
      return false;
    }

  from_network_form(a.target.task(), y, d.contexts, d.proposed);
  if (const KnobView* k = find_knob(knobs, KnobKind::CpuFrequency)) {
    const KnobRange range = knob_range(*a.rule, *k, options.capacity);
    for (std::size_t i = 0; i < y.size(); ++i) {
      Alternative& alternative = d.alternatives.emplace_back();
      const double khz = level_to_khz(static_cast<int>(i), k->steps, range);
      appendf(alternative.label, "%.0f kHz", khz);
      alternative.action.set(KnobKind::CpuFrequency, khz);
      alternative.value = y[i];
    }
  }
  if (d.proposed.empty()) {
    why += "the policy has no knob to act on";
    return false;
  }
  appendf(why, "stage %s, policy version %llu", std::string(to_string(a.stage)).c_str(),
          static_cast<unsigned long long>(a.snapshot->version));
  return true;
}

void ControlLoop::Impl::decide(Agent& a, Decision& d, const Observation* before,
                               std::span<const KnobView> knobs, Now now) {
  const Observation& o = d.observation;
  // The fallback looks at every tick, also when it is not in charge: its windows must be warm when it is.
  fallback_action = Action{};
  fallback_words.clear();
  fallback_alternatives.clear();
  if (a.target.task() == Task::ResourceLimits) {
    LimitsInput in;
    in.now = now.mono;
    in.rule = a.rule.get();
    in.observation = &o;
    in.node_cores = options.capacity.cores;
    if (const KnobView* k = find_knob(knobs, KnobKind::CpuLimit)) {
      in.cpu_limit = value_in_force(*k);
      in.cpu_range = knob_range(*a.rule, *k, options.capacity);
    }
    if (const KnobView* k = find_knob(knobs, KnobKind::MemoryLimit)) {
      in.memory_limit = value_in_force(*k);
      in.memory_range = knob_range(*a.rule, *k, options.capacity);
    }
    a.state = limits_state(*a.rule, options.capacity, before, o, {in.cpu_limit, in.cpu_range},
                           {in.memory_limit, in.memory_range});
    a.limits.decide(in, fallback_action, fallback_words);
  } else {
    FrequencyInput in;
    in.rule = a.rule.get();
    in.observation = &o;
    in.cpus = static_cast<int>(std::max<std::size_t>(a.target.cpus.size(), 1));
    if (const KnobView* k = find_knob(knobs, KnobKind::CpuFrequency)) {
      in.khz = k->current.usable() ? k->current.value : 0;
      in.range = knob_range(*a.rule, *k, options.capacity);
      in.steps = k->steps;
    }
    a.state = frequency_state(*a.rule, o, in.khz, in.range, in.cpus);
    decide_frequency(in, fallback_action, fallback_words, fallback_alternatives);
  }
  d.learning.state.assign(a.state.span().begin(), a.state.span().end());
  d.learning.state_trusted = a.state.trusted();
  to_network_form(*a.rule, options.capacity, fallback_action, d.contexts, d.learning.fallback);

  Controller controller = Controller::None;
  if (d.mode == Mode::Observe) {
    d.controller_reason += "mode observe: sensed and recorded only";
  } else if (learned(a, d, knobs, now)) {
    controller = Controller::Learned;
    d.model_version = a.snapshot->version;
    appendf(d.explanation, "Policy version %llu chose", static_cast<unsigned long long>(a.snapshot->version));
    for (const auto& row : knob_table())
      if (d.proposed.has(row.kind)) {
        appendf(d.explanation, " %s ", knob_words(row.kind));
        append_value(d.explanation, row.kind, d.proposed[row.kind]);
      }
    d.explanation += '.';
    Alternative& alternative = d.alternatives.emplace_back();
    alternative.label = "fallback";
    alternative.action = fallback_action;
    alternative.value = kNaN;
  } else {
    controller = Controller::Fallback;
    d.proposed = fallback_action;
    d.explanation.swap(fallback_words);
    d.alternatives.swap(fallback_alternatives);
  }
  d.controller = controller;
  if (controller != a.controller) {
    a.controller = controller;
    a.change.controller = true;
  }
  a.controller_reason = d.controller_reason;
}

void ControlLoop::Impl::guard(Agent& a, Decision& d, std::span<const KnobView> knobs) {
  GuardInput in;
  in.observation = &d.observation;
  in.rule = a.rule.get();
  in.node = &options.capacity;
  in.step = a.seq;
  for (const KnobView& k : knobs) {
    if (!d.proposed.has(k.kind) || !d.current.has(k.kind)) continue;
    in.knob = k.kind;
    in.current = d.current[k.kind];
    in.range = knob_range(*a.rule, k, options.capacity);
    in.steps = k.steps;
    in.flaps = &a.flaps[static_cast<std::size_t>(k.kind)];
    double allowed = apply_guards(in, d.proposed[k.kind], d.verdicts);
    if (k.kind == KnobKind::CpuLimit) allowed = whole_percent(allowed, in.current, in.range);
    d.allowed.set(k.kind, allowed);
  }
}

void ControlLoop::Impl::arbitrate() {
  constexpr KnobKind kKnob = KnobKind::MemoryLimit;
  const double available = options.capacity.usable_memory();
  if (std::isinf(available)) return;
  memory.clear();
  memory_owner.clear();
  for (const auto& a : agents) {
    if (a->target.task() != Task::ResourceLimits || a->history.empty()) continue;
    Decision& d = a->history.back();
    if (!d.current.has(kKnob)) continue;
    MemoryRequest r;
    r.priority = a->rule->priority;
    const bool asks = may_write(*a) && d.allowed.has(kKnob) && std::isfinite(d.allowed[kKnob]);
    if (std::isinf(d.current[kKnob])) {
      // A first limit is no growth: the target could have had everything.
      r.current = asks ? d.allowed[kKnob] : d.observation[Signal::MemoryWorkingSet].value_or(0);
      r.wanted = r.current;
    } else {
      r.current = d.current[kKnob];
      r.wanted = asks ? d.allowed[kKnob] : r.current;
    }
    memory.push_back(r);
    memory_owner.push_back(a.get());
  }
  grant_memory(memory, available);
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const MemoryRequest& r = memory[i];
    if (same_setting(kKnob, r.granted, r.wanted)) continue;
    Decision& d = memory_owner[i]->history.back();
    GuardVerdict v;
    v.guard = "capacity";
    v.knob = kKnob;
    v.verdict = same_setting(kKnob, r.granted, r.current) ? Verdict::Refused : Verdict::Changed;
    v.before = r.wanted;
    v.after = r.granted;
    v.reason = "the node's memory for managed targets is ";
    append_value(v.reason, kKnob, available);
    v.reason += " and is given out";
    d.verdicts.push_back(std::move(v));
    d.allowed.set(kKnob, r.granted);
  }
}

/// One outcome per knob the decision speaks of; what is to be written joins the tick's transaction.
void ControlLoop::Impl::ask(Agent& a, Decision& d, std::span<const KnobView> knobs, Now) {
  for (const KnobView& k : knobs) {
    if (!d.allowed.has(k.kind)) continue;
    const double wanted = d.allowed[k.kind];
    const double current = d.current[k.kind];
    KnobOutcome& outcome = d.outcomes.emplace_back();
    outcome.knob = k.kind;
    outcome.asked = wanted;
    outcome.executed = current;
    if (same_setting(k.kind, wanted, current)) {
      outcome.status = may_write(a) ? WriteStatus::Unchanged : WriteStatus::NotAsked;
      continue;
    }
    if (!may_write(a)) {
      outcome.status = WriteStatus::NotAsked;
      if (disabled)
        outcome.message = "flashd is disabled: " + disabled_reason;
      else if (a.held)
        outcome.message = "held: " + a.hold_reason;
      else
        outcome.message.append("mode ").append(to_string(d.mode));
      continue;
    }
    if (!k.writable) {
      outcome.status = WriteStatus::Refused;
      outcome.message = !k.blocked_by.empty() ? k.blocked_by : k.lease_reason;
      if (outcome.message.empty()) outcome.message.append("the lease is ").append(to_string(k.lease));
      GuardVerdict& v = d.verdicts.emplace_back();
      v.guard = "lease";
      v.knob = k.kind;
      v.verdict = Verdict::Refused;
      v.before = wanted;
      v.after = current;
      v.reason = outcome.message;
      d.allowed.set(k.kind, current);
      continue;
    }
    changes.push_back({a.target.id, k.kind, wanted});
    pending.push_back({&a, d.outcomes.size() - 1});
  }
}

TickReport ControlLoop::Impl::act(Now now) {
  TickReport report;
  if (changes.empty()) return report;
  std::vector<KnobOutcome> outcomes = actuator.apply(now, changes);
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Agent& a = *pending[i].agent;
    Decision& d = a.history.back();
    KnobOutcome& mine = d.outcomes[pending[i].outcome];
    const double before = d.current[mine.knob];
    if (i < outcomes.size()) {
      mine = std::move(outcomes[i]);
      mine.knob = changes[i].kind;
    } else {
      mine.status = WriteStatus::Failed;
      mine.message = "the actuator gave no answer";
    }
    switch (mine.status) {
      case WriteStatus::Written: {
        ++report.writes;
        FlapRecord& flaps = a.flaps[static_cast<std::size_t>(mine.knob)];
        flaps.record(a.seq, mine.executed > before ? 1 : mine.executed < before ? -1 : 0);
        break;
      }
      case WriteStatus::Failed:
      case WriteStatus::Undone:
        ++report.failures;
        break;
      default:
        break;
    }
  }
  return report;
}

/// What is in force from now on, and so what the next reward is earned by.
void ControlLoop::Impl::settle(Agent& a, Decision& d) {
  a.in_force_before = a.in_force;
  a.in_force = d.current;
  for (const KnobOutcome& o : d.outcomes) {
    if (o.status == WriteStatus::Written) a.in_force.set(o.knob, o.executed);
    // What a failed write left behind is read back in the next tick; until then it is not known.
    if (o.status == WriteStatus::Failed || o.status == WriteStatus::Undone) a.in_force.clear(o.knob);
  }
  a.in_control = may_write(a);
  if (a.in_control) to_network_form(*a.rule, options.capacity, a.in_force, d.contexts, d.learning.action);
}

TickReport ControlLoop::Impl::tick(Now now) {
  for (const auto& a : agents)
    if (a->held && a->held_until_mono && *a->held_until_mono <= now.mono) end_hold(*a);
  constexpr std::uint64_t kRetrySteps = 4;
  for (const auto& a : agents)
    if (a->left_behind && mode_of(*a) != Mode::Control && !a->held && !disabled && a->seq % kRetrySteps == 0)
      static_cast<void>(leave_control(*a));
  sense(now);
  changes.clear();
  pending.clear();
  std::size_t invalid = 0;
  for (const auto& p : agents) {
    Agent& a = *p;
    const std::span<const KnobView> knobs = actuator.knobs(a.target.id);
    Decision& d = next_slot(a);
    d.observation = table[a.target.id];
    invalid += static_cast<std::size_t>(judge(d.observation));
    const Observation* before =
        a.history.size() >= 2 ? &a.history[a.history.size() - 2].observation : nullptr;
    reward(a, d, before, knobs);
    lifecycle(a, now);
    d.at = now;
    d.stage = a.stage;
    d.mode = mode_of(a);
    d.episode = a.episode;
    d.step = a.step++;
    for (const KnobView& k : knobs) {
      const double value = value_in_force(k);
      if (!std::isnan(value)) d.current.set(k.kind, value);
    }
    d.learning.end_of_episode = a.step >= episode_steps();
    fill_contexts(*a.rule, options.capacity, knobs, d.contexts);
    decide(a, d, before, knobs, now);
    guard(a, d, knobs);
  }
  arbitrate();
  for (const auto& a : agents) ask(*a, a->history.back(), actuator.knobs(a->target.id), now);
  TickReport report = act(now);
  report.agents = agents.size();
  report.invalid_samples = invalid;
  for (const auto& p : agents) {
    Agent& a = *p;
    Decision& d = a.history.back();
    settle(a, d);
    if (events.decided) events.decided(a.target, d);
  }
  for (const auto& a : agents) fire(*a);
  return report;
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
  auto agent = std::make_unique<Agent>(std::move(target), std::move(rule), window);
  agent->stage_since = now.wall;
  for (Collector* c : impl_->collectors) c->track(agent->target);
  impl_->table[id] = Observation{};
  impl_->by_id[id] = agent.get();
  impl_->agents.push_back(std::move(agent));
  Agent& a = *impl_->agents.back();
  // Kept in force by an earlier daemon whose rule controlled, while this one's does not.
  const auto knobs = impl_->actuator.knobs(id);
  if (impl_->mode_of(a) != Mode::Control &&
      std::any_of(knobs.begin(), knobs.end(), [](const KnobView& k) { return k.lease == LeaseState::Ours; }))
    static_cast<void>(impl_->leave_control(a));  // what cannot be restored stays in the ledger
  a.change.added = true;
  impl_->fire(a);
  return {};
}

RestoreReport ControlLoop::remove_target(Now, TargetId id, bool gone) {
  Agent* a = impl_->find(id);
  if (!a) return {};
  RestoreReport report;
  if (gone)
    impl_->actuator.forget(id);
  else
    report = impl_->actuator.release(id);
  for (Collector* c : impl_->collectors) c->untrack(id);
  impl_->table.erase(id);
  impl_->by_id.erase(id);
  const auto it =
      std::find_if(impl_->agents.begin(), impl_->agents.end(), [a](const auto& p) { return p.get() == a; });
  const std::unique_ptr<Agent> removed = std::move(*it);
  impl_->agents.erase(it);
  removed->change = AgentChange{};
  removed->change.removed = true;
  impl_->fire(*removed);
  return report;
}

Result<void> ControlLoop::change_rule(Now, TargetId id, std::shared_ptr<const Rule> rule) {
  Agent* a = impl_->find(id);
  if (!a) return not_managed(id);
  const Mode before = impl_->mode_of(*a);
  a->rule = std::move(rule);
  a->target.rule = a->rule->name;
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
    Agent& a = *impl_->agents[i];
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
  Agent* a = impl_->find(id);
  if (!a) return not_managed(id);
  if (!snapshot) return Error(std::errc::invalid_argument, "policy snapshot: none given");
  auto checked = check_snapshot(*snapshot, a->target.task(), now.wall, a->accepted_version, a->state.span());
  if (!checked) {
    a->snapshot_refusal = checked.error().message();
    return checked;
  }
  a->snapshot_refusal.clear();
  a->accepted_version = snapshot->version;
  a->compiled = std::make_shared<const CompiledPolicy>(*snapshot);
  a->snapshot = std::move(snapshot);
  return {};
}

void ControlLoop::set_mode(Now, Mode mode) {
  LoopOptions options = impl_->options;
  options.mode = mode;
  change_options(options);
}

Result<void> ControlLoop::set_mode(Now, TargetId id, std::optional<Mode> mode) {
  Agent* a = impl_->find(id);
  if (!a) return not_managed(id);
  const Mode before = impl_->mode_of(*a);
  a->own_mode = mode;
  return impl_->mode_changed(*a, before);
}

Result<void> ControlLoop::hold(Now now, TargetId id, std::optional<Duration> duration, std::string reason) {
  Agent* a = impl_->find(id);
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
  Agent* a = impl_->find(id);
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
  const Agent* a = impl_->find(id);
  if (!a) return std::nullopt;
  AgentView v;
  v.target = &a->target;
  v.rule = a->rule.get();
  v.mode = impl_->mode_of(*a);
  v.stage = a->stage;
  v.stage_since = a->stage_since;
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
  v.snapshot = a->snapshot.get();
  v.knobs = impl_->actuator.knobs(id);
  return v;
}

const std::deque<Decision>* ControlLoop::history(TargetId id) const {
  const Agent* a = impl_->find(id);
  return a ? &a->history : nullptr;
}

std::vector<double> ControlLoop::rewards(TargetId id, std::size_t n) const {
  const Agent* a = impl_->find(id);
  return a ? a->history_of_rewards.newest(n) : std::vector<double>{};
}

const LoopOptions& ControlLoop::options() const {
  return impl_->options;
}

}  // namespace flash
