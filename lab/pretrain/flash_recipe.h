// Purpose: pretraining as FLASH describes it (3.2, 3.3, section 4, A.1, A.3, A.4): the base learner of the
// task with the embedding appended to its state, one shared model over all pairs, the GRU encoder of Table 4,
// the base learner's loss through both. The named baseline beside lab/pretrain/imitation.h.
// Ownership: values.
// Thread rule: one thread calls; the first episodes are simulated by several.
//
// What differs from the paper, besides what agents/ and meta/ say of their own:
//   - `worlds` episodes of a pair at once, at different times of its trace; one update of `batch` rows per
//     `worlds` steps instead of 64 rows per step
//   - one backward pass through the encoder per `worlds` episodes, with the mean of the updates' gradients
//   - each pair's first trajectory is of the rule-based controller, as on a node (AWARE's INITIALIZED)
//   - at a switch, up to three of the pair's earlier trajectories come back into the buffer
//   - rewards are centred on what the pair earned in that first trajectory
//   - half of each minibatch is of the present pair, the rest of others drawn per round, with embeddings of
//     up to three of their trajectories; the gradient of those is not taken
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lab/pretrain/checkpoint.h"
#include "lab/pretrain/flash.h"
#include "lab/sim/pool.h"

namespace flash {

struct FlashRecipeOptions {
  int episodes = 320;  // per pair, of 100 steps
  int worlds = 16;     // episodes at once
  int visits = 2;      // so many times `worlds` episodes before the next pair
  int batch = 256;
  int others = 8;    // pairs that share the other half of a minibatch
  double rate = 1;   // on the learning rates of the tables; falls to a tenth over the last half
  MetaOptions meta;  // Table 4
  std::uint64_t seed = 1;
  int threads = 2;
};

struct FlashProgress {
  int round = 0, rounds = 0;  // `worlds` episodes each
  double reward = 0;          // mean per step, exploration included, since the last report
  double over_rules = 0;      // of it, more than the same pairs earned in their first episode
  double critic_loss = 0;
  double gradient = 0;  // norm of the mean dL/de
  double seconds = 0;   // since the start, or since it was resumed
  int begun_at = 0;     // the round that this run began with
};

struct FlashPretraining {
  FlashRecipeOptions options;
  std::function<void(const FlashProgress&)> progress;  // about once per hundred rounds; may be empty
  std::string checkpoint;  // file that is rewritten about every `every_s` seconds; empty: none
  double every_s = 120;
  std::string resume;  // such a file, of the same pool and options; empty: from the start
};

/// EINVAL: an option that is not possible, a checkpoint of another pool or recipe, named; learning that
/// diverged.
Result<TaskModel> pretrain_flash(const Pool& pool, const FlashPretraining& run);

}  // namespace flash
