#include "daemon/own_metrics.h"

#include <array>
#include <cmath>
#include <map>

#include "daemon/local_peer.h"

namespace flash {

using link::sync::Family;
using link::sync::FamilyType;

namespace {

constexpr auto kGauge = FamilyType::Gauge;
constexpr auto kCounter = FamilyType::Counter;

std::vector<MetricTraits> make_table() {
  return {
      {"flashd_build", FamilyType::Info, "", {"version"}, "Version of flashd; always 1."},
      {"flashd_period_seconds", kGauge, "seconds", {}, "Time from one tick to the next."},
      {"flashd_ticks", kCounter, "", {}, "Ticks since the start."},
      {"flashd_late_ticks", kCounter, "", {}, "Ticks that were left out because one took too long."},
      {"flashd_tick_duration_seconds", kGauge, "seconds", {}, "Duration of the last tick."},
      {"flashd_tick_busy_seconds", kCounter, "seconds", {}, "Duration of all ticks together."},
      {"flashd_cpu_seconds", kCounter, "seconds", {}, "CPU time of the flashd process."},
      {"flashd_peak_memory_bytes", kGauge, "bytes", {}, "Largest resident memory of the flashd process."},
      {"flashd_wakeups",
       kCounter,
       "",
       {},
       "Times that the flashd process went to sleep (voluntary context switches)."},
      {"flashd_overhead_ratio",
       kGauge,
       "ratio",
       {"part"},
       "CPU time in the last whole window, as a share of one core: the process, and each probe's programs in "
       "the kernel."},
      {"flashd_overhead_budget_ratio",
       kGauge,
       "ratio",
       {},
       "What all of it together may take; beyond it flashd samples less. 0: no bound."},
      {"flashd_mode", kGauge, "", {"mode"}, "1 for the daemon's mode, 0 for the others."},
      {"flashd_disabled", kGauge, "", {}, "1 while the kill switch is on."},
      {"flashd_degraded", kGauge, "", {"part"}, "Reasons why a part works less well than it should."},
      {"flashd_agents", kGauge, "", {"task", "stage"}, "Agents by task and stage."},
      {"flashd_agents_unlisted",
       kGauge,
       "",
       {},
       "Agents without metrics of their own, because there are too many."},
      {"flashd_signal_targets",
       kGauge,
       "",
       {"signal", "source"},
       "Targets that have a signal from a source."},
      {"flashd_learner_connected", kGauge, "", {}, "1 while flash-learner is connected."},
      {"flashd_learner_events",
       kCounter,
       "",
       {"event"},
       "What happened on the learner's socket, LearnerCounters of org.flashd(5)."},
      {"flashd_journal_events",
       kCounter,
       "",
       {"event"},
       "What happened to the decision journal, JournalCounters of org.flashd(5)."},
      {"flashd_statsd_events",
       kCounter,
       "",
       {"event"},
       "What applications sent over StatsD, MetricsCounters of org.flashd(5)."},
      {"flashd_sync_events",
       kCounter,
       "",
       {"event"},
       "What happened on flash-sync's socket, SyncCounters of org.flashd(5)."},
      {"flashd_agent",
       FamilyType::Info,
       "",
       {"agent", "target", "application", "task", "rule"},
       "Who an agent is; always 1."},
      {"flashd_agent_stage",
       kGauge,
       "",
       {"agent"},
       "Life-cycle stage: 0 initialized, 1 offline, 2 online, 3 serving."},
      {"flashd_agent_controller",
       kGauge,
       "",
       {"agent"},
       "Who decides: 0 none, 1 the fallback, 2 the learned policy."},
      {"flashd_agent_held", kGauge, "", {"agent"}, "1 while an operator keeps flashd's hands off."},
      {"flashd_agent_reward", kGauge, "", {"agent"}, "Reward of the last step."},
      {"flashd_agent_reward_mean", kGauge, "", {"agent"}, "Mean of the recent rewards that may be trusted."},
      {"flashd_agent_fallback_reward",
       kGauge,
       "",
       {"agent"},
       "Mean reward per step that the fallback earned; NaN: not known."},
      {"flashd_agent_episodes", kCounter, "", {"agent"}, "Episodes of the agent that ended."},
      {"flashd_agent_explored_ratio",
       kGauge,
       "ratio",
       {"agent"},
       "Share of the last 100 decisions that were varied on purpose."},
      {"flashd_agent_model_version", kGauge, "", {"agent"}, "Version of the learned policy; 0 without one."},
      {"flashd_agent_policies",
       kCounter,
       "",
       {"agent", "result"},
       "Policies that the learner offered, by result."},
      {"flashd_agent_signal",
       kGauge,
       "",
       {"agent", "signal", "unit"},
       "What was last sensed of the target; without samples while it cannot be used."},
      {"flashd_agent_signal_trusted",
       kGauge,
       "",
       {"agent", "signal"},
       "1 while a learner may learn from the signal."},
      {"flashd_agent_slo_latency_seconds",
       kGauge,
       "seconds",
       {"agent"},
       "Objective: latency that 99 % of the requests keep; without samples where none is given."},
      {"flashd_agent_knob",
       kGauge,
       "",
       {"agent", "knob", "unit"},
       "Value of a knob as read back; +Inf: no limit."},
      {"flashd_agent_knob_original",
       kGauge,
       "",
       {"agent", "knob", "unit"},
       "Its value before flashd's first write."},
      {"flashd_agent_knob_writes", kCounter, "", {"agent", "knob"}, "Writes to the knob."},
  };
}

/// The signals that are shown per agent: what it is judged by, and what explains it.
constexpr std::array kShown = {Signal::CpuUsage,        Signal::CpuThrottled, Signal::MemoryUsage,
                               Signal::CpuPressureSome, Signal::Instructions, Signal::LatencyP50,
                               Signal::LatencyP99,      Signal::RequestRate,  Signal::ErrorRate};

/// Collects samples by metric, in the table's order.
class Collected {
 public:
  Collected() {
    for (const MetricTraits& m : own_metrics_table())
      places_[m.name] = families_.size(), families_.push_back(blank(m));
  }

