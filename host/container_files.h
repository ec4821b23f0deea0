// Purpose: what container engines keep on disk of their containers, as pure parsers. All of it is JSON (two
// files are TOML, of which one key is read) and comes from outside: what is malformed says nothing.
// Ownership: values.
// Thread rule: pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace flash {

/// What an engine says of one container.
struct ContainerRecord {
  std::string name;      // may be empty: the engine gave it none
  std::string pod_uid;   // Kubernetes only
  bool in_pod = false;   // made for a kubelet
  std::string manager;   // OCI configuration: "io.container.manager" ("libpod", "cri-o")
  std::string cgroup;    // OCI configuration: linux.cgroupsPath
  std::string data_dir;  // OCI configuration of docker: the directory of its config.v2.json
};

/// docker's config.v2.json. "Name" has a slash in front.
std::optional<ContainerRecord> docker_container(std::string_view json);
/// The OCI configuration (config.json) that containerd, CRI-O and podman leave beside a running container.
std::optional<ContainerRecord> oci_container(std::string_view json);
/// containers.json of containers/storage (podman, CRI-O): ids and the first name of each.
std::optional<std::unordered_map<std::string, std::string>> storage_names(std::string_view json);

/// "data-root" (before docker 17.05 "graph") of docker's daemon.json; empty if it has none.
std::optional<std::string> docker_data_root(std::string_view json);
/// A text at the top level of a TOML file, or in `table`: graphroot of storage.conf, state of containerd's
/// config.toml. nullopt: it is not there, or not an absolute path.
std::optional<std::string> toml_path(std::string_view toml, std::string_view table, std::string_view key);

/// [a-zA-Z0-9][a-zA-Z0-9_.-]*, at most 253: what docker, podman and Kubernetes take for a name.
bool is_container_name(std::string_view text);
/// An absolute path without "..".
bool is_plain_path(std::string_view text);

}  // namespace flash
