// The object tree: Manager1 and Agent1 with their properties and reading methods.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "core/process.h"
#include "daemon/dbus_impl.h"
#include "policy/decision_json.h"
#include "policy/observation_space.h"

namespace flash {

using namespace dbus;

namespace {

constexpr std::uint32_t kAnswers = 1000;

/// What sd-bus calls: one function per property and method.
struct DbusTables {
  using Service = DbusService::Impl;
  static Service& self(void* userdata) { return *static_cast<Service*>(userdata); }

  // -- Agent1 properties: one line each
  template <int (*Append)(sd_bus_message*, const AgentView&)>
  static int agent(sd_bus*, const char*, const char*, const char*, sd_bus_message* reply, void* userdata,
                   sd_bus_error*) noexcept {
    return Append(reply, self(userdata).found);
  }
  static int name(sd_bus_message* m, const AgentView& v) { return put(m, agent_name(v.target->id)); }
  static int task(sd_bus_message* m, const AgentView& v) { return put(m, to_string(v.target->task())); }
  static int application(sd_bus_message* m, const AgentView& v) { return put(m, v.target->application); }
  static int target(sd_bus_message* m, const AgentView& v) { return put(m, v.target->name); }
  static int cgroup(sd_bus_message* m, const AgentView& v) { return put(m, v.target->cgroup); }
  static int unit(sd_bus_message* m, const AgentView& v) { return put(m, v.target->unit); }
  static int container(sd_bus_message* m, const AgentView& v) {
    const Container& c = v.target->container;
    return sd_bus_message_append(m, "(ssss)", to_utf8(c.runtime).c_str(), to_utf8(c.id).c_str(),
                                 to_utf8(c.name).c_str(), to_utf8(c.pod_uid).c_str());
  }
  static int cpus(sd_bus_message* m, const AgentView& v) {
    return sd_bus_message_append_array(m, 'i', v.target->cpus.data(), v.target->cpus.size() * sizeof(int));
  }
  static int owner(sd_bus_message* m, const AgentView& v) {
    return put(m, v.target->id.kind == TargetKind::Cgroup ? to_string(v.target->owner) : "");
  }
  static int rule(sd_bus_message* m, const AgentView& v) {
    return put(m, v.rule ? v.rule->name : v.target->rule);
  }
  static int group(sd_bus_message* m, const AgentView& v) { return put(m, v.rule ? v.rule->group : ""); }
  static int mode(sd_bus_message* m, const AgentView& v) { return put(m, to_string(v.mode)); }
  static int stage(sd_bus_message* m, const AgentView& v) { return put(m, to_string(v.stage)); }
  static int stage_since(sd_bus_message* m, const AgentView& v) {
    return put(m, microseconds(v.stage_since));
  }
  static int reward(sd_bus_message* m, const AgentView& v) { return put(m, v.rewards.last); }
  static int reward_mean(sd_bus_message* m, const AgentView& v) { return put(m, v.rewards.mean); }
  static int reward_stddev(sd_bus_message* m, const AgentView& v) { return put(m, v.rewards.stddev); }
  static int episode(sd_bus_message* m, const AgentView& v) { return put(m, v.episode); }
  static int step(sd_bus_message* m, const AgentView& v) { return put(m, v.step); }
  static int controller(sd_bus_message* m, const AgentView& v) { return put(m, to_string(v.controller)); }
  static int controller_reason(sd_bus_message* m, const AgentView& v) { return put(m, v.controller_reason); }
  static int held(sd_bus_message* m, const AgentView& v) { return put(m, v.held); }
  static int held_until(sd_bus_message* m, const AgentView& v) {
    return put(m, v.held_until ? microseconds(*v.held_until) : 0);
  }
  static int hold_reason(sd_bus_message* m, const AgentView& v) { return put(m, v.hold_reason); }
  static int model_version(sd_bus_message* m, const AgentView& v) {
    return put(m, v.snapshot ? v.snapshot->version : 0);
  }
  static int embedding(sd_bus_message* m, const AgentView& v) {
    std::vector<double> values;
    if (v.snapshot) values.assign(v.snapshot->embedding.begin(), v.snapshot->embedding.end());
    return put(m, values);
  }
  static int algorithm(sd_bus_message* m, const AgentView& v) {
    return put(m, v.snapshot ? v.snapshot->algorithm : "");
  }
  static int model(sd_bus_message* m, const AgentView& v) {
    return put(m, v.snapshot ? v.snapshot->model : "");
  }
  static int model_steps(sd_bus_message* m, const AgentView& v) {
    return put(m, v.snapshot ? v.snapshot->data_steps : 0);
  }
  static int model_expires(sd_bus_message* m, const AgentView& v) {
    return put(m, v.snapshot ? microseconds(v.snapshot->expires) : 0);
  }
  static int stages(sd_bus_message* m, const AgentView& v) {
    int r = sd_bus_message_open_container(m, 'a', "(sts)");
    for (const StageChange& s : v.stages)
      if (r >= 0)
        r = sd_bus_message_append(m, "(sts)", std::string(to_string(s.stage)).c_str(), microseconds(s.since),
                                  to_utf8(s.reason).c_str());
    return r < 0 ? r : sd_bus_message_close_container(m);
  }
  static int waiting_for(sd_bus_message* m, const AgentView& v) { return put(m, v.waiting_for); }
  static int reward_fallback(sd_bus_message* m, const AgentView& v) { return put(m, v.fallback_reward); }
  static int reward_fallback_count(sd_bus_message* m, const AgentView& v) {
    return put(m, v.fallback_rewards);
  }
  static int drift(sd_bus_message* m, const AgentView& v) {
    const std::vector<std::string>& entries = v.layout->state;
    const bool known =
        v.drift.known && v.drift.entry >= 0 && static_cast<std::size_t>(v.drift.entry) < entries.size();
    const std::string entry = known ? entries[static_cast<std::size_t>(v.drift.entry)] : "";
    return sd_bus_message_append(m, "(sdb)", entry.c_str(), known ? v.drift.shift : 0,
                                 static_cast<int>(known && v.drift.drifted));
  }
  static int offered(sd_bus_message* m, const AgentView& v) { return put(m, v.snapshots.offered); }
  static int accepted(sd_bus_message* m, const AgentView& v) { return put(m, v.snapshots.accepted); }
  static int refused(sd_bus_message* m, const AgentView& v) { return put(m, v.snapshots.refusals()); }
  static int refusals(sd_bus_message* m, const AgentView& v) {
    Counters by;
    for (std::size_t i = 0; i < v.snapshots.refused.size(); ++i)
      if (v.snapshots.refused[i] > 0)
        by.emplace_back(to_string(static_cast<SnapshotRefusal>(i)), v.snapshots.refused[i]);
    return put(m, by);
  }
  static int last_refusal(sd_bus_message* m, const AgentView& v) { return put(m, v.snapshots.last_refusal); }
  static int last_refusal_time(sd_bus_message* m, const AgentView& v) {
    return put(m, microseconds(v.snapshots.last_refusal_at));
  }
  static int estimate(sd_bus_message* m, const AgentView& v) {
    const OffPolicyEstimate none, &e = v.snapshot && v.snapshot->estimate.given ? v.snapshot->estimate : none;
    return sd_bus_message_append(m, "(sddddt)", to_utf8(e.method).c_str(), static_cast<double>(e.learned),
                                 static_cast<double>(e.fallback), static_cast<double>(e.lower),
                                 static_cast<double>(e.upper), e.transitions);
  }
  static int explored_share(sd_bus_message* m, const AgentView& v) {
    return put(m, v.explored_of_last_100 / 100.0);
  }
  static int knobs(sd_bus_message* m, const AgentView& v) {
    int r = sd_bus_message_open_container(m, 'a', "(sddbsst)");
    for (const KnobView& k : v.knobs) {
      if (r < 0) return r;
      const double current = k.current.usable() ? k.current.value : std::numeric_limits<double>::quiet_NaN();
      const std::string reason = to_utf8(k.blocked_by.empty() ? k.lease_reason : k.blocked_by);
      r = sd_bus_message_append(m, "(sddbsst)", knob_name(k.kind).c_str(), current, k.original,
                                static_cast<int>(k.writable), std::string(to_string(k.lease)).c_str(),
                                reason.c_str(), k.writes);
    }
    return r < 0 ? r : sd_bus_message_close_container(m);
  }

