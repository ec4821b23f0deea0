// Purpose: what a task starts from, in one file: the shared policy with its encoder (FLASH 3.3: "the
// pretrained shared model"), what it was learned for, what it was worth on pairs that it never saw, and the
// embeddings of those that it did see.
// Ownership: values.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/layout.h"
#include "core/result.h"
#include "core/tensor_file.h"
#include "meta/similarity.h"

namespace flash {

inline constexpr int kPolicyModelFormat = 1;

/// What the policy earned more than the rule-based controller on pairs that it did not learn from, with the
/// embedding of one episode under that controller. Reward per step.
struct UnseenGain {
  std::size_t pairs = 0;
  double mean = 0;
  double lower = 0, upper = 0;  // 95 % of the pairs lie between: what one more pair may expect
};

struct PolicyModel {
  std::string model;   // lineage for people: "oracle imitation, 200 pairs, seed 1"
  SpaceLayout layout;  // what it was learned for, reward included
  TensorFile policy;   // SharedPolicy::checkpoint()
  SeenEmbeddings seen;
  UnseenGain gain;
};

/// Kind "policy-model": arrays "policy/...", "seen".
TensorFile to_tensor_file(const PolicyModel& model);
/// EINVAL says what is wrong: another kind or format, another task than `task`, a part that is missing,
/// numbers that are not finite. Whether the policy can be built is for SharedPolicy::restore() to say.
Result<PolicyModel> to_policy_model(const TensorFile& file, const std::string& task);

}  // namespace flash
