#include "coordinator/fleet_view.h"

#include <algorithm>
#include <utility>

namespace flash::coordinator {
namespace {

constexpr std::int64_t kHistoryRecords = 1'000'000;  // that a start reads again, the newest
constexpr std::size_t kHistoryBatch = 20'000;
constexpr std::size_t kMaps = 16;  // that are kept until something changes

/// Of what most have; of several, the first in order. REQUIRES: there is one.
template <class Key>
Key most_frequent(const std::map<Key, std::size_t>& counts) {
  return std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; })->first;
}

std::size_t usual_size(const std::vector<const FleetAgent*>& agents) {
  std::map<std::size_t, std::size_t> sizes;
  for (const FleetAgent* a : agents) ++sizes[a->latest.embedding.size()];
  return most_frequent(sizes);
}

}  // namespace

std::optional<double> reward_of(const FleetAgent& a) {
  return a.latest.rewards > 0 ? std::optional(a.latest.reward_mean) : std::nullopt;
}

std::optional<double> fallback_of(const FleetAgent& a) {
  return a.latest.fallback_rewards > 0 ? std::optional(a.latest.fallback_reward) : std::nullopt;
}

std::optional<double> gain_of(std::optional<double> reward, std::optional<double> fallback) {
  return reward && fallback ? std::optional(*reward - *fallback) : std::nullopt;
}

Result<FleetView> FleetView::open(const std::string& store_path) {
  FLASH_TRY(Store store, Store::open_to_read(store_path));
  return FleetView(std::move(store));
}

Result<void> FleetView::refresh(std::int64_t now_us, const LiveState& live) {
  FLASH_TRY(const StoreCounts counts, store_.counts());
  const bool fresh = read_us_ == 0 || counts.records != counts_.records;
  counts_ = counts;
  if (fresh) {
    FLASH_TRY(agents_, store_.agents());
    FLASH_CHECK(read_history(now_us));
    placed_.clear();
  }
  live_ = live;
  FLASH_TRY(coordinators_, store_.coordinators());
  FLASH_TRY(const auto marks, store_.marks());
  summarize(marks);
  read_us_ = now_us;
  return {};
}

Result<void> FleetView::read_history(std::int64_t now_us) {
  if (!history_at_) {
    FLASH_TRY(const std::int64_t newest, store_.newest());
    history_at_ = std::max<std::int64_t>(0, newest - kHistoryRecords);
  }
  while (true) {
    FLASH_TRY(const auto batch, store_.history_after(*history_at_, kHistoryBatch));
    for (const auto& [id, point] : batch) history_.add(point, now_us);
    if (!batch.empty()) history_at_ = batch.back().first;
    if (batch.size() < kHistoryBatch) return {};
  }
}

void FleetView::summarize(const std::vector<RunMark>& marks) {
  std::map<std::string, NodeView> nodes;
  std::map<std::string, std::pair<Mean, Mean>> means;
  const auto node_of = [&](const std::string& name) -> NodeView& {
    NodeView& n = nodes[name];
    n.node = name;
    return n;
  };
  for (const FleetAgent& a : agents_) {
    NodeView& n = node_of(a.node);
    n.pool = a.pool;
    ++n.agents;
    ++n.stages[static_cast<std::size_t>(a.latest.stage) % kStages];
    n.records += a.records;
    n.latest_us = std::max(n.latest_us, a.latest.time_us);
    auto& [reward, fallback] = means[a.node];
    reward.add(reward_of(a));
    fallback.add(fallback_of(a));
  }
  for (const RunMark& m : marks) node_of(m.node).lag += m.highest - std::min(m.highest, m.watermark);
  for (const auto& [name, state] : live_.node_states) node_of(name);
  nodes_.clear();
  for (auto& [name, node] : nodes) {
    node.reward = means[name].first.value();
    node.fallback = means[name].second.value();
    const auto state = live_.node_states.find(name);
    node.state = state == live_.node_states.end() ? "unknown" : state->second;
    nodes_.push_back(std::move(node));
  }
}

const FleetView::Placed& FleetView::placed(Task task, const std::string& model) {
  const std::pair key(task, model);
  if (const auto known = placed_.find(key); known != placed_.end()) return known->second;
  if (placed_.size() >= kMaps) placed_.clear();
  Placed& p = placed_[key];
  for (const FleetAgent& a : agents_)
    if (a.latest.task == task && !a.latest.embedding.empty()) ++p.models[a.latest.model];
  p.model = model.empty() && !p.models.empty() ? most_frequent(p.models) : model;
  std::vector<const FleetAgent*> candidates;
  for (const FleetAgent& a : agents_)
    if (a.latest.task == task && !a.latest.embedding.empty() && a.latest.model == p.model)
      candidates.push_back(&a);
  if (candidates.empty()) return p;
  const std::size_t size = usual_size(candidates);
  std::vector<const std::vector<float>*> embeddings;
  for (const FleetAgent* a : candidates) {
    if (a->latest.embedding.size() != size) continue;
    p.agents.push_back(a);
    embeddings.push_back(&a->latest.embedding);
  }
  p.map = map_of(embeddings);
  return p;
}

}  // namespace flash::coordinator
