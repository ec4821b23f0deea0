// The phases of a tick, in its two passes. docs/ARCHITECTURE.md tells them in order.
#include <algorithm>
#include <cmath>
#include <utility>

#include "policy/action_space.h"
#include "policy/control_loop_impl.h"
#include "policy/explain.h"
#include "policy/fallback_frequency.h"
#include "policy/guard.h"
#include "policy/knob_policy.h"
#include "policy/learned_decision.h"
#include "policy/learning_view.h"
#include "policy/observation_space.h"
#include "policy/reward.h"

namespace flash {

/// The knob board reads the targets' own limits, once; who collects fits them into those of the cgroups above.
void ControlLoop::Impl::sense(Now now) {
  actuator.observe(now);
  for (auto& [id, observation] : table) {
    observation = Observation{};
    const auto knobs = actuator.knobs(id);
    for (const LimitedResource& row : limited_resources) {
      const KnobView* k = row.limit_signal ? find_knob(knobs, row.knob) : nullptr;
      if (k && !std::isnan(value_in_force(*k))) observation[*row.limit_signal] = k->current;
    }
  }
  machine = {};
  for (Collector* c : collectors) {
    c->collect(now, table);
    c->measure(machine);
  }
}

Decision& ControlLoop::Impl::next_slot(ManagedAgent& a) {
  Decision d;
  if (a.history.size() >= history_size()) {
    d = std::move(a.history.front());  // its strings and vectors keep their memory
    a.history.pop_front();
  }
  d.controller_reason.clear();
  d.explanation.clear();
  d.notes.clear();
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

/// What the agent's task is told of this step; made once per tick, before the reward.
void ControlLoop::Impl::see(ManagedAgent& a, const Decision& d, const Observation* before,
                            std::span<const KnobView> knobs) {
  a.knobs_seen.clear();
  for (const KnobView& k : knobs) {
    KnobNow& now = a.knobs_seen.emplace_back();
    now.knob = k.kind;
    now.value = now.own_view = value_in_force(k);
    now.scale = knob_range(*a.rule, k, a.capacity);
    now.steps = k.steps;
  }
  a.seen = TaskStep{};
  a.seen.at = last_mono;
  a.seen.rule = a.rule.get();
  a.seen.node = &a.capacity;
  a.seen.before = before;
  a.seen.now = &d.observation;
  a.seen.knobs = a.knobs_seen;
  a.seen.cpus = a.cpus();
}

/// For the decision of the previous tick, from what was in force since then.
void ControlLoop::Impl::reward(ManagedAgent& a, Decision& d, std::span<const KnobView> knobs) {
  if (!a.seen.before) return;
  a.power.add(a.seen.at, d.observation[Signal::Power]);
  a.seen.in_force = &a.in_force;
  a.seen.in_force_before = &a.in_force_before;
  a.seen.highest_power = a.power.highest(a.seen.at);
  d.reward = a.spec->reward(a.seen, a.memory);
  // Another writer changed a knob in between: what was in force during the step is not known.
  for (const KnobView& k : knobs)
    if (a.in_force.has(k.kind) && !same_setting(k.kind, a.in_force[k.kind], value_in_force(k)))
      d.reward.trusted = false;

  // What is not known was neither missed nor kept. Where no objective is given, contention stands for it.
  if (a.spec->contention && !a.rule->slo.given()) {
    if (a.in_control) account_contention(a);
  } else if (a.in_control && d.reward.given && d.reward.slo_known) {
    a.objective.step(d.reward.slo_preservation < 1, a.held_to_rules);
  }
  a.history_of_rewards.push(d.reward.value);
  if (a.in_control && a.controller == Controller::Learned) a.unjudged = d.reward.trusted ? 0 : a.unjudged + 1;
  if (d.reward.trusted) {
    a.rewards.push(d.reward.value);
    if (!a.in_control) return;
    // What the fallback earned must not vouch for the learned policy, and not the other way round: a policy
    // that had expired, or a state that was not sensible, put the fallback in charge.
    const bool bootstrapping = a.stage == Stage::Initialized || a.stage == Stage::Offline;
    if (a.controller != (bootstrapping ? Controller::Fallback : Controller::Learned)) return;
    a.proof.push(d.reward.value);
    if (bootstrapping) a.fallback_reward.add(d.reward.value, window_of(*a.rule));
  }
}

void ControlLoop::Impl::lifecycle(ManagedAgent& a, Decision& d, Now now) {
  if (a.step < episode_steps()) return;
  a.step = 0;
  ++a.episode;
  ++a.stage_episodes;
  a.change.episode = true;
  // What was accepted on few observations, or on those of an idle target, is looked at again before it may
  // act. Later its rewards say more than this check could.
  if (a.stage == Stage::Initialized || a.stage == Stage::Offline)
    a.seat.look_again(now.wall, a.layout, a.recent, a.acts, scratch);
  StageVerdict verdict = judge_stage(a.stage, lifecycle_input(a), a.rule->profile);
  if (a.stage == Stage::Serving && a.failures > 0 && ++a.good_episodes >= forgive_episodes(a.failures)) {
    --a.failures;
    a.good_episodes = 0;
  }
  if (verdict.next == a.stage) return;
  if (verdict.next == Stage::Offline && a.stage != Stage::Initialized) {
    ++a.failures;
    // The end of an episode came first: no less a policy that hurt.
    if (a.trip.rising()) {
      verdict.words += ", and throttling or pressure rose under it";
      return take_out(a, d, std::move(verdict.words), now);
    }
  }
  change_stage(a, d, verdict.next, std::move(verdict.words), now);
}

/// The seat: the learned policy if the stage says so and it can be trusted now; says why not otherwise.
bool ControlLoop::Impl::learned(ManagedAgent& a, Decision& d, Now now) {
  std::string& why = d.controller_reason;
  const PolicySnapshot* snapshot = a.seat.snapshot();
  if (!snapshot) {
    why += "no policy snapshot: ";
    if (a.seat.counters().refusals() > 0)
      a.seat.append_refusals(why);
    else
      why += "flash-learner is absent or has not published one";
    return false;
  }
  if (a.stage == Stage::Initialized || a.stage == Stage::Offline) {
    appendf(why, "stage %s: the fallback is in charge until the learned policy may go online",
            std::string(to_string(a.stage)).c_str());
    if (a.out_until > now.mono)
      appendf(why, "; policies are out for %.0f s more, since one hurt",
              std::ceil(seconds(a.out_until - now.mono)));
    return false;
  }
  if (snapshot->expires <= now.wall) {
    appendf(why, "snapshot expired %.0f s ago", std::floor(seconds(now.wall - snapshot->expires)));
    return false;
  }
  if (!a.state.sensible()) {
    why += "state not trusted: ";
    for (std::size_t i = 0; i < a.layout.state.size(); ++i)
      if (a.state.not_sensible & (1U << i)) {
        why.append(a.layout.state[i]).append(" is not measured");
        break;
      }
    return false;
  }
  to_network_form(*a.rule, a.capacity, d.current, d.contexts, current_form);
  LearnedInput in;
  in.policy = a.seat.policy();
  in.state = a.state.span();
  in.contexts = d.contexts;
  in.current = d.current;
  in.fallback = proposal.action;
  in.current_form = current_form;
  in.fallback_form = d.learning.fallback;
  if (!decide_learned(in, scratch, d, why)) return false;
  appendf(why, "stage %s, policy version %llu", std::string(to_string(a.stage)).c_str(),
          static_cast<unsigned long long>(snapshot->version));
  return true;
}

/// The fallback looks at every tick, also when it is not in charge: its windows must be warm when it is.
void ControlLoop::Impl::ask_fallback(ManagedAgent& a) {
  proposal.action = Action{};
  proposal.explanation.clear();
  proposal.alternatives.clear();
  // A variation of its own decision is not its view: it goes on from what it wanted.
  const Action& wanted = a.explorer.wanted();
  for (KnobNow& k : a.knobs_seen)
    if (a.controller == Controller::Fallback && wanted.has(k.knob) && a.in_force.has(k.knob) &&
        same_setting(k.knob, k.value, a.in_force[k.knob]))
      k.own_view = wanted[k.knob];
  a.fallback(a.seen, true, proposal);
}

void ControlLoop::Impl::decide(ManagedAgent& a, Decision& d, std::span<const KnobView> knobs, Now now) {
  ask_fallback(a);
  d.learning.state.assign(a.state.span().begin(), a.state.span().end());
  d.learning.state_trusted = a.state.trusted();
  a.rules_asked = proposal.action;
  to_network_form(*a.rule, a.capacity, proposal.action, d.contexts, d.learning.fallback);
  OutputKnobs outputs;
  const std::size_t n = output_knobs(a.spec->task, d.contexts, outputs);
  for (std::size_t i = 0; i < a.acts.size(); ++i)
    a.acts[i] = i < n && outputs[i] && std::isfinite(outputs[i]->upper);
  if (a.state.sensible()) a.recent.push(a.state, d.learning.fallback);

  Controller controller = Controller::None;
  if (d.mode == Mode::Observe) {
    d.controller_reason += "mode observe: sensed and recorded only";
  } else if (learned(a, d, now)) {
    controller = Controller::Learned;
  } else {
    controller = Controller::Fallback;
    d.proposed = proposal.action;
    d.explanation.swap(proposal.explanation);
    d.alternatives.swap(proposal.alternatives);
    bring_back(a, d, knobs);
  }
  d.controller = controller;
  if (controller != a.controller) {
    a.controller = controller;
    a.change.controller = true;
  }
  a.controller_reason = d.controller_reason;
}

void ControlLoop::Impl::explore(ManagedAgent& a, Decision& d, std::span<const KnobView> knobs) {
  ExplorationInput in;
  in.rule = a.rule.get();
  in.stage = a.stage;
  in.controller = d.controller;
  if (d.controller == Controller::Learned) in.policy = a.seat.policy();
  in.state = a.state.span();
  in.scratch = &scratch;
  in.executing = may_write(a);
  in.state_trusted = a.state.trusted();
  in.observation = &d.observation;
  in.cores = a.spec->cores(a.seen);
  in.knobs = knobs;
  in.contexts = d.contexts;
  in.current = d.current;
  in.flaps = &a.flaps;
  in.step = a.seq;
  in.last_objection = a.last_objection;
  d.explored = a.explorer.vary(in, d.proposed, d.exploration);
}

/// What else a person should know of this step.
void ControlLoop::Impl::note(ManagedAgent& a, Decision& d) {
  const auto begin = [&d] {
    if (!d.notes.empty()) d.notes += ' ';
  };
  if (const PolicySnapshot* snapshot = a.seat.snapshot()) {
    const bool was = a.drift.drifted;
    a.drift = judge_drift(*snapshot, a.recent, a.drift);
    if (a.drift.drifted != was) {
      begin();
      d.notes += was ? "The states look like those of training again: " : "Early sign of drift: ";
      append_drift(d.notes, a.drift, *a.spec);
      d.notes += '.';
    }
    // Without a policy in the seat the controller's reason says this.
    if (a.seat.counters().last_was_refused) {
      begin();
      a.seat.append_refusals(d.notes);
      appendf(d.notes, "; version %llu stays.", static_cast<unsigned long long>(snapshot->version));
    }
  } else {
    a.drift = Drift{};
  }
  if (d.controller == Controller::Learned && !a.rule->slo.given())
    for (std::size_t i = 0; i < limited_resources.size(); ++i) {
      if (!a.contention.of[i].by_use) continue;
      begin();
      d.notes.append("No objective is given, and ")
          .append(limited_resources[i].contended->by_use)
          .append(".");
    }
  note_ceilings(a, d);
}

void ControlLoop::Impl::guard(ManagedAgent& a, Decision& d, std::span<const KnobView> knobs) {
  GuardInput in;
  in.observation = &d.observation;
  in.rule = a.rule.get();
  in.node = &a.capacity;
  in.step = a.seq;
  in.growth_room = a.spec->growth_room(a.memory, d.at.mono);
  const bool learned = d.controller == Controller::Learned;
  const bool bound_to_rules = learned && a.objective.holds();
  a.held_to_rules = !learned || bound_to_rules;
  in.objective = &a.objective;
  for (const KnobView& k : knobs) {
    if (!d.proposed.has(k.kind) || !d.current.has(k.kind)) continue;
    in.knob = k.kind;
    in.current = d.current[k.kind];
    in.range = knob_range(*a.rule, k, a.capacity);
    in.steps = k.steps;
    in.flaps = &a.flaps[k.kind];
    in.rules_ask = bound_to_rules && proposal.action.has(k.kind) ? proposal.action[k.kind] : 0;
    in.bring_back =
        d.controller == Controller::Fallback && a.restore.has(k.kind) ? a.restore_most[k.kind] : 0;
    const double allowed = apply_guards(in, d.proposed[k.kind], d.verdicts);
    d.allowed.set(k.kind, as_written(k.kind, allowed, in.current, in.range));
  }
}

/// One outcome per knob the decision speaks of; what is to be written joins the tick's transaction.
void ControlLoop::Impl::ask(ManagedAgent& a, Decision& d, std::span<const KnobView> knobs, Now) {
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
    ManagedAgent& a = *pending[i].agent;
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
        FlapRecord& flaps = a.flaps[mine.knob];
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
void ControlLoop::Impl::settle(ManagedAgent& a, Decision& d) {
  a.in_force_before = a.in_force;
  a.in_force = d.current;
  for (const KnobOutcome& o : d.outcomes) {
    if (o.status == WriteStatus::Written) a.in_force.set(o.knob, o.executed);
    // What a failed write left behind is read back in the next tick; until then it is not known.
    if (o.status == WriteStatus::Failed || o.status == WriteStatus::Undone) a.in_force.clear(o.knob);
  }
  if (!d.verdicts.empty()) a.last_objection = d.seq;
  bool as_varied = d.explored && d.verdicts.empty();
  if (d.explored) {
    // What did not come into force as it was varied is no variation.
    a.explorer.wanted().each([&](const KnobId& k, double) {
      if (!(a.in_force.has(k) && same_setting(k, a.in_force[k], d.proposed[k]))) as_varied = false;
    });
    if (!as_varied) a.explorer.cancel();
  }
  a.in_control = may_write(a);
  if (a.in_control) to_network_form(*a.rule, a.capacity, a.in_force, d.contexts, d.learning.action);
  a.explorer.record(as_varied, d.learning);
}

/// The first pass: what there is to see of an agent, and what its last decision earned. How many samples were
/// impossible.
std::size_t ControlLoop::Impl::look(ManagedAgent& a, Now now) {
  follow_instances(a, now.wall);
  const std::span<const KnobView> knobs = actuator.knobs(a.target.id);
  Decision& d = next_slot(a);
  d.observation = table[a.target.id];
  const auto invalid = static_cast<std::size_t>(judge(d.observation, machine));
  const Observation* before = a.history.size() >= 2 ? &a.history[a.history.size() - 2].observation : nullptr;
  a.seat.new_tick();
  watch_policy(a, d, knobs, now);
  see(a, d, before, knobs);
  reward(a, d, knobs);
  for (const KnobView& k : knobs) {
    const double value = value_in_force(k);
    if (!std::isnan(value)) d.current.set(k.kind, value);
  }
  a.state = a.spec->state_of(a.seen, a.memory);
  return invalid;
}

/// The second pass, when all agents were looked at.
void ControlLoop::Impl::conclude(ManagedAgent& a, Now now) {
  const std::span<const KnobView> knobs = actuator.knobs(a.target.id);
  Decision& d = a.history.back();
  see_others(a);
  lifecycle(a, d, now);
  d.at = now;
  d.stage = a.stage;
  d.mode = mode_of(a);
  d.episode = a.episode;
  d.step = a.step++;
  d.learning.end_of_episode = a.step >= episode_steps();
  fill_contexts(*a.rule, a.capacity, knobs, d.contexts);
  decide(a, d, knobs, now);
  explore(a, d, knobs);
  note(a, d);
  guard(a, d, knobs);
}

TickReport ControlLoop::Impl::tick(Now now) {
  for (const auto& a : agents)
    if (a->held && a->held_until_mono && *a->held_until_mono <= now.mono) end_hold(*a);
  constexpr std::uint64_t kRetrySteps = 4;
  for (const auto& a : agents)
    if (a->left_behind && mode_of(*a) != Mode::Control && !a->held && !disabled && a->seq % kRetrySteps == 0)
      static_cast<void>(leave_control(*a));
  last_tick = now.wall;
  last_mono = now.mono;
  offers = OfferBudget{};
  sense(now);
  find_ceilings();
  changes.clear();
  pending.clear();
  std::size_t invalid = 0;
  if (!groups_known) find_groups();
  for (const auto& a : agents) invalid += look(*a, now);
  summarise_groups();
  for (const auto& a : agents) conclude(*a, now);
  arbitrate();
  for (const auto& a : agents) ask(*a, a->history.back(), actuator.knobs(a->target.id), now);
  TickReport report = act(now);
  report.agents = agents.size();
  report.invalid_samples = invalid;
  for (const auto& p : agents) {
    ManagedAgent& a = *p;
    Decision& d = a.history.back();
    settle(a, d);
    if (events.decided) events.decided(a.target, d);
  }
  for (const auto& a : agents) fire(*a);
  return report;
}

}  // namespace flash
