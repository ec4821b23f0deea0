// Purpose: the file that an interrupted imitation goes on from: the policy after each round.
// Ownership: an ImitationFile owns what it read.
// Thread rule: one thread.
#pragma once

#include <string>

#include "core/tensor_file.h"
#include "lab/pretrain/imitation.h"

namespace flash {

class ImitationFile {
 public:
  /// Without a path nothing is kept. EINVAL: a file of another run, named.
  static Result<ImitationFile> open(const ImitationOptions& options, std::size_t pairs, Task task);

  /// How many are in it.
  int rounds() const { return rounds_; }
  /// The policy after `round` rounds, with its optimisers if it is the last. REQUIRES: 1 <= round <=
  /// rounds().
  Result<SharedPolicy> after(int round) const;
  /// One more round is over: written at once.
  Result<void> add(const SharedPolicy& policy);

 private:
  std::string path_;
  TensorFile file_;
  int rounds_ = 0;
};

}  // namespace flash