  static int learning(sd_bus*, const char*, const char*, const char*, sd_bus_message* reply, void* userdata,
                      sd_bus_error*) noexcept {
    const Service& s = self(userdata);
    return put(reply, s.callbacks.learning ? s.callbacks.learning(s.found.target->id) : "");
  }

  static int nearest(sd_bus*, const char*, const char*, const char*, sd_bus_message* reply, void* userdata,
                     sd_bus_error*) noexcept {
    const Service& s = self(userdata);
    return put(reply, s.callbacks.nearest ? s.callbacks.nearest(s.found.target->id) : "");
  }

  // -- Manager1 properties
  template <int (*Append)(sd_bus_message*, const Service&)>
  static int manager(sd_bus*, const char*, const char*, const char*, sd_bus_message* reply, void* userdata,
                     sd_bus_error*) noexcept {
    return Append(reply, self(userdata));
  }
  static int version(sd_bus_message* m, const Service& s) { return put(m, s.callbacks.version); }
  static int global_mode(sd_bus_message* m, const Service& s) {
    return put(m, to_string(s.loop.options().mode));
  }
  static int disabled(sd_bus_message* m, const Service& s) { return put(m, s.loop.disabled()); }
  static int disabled_reason(sd_bus_message* m, const Service& s) { return put(m, s.loop.disabled_reason()); }
  static int degraded(sd_bus_message* m, const Service& s) {
    int r = sd_bus_message_open_container(m, 'a', "(ss)");
    if (s.callbacks.degraded)
      for (const Degraded& d : s.callbacks.degraded())
        if (r >= 0) r = sd_bus_message_append(m, "(ss)", to_utf8(d.part).c_str(), to_utf8(d.reason).c_str());
    return r < 0 ? r : sd_bus_message_close_container(m);
  }
  static int sources(sd_bus_message* m, const Service& s) {
    int r = sd_bus_message_open_container(m, 'a', "(ssus)");
    if (s.callbacks.sources)
      for (const SignalSource& row : s.callbacks.sources())
        if (r >= 0)
          r = sd_bus_message_append(m, "(ssus)", std::string(traits(row.signal).name).c_str(),
                                    row.source.c_str(), static_cast<std::uint32_t>(row.targets),
                                    to_utf8(row.reason).c_str());
    return r < 0 ? r : sd_bus_message_close_container(m);
  }
  static int learner(sd_bus_message* m, const Service& s) {
    return put(m, s.callbacks.learner ? s.callbacks.learner() : "absent");
  }
  static int learner_error(sd_bus_message* m, const Service& s) {
    return put(m, s.callbacks.learner_error ? s.callbacks.learner_error() : "");
  }
  static int counters(sd_bus_message* m, const std::function<Counters()>& from) {
    return put(m, from ? from() : Counters());
  }
  static int learner_counters(sd_bus_message* m, const Service& s) {
    return counters(m, s.callbacks.learner_counters);
  }
  static int sync(sd_bus_message* m, const Service& s) {
    return put(m, s.callbacks.sync ? s.callbacks.sync() : "absent");
  }
  static int sync_counters(sd_bus_message* m, const Service& s) {
    return counters(m, s.callbacks.sync_counters);
  }
  static int journal_counters(sd_bus_message* m, const Service& s) {
    return counters(m, s.callbacks.journal_counters);
  }
  static int metrics_counters(sd_bus_message* m, const Service& s) {
    return counters(m, s.callbacks.metrics_counters);
  }
  static int overhead(sd_bus_message* m, const Service& s) {
    return put(m, s.callbacks.overhead ? s.callbacks.overhead() : Shares());
  }
  static int overhead_budget(sd_bus_message* m, const Service& s) {
    return put(m, s.callbacks.overhead_budget ? s.callbacks.overhead_budget() : 0.0);
  }
  static int period(sd_bus_message* m, const Service& s) {
    return put(m, s.callbacks.period ? to_usec(s.callbacks.period()) : 0);
  }
  static int ticks(sd_bus_message* m, const Service& s) {
    return put(m, s.callbacks.ticks ? s.callbacks.ticks() : 0);
  }
  static int tick_duration(sd_bus_message* m, const Service& s) {
    return put(m, s.callbacks.tick_duration ? to_usec(s.callbacks.tick_duration()) : 0);
  }

