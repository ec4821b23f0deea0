#include "host/container_names.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "host/file_io.h"

namespace flash {
namespace {

constexpr std::size_t kConfigLimit = 1 << 20;    // an engine's configuration, one container's
constexpr std::size_t kStorageLimit = 16 << 20;  // all containers of a host
constexpr std::size_t kMaxNamespaces = 64;
constexpr std::string_view kTasks = "/io.containerd.runtime.v2.task";

void add(std::vector<std::string>& all, std::string text) {
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  if (std::find(all.begin(), all.end(), text) == all.end()) all.push_back(std::move(text));
}

}  // namespace

Result<std::string> ContainerNames::read(const std::string& path, std::size_t limit) const {
  return read_file(root_.path(path), limit);
}

std::vector<std::string> ContainerNames::docker_roots() const {
  std::vector<std::string> roots;
  for (const char* path : {"/etc/docker/daemon.json", "/var/snap/docker/current/config/daemon.json"})
    if (auto text = read(path, kConfigLimit))
      if (auto root = docker_data_root(*text); root && !root->empty()) add(roots, std::move(*root));
  add(roots, "/var/lib/docker");
  add(roots, "/var/snap/docker/common/var-lib-docker");
  return roots;
}

std::vector<std::string> ContainerNames::containerd_states() const {
  std::vector<std::string> states;
  if (auto text = read("/etc/containerd/config.toml", kConfigLimit))
    if (auto state = toml_path(*text, "", "state")) add(states, std::move(*state));
  add(states, "/run/containerd");
  add(states, "/run/docker/containerd/daemon");
  add(states, "/run/k3s/containerd");
  add(states, "/run/k0s/containerd");
  add(states, "/run/snap.docker/containerd/daemon");
  add(states, "/var/snap/microk8s/common/run/containerd");
  return states;
}

std::vector<std::string> ContainerNames::storage_directories() const {
  std::vector<std::string> roots;
  for (const char* path : {"/etc/containers/storage.conf", "/usr/share/containers/storage.conf"})
    if (auto text = read(path, kConfigLimit))
      for (const char* key : {"runroot", "graphroot"})
        if (auto root = toml_path(*text, "storage", key)) add(roots, std::move(*root));
  add(roots, "/run/containers/storage");
  add(roots, "/var/lib/containers/storage");
  std::vector<std::string> directories;
  for (const auto& root : roots)
    for (const char* driver : {"overlay", "vfs", "btrfs", "zfs"})
      if (auto path = root + "/" + driver + "-containers"; exists(root_.path(path))) add(directories, path);
  if (directories.empty())
    for (const auto& root : roots) add(directories, root + "/overlay-containers");
  return directories;
}

std::optional<KnownContainer> ContainerNames::of_docker(std::string_view id) const {
  const auto from = [&](const std::string& directory) -> std::optional<KnownContainer> {
    if (auto text = read(directory + "/config.v2.json", kConfigLimit))
      if (auto record = docker_container(*text)) return KnownContainer{"docker", std::move(*record)};
    return std::nullopt;
  };
  for (const auto& root : docker_roots())
    if (auto found = from(root + "/containers/" + std::string(id))) return found;
  // Wherever else docker keeps its data (--data-root, user namespaces): it is mounted in the container.
  for (const auto& state : containerd_states()) {
    const auto text =
        read(state + std::string(kTasks) + "/moby/" + std::string(id) + "/config.json", kConfigLimit);
    if (!text) continue;
    const auto oci = oci_container(*text);
    if (!oci || oci->data_dir.empty()) continue;
    if (auto found = from(oci->data_dir)) return found;
  }
  return std::nullopt;
}

std::optional<KnownContainer> ContainerNames::of_containerd(std::string_view id) const {
  for (const auto& state : containerd_states()) {
    const std::string tasks = state + std::string(kTasks);
    std::error_code error;
    std::size_t seen = 0;
    // An iterator that fails is the end.
    for (std::filesystem::directory_iterator it(root_.path(tasks), error), end; !error && it != end;
         it.increment(error)) {
      if (++seen > kMaxNamespaces) break;
      const std::string space = it->path().filename().string();
      if (space == "moby") continue;  // docker's
      auto text = read(tasks + "/" + space + "/" + std::string(id) + "/config.json", kConfigLimit);
      if (!text) continue;
      auto record = oci_container(*text);
      if (!record) continue;
      if (space == "k8s.io") record->in_pod = true;
      return KnownContainer{"containerd", std::move(*record)};
    }
  }
  return std::nullopt;
}

std::optional<KnownContainer> ContainerNames::find_by_cgroup(std::string_view cgroup) {
  const auto slash = cgroup.rfind('/');
  if (slash == std::string_view::npos || slash == 0) return std::nullopt;
  const auto above = cgroup.substr(0, slash);
  const std::string space(above.substr(above.rfind('/') + 1));
  const std::string id(cgroup.substr(slash + 1));
  if (!is_container_name(space) || !is_container_name(id)) return std::nullopt;
  for (const auto& state : containerd_states()) {
    auto text = read(state + std::string(kTasks) + "/" + space + "/" + id + "/config.json", kConfigLimit);
    if (!text) continue;
    auto record = oci_container(*text);
    if (!record || record->cgroup != cgroup) continue;
    return KnownContainer{"containerd", std::move(*record)};
  }
  return std::nullopt;
}

std::string ContainerNames::storage_name(const std::string& directory, std::string_view id) {
  for (const char* name : {"/containers.json", "/volatile-containers.json"}) {
    const std::string file = directory + name;
    struct stat st {};
    if (::stat(root_.path(file).c_str(), &st) != 0) continue;
    auto kept =
        std::find_if(storages_.begin(), storages_.end(), [&](const Storage& s) { return s.file == file; });
    if (kept == storages_.end()) kept = storages_.insert(storages_.end(), {file, 0, 0, 0, {}});
    const std::int64_t changed = st.st_mtim.tv_sec * std::int64_t{1000000000} + st.st_mtim.tv_nsec;
    if (kept->inode != st.st_ino || kept->size != static_cast<std::uint64_t>(st.st_size) ||
        kept->changed_ns != changed) {
      *kept = {file, st.st_ino, static_cast<std::uint64_t>(st.st_size), changed, {}};
      if (auto text = read(file, kStorageLimit))
        if (auto names = storage_names(*text)) kept->names = std::move(*names);
    }
    if (const auto found = kept->names.find(std::string(id)); found != kept->names.end())
      return found->second;
  }
  return {};
}

std::optional<KnownContainer> ContainerNames::of_storage(std::string_view id) {
  std::optional<KnownContainer> found;
  for (const auto& directory : storage_directories()) {
    if (!found)
      if (auto text = read(directory + "/" + std::string(id) + "/userdata/config.json", kConfigLimit))
        if (auto record = oci_container(*text)) {
          const bool crio = record->manager == "cri-o" || record->in_pod;
          found = {crio ? "crio" : "podman", std::move(*record)};
        }
    if (found && !found->record.name.empty()) return found;
    if (auto name = storage_name(directory, id); !name.empty()) {
      if (!found) found = {name.starts_with("k8s_") ? "crio" : "podman", {}};
      found->record.name = std::move(name);
      return found;
    }
  }
  return found;
}

std::optional<KnownContainer> ContainerNames::find(std::string_view runtime, std::string_view id) {
  const bool any = runtime == "unknown";
  std::optional<KnownContainer> found;
  if (any || runtime == "docker") found = of_docker(id);
  if (!found && (any || runtime == "containerd")) found = of_containerd(id);
  if (!found && (any || runtime == "podman" || runtime == "crio")) found = of_storage(id);
  return found;
}

std::string ContainerNames::places(std::string_view runtime) const {
  std::vector<std::string> all;
  const bool any = runtime == "unknown";
  if (any || runtime == "docker")
    for (const auto& root : docker_roots()) all.push_back(root + "/containers");
  if (any || runtime == "docker" || runtime == "containerd")
    for (const auto& state : containerd_states())
      if (exists(root_.path(state)) || state == "/run/containerd") all.push_back(state);
  if (any || runtime == "podman" || runtime == "crio")
    for (auto& directory : storage_directories()) all.push_back(std::move(directory));
  std::string words;
  for (const auto& place : all) words += (words.empty() ? "" : ", ") + place;
  return words;
}

}  // namespace flash
