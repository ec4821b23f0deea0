#include "coordinator/nearest.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "core/similarity.h"

namespace flash::coordinator {

void NearestPairs::remove(const Name& name) {
  const auto at = place_.find(name);
  if (at == place_.end()) return;
  const auto [key, index] = at->second;
  place_.erase(at);
  Space& space = spaces_.at(key);
  const std::size_t width = std::get<2>(key), last = space.known.size() - 1;
  if (index != last) {
    space.known[index] = std::move(space.known[last]);
    std::copy_n(space.embeddings.begin() + static_cast<std::ptrdiff_t>(last * width), width,
                space.embeddings.begin() + static_cast<std::ptrdiff_t>(index * width));
    place_.at({space.known[index].node, space.known[index].agent}).second = index;
  }
  space.known.pop_back();
  space.embeddings.resize(last * width);
  if (space.known.empty()) spaces_.erase(key);
}

void NearestPairs::put(const FleetAgent& a) {
  const link::Episode& e = a.latest;
  const Name name{a.node, e.agent};
  const SpaceKey key{e.task, e.model, e.embedding.size()};
  auto at = place_.find(name);
  if (at != place_.end() && at->second.first != key) {
    remove(name);
    at = place_.end();
  }
  if (e.model.empty() || e.embedding.empty()) return remove(name);
  Space& space = spaces_[key];
  const Known known{a.node, e.agent, e.application, a.episodes_to_serving, e.rewards > 0, e.reward_mean};
  if (at == place_.end()) {
    place_.emplace(name, std::pair(key, space.known.size()));
    space.known.push_back(known);
    space.embeddings.insert(space.embeddings.end(), e.embedding.begin(), e.embedding.end());
    return;
  }
  const std::size_t index = at->second.second;
  space.known[index] = known;
  std::copy(e.embedding.begin(), e.embedding.end(),
            space.embeddings.begin() + static_cast<std::ptrdiff_t>(index * e.embedding.size()));
}

std::optional<link::Neighbour> NearestPairs::nearest(const std::string& node,
                                                     const link::NearestQuestion& q) const {
  const std::size_t width = q.embedding.size();
  const auto found = spaces_.find({q.task, q.model, width});
  if (found == spaces_.end()) return std::nullopt;
  const Space& space = found->second;
  const auto embedding = [&](std::size_t i) { return std::span(space.embeddings).subspan(i * width, width); };
  struct Best {
    std::optional<std::size_t> index;
    float squares = std::numeric_limits<float>::infinity();
  } all, serving;
  for (std::size_t i = 0; i < space.known.size(); ++i) {
    const Known& k = space.known[i];
    float squares = 0;
    const auto e = embedding(i);
    for (std::size_t d = 0; d < width; ++d) squares += (e[d] - q.embedding[d]) * (e[d] - q.embedding[d]);
    const bool nearest = squares < all.squares;
    const bool nearest_serving = k.episodes > 0 && squares < serving.squares;
    if ((!nearest && !nearest_serving) || (k.node == node && k.agent == q.agent)) continue;
    if (nearest) all = {i, squares};
    if (nearest_serving) serving = {i, squares};
  }
  if (!all.index) return std::nullopt;
  const bool alike = serving.index && similarity(q.embedding, embedding(*serving.index)) > kUnlike;
  const std::optional<std::size_t> best = alike ? serving.index : all.index;
  const Known& k = space.known[*best];
  const auto e = embedding(*best);
  link::Neighbour n;
  n.task = q.task;
  n.model = q.model;
  n.node = k.node;
  n.agent = k.agent;
  n.application = k.application;
  n.distance = std::min(euclidean(q.embedding, e), 1e9);
  n.similarity = std::clamp(similarity(q.embedding, e), -0.5, 1.0);
  n.episodes = k.episodes;
  n.reward_known = k.reward_known;
  n.reward = k.reward;
  n.embedding.assign(e.begin(), e.end());
  return n;
}

}  // namespace flash::coordinator
