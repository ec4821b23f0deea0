// Purpose: what is known of a container by its engine's own files: its name, its pod, which engine it is. A
// few small files are read when a container appears, none in a tick. Only the system's engines are asked:
// an unprivileged user's engine keeps its files in that user's home, where they can hold anything.
// Ownership: keeps the names of the last containers.json that it read.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "host/container_files.h"
#include "host/host_root.h"

namespace flash {

struct KnownContainer {
  std::string runtime;  // "docker", "podman", "containerd", "crio"
  ContainerRecord record;
};

class ContainerNames {
 public:
  explicit ContainerNames(const HostRoot& root) : root_(root) {}

  /// `runtime` as the path tells it; "unknown": each engine is asked. nullopt: none of them has a record.
  std::optional<KnownContainer> find(std::string_view runtime, std::string_view id);
  /// The container of containerd (`ctr run`) whose cgroup this is: its id need not be 64 digits.
  std::optional<KnownContainer> find_by_cgroup(std::string_view cgroup);

  /// Where find() looks, for people: "/srv/docker/containers, ...".
  std::string places(std::string_view runtime) const;

 private:
  struct Storage {
    std::string file;  // what was read
    std::uint64_t inode = 0, size = 0;
    std::int64_t changed_ns = 0;
    std::unordered_map<std::string, std::string> names;
  };

  std::vector<std::string> docker_roots() const;
  std::vector<std::string> containerd_states() const;
  std::vector<std::string> storage_directories() const;
  std::optional<KnownContainer> of_docker(std::string_view id) const;
  std::optional<KnownContainer> of_containerd(std::string_view id) const;
  std::optional<KnownContainer> of_storage(std::string_view id);
  /// The first name of the id in directory/{containers,volatile-containers}.json.
  std::string storage_name(const std::string& directory, std::string_view id);
  Result<std::string> read(const std::string& path, std::size_t limit) const;

  HostRoot root_;
  std::vector<Storage> storages_;
};

}  // namespace flash