  // -- reading methods
  static int fail(sd_bus_error* error, const Failure& f) {
    return sd_bus_error_set(error, f.name.c_str(), to_utf8(f.text).c_str());
  }

  static int list_agents(sd_bus_message* call, void* userdata, sd_bus_error*) noexcept {
    Service& s = self(userdata);
    sd_bus_message* raw = nullptr;
    int r = sd_bus_message_new_method_return(call, &raw);
    if (r < 0) return r;
    Message reply(raw);
    r = sd_bus_message_open_container(raw, 'a', "(ossssds)");
    for (TargetId id : s.loop.agents()) {
      const auto v = s.loop.view(id);
      if (r < 0) return r;
      if (!v) continue;
      r = sd_bus_message_append(raw, "(ossssds)", agent_path(id).c_str(), agent_name(id).c_str(),
                                std::string(to_string(v->target->task())).c_str(),
                                to_utf8(v->target->name).c_str(), std::string(to_string(v->stage)).c_str(),
                                v->rewards.last, std::string(to_string(v->controller)).c_str());
    }
    if (r >= 0) r = sd_bus_message_close_container(raw);
    return r < 0 ? r : sd_bus_send(s.bus, raw, nullptr);
  }

  static int get_agent(sd_bus_message* call, void* userdata, sd_bus_error* error) noexcept {
    const char* wanted = nullptr;
    if (int r = sd_bus_message_read(call, "s", &wanted); r < 0) return r;
    Failure failure;
    const auto id = self(userdata).find(wanted, failure);
    if (!id) return fail(error, failure);
    return sd_bus_reply_method_return(call, "o", agent_path(*id).c_str());
  }

