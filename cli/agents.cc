#include "cli/agents.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <limits>

namespace flash::cli {
namespace {

using nlohmann::json;

json as_is(const json& v) {
  return v;
}
json as_time(const json& v) {
  return v.is_number() ? time_json(v.get<std::uint64_t>()) : json();
}
json as_container(const json& v) {
  if (!v.is_array() || v.size() != 4 || v[0] == "") return nullptr;
  return {{"runtime", v[0]}, {"id", v[1]}, {"name", v[2]}, {"pod_uid", v[3]}};
}
json as_knobs(const json& v) {
  json out = json::object();
  for (const auto& k : v)
    out[k[0].get<std::string>()] = {{"current", number_json(k[1])},
                                    {"original", number_json(k[2])},
                                    {"writable", k[3]},
                                    {"lease", k[4]},
                                    {"reason", k[5]},
                                    {"writes", k[6]}};
  return out;
}

/// The property, or null where flashd does not have it.
json property(const json& properties, const char* name) {
  return properties.contains(name) ? properties[name] : json();
}

json as_stages(const json& p) {
  json out = json::array();
  for (const auto& s : property(p, "Stages"))
    out.push_back({{"stage", s[0]}, {"since", as_time(s[1])}, {"reason", s[2]}});
  return out;
}
json as_model(const json& p) {
  const json version = property(p, "ModelVersion");
  if (!version.is_number() || version == 0) return nullptr;
  return {{"version", version},
          {"algorithm", property(p, "Algorithm")},
          {"model", property(p, "Model")},
          {"data_steps", property(p, "ModelSteps")},
          {"expires", as_time(property(p, "ModelExpires"))},
          {"embedding_size", property(p, "Embedding").size()}};
}
json as_fallback_reward(const json& p) {
  const json count = property(p, "RewardFallbackCount");
  if (!count.is_number() || count == 0) return {{"mean", nullptr}, {"count", 0}};
  return {{"mean", number_json(property(p, "RewardFallback"))}, {"count", count}};
}
json as_drift(const json& p) {
  const json d = property(p, "Drift");
  if (!d.is_array() || d.size() != 3 || d[0] == "") return nullptr;
  return {{"entry", d[0]}, {"shift", number_json(d[1])}, {"drifted", d[2]}};
}
json as_snapshots(const json& p) {
  const json last = property(p, "LastRefusal");
  const json by = property(p, "SnapshotRefusals");
  return {{"offered", property(p, "SnapshotsOffered")},
          {"accepted", property(p, "SnapshotsAccepted")},
          {"refused", property(p, "SnapshotsRefused")},
          {"refused_by", by.is_object() ? by : json::object()},
          {"last_refusal", last == "" ? json() : last},
          {"last_refusal_at", as_time(property(p, "LastRefusalTime"))}};
}
json as_estimate(const json& p) {
  const json e = property(p, "OffPolicyEstimate");
  if (!e.is_array() || e.size() != 6 || e[0] == "") return nullptr;
  return {{"method", e[0]},
          {"learned", number_json(e[1])},
          {"fallback", number_json(e[2])},
          {"lower", number_json(e[3])},
          {"upper", number_json(e[4])},
          {"transitions", e[5]}};
}

struct KeyRow {
  const char* key;
  const char* property;
  json (*convert)(const json&);
};
constexpr std::array kAgentKeys = {
    KeyRow{"name", "Name", as_is},
    KeyRow{"task", "Task", as_is},
    KeyRow{"target", "Target", as_is},
    KeyRow{"cgroup", "Cgroup", as_is},
    KeyRow{"unit", "Unit", as_is},
    KeyRow{"container", "Container", as_container},
    KeyRow{"cpus", "Cpus", as_is},
    KeyRow{"owner", "Owner", as_is},
    KeyRow{"application", "Application", as_is},
    KeyRow{"rule", "Rule", as_is},
    KeyRow{"group", "Group", as_is},
    KeyRow{"mode", "Mode", as_is},
    KeyRow{"stage", "Stage", as_is},
    KeyRow{"stage_since", "StageSince", as_time},
    KeyRow{"reward", "Reward", number_json},
    KeyRow{"reward_mean", "RewardMean", number_json},
    KeyRow{"reward_stddev", "RewardStdDev", number_json},
    KeyRow{"episode", "Episode", as_is},
    KeyRow{"step", "Step", as_is},
    KeyRow{"controller", "Controller", as_is},
    KeyRow{"controller_reason", "ControllerReason", as_is},
    KeyRow{"held", "Held", as_is},
    KeyRow{"held_until", "HeldUntil", as_time},
    KeyRow{"hold_reason", "HoldReason", as_is},
    KeyRow{"knobs", "Knobs", as_knobs},
    KeyRow{"embedding", "Embedding", as_is},
    KeyRow{"model_version", "ModelVersion", as_is},
    KeyRow{"learning", "Learning", as_is},
    KeyRow{"nearest_pair", "NearestPair", as_is},
    KeyRow{"waiting_for", "WaitingFor", as_is},
    KeyRow{"explored_share", "ExploredShare", number_json},
};

/// Keys made of several properties.
struct CompositeRow {
  const char* key;
  json (*convert)(const json& properties);
};
constexpr std::array kCompositeKeys = {
    CompositeRow{"stages", as_stages},
    CompositeRow{"model", as_model},
    CompositeRow{"reward_fallback", as_fallback_reward},
    CompositeRow{"drift", as_drift},
    CompositeRow{"snapshots", as_snapshots},
    CompositeRow{"estimate", as_estimate},
};

constexpr const char* kProperties = "org.freedesktop.DBus.Properties";

}  // namespace

json number_json(const json& value) {
  if (!value.is_number_float()) return value;
  const double v = value.get<double>();
  if (std::isnan(v)) return nullptr;
  if (std::isinf(v)) return v > 0 ? "max" : "-max";
  return v;
}

double number_of(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (value.is_string() && value == "max") return std::numeric_limits<double>::infinity();
  return std::numeric_limits<double>::quiet_NaN();
}

json time_json(std::uint64_t microseconds) {
  if (microseconds == 0) return nullptr;
  const auto seconds = static_cast<std::time_t>(microseconds / 1'000'000);
  std::tm parts{};
  char text[32];
  if (!gmtime_r(&seconds, &parts) || std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
    return nullptr;
  return text;
}

json agent_json(const std::string& path, const json& properties) {
  json out = {{"path", path}};
  for (const auto& row : kAgentKeys) out[row.key] = row.convert(property(properties, row.property));
  for (const auto& row : kCompositeKeys) out[row.key] = row.convert(properties);
  return out;
}

json all_agents(BusClient& bus) {
  const json objects =
      bus.call(kManagerPath, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects").at(0);
  std::vector<json> agents;
  for (const auto& [path, interfaces] : objects.items())
    if (interfaces.contains(kAgentInterface)) agents.push_back(agent_json(path, interfaces[kAgentInterface]));
  std::sort(agents.begin(), agents.end(), [](const json& a, const json& b) {
    for (const char* key : {"task", "target", "name"})
      if (a[key] != b[key]) return a[key] < b[key];
    return false;
  });
  return agents;
}

json one_agent(BusClient& bus, const std::string& target) {
  const json found = bus.call(kManagerPath, kManagerInterface, "GetAgent", "s", target.c_str());
  const std::string path = found.at(0).get<std::string>();
  return agent_json(path, bus.call(path, kProperties, "GetAll", "s", kAgentInterface).at(0));
}

json daemon_status(BusClient& bus) {
  const json p = bus.call(kManagerPath, kProperties, "GetAll", "s", kManagerInterface).at(0);
  json degraded = json::array();
  for (const auto& d : p.at("Degraded")) degraded.push_back({{"part", d[0]}, {"reason", d[1]}});
  json sources = json::array();
  for (const auto& s : property(p, "Sources"))
    sources.push_back({{"signal", s[0]}, {"source", s[1]}, {"targets", s[2]}, {"reason", s[3]}});
  json stages = {{"initialized", 0}, {"offline", 0}, {"online", 0}, {"serving", 0}};
  int agents = 0;
  const json listed = bus.call(kManagerPath, kManagerInterface, "ListAgents").at(0);
  for (const auto& a : listed) {
    ++agents;
    json& n = stages[a[4].get<std::string>()];
    n = n.is_null() ? 1 : n.get<int>() + 1;
  }
  return {{"version", p.at("Version")},
          {"mode", p.at("Mode")},
          {"disabled", p.at("Disabled")},
          {"disabled_reason", p.at("DisabledReason")},
          {"learner", p.at("Learner")},
          {"learner_counters", property(p, "LearnerCounters")},
          {"learner_error", property(p, "LearnerError")},
          {"sync", property(p, "Sync")},
          {"sync_counters", property(p, "SyncCounters")},
          {"journal", property(p, "JournalCounters")},
          {"metrics", property(p, "MetricsCounters")},
          {"degraded", degraded},
          {"sources", sources},
          {"overhead_pct", property(p, "OverheadPercent")},
          {"overhead_budget_pct", property(p, "OverheadBudgetPercent")},
          {"period_s", p.at("PeriodUSec").get<double>() / 1e6},
          {"ticks", p.at("Ticks")},
          {"tick_us", p.at("TickUSec")},
          {"agents", agents},
          {"stages", stages}};
}

}  // namespace flash::cli
