// Purpose: every way to write knobs there is; the running daemon and the restorer use the same list.
// Ownership: owns the drivers, borrows the bus.
// Thread rule: one thread.
#pragma once

#include <memory>
#include <vector>

#include "core/ports.h"
#include "host/cgroup_layout.h"
#include "host/host_root.h"

struct sd_bus;

namespace flash {

class SystemdDriver;
class TuningDaemons;

class Drivers {
 public:
  Drivers(const HostRoot& root, const CgroupLayout& layout, sd_bus* bus);
  ~Drivers();
  Drivers(const Drivers&) = delete;
  Drivers& operator=(const Drivers&) = delete;

  /// In the order in which they are asked for a target's knobs.
  const std::vector<KnobDriver*>& all() const { return all_; }
  void set_bus(sd_bus* bus);

 private:
  std::unique_ptr<TuningDaemons> tuning_daemons_;
  SystemdDriver* systemd_ = nullptr;
  std::vector<std::unique_ptr<KnobDriver>> owned_;
  std::vector<KnobDriver*> all_;
};

}  // namespace flash
