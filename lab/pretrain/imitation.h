// Purpose: pretraining of a shared policy from the oracle (lab/sim/oracle.h), which knows what a node does
// not: the true parameters and the load ahead. The policy sees the state and, as FLASH's shared model, an
// embedding of the pair's trajectories; encoder and policy learn together to lose as little as possible of
// the oracle's value. States are those that the policy itself gets into (DAgger: Ross, Gordon, Bagnell 2011),
// the loss is in reward, not in distance from the oracle's action, so what cannot be told from state and
// embedding is decided by the mean over what it may be.
// Ownership: values.
// Thread rule: one thread calls; the batch has its own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lab/sim/pool.h"
#include "meta/shared_policy.h"

namespace flash {

struct ImitationOptions {
  Conditioning conditioning = Conditioning::Embedding;
  int rounds = 10;    // of acting and learning; the first acts by the fallback
  int steps = 200;    // per round and pair
  int updates = 600;  // per round
  /// resource-limits: from the pool's pairs alone. Else, after the first round, from what they become when
  /// they are varied (lab/sim/pool.h): without that a policy earns less than the rules under loads that no
  /// generator draws. On cpu-frequency it is not done (docs/agents/shared_policy.md).
  bool as_drawn = false;
  int pairs_per_update = 32;
  int rows_per_pair = 16;
  double rate = 2e-3;  // falls to a tenth, as a cosine
  std::uint64_t seed = 1;
  int threads = 2;
  /// Where the policies of all rounds are kept; a file that is there already is gone on from: what they saw
  /// is simulated again, what they learned is not learned again, and the result is the same. Empty: none.
  std::string progress_file;
  SharedPolicyOptions policy;  // task, sizes and conditioning are filled here
};

/// Are other pairs than the pool's learned from?
bool varies(const ImitationOptions& options, Task task);
/// Rounds that are worth their time: 40 where each brings other pairs, else 10.
inline int usual_rounds(const ImitationOptions& options, Task task) {
  return varies(options, task) ? 40 : 10;
}

struct ImitationProgress {
  int round = 0, rounds = 0;
  double reward = 0;   // mean per step of what acted in this round
  double loss = 0;     // reward lost to the oracle's best candidate, mean over the round's last updates
  double seconds = 0;  // since the start
};

/// REQUIRES: all pairs are of one task. EINVAL: an option that is not possible, or a progress file of another
/// run, named.
Result<SharedPolicy> imitate_oracle(const Pool& pool, const ImitationOptions& options,
                                    const std::function<void(const ImitationProgress&)>& progress);

}  // namespace flash
