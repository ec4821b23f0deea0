#include "coordinator/api.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>

#include "core/json.h"

namespace flash::coordinator {
namespace {

using json = nlohmann::ordered_json;

constexpr std::array kAllStages = {Stage::Initialized, Stage::Offline, Stage::Online, Stage::Serving};
constexpr std::size_t kMaxNames = 200;  // of applications and pools that the summary lists

std::string text_of(const json& j) {
  return j.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

json number(std::optional<double> value) {
  return value ? json(*value) : json();
}

json stages_json(const std::array<std::size_t, kStages>& stages) {
  json j = json::object();
  for (const Stage s : kAllStages) j[std::string(to_string(s))] = stages[static_cast<std::size_t>(s)];
  return j;
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool contains(std::string_view text, std::string_view part) {
  const auto alike = [](char a, char b) { return lower(a) == lower(b); };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), alike) != text.end() || part.empty();
}

template <class Row, class ToJson>
json page_of(const std::vector<const Row*>& rows, const Paging& page, std::int64_t time_us, ToJson to_json) {
  json j = {{"time_us", time_us}, {"total", rows.size()}, {"offset", page.offset}, {"rows", json::array()}};
  for (std::size_t i = page.offset; i < rows.size() && i - page.offset < page.limit; ++i)
    j["rows"].push_back(to_json(*rows[i]));
  return j;
}

/// What is not known comes last, whichever way.
template <class Row, class Key>
void sort_by_number(std::vector<const Row*>& rows, bool falling, Key key) {
  std::ranges::stable_sort(rows, [&](const Row* a, const Row* b) {
    const std::optional<double> x = key(*a), y = key(*b);
    if (!x || !y) return x.has_value() && !y.has_value();
    return falling ? *x > *y : *x < *y;
  });
}

template <class Row, class Key>
void sort_by_text(std::vector<const Row*>& rows, bool falling, Key key) {
  std::ranges::stable_sort(
      rows, [&](const Row* a, const Row* b) { return falling ? key(*b) < key(*a) : key(*a) < key(*b); });
}

json agent_json(const FleetAgent& a) {
  const link::Episode& e = a.latest;
  return {{"node", a.node},
          {"pool", a.pool},
          {"agent", e.agent},
          {"task", to_string(e.task)},
          {"target", e.target},
          {"application", e.application},
          {"rule", e.rule},
          {"stage", to_string(e.stage)},
          {"reward_mean", number(reward_of(a))},
          {"reward_fallback", number(fallback_of(a))},
          {"model", e.model},
          {"model_version", e.model_version},
          {"episode", e.episode},
          {"records", a.records},
          {"time_us", e.time_us}};
}

bool wanted(const FleetAgent& a, const AgentsQuery& q) {
  const link::Episode& e = a.latest;
  if (!q.node.empty() && a.node != q.node) return false;
  if (!q.pool.empty() && a.pool != q.pool) return false;
  if (!q.application.empty() && e.application != q.application) return false;
  if (q.task && e.task != *q.task) return false;
  if (q.stage && e.stage != *q.stage) return false;
  return contains(a.node, q.text) || contains(e.agent, q.text) || contains(e.target, q.text) ||
         contains(e.application, q.text) || contains(e.rule, q.text);
}

void sort_agents(std::vector<const FleetAgent*>& rows, const AgentsQuery& q) {
  const auto by_text = [&](auto key) { sort_by_text(rows, q.falling, key); };
  const auto by_number = [&](auto key) { sort_by_number(rows, q.falling, key); };
  switch (q.order) {
    case AgentOrder::Node:
      return by_text([](const FleetAgent& a) { return std::tie(a.node, a.latest.agent); });
    case AgentOrder::Agent:
      return by_text([](const FleetAgent& a) { return std::tie(a.latest.target, a.latest.agent); });
    case AgentOrder::Application:
      return by_text([](const FleetAgent& a) { return std::tie(a.latest.application, a.node); });
    case AgentOrder::Task:
      return by_text([](const FleetAgent& a) { return to_string(a.latest.task); });
    case AgentOrder::Stage:
      return by_text([](const FleetAgent& a) { return a.latest.stage; });
    case AgentOrder::Reward:
      return by_number([](const FleetAgent& a) { return reward_of(a); });
    case AgentOrder::Fallback:
      return by_number([](const FleetAgent& a) { return fallback_of(a); });
    case AgentOrder::Gain:
      return by_number([](const FleetAgent& a) { return gain_of(reward_of(a), fallback_of(a)); });
    case AgentOrder::Time:
      return by_text([](const FleetAgent& a) { return a.latest.time_us; });
    case AgentOrder::Records:
      return by_text([](const FleetAgent& a) { return a.records; });
  }
}

json node_json(const NodeView& n) {
  return {{"node", n.node},
          {"pool", n.pool},
          {"state", n.state},
          {"agents", n.agents},
          {"stages", stages_json(n.stages)},
          {"reward_mean", number(n.reward)},
          {"reward_fallback", number(n.fallback)},
          {"records", n.records},
          {"lag", n.lag},
          {"time_us", n.latest_us}};
}

void sort_nodes(std::vector<const NodeView*>& rows, const NodesQuery& q) {
  const auto by_text = [&](auto key) { sort_by_text(rows, q.falling, key); };
  const auto by_number = [&](auto key) { sort_by_number(rows, q.falling, key); };
  switch (q.order) {
    case NodeOrder::Node:
      return by_text([](const NodeView& n) { return std::string_view(n.node); });
    case NodeOrder::Pool:
      return by_text([](const NodeView& n) { return std::tie(n.pool, n.node); });
    case NodeOrder::State:
      return by_text([](const NodeView& n) { return std::tie(n.state, n.node); });
    case NodeOrder::Agents:
      return by_text([](const NodeView& n) { return n.agents; });
    case NodeOrder::Reward:
      return by_number([](const NodeView& n) { return n.reward; });
    case NodeOrder::Gain:
      return by_number([](const NodeView& n) { return gain_of(n.reward, n.fallback); });
    case NodeOrder::Time:
      return by_text([](const NodeView& n) { return n.latest_us; });
  }
}

/// Names with how many agents, the most frequent first.
json names_json(const std::map<std::string, std::size_t>& names) {
  std::vector<std::pair<std::string, std::size_t>> all(names.begin(), names.end());
  std::ranges::stable_sort(all, [](const auto& a, const auto& b) { return a.second > b.second; });
  json j = json::array();
  for (const auto& [name, agents] : all) {
    if (j.size() == kMaxNames) break;
    j.push_back({{"name", name}, {"agents", agents}});
  }
  return j;
}

struct Summary {
  Mean reward, fallback;
  std::map<std::string, std::size_t> applications, pools, states;
  std::map<Task, std::array<std::size_t, kStages>> tasks;
};

Summary summary_of(const FleetView& view) {
  Summary s;
  for (const Task t : known_tasks()) s.tasks[t] = {};
  for (const FleetAgent& a : view.agents()) {
    ++s.applications[a.latest.application];
    ++s.pools[a.pool];
    s.reward.add(reward_of(a));
    s.fallback.add(fallback_of(a));
    ++s.tasks[a.latest.task][static_cast<std::size_t>(a.latest.stage) % kStages];
  }
  for (const NodeView& n : view.nodes()) ++s.states[n.state];
  return s;
}

}  // namespace

std::string fleet_answer(const FleetView& view) {
  const Summary s = summary_of(view);
  json tasks = json::object(), states = json::object();
  for (const auto& [task, stages] : s.tasks) tasks[std::string(to_string(task))] = stages_json(stages);
  for (const auto& [state, nodes] : s.states) states[state] = nodes;
  const StoreCounts& c = view.counts();
  return text_of({{"time_us", view.read_us()},
                  {"server", view.live().server},
                  {"connected", view.live().connected},
                  {"records", c.records},
                  {"duplicates", c.duplicates},
                  {"refused", c.refused},
                  {"nodes", view.nodes().size()},
                  {"node_states", states},
                  {"agents", view.agents().size()},
                  {"tasks", tasks},
                  {"reward_mean", number(s.reward.value())},
                  {"reward_fallback", number(s.fallback.value())},
                  {"applications", names_json(s.applications)},
                  {"pools", names_json(s.pools)}});
}

std::string nodes_answer(const FleetView& view, const NodesQuery& query) {
  std::vector<const NodeView*> rows;
  for (const NodeView& n : view.nodes())
    if (contains(n.node, query.text) || contains(n.pool, query.text)) rows.push_back(&n);
  sort_nodes(rows, query);
  return text_of(page_of(rows, query.page, view.read_us(), node_json));
}

std::optional<std::string> node_answer(const FleetView& view, const std::string& node) {
  const auto found = std::ranges::find(view.nodes(), node, &NodeView::node);
  if (found == view.nodes().end()) return std::nullopt;
  json j = node_json(*found);
  AgentsQuery of_node;
  of_node.node = node;
  of_node.page.limit = kMaxPage;
  std::vector<const FleetAgent*> rows;
  for (const FleetAgent& a : view.agents())
    if (wanted(a, of_node)) rows.push_back(&a);
  j["agents"] = page_of(rows, of_node.page, view.read_us(), agent_json);
  return text_of(j);
}

std::string agents_answer(const FleetView& view, const AgentsQuery& query) {
  std::vector<const FleetAgent*> rows;
  for (const FleetAgent& a : view.agents())
    if (wanted(a, query)) rows.push_back(&a);
  sort_agents(rows, query);
  return text_of(page_of(rows, query.page, view.read_us(), agent_json));
}

std::string curves_answer(const FleetView& view, const CurvesQuery& query) {
  const std::int64_t width = width_s(query.range), cells = cells_of(query.range);
  const std::int64_t newest = view.read_us() / 1'000'000 / width;
  const auto& known = view.history().cells(query.range, query.task, query.application);
  json times = json::array(), reward = json::array(), fallback = json::array();
  std::array<json, kStages> stages;
  stages.fill(json::array());
  for (std::int64_t at = newest - cells + 1; at <= newest; ++at) {
    const auto it = known.find(at);
    const HistoryCell c = it == known.end() ? HistoryCell() : it->second;
    times.push_back(at * width);
    reward.push_back(c.rewards > 0 ? json(c.reward_sum / c.rewards) : json());
    fallback.push_back(c.fallbacks > 0 ? json(c.fallback_sum / c.fallbacks) : json());
    for (std::size_t s = 0; s < kStages; ++s) stages[s].push_back(c.stages[s]);
  }
  json by_stage = json::object();
  for (const Stage s : kAllStages)
    by_stage[std::string(to_string(s))] = std::move(stages[static_cast<std::size_t>(s)]);
  return text_of({{"task", to_string(query.task)},
                  {"application", query.application},
                  {"range", to_string(query.range)},
                  {"width_s", width},
                  {"time_s", std::move(times)},
                  {"reward_mean", std::move(reward)},
                  {"reward_fallback", std::move(fallback)},
                  {"episodes", std::move(by_stage)}});
}

std::string map_answer(FleetView& view, const MapQuery& query) {
  const FleetView::Placed& placed = view.placed(query.task, query.model);
  json points = json::array();
  const std::size_t stride =
      std::max<std::size_t>(1, (placed.agents.size() + kMaxMapPoints - 1) / kMaxMapPoints);
  for (std::size_t i = 0; i < placed.agents.size(); i += stride) {
    json p = agent_json(*placed.agents[i]);
    p["x"] = placed.map.points[i][0];
    p["y"] = placed.map.points[i][1];
    points.push_back(std::move(p));
  }
  return text_of({{"task", to_string(query.task)},
                  {"agents", placed.agents.size()},
                  {"model", placed.model},
                  {"models", names_json(placed.models)},
                  {"explained", placed.map.explained},
                  {"points", std::move(points)}});
}

std::string error_answer(const std::string& message) {
  return text_of({{"error", message}});
}

}  // namespace flash::coordinator
