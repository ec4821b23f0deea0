#include "lab/pretrain/model_of_policy.h"

#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "learner/pretrained.h"
#include "meta/policy_model.h"
#include "meta/shared_policy.h"
#include "meta/similarity.h"
#include "policy/task.h"

namespace flash {
namespace {

/// Embeddings so far apart that none between them is unfamiliar.
Result<SeenEmbeddings> everything(int width) {
  constexpr std::size_t kEmbeddings = 40;
  constexpr double kFar = 1e6;
  Random random(1);
  std::vector<std::vector<float>> pool(kEmbeddings);
  for (auto& e : pool)
    for (int i = 0; i < width; ++i) e.push_back(static_cast<float>(random.uniform(-kFar, kFar)));
  return SeenEmbeddings::create(std::move(pool), 1);
}

Tensor* find(TensorFile& file, const std::string& name) {
  for (Tensor& t : file.tensors)
    if (t.name == name) return &t;
  return nullptr;
}

/// The same policy with an embedding whose weights are zero.
Result<TensorFile> with_unread_embedding(const TensorFile& file, SharedPolicyOptions o) {
  o.conditioning = Conditioning::Embedding;
  o.encoder = {EncoderKind::Set, 1, 1, 1, 1, 1e-3};
  FLASH_TRY(const SharedPolicy wider, SharedPolicy::create(o));
  TensorFile out = wider.checkpoint();
  for (const Tensor& from : file.tensors) {
    Tensor* to = find(out, from.name);
    if (to == nullptr) return Error(std::errc::invalid_argument, "an array '" + from.name + "' too many");
    if (from.name != "policy/parameters") {
      *to = from;
      continue;
    }
    // The first layer's weights by rows, one input more in each; the rest as it is.
    const auto inputs = static_cast<std::size_t>(o.state_dim);
    to->values.clear();
    for (std::size_t i = 0; i < from.values.size(); ++i) {
      to->values.push_back(from.values[i]);
      if ((i + 1) % inputs == 0 && i < inputs * static_cast<std::size_t>(o.hidden.front()))
        to->values.push_back(0);
    }
  }
  return out;
}

Result<PolicyModel> alone(const TensorFile& file, Task task, const RewardOptions& reward) {
  FLASH_TRY(const SharedPolicy policy, SharedPolicy::restore(file));
  const SharedPolicyOptions& o = policy.options();
  TensorFile embedding = file;
  if (o.conditioning == Conditioning::None) {
    FLASH_TRY(embedding, with_unread_embedding(file, o));
  }
  FLASH_TRY(const SharedPolicy shipped, SharedPolicy::restore(embedding));
  FLASH_TRY(SeenEmbeddings seen, everything(shipped.context_dim()));
  Rule rule;
  rule.reward = reward;
  return PolicyModel{"a policy alone", space_layout(task_spec(task), rule), shipped.checkpoint(),
                     std::move(seen), UnseenGain{}};
}

}  // namespace

Result<std::shared_ptr<const PretrainedModel>> model_of_policy(const TensorFile& file, Task task,
                                                               const RewardOptions& reward) {
  std::string bytes;
  if (file.kind == "shared-policy") {
    FLASH_TRY(const PolicyModel model, alone(file, task, reward));
    bytes = encode(to_tensor_file(model));
  } else {
    bytes = encode(file);
  }
  FLASH_TRY(PretrainedModel model, PretrainedModel::from_bytes(bytes, task, 0));
  return std::make_shared<const PretrainedModel>(std::move(model));
}

}  // namespace flash
