#include "learner/model_inbox.h"

#include <sys/stat.h>

#include "link/model_manifest.h"

namespace flash {
namespace {

constexpr std::array kTasks = {Task::ResourceLimits, Task::CpuFrequency};

/// Changes when the file does; empty: there is none.
std::string mark_of(const std::string& path) {
  struct stat s {};
  if (stat(path.c_str(), &s) != 0) return {};
  return std::to_string(s.st_ino) + " " + std::to_string(s.st_size) + " " + std::to_string(s.st_mtim.tv_sec) +
         "." + std::to_string(s.st_mtim.tv_nsec);
}

}  // namespace

std::shared_ptr<const PretrainedModel> ModelInbox::read(const std::string& path, Task task,
                                                        const std::vector<TrustedKey>& keys) {
  const auto read_signed = [&]() -> Result<PretrainedModel> {
    FLASH_TRY(const std::string bytes, link::read_whole_file(path, link::kMaxSignedBytes));
    FLASH_TRY(const link::SignedModel file, link::decode_signed(bytes));
    FLASH_TRY(const link::ModelManifest manifest, link::verify_signed(file, keys, options_.software));
    return PretrainedModel::from_bytes(file.model, task, manifest.version);
  };
  auto model = read_signed();
  if (model) return std::make_shared<const PretrainedModel>(*std::move(model));
  if (model.error().is(std::errc::no_such_file_or_directory)) return nullptr;
  ++refused_;
  say_({LOG_WARNING, kMessageModel, path + " is not used: " + model.error().message(), {}});
  return nullptr;
}

std::vector<ModelInbox::Found> ModelInbox::look() {
  std::vector<Found> found;
  for (std::size_t i = 0; i < kTasks.size(); ++i) {
    const std::string base = options_.directory + "/" + std::string(to_string(kTasks[i]));
    const std::string current = base + ".signed", previous = base + ".previous.signed";
    const std::string mark = mark_of(current);
    if (mark == seen_[i]) continue;
    seen_[i] = mark;
    auto keys = read_trusted_keys(options_.keys);
    if (!keys) {
      say_({LOG_WARNING, kMessageModel, "no model of the fleet is used: " + keys.error().message(), {}});
      keys = std::vector<TrustedKey>();
    }
    Found f{kTasks[i], {}};
    for (const std::string& path : {current, previous})
      if (!mark.empty())
        if (auto model = read(path, kTasks[i], *keys)) f.models.push_back(std::move(model));
    found.push_back(std::move(f));
  }
  return found;
}

}  // namespace flash
