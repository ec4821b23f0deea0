#include "learner/checkpoints.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "core/json.h"

namespace flash {
namespace {

constexpr const char* kHead = "learner";  // the key in the file's meta that is ours

std::string hash_of(std::string_view key) {
  return sha256_hex(key).substr(0, 32);
}

Result<CheckpointHead> take_head(TensorFile& file) {
  const auto invalid = [](const std::string& what) { return Error(std::errc::invalid_argument, what); };
  if (file.kind != "checkpoint") return invalid("a '" + file.kind.substr(0, 32) + "', not a checkpoint");
  if (!file.meta->is_object() || !file.meta->contains(kHead) || !file.meta[kHead].is_object())
    return invalid("nothing of the learner in it");
  const nlohmann::json& meta = file.meta[kHead];
  CheckpointHead head;
  if (!meta.contains("key") || !meta["key"].is_string()) return invalid("no key");
  head.key = meta["key"].get<std::string>();
  for (auto [name, field] : {std::pair{"version", &head.version}, std::pair{"updates", &head.updates},
                             std::pair{"transitions", &head.transitions}}) {
    if (!meta.contains(name) || !meta[name].is_number_unsigned())
      return invalid(std::string("no number '") + name + "'");
    *field = meta[name].get<std::uint64_t>();
  }
  head.local = meta.contains("local") && meta["local"] == true;
  if (meta.contains("layout")) {
    JsonBox box;
    *box = meta["layout"];
    FLASH_TRY(head.layout, layout_from_json(box));
  }
  file.meta->erase(kHead);
  return head;
}

}  // namespace

Result<Checkpoints> Checkpoints::open(const std::string& state_directory) {
  for (const char* folder : {"/checkpoints", "/policies"}) {
    const std::string path = state_directory + folder;
    if (mkdir(path.c_str(), 0750) != 0 && errno != EEXIST) return Error::from_errno(errno, "mkdir " + path);
  }
  return Checkpoints(state_directory);
}

std::string Checkpoints::checkpoint_path(std::string_view key) const {
  return directory_ + "/checkpoints/" + hash_of(key) + ".tensor";
}

std::string Checkpoints::policy_path(std::string_view key) const {
  return directory_ + "/policies/" + hash_of(key) + ".policy";
}

Result<void> Checkpoints::save(const CheckpointHead& head, TensorFile file) {
  if (directory_.empty()) return {};
  const std::string path = checkpoint_path(head.key);
  file.meta[kHead] = {{"key", head.key},
                      {"version", head.version},
                      {"updates", head.updates},
                      {"transitions", head.transitions},
                      {"local", head.local}};
  if (head.layout) file.meta[kHead]["layout"] = *layout_to_json(*head.layout);
  if (!distrusted_.contains(path)) {
    // A second name for the good one, put in place by rename: at no moment is there none.
    const std::string second = path + ".second";
    unlink(second.c_str());
    if (::link(path.c_str(), second.c_str()) == 0) {
      if (rename(second.c_str(), (path + ".previous").c_str()) != 0)
        return Error::from_errno(errno, "rename " + second);
      unlink(second.c_str());  // rename() between two names of one file does nothing and leaves both
    } else if (errno != ENOENT) {
      return Error::from_errno(errno, "link " + path);
    }
  }
  FLASH_CHECK(write_tensor_file(path, file));
  distrusted_.erase(path);
  return {};
}

std::vector<LoadedCheckpoint> Checkpoints::load(const std::string& key,
                                                std::vector<std::string>& problems) const {
  std::vector<LoadedCheckpoint> out;
  if (directory_.empty()) return out;
  const std::string path = checkpoint_path(key);
  for (const std::string& candidate : {path, path + ".previous"}) {
    auto file = read_tensor_file(candidate);
    if (!file) {
      if (!file.error().is(std::errc::no_such_file_or_directory))
        problems.push_back(candidate + ": " + file.error().message());
      continue;
    }
    auto head = take_head(*file);
    if (!head) {
      problems.push_back(candidate + ": " + head.error().message());
      continue;
    }
    if (head->key != key) {
      problems.push_back(candidate + ": belongs to another agent");
      continue;
    }
    out.push_back({std::move(*head), std::move(*file)});
  }
  return out;
}

void Checkpoints::distrust(const std::string& key) {
  distrusted_.insert(checkpoint_path(key));
}

Result<void> Checkpoints::save_policy(const std::string& key, const TensorFile& policy) {
  if (directory_.empty()) return {};
  return write_tensor_file(policy_path(key), policy);
}

std::uint64_t Checkpoints::policy_version(const std::string& key) const {
  if (directory_.empty()) return 0;
  auto file = read_tensor_file(policy_path(key));
  if (!file) return 0;
  auto policy = to_policy(*file);
  return policy ? policy->version : 0;
}

std::size_t Checkpoints::drop_unused(const std::set<std::string>& keys, std::int64_t before_us) const {
  if (directory_.empty()) return 0;
  std::set<std::string> used;
  for (const std::string& key : keys) used.insert(hash_of(key));
  std::size_t dropped = 0;
  for (const char* folder : {"/checkpoints", "/policies"}) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(directory_ + folder, ignored)) {
      const std::string name = entry.path().filename().string();
      struct stat st = {};
      if (used.contains(name.substr(0, 32)) || lstat(entry.path().c_str(), &st) != 0 || !S_ISREG(st.st_mode))
        continue;
      if (static_cast<std::int64_t>(st.st_mtim.tv_sec) * 1'000'000 >= before_us) continue;
      if (unlink(entry.path().c_str()) == 0) ++dropped;
    }
  }
  return dropped;
}

}  // namespace flash
