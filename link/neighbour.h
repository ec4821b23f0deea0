// Purpose: the known pair (application, environment) that is nearest to a new one, as the coordinator tells
// flash-sync, flash-sync flashd, and flashd the learner; and the question for it. FLASH 5.5.
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/target.h"
#include "link/describe.h"
#include "link/episode.h"

namespace flash::link {

/// Which known pair is nearest to this agent's?
struct NearestQuestion {
  std::string agent;  // as Episode has it
  Task task = Task::ResourceLimits;
  std::string model;             // what made the embedding
  std::vector<float> embedding;  // not empty
  bool operator==(const NearestQuestion&) const = default;
};

struct Neighbour {
  Task task = Task::ResourceLimits;
  std::string model;                     // what made both embeddings
  std::string node, agent, application;  // whose embedding it is; the application may not be known
  double distance = 0;                   // Euclidean, between the embeddings
  double similarity = 0;                 // S of core/similarity.h, in [-0.5, 1]
  std::uint64_t episodes = 0;  // that it took to SERVING: the predicted cost; 0: it is not there yet
  bool reward_known = false;
  double reward = 0;  // mean per step of its last episode: the predicted reward
  std::vector<float> embedding;
  bool operator==(const Neighbour&) const = default;
};
template <class V, Of<Neighbour> E>
void describe(V& v, E& n) {
  v("task", n.task, bound::kTask);
  v("model", n.model, bound::Name{.most = kMaxModel});
  v("node", n.node, bound::Name{});
  v("agent", n.agent, bound::Name{});
  v("application", n.application, bound::Name{.may_be_empty = true});
  v("distance", n.distance, bound::Within{0, 1e9});
  v("similarity", n.similarity, bound::Within{-0.5, 1});
  v("episodes", n.episodes, bound::Within{0, 9e15});
  v("reward_known", n.reward_known);
  v("reward", n.reward, bound::Within{kLeastReward, kMostReward});
  v("embedding", n.embedding, bound::Numbers{1, kMaxEmbedding});
}

/// Is it the same agent of the same node, whatever became of it?
bool same_agent(const Neighbour& one, const Neighbour& other);
/// "shop@n2 (resource-limits:/web), distance 0.42, similarity 0.91, 12 episodes to serving".
std::string words_of(const Neighbour& neighbour);

}  // namespace flash::link