  static int get_agent_by_cgroup(sd_bus_message* call, void* userdata, sd_bus_error* error) noexcept {
    Service& s = self(userdata);
    const char* wanted = nullptr;
    if (int r = sd_bus_message_read(call, "s", &wanted); r < 0) return r;
    std::vector<TargetId> hits;
    for (TargetId id : s.loop.agents()) {
      const auto v = s.loop.view(id);
      if (v && id.kind == TargetKind::Cgroup && without_slash(v->target->cgroup) == without_slash(wanted))
        hits.push_back(id);
    }
    if (hits.empty())
      return fail(error, {kNoSuchTarget, "no agent manages the cgroup '" + std::string(wanted) + "'"});
    if (hits.size() > 1) return fail(error, s.ambiguous(wanted, hits));
    return sd_bus_reply_method_return(call, "o", agent_path(hits.front()).c_str());
  }

  static int verify(sd_bus_message* call, void* userdata, sd_bus_error*) noexcept {
    Service& s = self(userdata);
    const std::vector<std::string> lines =
        s.callbacks.verify ? s.callbacks.verify() : std::vector<std::string>{};
    return reply_strings(call, s.bus, lines);
  }

  static int reply_strings(sd_bus_message* call, sd_bus* bus, const std::vector<std::string>& lines) {
    sd_bus_message* raw = nullptr;
    int r = sd_bus_message_new_method_return(call, &raw);
    if (r < 0) return r;
    Message reply(raw);
    r = sd_bus_message_open_container(raw, 'a', "s");
    for (const auto& line : lines)
      if (r >= 0) r = put(raw, line);
    if (r >= 0) r = sd_bus_message_close_container(raw);
    return r < 0 ? r : sd_bus_send(bus, raw, nullptr);
  }

