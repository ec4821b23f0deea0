// Purpose: what the fleet is told of each agent: how an episode went, once its last action has been judged.
// Ownership: values.
// Thread rule: one thread.
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>

#include "core/decision.h"
#include "core/target.h"
#include "link/episode.h"
#include "policy/control_loop.h"

namespace flash {

class EpisodeSummaries {
 public:
  using View = std::function<std::optional<AgentView>(TargetId)>;

  /// Wire to LoopEvents::decided. An episode that has ended comes with the next decision, which brings the
  /// reward of its last action. `view` is asked only then.
  std::optional<link::Episode> decided(const Target& target, const Decision& decision, const View& view);
  void removed(TargetId id) { open_.erase(id); }

 private:
  struct Open {
    std::uint64_t episode = 0;
    Stage stage = Stage::Initialized;
    std::uint32_t steps = 0, rewards = 0;
    double reward_sum = 0;
    WallTime at{};
    bool ended = false;
  };
  std::unordered_map<TargetId, Open> open_;
};

}  // namespace flash
