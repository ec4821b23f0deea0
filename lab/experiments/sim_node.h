// Purpose: a node that is simulated, with everything else real: its agents live through the simulator under
// flashd's own control loop, and speak to a flash-learner and a flash-sync over flashd's own ends of their
// sockets.
// Ownership: owns agents and sockets.
// Thread rule: one thread, which run() keeps.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/time.h"
#include "lab/sim/pool.h"

namespace flash::lab {

struct SimNodeOptions {
  std::string learner, sync;  // sockets to listen on
  std::string report;         // file, kept up to date: what the node's agents are at
  PoolOptions pool;           // drawn; of these the node has
  std::size_t first = 0, agents = 1;
  std::optional<int> update;  // of its applications, by AWARE 2.3's scenario: new ones, alike to the old
  Duration period = std::chrono::milliseconds(50);  // in which a simulated second passes
  int episode_steps = 100;
  std::uint64_t seed = 1;  // of chance
};

class SimNode {
 public:
  static Result<std::unique_ptr<SimNode>> open(SimNodeOptions options);
  ~SimNode();
  SimNode(const SimNode&) = delete;
  SimNode& operator=(const SimNode&) = delete;

  /// Until `ended` says so.
  void run(const std::function<bool()>& ended);

 private:
  struct Impl;
  explicit SimNode(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flash::lab
