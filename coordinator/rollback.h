// Purpose: does a model that is being handed out earn less than what the other nodes have? Nodes are drawn by
// hash (in_share()), so the two groups differ by nothing but the model. docs/MODELS.md has the rule. A node
// that lies has one voice, and the most extreme fifth at each end of a group has none: up to that many liars
// move nothing much.
// Ownership: values.
// Thread rule: pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "coordinator/messages_models.h"

namespace flash::coordinator {

/// What a node's learned policies of a task earned per step more than the fallback, by episodes.
struct NodeGain {
  std::string node;
  std::uint64_t before = 0, after = 0;  // episodes before the model was published, since its roll-out
  double before_mean = 0, after_mean = 0;
};

struct RollBackOptions {
  std::uint64_t least_episodes = 10;  // of a node, before and after each
  std::size_t least_nodes = 5;        // in each group
  double quantile = 2.576;            // 99 %: it is looked at again and again
  double trimmed = 0.2;               // of a group, at each end
};

struct Judgement {
  std::size_t with = 0, without = 0;  // nodes that could be judged
  bool enough = false;
  double difference = 0, lower = 0, upper = 0;  // of the change in reward per step (trimmed means), with less
                                                // without
  bool worse() const { return enough && upper < 0; }
};

/// Each node counts once, by how its mean changed: nodes differ more from each other than models do. Yuen's
/// test: Welch's of trimmed means, with the variance of the winsorized values.
Judgement judge(const OfferedModel& model, std::span<const NodeGain> gains,
                const RollBackOptions& options = {});
/// "-0.031 [-0.052, -0.010] per step on 12 nodes against 40".
std::string words_of(const Judgement& judgement);

}  // namespace flash::coordinator