  static int read_count(sd_bus_message* call, sd_bus_error* error, std::uint32_t& n) {
    const int r = sd_bus_message_read(call, "u", &n);
    if (r < 0) return r;
    if (n > kAnswers) return fail(error, invalid("n is " + std::to_string(n) + ", at most 1000 are kept"));
    return 1;
  }

  static int get_rewards(sd_bus_message* call, void* userdata, sd_bus_error* error) noexcept {
    Service& s = self(userdata);
    std::uint32_t n = 0;
    if (int r = read_count(call, error, n); r < 0) return r;
    sd_bus_message* raw = nullptr;
    int r = sd_bus_message_new_method_return(call, &raw);
    if (r < 0) return r;
    Message reply(raw);
    r = put(raw, s.loop.rewards(s.found.target->id, n));
    return r < 0 ? r : sd_bus_send(s.bus, raw, nullptr);
  }

  static int why(sd_bus_message* call, void* userdata, sd_bus_error* error) noexcept {
    Service& s = self(userdata);
    std::uint32_t n = 0;
    if (int r = read_count(call, error, n); r < 0) return r;
    std::vector<std::string> lines;
    const auto* history = s.loop.history(s.found.target->id);
    if (history)
      for (std::size_t i = history->size() - std::min<std::size_t>(n, history->size()); i < history->size();
           ++i)
        lines.push_back(to_json_text((*history)[i], *s.found.target));
    return reply_strings(call, s.bus, lines);
  }

  static int change(sd_bus_message* call, void* userdata, sd_bus_error* error) noexcept {
    return self(userdata).begin_change(call, error);
  }

  // -- object tree
  static int find_agent(sd_bus*, const char* path, const char*, void* userdata, void** found,
                        sd_bus_error*) noexcept {
    Service& s = self(userdata);
    const auto id = id_from_path(path);
    if (!id) return 0;
    auto view = s.loop.view(*id);
    if (!view) return 0;
    s.found = std::move(*view);
    *found = userdata;
    return 1;
  }

  static int enumerate_agents(sd_bus*, const char*, void* userdata, char*** nodes, sd_bus_error*) noexcept {
    const auto ids = self(userdata).loop.agents();
    auto** list = static_cast<char**>(std::calloc(ids.size() + 1, sizeof(char*)));
    if (!list) return -ENOMEM;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      list[i] = strdup(agent_path(ids[i]).c_str());
      if (!list[i]) {
        for (std::size_t k = 0; k < i; ++k) std::free(list[k]);
        std::free(list);
        return -ENOMEM;
      }
    }
    *nodes = list;
    return 0;
  }

