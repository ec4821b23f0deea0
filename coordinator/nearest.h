// Purpose: which known pair is nearest to a new one (FLASH 5.5): the newest embedding of every agent,
// searched whole, since 100,000 of them take milliseconds. Embeddings of different models or tasks are not
// compared.
// Ownership: values.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/store.h"
#include "link/neighbour.h"

namespace flash::coordinator {

class NearestPairs {
 public:
  /// The newest that is known of an agent; without model or embedding it is taken out.
  void put(const FleetAgent& agent);
  void forget(const std::string& node, const std::string& agent) { remove({node, agent}); }
  /// The nearest by distance, never the one that asks. The nearest of those that have reached SERVING goes
  /// first where it is alike (S above kUnlike): one that is not is no help, whatever it has been through.
  std::optional<link::Neighbour> nearest(const std::string& node,
                                         const link::NearestQuestion& question) const;
  std::size_t size() const { return place_.size(); }

 private:
  struct Known {
    std::string node, agent, application;
    std::uint64_t episodes = 0;
    bool reward_known = false;
    double reward = 0;
  };
  /// Of one task, model and width; embeddings lie one after the other.
  struct Space {
    std::vector<Known> known;
    std::vector<float> embeddings;
  };
  using SpaceKey = std::tuple<Task, std::string, std::size_t>;
  using Name = std::pair<std::string, std::string>;  // node, agent
  void remove(const Name& name);

  std::map<SpaceKey, Space> spaces_;
  std::map<Name, std::pair<SpaceKey, std::size_t>> place_;
};

}  // namespace flash::coordinator
