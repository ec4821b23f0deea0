#include "lab/pretrain/checkpoint.h"

#include <cmath>
#include <string_view>

#include "core/json.h"

namespace flash {
namespace {

constexpr std::string_view kKind = "task-model";

Error invalid(std::string message) {
  return Error(std::errc::invalid_argument, "task model: " + std::move(message));
}

void add(TensorFile& to, const char* name, const TensorFile& part) {
  to.meta[name] = {{"kind", part.kind}, {"format", part.format}, {"meta", *part.meta}};
  for (Tensor t : part.tensors) {
    t.name = std::string(name) + "/" + t.name;
    to.tensors.push_back(std::move(t));
  }
}

Result<TensorFile> take(const TensorFile& from, const std::string& name) {
  const auto it = from.meta->find(name);
  if (it == from.meta->end() || !it->is_object()) return invalid("has no " + name);
  TensorFile part;
  const auto kind = it->find("kind"), format = it->find("format"), meta = it->find("meta");
  if (kind == it->end() || !kind->is_string() || format == it->end() || !format->is_number_integer() ||
      meta == it->end())
    return invalid(name + " has no kind, format or meta");
  part.kind = kind->get<std::string>();
  part.format = format->get<int>();
  *part.meta = *meta;
  const std::string prefix = name + "/";
  for (const Tensor& t : from.tensors) {
    if (!std::string_view(t.name).starts_with(prefix)) continue;
    for (float v : t.values)
      if (!std::isfinite(v)) return invalid("array '" + t.name + "' has a number that is not finite");
    part.tensors.push_back({t.name.substr(prefix.size()), t.shape, t.values});
  }
  if (part.tensors.empty()) return invalid(name + " has no arrays");
  return part;
}

}  // namespace

TensorFile to_tensor_file(const TaskModel& model) {
  TensorFile file;
  file.kind = kKind;
  *file.meta = {{"task_model_format", kTaskModelFormat},
                {"task", model.task},
                {"version", model.version},
                {"model", model.model}};
  add(file, "meta", model.meta);
  add(file, "base", model.base);
  if (model.seen) model.seen->put(file);
  return file;
}

Result<TaskModel> to_task_model(const TensorFile& file, const std::string& task) {
  if (file.kind != kKind) return invalid("its kind is '" + file.kind + "'");
  if (!file.meta->is_object()) return invalid("its meta is not an object");
  const auto format = file.meta->find("task_model_format");
  if (format == file.meta->end() || *format != kTaskModelFormat)
    return invalid("its format is " + (format == file.meta->end() ? "missing" : format->dump()) +
                   ", this program reads " + std::to_string(kTaskModelFormat));
  TaskModel model;
  const auto text = [&](const char* key) {
    const auto it = file.meta->find(key);
    return it != file.meta->end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  model.task = text("task");
  if (model.task != task) return invalid("is of task '" + model.task + "', not '" + task + "'");
  model.model = text("model");
  const auto version = file.meta->find("version");
  if (version == file.meta->end() || !version->is_number_unsigned() || version->get<std::uint64_t>() == 0)
    return invalid("has no version");
  model.version = version->get<std::uint64_t>();
  FLASH_TRY(model.meta, take(file, "meta"));
  FLASH_TRY(model.base, take(file, "base"));
  if (file.find("seen") != nullptr) {
    FLASH_TRY(model.seen, SeenEmbeddings::get(file));
  }
  return model;
}

}  // namespace flash
