#include "coordinator/fleet.h"

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

namespace flash::coordinator {
namespace {

using json = nlohmann::ordered_json;

json json_of(const FleetAgent& a) {
  const link::Episode& e = a.latest;
  json j = {{"agent", e.agent},
            {"task", to_string(e.task)},
            {"target", e.target},
            {"application", e.application},
            {"rule", e.rule},
            {"stage", to_string(e.stage)},
            {"episode", e.episode},
            {"steps", e.steps},
            {"reward_mean", e.rewards > 0 ? json(e.reward_mean) : json()},
            {"fallback_reward", e.fallback_rewards > 0 ? json(e.fallback_reward) : json()},
            {"model_version", e.model_version},
            {"embedding", e.embedding},
            {"time_us", e.time_us},
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
  return a.node + "  " + e.agent + "  " + std::string(to_string(e.stage)) + "  " +
         reward_text(e.rewards > 0, e.reward_mean) + "  " +
         reward_text(e.fallback_rewards > 0, e.fallback_reward) + "\n";
}

}  // namespace

Result<std::string> fleet_json(const Store& store) {
  FLASH_TRY(const StoreCounts counts, store.counts());
  FLASH_TRY(const auto runs, store.runs());
  FLASH_TRY(const auto agents, store.agents());
  std::map<std::string, json> nodes;
  for (const FleetRun& r : runs) {
    json& node = nodes.try_emplace(r.node, json{{"node", r.node}, {"runs", json::array()}}).first->second;
    node["runs"].push_back({{"run", r.run}, {"records", r.records}, {"watermark", r.watermark}});
  }
  for (const FleetAgent& a : agents) {
    json& node = nodes[a.node];
    node["pool"] = a.pool;
    node["agents"].push_back(json_of(a));
  }
  json all = {{"records", counts.records},
              {"duplicates", counts.duplicates},
              {"refused", counts.refused},
              {"nodes", json::array()}};
  for (auto& [name, node] : nodes) all["nodes"].push_back(std::move(node));
  return all.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<std::string> fleet_text(const Store& store) {
  FLASH_TRY(const auto agents, store.agents());
  std::string text = "node  agent  stage  reward  fallback's\n";
  for (const FleetAgent& a : agents) text += line_of(a);
  return text;
}

}  // namespace flash::coordinator
