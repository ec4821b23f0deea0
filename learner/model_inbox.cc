#include "learner/model_inbox.h"

#include <sys/stat.h>

#include <algorithm>
#include <sstream>

#include "link/model_manifest.h"

namespace flash {
namespace {

constexpr std::array kTasks = {Task::ResourceLimits, Task::CpuFrequency};
constexpr std::size_t kMostAccepted = 1024;  // bytes of the file

std::size_t index_of(Task task) {
  return task == kTasks[0] ? 0 : 1;
}

/// Changes when the file does; empty: there is none.
std::string mark_of(const std::string& path) {
  struct stat s {};
  if (stat(path.c_str(), &s) != 0) return {};
  return std::to_string(s.st_ino) + " " + std::to_string(s.st_size) + " " + std::to_string(s.st_mtim.tv_sec) +
         "." + std::to_string(s.st_mtim.tv_nsec);
}

}  // namespace

ModelInbox::ModelInbox(ModelInboxOptions options, LogSink say)
    : options_(std::move(options)), say_(std::move(say)) {
  if (auto loaded = load_accepted(); !loaded) trouble_ = loaded.error().message();
}

/// Lines of a task and three numbers, of each task one.
Result<void> ModelInbox::load_accepted() {
  const auto text = link::read_whole_file(options_.accepted, kMostAccepted);
  if (!text && text.error().is(std::errc::no_such_file_or_directory)) return {};
  if (!text) return text.error();
  std::istringstream in(*text);
  for (std::size_t i = 0; i < kTasks.size(); ++i) {
    std::string name;
    Accepted& a = accepted_[i];
    if (!(in >> name >> a.highest >> a.before >> a.used) || name != to_string(kTasks[i]))
      return Error(std::errc::bad_message,
                   options_.accepted +
                       " does not say which models were accepted: models of the fleet "
                       "are taken again when it is removed");
  }
  return {};
}

Result<void> ModelInbox::save_accepted() const {
  std::string text;
  for (std::size_t i = 0; i < kTasks.size(); ++i)
    text += std::string(to_string(kTasks[i])) + ' ' + std::to_string(accepted_[i].highest) + ' ' +
            std::to_string(accepted_[i].before) + ' ' + std::to_string(accepted_[i].used) + '\n';
  return link::write_whole_file(options_.accepted, text);
}

Result<void> ModelInbox::not_older(Task task, std::uint64_t version) const {
  if (!trouble_.empty()) return Error(std::errc::bad_message, trouble_);
  const Accepted& a = accepted_[index_of(task)];
  if (version >= a.highest || version == a.before) return {};
  return Error(std::errc::permission_denied, "version " + std::to_string(version) +
                                                 " is older than version " + std::to_string(a.highest) +
                                                 ", which was accepted here");
}

void ModelInbox::accepted(Task task, std::uint64_t version) {
  const std::size_t i = index_of(task);
  Accepted& a = accepted_[i];
  if (version == a.used || !trouble_.empty()) return;
  if (version > a.highest) {
    a.highest = version;
    // Another one may have come and gone since the last look: flash-sync goes back to that.
    a.before = a.used;
    for (const std::uint64_t other : offered_[i])
      if (other < version) a.before = std::max(a.before, other);
  }
  a.used = version;
  if (auto saved = save_accepted(); !saved)
    say_({LOG_WARNING,
          kMessageModel,
          "which models were accepted will be forgotten: " + saved.error().message(),
          {}});
}

std::shared_ptr<const PretrainedModel> ModelInbox::read(const std::string& path, Task task,
                                                        const std::vector<TrustedKey>& keys) {
  const auto read_signed = [&]() -> Result<PretrainedModel> {
    FLASH_TRY(const std::string bytes, link::read_whole_file(path, link::kMaxSignedBytes));
    FLASH_TRY(const link::SignedModel file, link::decode_signed(bytes));
    FLASH_TRY(const link::ModelManifest manifest, link::verify_signed(file, keys, options_.software));
    FLASH_CHECK(not_older(task, manifest.version));
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
    offered_[i].clear();
    for (const auto& model : f.models) offered_[i].push_back(model->version());
    found.push_back(std::move(f));
  }
  return found;
}

}  // namespace flash
