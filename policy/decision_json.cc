#include "policy/decision_json.h"

#include <cmath>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "policy/observation_space.h"
#include "policy/words.h"

namespace flash {
namespace {

using nlohmann::json;

json number(double v) {
  if (std::isnan(v)) return nullptr;
  if (std::isinf(v)) return v > 0 ? json("max") : json(nullptr);
  return v;
}

json text(std::string_view s) {
  return std::string(s);
}

json action(const Action& a) {
  json out = json::object();
  for (const auto& row : knob_table())
    if (a.has(row.kind)) out[std::string(row.name)] = number(a[row.kind]);
  return out;
}

std::string rfc3339(std::int64_t us) {
  std::int64_t s = us / 1000000, rest = us % 1000000;
  if (rest < 0) {
    rest += 1000000;
    --s;
  }
  const auto t = static_cast<std::time_t>(s);
  std::tm tm{};
  gmtime_r(&t, &tm);
  char day[40], out[64];
  std::strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm);
  std::snprintf(out, sizeof out, "%s.%06dZ", day, static_cast<int>(rest));
  return out;
}

json target_json(const Target& t) {
  json out = {{"name", t.name},
              {"agent", agent_name(t.id)},
              {"task", text(to_string(t.task()))},
              {"cgroup", t.cgroup},
              {"unit", t.unit},
              {"cpus", t.cpus},
              {"owner", text(to_string(t.owner))},
              {"application", t.application},
              {"rule", t.rule}};
  if (t.container.runtime.empty())
    out["container"] = nullptr;
  else
    out["container"] = {{"runtime", t.container.runtime},
                        {"id", t.container.id},
                        {"name", t.container.name},
                        {"pod_uid", t.container.pod_uid}};
  return out;
}

json floats(const std::vector<float>& v) {
  if (v.empty()) return nullptr;
  json out = json::array();
  for (float x : v) out.push_back(number(x));
  return out;
}

json ranges_json(const Decision& d) {
  json out = json::object();
  for (const KnobContext& c : d.contexts)
    out[std::string(traits(c.knob).name)] = {
        {"lower", number(c.lower)}, {"upper", number(c.upper)}, {"steps", c.steps}};
  return out;
}

/// An object keeps its keys sorted; readers take the entries' order from state_entries().
json state_json(const Decision& d, Task task) {
  const std::vector<float>& state = d.learning.state;
  const auto entries = state_entries(task);
  if (state.size() != entries.size()) return nullptr;
  json out = json::object();
  for (std::size_t i = 0; i < state.size(); ++i) out[std::string(entries[i].name)] = number(state[i]);
  return out;
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  return verdict == Verdict::Changed ? "changed" : "refused";
}

json to_json(const Decision& d, const Target& target, WithWords with) {
  json out = json::object();
  const std::int64_t us =
      std::chrono::duration_cast<std::chrono::microseconds>(d.at.wall.time_since_epoch()).count();
  out["seq"] = d.seq;
  out["time"] = rfc3339(us);
  out["time_us"] = us;
  out["target"] = target_json(target);
  out["stage"] = text(to_string(d.stage));
  out["mode"] = text(to_string(d.mode));
  out["controller"] = text(to_string(d.controller));
  out["controller_reason"] = d.controller_reason;
  out["episode"] = d.episode;
  out["step"] = d.step;
  json& observation = out["observation"] = json::object();
  for (const auto& row : signal_table()) {
    const Sample& s = d.observation[row.signal];
    if (s.validity == Validity::Missing) continue;
    observation[std::string(row.name)] = {{"value", s.usable() ? number(s.value) : json(nullptr)},
                                          {"unit", text(row.unit)},
                                          {"validity", text(to_string(s.validity))}};
  }
  if (d.reward.given)
    out["reward"] = {{"value", number(d.reward.value)},
                     {"slo_preservation", number(d.reward.slo_preservation)},
                     {"utilization", number(d.reward.utilization)},
                     {"ips_gain", number(d.reward.ips_gain)},
                     {"power_cost", number(d.reward.power_cost)},
                     {"trusted", d.reward.trusted}};
  else
    out["reward"] = nullptr;
  out["current"] = action(d.current);
  out["proposed"] = action(d.proposed);
  out["allowed"] = action(d.allowed);
  out["explanation"] = d.explanation;
  out["explored"] = d.explored;
  out["exploration"] = d.exploration;
  out["model_version"] = d.model_version;
  out["notes"] = d.notes;
  out["state"] = state_json(d, target.task());
  out["learning"] = {{"state_trusted", d.learning.state_trusted},
                     {"end_of_episode", d.learning.end_of_episode},
                     {"action", floats(d.learning.action)},
                     {"fallback", floats(d.learning.fallback)}};
  out["ranges"] = ranges_json(d);
  json& attributions = out["attributions"] = json::array();
  for (const Attribution& a : d.attributions)
    attributions.push_back(
        {{"entry", text(a.entry)}, {"value", number(a.value)}, {"weight", number(a.weight)}});
  json& alternatives = out["alternatives"] = json::array();
  for (const Alternative& a : d.alternatives)
    alternatives.push_back({{"label", a.label}, {"action", action(a.action)}, {"value", number(a.value)}});
  json& verdicts = out["verdicts"] = json::array();
  for (const GuardVerdict& v : d.verdicts)
    verdicts.push_back({{"guard", text(v.guard)},
                        {"knob", text(traits(v.knob).name)},
                        {"verdict", text(to_string(v.verdict))},
                        {"before", number(v.before)},
                        {"after", number(v.after)},
                        {"reason", v.reason}});
  json& outcomes = out["outcomes"] = json::array();
  for (const KnobOutcome& o : d.outcomes)
    outcomes.push_back({{"knob", text(traits(o.knob).name)},
                        {"status", text(to_string(o.status))},
                        {"asked", number(o.asked)},
                        {"executed", number(o.executed)},
                        {"message", o.message}});
  if (with == WithWords::Yes) out["words"] = words(d, target);
  return out;
}

std::string to_json_text(const Decision& decision, const Target& target) {
  // Names of cgroups and containers are bytes, not always UTF-8.
  return to_json(decision, target).dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace flash
