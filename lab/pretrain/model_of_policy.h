// Purpose: a shared policy as flash-learner takes it (learner/pretrained.h), also where it comes without what
// flash-pretrain says of a shipped one: an ablation, or a policy that an experiment has just trained.
// Ownership: values.
// Thread rule: pure function.
#pragma once

#include <memory>

#include "core/result.h"
#include "core/rule.h"
#include "core/target.h"
#include "core/tensor_file.h"

namespace flash {

class PretrainedModel;

/// Of a model file as it is, or of a SharedPolicy::checkpoint(). Of a policy alone nothing was measured: no pair
/// is unfamiliar to it, and it is taken to earn what the rules do, so that the life cycle gives it a try. One
/// without an embedding gets one that it does not read. EINVAL: neither, or another task's.
Result<std::shared_ptr<const PretrainedModel>> model_of_policy(const TensorFile& file, Task task,
                                                               const RewardOptions& reward);

}  // namespace flash
