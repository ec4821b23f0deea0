#include "coordinator/membership.h"

#include <algorithm>
#include <utility>

namespace flash::coordinator {

std::string_view to_string(Liveness l) {
  switch (l) {
    case Liveness::Unknown:
      return "unknown";
    case Liveness::Alive:
      return "alive";
    case Liveness::Suspect:
      return "suspect";
    case Liveness::Dead:
      return "dead";
  }
  return "";
}

Liveness liveness_of(const FleetNode& node, const Watch& watch) {
  if (node.last_seen_us == 0) return Liveness::Unknown;
  const std::int64_t silent = watch.until_us - std::max(node.last_seen_us, watch.since_us);
  if (silent >= kDeadUs) return Liveness::Dead;
  return silent >= kSuspectUs ? Liveness::Suspect : Liveness::Alive;
}

Membership::Membership(std::vector<FleetNode> nodes) {
  for (FleetNode& n : nodes) {
    const std::string name = n.node;
    nodes_[name] = {std::move(n), Liveness::Alive};
  }
}

void Membership::beat(const Origin& origin, const Heartbeat& h, std::int64_t now_us) {
  const auto at = nodes_.find(origin.node);
  if (at == nodes_.end() && nodes_.size() >= kMostNodes) return;
  FleetNode& n = nodes_[origin.node].node;
  n = {origin.node, origin.pool, h.software, h.flashd, h.mode, h.agents, h.outbox, now_us};
  changed_.insert(origin.node);
}

std::vector<Membership::Change> Membership::tick(std::int64_t now_us) {
  watch_.until_us = std::max(watch_.until_us, now_us);
  std::vector<Change> out;
  for (auto& [name, known] : nodes_) {
    const Liveness now = liveness_of(known.node, watch_);
    if (now == std::exchange(known.said, now)) continue;
    out.push_back({name, now});
  }
  return out;
}

std::map<std::string, std::string> Membership::states() const {
  std::map<std::string, std::string> out;
  for (const auto& [name, known] : nodes_) out.emplace(name, to_string(liveness_of(known.node, watch_)));
  return out;
}

std::vector<FleetNode> Membership::take_changed() {
  std::vector<FleetNode> out;
  for (const std::string& name : std::exchange(changed_, {})) out.push_back(nodes_.at(name).node);
  return out;
}

}  // namespace flash::coordinator
