#include "lab/pretrain/imitation_progress.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "core/json.h"

namespace flash {
namespace {

constexpr std::string_view kKind = "imitation-progress";
constexpr int kFormat = 1;
constexpr const char* kMoments[] = {"/m", "/v"};  // of an optimiser, core to agents/net.h put()

std::string prefix_of(int round) {
  return std::to_string(round) + "/";
}

}  // namespace

Result<ImitationFile> ImitationFile::open(const ImitationOptions& o, std::size_t pairs, Task task) {
  ImitationFile f;
  f.path_ = o.progress_file;
  f.file_.kind = kKind;
  f.file_.format = kFormat;
  const nlohmann::json run = {{"task", to_string(task)},
                              {"pairs", pairs},
                              {"seed", o.seed},
                              {"conditioning", to_string(o.conditioning)},
                              {"all_rounds", o.rounds},
                              {"steps", o.steps},
                              {"updates", o.updates},
                              {"as_drawn", o.as_drawn},
                              {"pairs_per_update", o.pairs_per_update},
                              {"rows_per_pair", o.rows_per_pair}};
  f.file_.meta["run"] = run;
  if (f.path_.empty() || !std::filesystem::exists(f.path_)) return f;
  FLASH_TRY(TensorFile read, read_tensor_file(f.path_));
  const auto bad = [&](const std::string& what) {
    return Error(std::errc::invalid_argument, f.path_ + ": " + what);
  };
  if (read.kind != kKind || read.format != kFormat || !read.meta->is_object())
    return bad("not the progress of an imitation");
  const nlohmann::json theirs = read.meta->value("run", nlohmann::json::object());
  for (const auto& [key, value] : run.items())
    if (!theirs.is_object() || !theirs.contains(key) || theirs[key] != value)
      return bad("its " + key + " is another than " + value.dump());
  const nlohmann::json rounds = read.meta->value("rounds", nlohmann::json::array());
  if (!rounds.is_array() || rounds.size() > static_cast<std::size_t>(o.rounds))
    return bad("rounds are missing or too many");
  f.file_ = std::move(read);
  f.rounds_ = static_cast<int>(rounds.size());
  return f;
}

Result<SharedPolicy> ImitationFile::after(int round) const {
  TensorFile one;
  one.kind = "shared-policy";
  *one.meta = file_.meta["rounds"][static_cast<std::size_t>(round - 1)];
  const std::string prefix = prefix_of(round);
  for (const Tensor& t : file_.tensors)
    if (t.name.starts_with(prefix)) one.tensors.push_back({t.name.substr(prefix.size()), t.shape, t.values});
  auto policy = SharedPolicy::restore(one);
  if (!policy) return Error(std::errc::invalid_argument, path_ + ": " + policy.error().message());
  return policy;
}

Result<void> ImitationFile::add(const SharedPolicy& policy) {
  if (path_.empty()) return {};
  // Of earlier rounds the optimisers are of no use any more.
  std::erase_if(file_.tensors, [](const Tensor& t) {
    return std::any_of(std::begin(kMoments), std::end(kMoments),
                       [&](const char* end) { return t.name.ends_with(end); });
  });
  ++rounds_;
  TensorFile one = policy.checkpoint(true);
  file_.meta["rounds"].push_back(std::move(*one.meta));
  for (Tensor& t : one.tensors)
    file_.tensors.push_back({prefix_of(rounds_) + t.name, std::move(t.shape), std::move(t.values)});
  return write_tensor_file(path_, file_);
}

}  // namespace flash
