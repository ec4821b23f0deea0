// Purpose: what a cgroup's path says: which container, which systemd unit, and who may write its files.
// Ownership: CgroupIdentifier keeps copies of what it needs. Thread rule: const methods share no state.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/target.h"
#include "host/cgroup_layout.h"
#include "host/host_root.h"

namespace flash {

/// The container whose own cgroup this is; runtime is empty if it is none. Cgroups below a container's (its
/// init.scope, podman's "container") are not the container again. Known forms of the last component (ID: 64
/// hexadecimal digits):
///   docker-ID.scope, docker/ID                        docker
///   libpod-ID.scope, libpod_parent/libpod-ID          podman
///   cri-containerd-ID.scope, nerdctl-ID.scope, SLICE:cri-containerd:ID, pod.../ID   containerd
///   crio-ID.scope, crio-ID                            crio
/// pod_uid from "pod<uid>" or "...-pod<uid with underscores>.slice" above it. name is the short id.
Container container_of(std::string_view path);

/// The systemd unit whose own cgroup this is (*.service, *.scope, *.slice, ..., unescaped); empty if none,
/// also for cgroups below a unit.
std::string unit_of(std::string_view path);

/// Path of the unit of the system's manager that the cgroup belongs to: the first component that is a service
/// or scope, with the slices above it. Empty: none. "/system.slice/a.service/b" gives
/// "/system.slice/a.service". (Units inside user@1000.service belong to another manager.)
std::string_view system_unit_path(std::string_view path);

/// Below (or itself) a kubelet's kubepods cgroup.
bool below_kubepods(std::string_view path);

/// Name of a docker container from its config.v2.json: the one "Name" that starts with a slash. Pure.
std::optional<std::string> docker_name(std::string_view config_json);

class CgroupIdentifier {
 public:
  CgroupIdentifier(const HostRoot& root, const CgroupLayout& layout);

  /// A Target with identity, name (container's name, unit or path), container, unit and owner.
  /// `application` and `rule` are left to the caller.
  Target describe(std::string_view path, std::uint64_t inode) const;

  CgroupOwner owner_of(std::string_view path) const;
  /// sd_booted(3): /run/systemd/system exists.
  bool systemd_running() const { return systemd_running_; }

 private:
  bool delegated(std::string_view unit_path) const;

  HostRoot root_;
  std::string delegation_mount_;  // where systemd marks Delegate=yes by an extended attribute
  bool systemd_running_ = false;
};

}  // namespace flash
