// Purpose: which cgroup hierarchy serves which controller: unified (v2), legacy (v1) or hybrid hosts, where
// v1 controllers are mounted one by one and a cgroup2 mount without controllers may stand beside them.
// Ownership: value.
// Thread rule: immutable once detected.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"
#include "host/host_root.h"

namespace flash {

enum class CgroupVersion : std::uint8_t { None, V1, V2 };

enum class CgroupController : std::uint8_t {
  Cpu,
  CpuAcct,  // v1 only; on v2 part of every cgroup's cpu.stat
  Memory,
  Io,  // v1: blkio
  Pids,
  CpuSet,
  Freezer,   // v2: part of the core
  Pressure,  // PSI per cgroup: a v2 mount, with or without controllers
};
inline constexpr std::size_t kControllerCount = static_cast<std::size_t>(CgroupController::Pressure) + 1;

class CgroupLayout {
 public:
  /// From /proc/self/mountinfo below the root; a tree without it (fake or captured) is looked at itself:
  /// sys/fs/cgroup/cgroup.controllers means v2, else the folders found there. ENOENT: no cgroups at all.
  static Result<CgroupLayout> detect(const HostRoot& root);

  CgroupVersion version(CgroupController c) const { return at(c).version; }
  /// The mount's directory, without trailing slash. Empty if no hierarchy has the controller.
  const std::string& mount(CgroupController c) const { return at(c).mount; }
  /// Directory of a cgroup ("/system.slice/a.service", or "/" itself). Empty if there is no hierarchy.
  std::string directory(CgroupController c, std::string_view cgroup) const;

  /// Every controller on v2: the only layout in which one directory is the whole cgroup.
  bool unified() const { return unified_; }
  /// The hierarchy that stands for the cgroup: its directories are watched and their inodes are the targets'
  /// identity. v2: the unified one; v1: cpu, else memory; the other way round
  /// where systemd runs.
  CgroupController reference() const { return reference_; }
  const std::string& reference_mount() const { return mount(reference_); }
  /// "cgroup v2" or "cgroup v1: cpu, cpuacct, ...", for status lines.
  std::string describe() const;

 private:
  struct Place {
    CgroupVersion version = CgroupVersion::None;
    std::string mount;
  };
  const Place& at(CgroupController c) const { return places_[static_cast<std::size_t>(c)]; }
  Place& at(CgroupController c) { return places_[static_cast<std::size_t>(c)]; }

  std::array<Place, kControllerCount> places_;
  CgroupController reference_ = CgroupController::Cpu;
  bool unified_ = false;
};

}  // namespace flash
