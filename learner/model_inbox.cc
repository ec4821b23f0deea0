#include "learner/model_inbox.h"

#include <sys/stat.h>

#include <algorithm>
#include <sstream>

#include "link/model_manifest.h"

namespace flash {
namespace {

constexpr std::size_t kMostAccepted = 1024;  // bytes of the file

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

/// Lines of a task and three numbers, in any order; of a task without a line nothing was accepted yet.
Result<void> ModelInbox::load_accepted() {
  const auto text = link::read_whole_file(options_.accepted, kMostAccepted);
  if (!text && text.error().is(std::errc::no_such_file_or_directory)) return {};
  if (!text) return text.error();
  const auto unclear = [this](const std::string& why) {
    return Error(std::errc::bad_message, options_.accepted + " does not say which models were accepted (" +
                                             why +
                                             "): models of the fleet are taken again when it is removed");
  };
  std::istringstream in(*text);
  std::string line;
  std::size_t lines = 0;
  for (; std::getline(in, line); ++lines) {
    const std::string at = "line " + std::to_string(lines + 1);
    std::istringstream words(line);
    std::string name, more;
    Accepted a;
    if (!(words >> name >> a.highest >> a.before >> a.used) || words >> more)
      return unclear(at + " is not a task and three numbers");
    const auto task = task_from_name(name);
    if (!task) return unclear(at + " names no task that is known here");
    accepted_[task->index()] = a;
  }
  if (lines == 0) return unclear("it is empty");
  return {};
}

Result<void> ModelInbox::save_accepted() const {
  std::string text;
  for (const Task task : known_tasks()) {
    const Accepted& a = accepted_[task.index()];
    text += std::string(to_string(task)) + ' ' + std::to_string(a.highest) + ' ' + std::to_string(a.before) +
            ' ' + std::to_string(a.used) + '\n';
  }
  return link::write_whole_file(options_.accepted, text);
}

Result<void> ModelInbox::not_older(Task task, std::uint64_t version) const {
  if (!trouble_.empty()) return Error(std::errc::bad_message, trouble_);
  const Accepted& a = accepted_[task.index()];
  if (version >= a.highest || version == a.before) return {};
  return Error(std::errc::permission_denied, "version " + std::to_string(version) +
                                                 " is older than version " + std::to_string(a.highest) +
                                                 ", which was accepted here");
}

void ModelInbox::accepted(Task task, std::uint64_t version) {
  const std::size_t i = task.index();
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
  for (const Task task : known_tasks()) {
    const std::size_t i = task.index();
    const std::string base = options_.directory + "/" + std::string(to_string(task));
    const std::string current = base + ".signed", previous = base + ".previous.signed";
    const std::string mark = mark_of(current);
    if (mark == seen_[i]) continue;
    seen_[i] = mark;
    auto keys = read_trusted_keys(options_.keys);
    if (!keys) {
      say_({LOG_WARNING, kMessageModel, "no model of the fleet is used: " + keys.error().message(), {}});
      keys = std::vector<TrustedKey>();
    }
    Found f{task, {}};
    for (const std::string& path : {current, previous})
      if (!mark.empty())
        if (auto model = read(path, task, *keys)) f.models.push_back(std::move(model));
    offered_[i].clear();
    for (const auto& model : f.models) offered_[i].push_back(model->version());
    found.push_back(std::move(f));
  }
  return found;
}

}  // namespace flash
