// Purpose: what a task starts from: the meta learner and the shared base model in one versioned file (FLASH
// 3.3: "the pretrained shared model").
// Ownership: values.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/result.h"
#include "core/tensor_file.h"
#include "meta/similarity.h"

namespace flash {

inline constexpr int kTaskModelFormat = 1;

struct TaskModel {
  std::string task;           // as registered: "resource-limits"
  std::uint64_t version = 1;  // grows with each pretraining of the task
  std::string model;          // lineage for people
  TensorFile meta;            // MetaModel::checkpoint()
  TensorFile base;            // the base learner's, as it writes its own
  std::optional<SeenEmbeddings> seen;
};

/// Kind "task-model": arrays "meta/...", "base/...", "seen".
TensorFile to_tensor_file(const TaskModel& model);
/// EINVAL says what is wrong: another kind or format, another task than `task`, a part that is missing,
/// numbers that are not finite. Whether a part fits its learner is for MetaModel::restore() and the base
/// learner to say.
Result<TaskModel> to_task_model(const TensorFile& file, const std::string& task);

}  // namespace flash
