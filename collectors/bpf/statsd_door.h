// Purpose: the door to the StatsD socket: a budget per sender, kept by the kernel in the sender's own context
// before a datagram is queued (statsd_door.bpf.c). Nothing is pinned: the program ends with the object and
// the sockets that it is attached to.
// Ownership: owns its program and maps.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "collectors/bpf/statsd_door.bpf.h"
#include "core/result.h"
#include "host/cgroup_layout.h"

namespace flash {

class StatsdDoor {
 public:
  /// `controller`: the hierarchy whose directories' inodes name the cgroups, with its version. ENOENT: the
  /// kernel has no BTF; EPERM: not permitted; else what the kernel did not accept. The message says it for
  /// people.
  static Result<std::unique_ptr<StatsdDoor>> open(CgroupController controller, CgroupVersion version,
                                                  std::size_t max_members = 4096);
  ~StatsdDoor();
  StatsdDoor(const StatsdDoor&) = delete;
  StatsdDoor& operator=(const StatsdDoor&) = delete;

  /// To a UNIX datagram socket. Stays for as long as the socket is open.
  Result<void> attach(int socket);
  /// `id`: inode of the cgroup's directory. E2BIG: max_members are admitted. Nothing where it is already.
  Result<void> admit(std::uint64_t id);
  void dismiss(std::uint64_t id);
  void set(const flash_door_settings& settings);

  /// Since open(), on all CPUs. Allocates nothing.
  flash_door_counts counts() const;
  /// Datagrams of an admitted cgroup and those below it that were dropped.
  std::uint64_t dropped(std::uint64_t id) const;

 private:
  struct Impl;
  explicit StatsdDoor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flash
