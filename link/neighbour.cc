#include "link/neighbour.h"

#include <cstdio>

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

}  // namespace flash::link
