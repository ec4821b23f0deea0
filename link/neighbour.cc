#include "link/neighbour.h"

#include <cstdio>

#include "link/episode_cbor.h"
#include "link/neighbour_cbor.h"

namespace flash::link {

bool same_agent(const Neighbour& one, const Neighbour& other) {
  return one.node == other.node && one.agent == other.agent;
}

std::string words_of(const Neighbour& n) {
  char numbers[96];
  std::snprintf(numbers, sizeof numbers, "), distance %.3g, similarity %.2f, ", n.distance, n.similarity);
  return (n.application.empty() ? "?" : n.application) + "@" + n.node + " (" + n.agent + numbers +
         (n.episodes > 0 ? std::to_string(n.episodes) + " episodes to serving" : "not serving yet");
}

namespace cbor {
namespace {

constexpr double kMaxDistance = 1e9, kMaxEpisodes = 9e15;

}  // namespace

Result<void> check(const Neighbour& n, const std::string& path) {
  Check c(path);
  check_model(c, n.model, false);
  c.name("node", n.node);
  c.name("agent", n.agent);
  c.name("application", n.application, true);
  c.range("distance", n.distance, 0, kMaxDistance);
  c.range("similarity", n.similarity, -0.5, 1);
  c.range("episodes", static_cast<double>(n.episodes), 0, kMaxEpisodes);
  c.range("reward", n.reward, kLeastReward, kMostReward);
  if (n.embedding.empty()) c.fail("embedding", "empty");
  c.numbers("embedding", n.embedding, kMaxEmbedding);
  return c.result();
}

void write(Writer& w, const Neighbour& n) {
  w.head(Writer::kMap, 11);
  w.field("task", to_string(n.task));
  w.field("model", n.model);
  w.field("node", n.node);
  w.field("agent", n.agent);
  w.field("application", n.application);
  w.field("distance", n.distance);
  w.field("similarity", n.similarity);
  w.field("episodes", n.episodes);
  w.field("reward_known", n.reward_known);
  w.field("reward", n.reward);
  w.field("embedding", n.embedding);
}

Result<void> read(const json& map, const std::string& path, Neighbour& n) {
  if (!map.is_object()) return invalid(path.substr(0, path.size() - 1) + ": not a map");
  Fields f(map, path);
  f.get_enum("task", n.task, known_tasks(), "a task");
  f.get("model", n.model);
  f.get("node", n.node);
  f.get("agent", n.agent);
  f.get("application", n.application);
  f.get("distance", n.distance);
  f.get("similarity", n.similarity);
  f.get("episodes", n.episodes);
  f.get("reward_known", n.reward_known);
  f.get("reward", n.reward);
  f.get("embedding", n.embedding);
  return f.done({"task", "model", "node", "agent", "application", "distance", "similarity", "episodes",
                 "reward_known", "reward", "embedding"});
}

}  // namespace cbor
}  // namespace flash::link