  static int introspect(sd_bus_message* call, void* userdata, sd_bus_error* error) noexcept {
    Service& s = self(userdata);
    const std::string_view path = sd_bus_message_get_path(call);
    const bool root = path == kRoot, agents = path == kAgents;
    if (!root && !agents) {
      // With this callback in place sd-bus takes every path below the root for an object.
      const auto id = id_from_path(path);
      if (!id || !s.loop.view(*id))
        return fail(error, {SD_BUS_ERROR_UNKNOWN_OBJECT, "no object " + std::string(path)});
    }
    if (!sd_bus_message_is_method_call(call, "org.freedesktop.DBus.Introspectable", "Introspect")) return 0;
    std::vector<std::string> children;
    if (root) children.emplace_back("agent");
    if (agents)
      for (TargetId id : s.loop.agents()) children.push_back(agent_name(id));
    const std::string answer = dbus_introspection(root ? kManager : agents ? "" : kAgent, root, children);
    return sd_bus_reply_method_return(call, "s", answer.c_str());
  }
};

// Everybody may call; who may change something is decided by begin_change().
constexpr std::uint64_t kOpen = SD_BUS_VTABLE_UNPRIVILEGED;
constexpr std::uint64_t kEmits = SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE;
constexpr std::uint64_t kConst = SD_BUS_VTABLE_PROPERTY_CONST;

using T = DbusTables;

const sd_bus_vtable kManagerVtable[] = {
    SD_BUS_VTABLE_START(0),
    SD_BUS_METHOD_WITH_ARGS("ListAgents", SD_BUS_NO_ARGS, SD_BUS_RESULT("a(ossssds)", agents), T::list_agents,
                            kOpen),
    SD_BUS_METHOD_WITH_ARGS("GetAgentByCgroup", SD_BUS_ARGS("s", cgroup), SD_BUS_RESULT("o", agent),
                            T::get_agent_by_cgroup, kOpen),
    SD_BUS_METHOD_WITH_ARGS("GetAgent", SD_BUS_ARGS("s", target), SD_BUS_RESULT("o", agent), T::get_agent,
                            kOpen),
    SD_BUS_METHOD_WITH_ARGS("SetMode", SD_BUS_ARGS("s", target, "s", mode), SD_BUS_NO_RESULT, T::change,
                            kOpen),
    SD_BUS_METHOD_WITH_ARGS("Hold", SD_BUS_ARGS("s", target, "t", seconds, "s", reason), SD_BUS_NO_RESULT,
                            T::change, kOpen),
    SD_BUS_METHOD_WITH_ARGS("Release", SD_BUS_ARGS("s", target), SD_BUS_NO_RESULT, T::change, kOpen),
    SD_BUS_METHOD_WITH_ARGS("Disable", SD_BUS_ARGS("s", reason),
                            SD_BUS_RESULT("b", complete, "a(ssbs)", items), T::change, kOpen),
    SD_BUS_METHOD_WITH_ARGS("Enable", SD_BUS_NO_ARGS, SD_BUS_NO_RESULT, T::change, kOpen),
    SD_BUS_METHOD_WITH_ARGS("Reload", SD_BUS_NO_ARGS, SD_BUS_NO_RESULT, T::change, kOpen),
    SD_BUS_METHOD_WITH_ARGS("Verify", SD_BUS_NO_ARGS, SD_BUS_RESULT("as", differences), T::verify, kOpen),
    SD_BUS_PROPERTY("Version", "s", T::manager<T::version>, 0, kConst),
    SD_BUS_PROPERTY("Mode", "s", T::manager<T::global_mode>, 0, kEmits),
    SD_BUS_PROPERTY("Disabled", "b", T::manager<T::disabled>, 0, kEmits),
    SD_BUS_PROPERTY("DisabledReason", "s", T::manager<T::disabled_reason>, 0, kEmits),
    SD_BUS_PROPERTY("Degraded", "a(ss)", T::manager<T::degraded>, 0, 0),
    SD_BUS_PROPERTY("Sources", "a(ssus)", T::manager<T::sources>, 0, 0),
    SD_BUS_PROPERTY("Learner", "s", T::manager<T::learner>, 0, 0),
    SD_BUS_PROPERTY("LearnerError", "s", T::manager<T::learner_error>, 0, 0),
    SD_BUS_PROPERTY("LearnerCounters", "a{st}", T::manager<T::learner_counters>, 0, 0),
    SD_BUS_PROPERTY("Sync", "s", T::manager<T::sync>, 0, 0),
    SD_BUS_PROPERTY("SyncCounters", "a{st}", T::manager<T::sync_counters>, 0, 0),
    SD_BUS_PROPERTY("JournalCounters", "a{st}", T::manager<T::journal_counters>, 0, 0),
    SD_BUS_PROPERTY("MetricsCounters", "a{st}", T::manager<T::metrics_counters>, 0, 0),
    SD_BUS_PROPERTY("OverheadPercent", "a{sd}", T::manager<T::overhead>, 0, 0),
    SD_BUS_PROPERTY("OverheadBudgetPercent", "d", T::manager<T::overhead_budget>, 0, 0),
    SD_BUS_PROPERTY("PeriodUSec", "t", T::manager<T::period>, 0, 0),
    SD_BUS_PROPERTY("Ticks", "t", T::manager<T::ticks>, 0, 0),
    SD_BUS_PROPERTY("TickUSec", "t", T::manager<T::tick_duration>, 0, 0),
    SD_BUS_VTABLE_END,
};

const sd_bus_vtable kAgentVtable[] = {
    SD_BUS_VTABLE_START(0),
    SD_BUS_METHOD_WITH_ARGS("GetRewards", SD_BUS_ARGS("u", n), SD_BUS_RESULT("ad", rewards), T::get_rewards,
                            kOpen),
    SD_BUS_METHOD_WITH_ARGS("Why", SD_BUS_ARGS("u", n), SD_BUS_RESULT("as", decisions), T::why, kOpen),
    SD_BUS_PROPERTY("Name", "s", T::agent<T::name>, 0, kConst),
    SD_BUS_PROPERTY("Task", "s", T::agent<T::task>, 0, kConst),
    SD_BUS_PROPERTY("Application", "s", T::agent<T::application>, 0, 0),
    SD_BUS_PROPERTY("Target", "s", T::agent<T::target>, 0, 0),
    SD_BUS_PROPERTY("Cgroup", "s", T::agent<T::cgroup>, 0, kConst),
    SD_BUS_PROPERTY("Unit", "s", T::agent<T::unit>, 0, 0),
    SD_BUS_PROPERTY("Container", "(ssss)", T::agent<T::container>, 0, 0),
    SD_BUS_PROPERTY("Cpus", "ai", T::agent<T::cpus>, 0, 0),
    SD_BUS_PROPERTY("Owner", "s", T::agent<T::owner>, 0, 0),
    SD_BUS_PROPERTY("Rule", "s", T::agent<T::rule>, 0, 0),
    SD_BUS_PROPERTY("Group", "s", T::agent<T::group>, 0, 0),
    SD_BUS_PROPERTY("Mode", "s", T::agent<T::mode>, 0, kEmits),
    SD_BUS_PROPERTY("Stage", "s", T::agent<T::stage>, 0, kEmits),
    SD_BUS_PROPERTY("StageSince", "t", T::agent<T::stage_since>, 0, kEmits),
    SD_BUS_PROPERTY("Reward", "d", T::agent<T::reward>, 0, 0),
    SD_BUS_PROPERTY("RewardMean", "d", T::agent<T::reward_mean>, 0, 0),
    SD_BUS_PROPERTY("RewardStdDev", "d", T::agent<T::reward_stddev>, 0, 0),
    SD_BUS_PROPERTY("Episode", "t", T::agent<T::episode>, 0, kEmits),
    SD_BUS_PROPERTY("Step", "u", T::agent<T::step>, 0, 0),
    SD_BUS_PROPERTY("Controller", "s", T::agent<T::controller>, 0, kEmits),
    SD_BUS_PROPERTY("ControllerReason", "s", T::agent<T::controller_reason>, 0, kEmits),
    SD_BUS_PROPERTY("Held", "b", T::agent<T::held>, 0, 0),
    SD_BUS_PROPERTY("HeldUntil", "t", T::agent<T::held_until>, 0, 0),
    SD_BUS_PROPERTY("HoldReason", "s", T::agent<T::hold_reason>, 0, 0),
    SD_BUS_PROPERTY("Knobs", "a(sddbsst)", T::agent<T::knobs>, 0, 0),
    SD_BUS_PROPERTY("Embedding", "ad", T::agent<T::embedding>, 0, 0),
    SD_BUS_PROPERTY("ModelVersion", "t", T::agent<T::model_version>, 0, 0),
    SD_BUS_PROPERTY("Learning", "s", T::learning, 0, 0),
    SD_BUS_PROPERTY("NearestPair", "s", T::nearest, 0, 0),
    SD_BUS_PROPERTY("Algorithm", "s", T::agent<T::algorithm>, 0, 0),
    SD_BUS_PROPERTY("Model", "s", T::agent<T::model>, 0, 0),
    SD_BUS_PROPERTY("ModelSteps", "t", T::agent<T::model_steps>, 0, 0),
    SD_BUS_PROPERTY("ModelExpires", "t", T::agent<T::model_expires>, 0, 0),
    SD_BUS_PROPERTY("Stages", "a(sts)", T::agent<T::stages>, 0, 0),
    SD_BUS_PROPERTY("WaitingFor", "s", T::agent<T::waiting_for>, 0, 0),
    SD_BUS_PROPERTY("RewardFallback", "d", T::agent<T::reward_fallback>, 0, 0),
    SD_BUS_PROPERTY("RewardFallbackCount", "t", T::agent<T::reward_fallback_count>, 0, 0),
    SD_BUS_PROPERTY("Drift", "(sdb)", T::agent<T::drift>, 0, 0),
    SD_BUS_PROPERTY("SnapshotsOffered", "t", T::agent<T::offered>, 0, 0),
    SD_BUS_PROPERTY("SnapshotsAccepted", "t", T::agent<T::accepted>, 0, 0),
    SD_BUS_PROPERTY("SnapshotsRefused", "t", T::agent<T::refused>, 0, 0),
    SD_BUS_PROPERTY("SnapshotRefusals", "a{st}", T::agent<T::refusals>, 0, 0),
    SD_BUS_PROPERTY("LastRefusal", "s", T::agent<T::last_refusal>, 0, 0),
    SD_BUS_PROPERTY("LastRefusalTime", "t", T::agent<T::last_refusal_time>, 0, 0),
    SD_BUS_PROPERTY("OffPolicyEstimate", "(sddddt)", T::agent<T::estimate>, 0, 0),
    SD_BUS_PROPERTY("ExploredShare", "d", T::agent<T::explored_share>, 0, 0),
    SD_BUS_VTABLE_END,
};

}  // namespace

