#include "coordinator/fleet.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>

#include "core/json.h"

namespace flash::coordinator {
namespace {

using json = nlohmann::ordered_json;

constexpr std::int64_t kVanishedUs = 300'000'000;

json json_of(const FleetAgent& a) {
  const link::Episode& e = a.latest;
  json j = {
      {"agent", e.agent},
      {"task", to_string(e.task)},
      {"target", e.target},
      {"application", e.application},
      {"rule", e.rule},
      {"stage", to_string(e.stage)},
      {"episode", e.episode},
      {"steps", e.steps},
      {"reward_mean", e.rewards > 0 ? json(e.reward_mean) : json()},
      {"reward_fallback", e.fallback_rewards > 0 ? json(e.fallback_reward) : json()},
      {"gain", e.rewards > 0 && e.fallback_rewards > 0 ? json(e.reward_mean - e.fallback_reward) : json()},
      {"model_version", e.model_version},
      {"model", e.model},
      {"embedding", e.embedding},
      {"time_us", e.time_us},
      {"drift", a.drift ? json(*a.drift) : json()},
      {"episodes_to_serving", a.episodes_to_serving > 0 ? json(a.episodes_to_serving) : json()},
      {"records", a.records}};
  return j;
}

std::string reward_text(bool known, double reward) {
  char text[32] = "-";
  if (known) std::snprintf(text, sizeof text, "%.3f", reward);
  return text;
}

std::string line_of(const FleetAgent& a) {
  const link::Episode& e = a.latest;
  return "  " + e.agent + "  " + std::string(to_string(e.stage)) + "  " +
         reward_text(e.rewards > 0, e.reward_mean) + "  " +
         reward_text(e.fallback_rewards > 0, e.fallback_reward) + "  " +
         reward_text(a.drift.has_value(), a.drift.value_or(0));
}

/// One line of text and one object of JSON per node that ever sent a record or a heartbeat.
struct NodeView {
  std::string pool;
  const FleetNode* beats = nullptr;
  Liveness liveness = Liveness::Unknown;
  std::vector<const FleetRun*> runs;
  std::vector<const FleetAgent*> agents;
};

struct View {
  StoreCounts counts;
  Watch watch;
  std::vector<FleetCoordinator> coordinators;
  std::vector<FleetNode> beats;
  std::vector<FleetRun> runs;
  std::vector<FleetAgent> agents;
  std::map<std::string, NodeView> nodes;
};

Result<std::unique_ptr<View>> view_of(const Store& store) {
  auto v = std::make_unique<View>();
  FLASH_TRY(v->counts, store.counts());
  FLASH_TRY(v->watch, store.watch());
  FLASH_TRY(v->coordinators, store.coordinators());
  FLASH_TRY(v->beats, store.nodes());
  FLASH_TRY(v->runs, store.runs());
  FLASH_TRY(v->agents, store.agents());
  for (const FleetRun& r : v->runs) v->nodes[r.node].runs.push_back(&r);
  for (const FleetAgent& a : v->agents) {
    NodeView& node = v->nodes[a.node];
    node.agents.push_back(&a);
    node.pool = a.pool;
  }
  for (const FleetNode& n : v->beats) {
    NodeView& node = v->nodes[n.node];
    node.beats = &n;
    node.pool = n.pool;
    node.liveness = liveness_of(n, v->watch);
  }
  return v;
}

json json_of(const std::string& name, const NodeView& n) {
  json j = {{"node", name}, {"pool", n.pool}, {"state", to_string(n.liveness)}};
  if (n.beats) {
    j["software"] = n.beats->software;
    j["flashd"] = n.beats->flashd;
    j["mode"] = n.beats->mode;
    j["agents_now"] = n.beats->agents;
    j["outbox"] = n.beats->outbox;
    j["last_seen_us"] = n.beats->last_seen_us;
  }
  j["runs"] = json::array();
  for (const FleetRun* r : n.runs)
    j["runs"].push_back({{"run", r->run}, {"records", r->records}, {"watermark", r->watermark}});
  j["agents"] = json::array();
  for (const FleetAgent* a : n.agents) {
    j["agents"].push_back(json_of(*a));
    j["agents"].back()["vanished"] = vanished(*a, n.beats);
  }
  return j;
}

}  // namespace

bool vanished(const FleetAgent& agent, const FleetNode* node) {
  if (node == nullptr || node->outbox > 0) return false;
  const std::int64_t lived = agent.latest.time_us - agent.first_us;
  const std::int64_t usual = agent.records > 1 ? lived / static_cast<std::int64_t>(agent.records - 1) : 0;
  return node->last_seen_us - agent.latest.time_us > std::max(kVanishedUs, 5 * usual);
}

Result<std::string> fleet_json(const Store& store) {
  FLASH_TRY(const auto v, view_of(store));
  json all = {{"records", v->counts.records},
              {"duplicates", v->counts.duplicates},
              {"refused", v->counts.refused},
              {"thinned", v->counts.thinned},
              {"summaries_dropped", v->counts.summaries_dropped},
              {"as_of_us", v->watch.until_us},
              {"coordinators", json::array()},
              {"nodes", json::array()}};
  for (const FleetCoordinator& c : v->coordinators)
    all["coordinators"].push_back({{"name", c.name},
                                   {"position", c.position},
                                   {"in_step", c.in_step},
                                   {"lease", c.lease > 0 ? json(c.lease) : json()},
                                   {"last_seen_us", c.last_seen_us}});
  for (const auto& [name, node] : v->nodes) all["nodes"].push_back(json_of(name, node));
  return all.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<std::string> fleet_text(const Store& store) {
  FLASH_TRY(const auto v, view_of(store));
  std::string text;
  for (const FleetCoordinator& c : v->coordinators)
    text += "coordinator " + c.name + (c.lease > 0 ? ", speaks: lease " + std::to_string(c.lease) : "") +
            (c.in_step ? "" : ", reads what the stream has") + "\n";
  text += "node  state  agent  stage  reward  fallback's  drift\n";
  for (const auto& [name, node] : v->nodes) {
    const std::string who = name + "  " + std::string(to_string(node.liveness));
    if (node.agents.empty()) text += who + "  -\n";
    for (const FleetAgent* a : node.agents)
      text += who + line_of(*a) + (vanished(*a, node.beats) ? "  vanished" : "") + "\n";
  }
  return text;
}

}  // namespace flash::coordinator
