// Purpose: what a cgroup's path says: which container, which systemd unit, and who may write its files. It is
// read by structure and from the outermost folder inwards, because whoever owns a folder names what is below.
// Ownership: CgroupIdentifier keeps copies of what it needs.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/target.h"
#include "host/cgroup_layout.h"
#include "host/container_names.h"
#include "host/host_root.h"

namespace flash {

/// The container whose own cgroup this is; runtime is empty if it is none. Cgroups below a container's (its
/// init.scope, podman's "container") are not the container again. Known by the last component, wherever it
/// stands (ID: 64 hexadecimal digits):
///   ENGINE-ID.scope, ENGINE-ID    docker, libpod and libpod-payload (podman), cri-containerd and nerdctl
///                                 (containerd), crio; another ENGINE: runtime "unknown"
///   SLICE:ENGINE:ID               runc's name of a scope, taken for a folder
///   ID, ID.scope                  docker below a folder "docker", containerd below a pod; else "unknown"
///   lxc.payload.NAME, /lxc/NAME   lxc
/// pod_uid from "pod<uid>" or "...-pod<uid with underscores>.slice" above it. name is the short id.
Container container_of(std::string_view path);

/// The systemd unit that a cgroup of this name is (*.service, *.scope, *.slice, ..., unescaped); empty if
/// none, also for cgroups below a unit.
std::string unit_of(std::string_view path);

/// Path of the unit of the system's manager that the cgroup belongs to: the first component that is a service
/// or scope, with the slices above it. Empty: none. "/system.slice/a.service/b" gives
/// "/system.slice/a.service". (Units inside user@1000.service belong to another manager.)
std::string_view system_unit_path(std::string_view path);

/// A pod, a container of a kubelet, what holds pods, or below one of these, whatever the kubelet's cgroup
/// root is called: a slice or folder with "kubepods" in its name, a pod's uid, what only a CRI engine names.
bool is_kubelets(std::string_view path);

/// Who may write a cgroup, and why that cannot be told.
struct Ownership {
  CgroupOwner owner = CgroupOwner::Unmanaged;
  std::string doubt;      // Unknown only, as in Target
  std::string spell_out;  // Unknown only, as in Target
  bool inside = false;    // in a container or below another service manager: no engine of the system's has it
};

class CgroupIdentifier {
 public:
  CgroupIdentifier(const HostRoot& root, const CgroupLayout& layout);

  /// A Target with identity, name (container's name, unit or path), container, unit and owner.
  /// `application` and `rule` are left to the caller. Reads what the engine keeps of a container. `foreign`
  /// (CgroupEvent): whoever may create cgroups there gives them any name, so that it is no unit and no
  /// container, whatever it is called.
  Target describe(std::string_view path, std::uint64_t inode, bool foreign = false);

  /// By the path and systemd's mark of delegation alone.
  Ownership owner_of(std::string_view path) const;
  /// sd_booted(3): /run/systemd/system exists.
  bool systemd_running() const { return systemd_running_; }
  /// Where names of a runtime's containers are looked for, for people.
  std::string names_places(std::string_view runtime) const { return names_.places(runtime); }

 private:
  Ownership owner_of(std::string_view path, const Container& container) const;
  Ownership owner_but_kubelet(std::string_view path, const Container& container) const;
  bool delegated(std::string_view unit_path) const;

  ContainerNames names_;
  std::string delegation_mount_;  // where systemd marks Delegate=yes by an extended attribute
  bool systemd_running_ = false;
};

}  // namespace flash