  void add(std::string_view name, double value, std::initializer_list<std::string_view> labels = {}) {
    std::vector<Family>& chunks = families_[places_.at(name)];
    if (chunks.back().values.size() == kFamilyChunk) {
      Family next = chunks.back();
      next.label_values.clear();
      next.values.clear();
      chunks.push_back(std::move(next));
    }
    Family& family = chunks.back();
    for (std::string_view label : labels) family.label_values.push_back(plain(label));
    family.values.push_back(value);
  }
  void add_counters(std::string_view name, const OwnStatus::Counters& counters) {
    for (const auto& [event, count] : counters) add(name, static_cast<double>(count), {event});
  }

  std::vector<Family> take() {
    std::vector<Family> all;
    for (auto& chunks : families_)
      for (Family& f : chunks) all.push_back(std::move(f));
    return all;
  }

 private:
  static std::vector<Family> blank(const MetricTraits& m) {
    return {Family{std::string(m.name),
                   m.type,
                   std::string(m.unit),
                   std::string(m.help),
                   std::vector<std::string>(m.labels.begin(), m.labels.end()),
                   {},
                   {}}};
  }

  std::vector<std::vector<Family>> families_;
  std::map<std::string_view, std::size_t> places_;
};

void add_daemon(Collected& c, const ControlLoop& loop, const OwnStatus& s) {
  c.add("flashd_build", 1, {s.version});
  c.add("flashd_period_seconds", seconds(s.period));
  c.add("flashd_ticks", static_cast<double>(s.ticks));
  c.add("flashd_late_ticks", static_cast<double>(s.late_ticks));
  c.add("flashd_tick_duration_seconds", seconds(s.last_tick));
  c.add("flashd_tick_busy_seconds", seconds(s.busy));
  c.add("flashd_cpu_seconds", s.cpu_seconds);
  c.add("flashd_peak_memory_bytes", s.peak_memory_bytes);
  c.add("flashd_wakeups", static_cast<double>(s.wakeups));
  for (const auto& [part, pct] : s.overhead_pct) c.add("flashd_overhead_ratio", pct / 100, {part});
  c.add("flashd_overhead_budget_ratio", s.overhead_budget_pct / 100);
  for (Mode mode : {Mode::Observe, Mode::Recommend, Mode::Control})
    c.add("flashd_mode", loop.options().mode == mode ? 1 : 0, {to_string(mode)});
  c.add("flashd_disabled", loop.disabled() ? 1 : 0);
  std::map<std::string, int> parts;
  for (const Degraded& d : s.degraded) ++parts[d.part];
  for (const auto& [part, reasons] : parts) c.add("flashd_degraded", reasons, {part});
  for (const SignalSource& source : s.sources)
    c.add("flashd_signal_targets", static_cast<double>(source.targets),
          {traits(source.signal).name, source.source});
  c.add("flashd_learner_connected", s.learner_connected ? 1 : 0);
  c.add_counters("flashd_learner_events", s.learner);
  c.add_counters("flashd_journal_events", s.journal);
  c.add_counters("flashd_statsd_events", s.statsd);
  c.add_counters("flashd_sync_events", s.sync);
}

void add_signals(Collected& c, const std::string& agent, const Observation& observation) {
  for (Signal signal : kShown) {
    const Sample& sample = observation[signal];
    const SignalTraits& t = traits(signal);
    if (sample.usable()) c.add("flashd_agent_signal", sample.value, {agent, t.name, t.unit});
    c.add("flashd_agent_signal_trusted", sample.trusted() ? 1 : 0, {agent, t.name});
  }
}

void add_agent(Collected& c, const AgentView& v, const Decision* last) {
  const std::string agent = agent_name(v.target->id);
  c.add("flashd_agent", 1,
        {agent, v.target->name, v.target->application, to_string(v.target->task()),
         v.rule ? v.rule->name : v.target->rule});
  c.add("flashd_agent_stage", static_cast<double>(v.stage), {agent});
  c.add("flashd_agent_controller", static_cast<double>(v.controller), {agent});
  c.add("flashd_agent_held", v.held ? 1 : 0, {agent});
  c.add("flashd_agent_reward", v.rewards.last, {agent});
  c.add("flashd_agent_reward_mean", v.rewards.mean, {agent});
  c.add("flashd_agent_fallback_reward", v.fallback_rewards > 0 ? v.fallback_reward : std::nan(""), {agent});
  c.add("flashd_agent_episodes", static_cast<double>(v.episode), {agent});
  c.add("flashd_agent_explored_ratio", v.explored_of_last_100 / 100.0, {agent});
  c.add("flashd_agent_model_version", v.snapshot ? static_cast<double>(v.snapshot->version) : 0, {agent});
  c.add("flashd_agent_policies", static_cast<double>(v.snapshots.accepted), {agent, "accepted"});
  c.add("flashd_agent_policies", static_cast<double>(v.snapshots.refusals()), {agent, "refused"});
  if (last) add_signals(c, agent, last->observation);
  if (v.rule && v.rule->slo.latency_p99_ms)
    c.add("flashd_agent_slo_latency_seconds", *v.rule->slo.latency_p99_ms / 1000, {agent});
  for (const KnobView& k : v.knobs) {
    const std::string name = knob_name(k.kind);
    const std::string_view unit = traits(k.kind).unit;
    if (k.current.usable()) c.add("flashd_agent_knob", k.current.value, {agent, name, unit});
    c.add("flashd_agent_knob_original", k.original, {agent, name, unit});
    c.add("flashd_agent_knob_writes", static_cast<double>(k.writes), {agent, name});
  }
}

}  // namespace

std::span<const MetricTraits> own_metrics_table() {
  static const std::vector<MetricTraits> kTable = make_table();
  return kTable;
}

std::string sample_name(const MetricTraits& metric) {
  return std::string(metric.name) + (metric.type == kCounter           ? "_total"
                                     : metric.type == FamilyType::Info ? "_info"
                                                                       : "");
}

std::vector<Family> own_metrics(const ControlLoop& loop, const OwnStatus& status) {
  Collected c;
  add_daemon(c, loop, status);
  std::map<std::pair<Task, Stage>, int> agents;
  for (Task task : known_tasks())
    for (Stage stage : {Stage::Initialized, Stage::Offline, Stage::Online, Stage::Serving})
      agents[{task, stage}] = 0;
  std::size_t listed = 0, unlisted = 0;
  for (TargetId id : loop.agents()) {
    const auto view = loop.view(id);
    if (!view) continue;
    ++agents[{view->target->task(), view->stage}];
    if (listed == kMaxListedAgents) {
      ++unlisted;
      continue;
    }
    ++listed;
    const auto* history = loop.history(id);
    add_agent(c, *view, history && !history->empty() ? &history->back() : nullptr);
  }
  for (const auto& [of, count] : agents)
    c.add("flashd_agents", count, {to_string(of.first), to_string(of.second)});
  c.add("flashd_agents_unlisted", static_cast<double>(unlisted));
  return c.take();
}

}  // namespace flash