const sd_bus_vtable* dbus_manager_vtable() {
  return kManagerVtable;
}
const sd_bus_vtable* dbus_agent_vtable() {
  return kAgentVtable;
}

Result<void> DbusService::Impl::attach() {
  // `slot` by reference: the call that fills it is an argument beside it, and arguments have no order.
  auto keep = [&](int r, sd_bus_slot*& slot, const char* what) -> Result<void> {
    if (r < 0) return Error::from_errno(-r, std::string("D-Bus: ") + what);
    slots.emplace_back(slot);
    return {};
  };
  sd_bus_slot* slot = nullptr;
  FLASH_CHECK(keep(sd_bus_add_filter(bus, &slot, on_call, this), slot, "filter"));
  FLASH_CHECK(
      keep(sd_bus_add_fallback(bus, &slot, kRoot, DbusTables::introspect, this), slot, "introspection"));
  FLASH_CHECK(
      keep(sd_bus_add_object_vtable(bus, &slot, kRoot, kManager, kManagerVtable, this), slot, kManager));
  FLASH_CHECK(keep(
      sd_bus_add_fallback_vtable(bus, &slot, kAgents, kAgent, kAgentVtable, DbusTables::find_agent, this),
      slot, kAgent));
  FLASH_CHECK(keep(sd_bus_add_node_enumerator(bus, &slot, kAgents, DbusTables::enumerate_agents, this), slot,
                   "node enumerator"));
  FLASH_CHECK(keep(sd_bus_add_object_manager(bus, &slot, kRoot), slot, "object manager"));
  return {};
}

}  // namespace flash
