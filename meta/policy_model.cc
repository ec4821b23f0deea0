#include "meta/policy_model.h"

#include <cmath>
#include <string_view>

#include "core/json.h"

namespace flash {
namespace {

constexpr std::string_view kKind = "policy-model";
constexpr std::string_view kPrefix = "policy/";
constexpr std::size_t kMostText = 256;

Error invalid(std::string message) {
  return Error(std::errc::invalid_argument, "policy model: " + std::move(message));
}

const nlohmann::json* part(const nlohmann::json& from, const char* key) {
  if (!from.is_object()) return nullptr;
  const auto it = from.find(key);
  return it == from.end() ? nullptr : &*it;
}

/// Shown to people and written to the journal: short, and without control characters.
bool plain(const nlohmann::json* j) {
  if (j == nullptr || !j->is_string()) return false;
  const auto& text = j->get_ref<const std::string&>();
  if (text.empty() || text.size() > kMostText) return false;
  for (const unsigned char c : text)
    if (c < 0x20 || c >= 0x7f) return false;
  return true;
}

Result<std::string> text(const nlohmann::json& from, const char* key) {
  const nlohmann::json* j = part(from, key);
  if (!plain(j)) return invalid(std::string("has no ") + key + ", or not a plain text");
  return j->get<std::string>();
}

Result<TensorFile> take_policy(const TensorFile& from) {
  const nlohmann::json* j = part(*from.meta, "policy");
  if (j == nullptr || !j->is_object()) return invalid("has no policy");
  const nlohmann::json *kind = part(*j, "kind"), *format = part(*j, "format"), *meta = part(*j, "meta");
  if (kind == nullptr || !kind->is_string() || format == nullptr || !format->is_number_integer() ||
      meta == nullptr)
    return invalid("policy has no kind, format or meta");
  TensorFile policy;
  policy.kind = kind->get<std::string>();
  policy.format = format->get<int>();
  *policy.meta = *meta;
  for (const Tensor& t : from.tensors) {
    if (!std::string_view(t.name).starts_with(kPrefix)) continue;
    for (float v : t.values)
      if (!std::isfinite(v)) return invalid("array '" + t.name + "' has a number that is not finite");
    policy.tensors.push_back({t.name.substr(kPrefix.size()), t.shape, t.values});
  }
  if (policy.tensors.empty()) return invalid("policy has no arrays");
  return policy;
}

Result<UnseenGain> take_gain(const nlohmann::json& from) {
  const nlohmann::json* j = part(from, "gain");
  const nlohmann::json* pairs = j == nullptr ? nullptr : part(*j, "pairs");
  if (pairs == nullptr || !pairs->is_number_unsigned()) return invalid("has no gain, or one without pairs");
  UnseenGain gain;
  gain.pairs = pairs->get<std::size_t>();
  for (const auto& [key, value] : {std::pair<const char*, double*>{"mean", &gain.mean},
                                   {"lower", &gain.lower},
                                   {"upper", &gain.upper}}) {
    const nlohmann::json* number = part(*j, key);
    if (number == nullptr || !number->is_number() || !(std::abs(number->get<double>()) <= 1e6))
      return invalid(std::string("gain has no ") + key + ", or an impossible one");
    *value = number->get<double>();
  }
  if (!(gain.lower <= gain.mean && gain.mean <= gain.upper))
    return invalid("gain: its mean is not between lower and upper");
  return gain;
}

Result<std::vector<std::string>> take_names(const nlohmann::json& meta, const char* key) {
  const nlohmann::json* names = part(meta, key);
  if (names == nullptr || !names->is_array() || names->empty() || names->size() > kMaxLayoutEntries)
    return invalid(std::string("has no ") + key);
  std::vector<std::string> out;
  for (const auto& name : *names) {
    if (!plain(&name)) return invalid(std::string(key) + ": not a plain text");
    out.push_back(name.get<std::string>());
  }
  return out;
}

/// Files of 0.1.0 say nothing of actions: then they are those of layout_before_named().
Result<SpaceLayout> take_layout(const nlohmann::json& meta, const std::string& task) {
  SpaceLayout layout;
  const auto known = task_from_name(task);
  if (!known) return invalid("is of a task that is not known here, '" + task + "'");
  layout.task = *known;
  FLASH_TRY(layout.reward, text(meta, "reward"));
  FLASH_TRY(layout.state, take_names(meta, "state_names"));
  if (part(meta, "actions") == nullptr) {
    const auto before = layout_before_named(layout.task);
    if (!before) return invalid("has no actions");
    layout.actions = before->actions;
    layout.levels = before->levels;
  } else {
    FLASH_TRY(layout.actions, take_names(meta, "actions"));
    const nlohmann::json* levels = part(meta, "levels");
    if (levels == nullptr || !levels->is_number_integer() || *levels < 0 || *levels > kMaxLayoutEntries)
      return invalid("has no levels, or not a number of them");
    layout.levels = levels->get<std::uint32_t>();
  }
  if (auto sound = layout.check(); !sound) return invalid(sound.error().message());
  return layout;
}

}  // namespace

TensorFile to_tensor_file(const PolicyModel& model) {
  TensorFile file;
  file.kind = kKind;
  *file.meta = {
      {"policy_model_format", kPolicyModelFormat},
      {"task", to_string(model.layout.task)},
      {"model", model.model},
      {"reward", model.layout.reward},
      {"state_names", model.layout.state},
      {"actions", model.layout.actions},
      {"levels", model.layout.levels},
      {"policy",
       {{"kind", model.policy.kind}, {"format", model.policy.format}, {"meta", *model.policy.meta}}},
      {"gain",
       {{"pairs", model.gain.pairs},
        {"mean", model.gain.mean},
        {"lower", model.gain.lower},
        {"upper", model.gain.upper}}}};
  for (Tensor t : model.policy.tensors) {
    t.name.insert(0, kPrefix);
    file.tensors.push_back(std::move(t));
  }
  model.seen.put(file);
  return file;
}

Result<PolicyModel> to_policy_model(const TensorFile& file, const std::string& task) {
  if (file.kind != kKind) return invalid("its kind is '" + file.kind.substr(0, 32) + "'");
  if (!file.meta->is_object()) return invalid("its meta is not an object");
  const nlohmann::json* format = part(*file.meta, "policy_model_format");
  if (format == nullptr || *format != kPolicyModelFormat)
    return invalid("its format is " + (format == nullptr ? "missing" : format->dump().substr(0, 32)) +
                   ", this program reads " + std::to_string(kPolicyModelFormat));
  FLASH_TRY(const std::string its_task, text(*file.meta, "task"));
  if (its_task != task) return invalid("is of task '" + its_task + "', not '" + task + "'");
  FLASH_TRY(std::string model, text(*file.meta, "model"));
  FLASH_TRY(SpaceLayout layout, take_layout(*file.meta, its_task));
  FLASH_TRY(TensorFile policy, take_policy(file));
  FLASH_TRY(const UnseenGain gain, take_gain(*file.meta));
  auto seen = SeenEmbeddings::get(file);
  if (!seen) return invalid(seen.error().message());
  return PolicyModel{std::move(model), std::move(layout), std::move(policy), *std::move(seen), gain};
}

}  // namespace flash
