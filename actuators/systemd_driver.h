// Purpose: CPU and memory limits of units and scopes that systemd owns. A direct write there is lost at the
// next daemon-reload or set-property, so these go through org.freedesktop.systemd1.Manager.SetUnitProperties
// with runtime = true: CPUQuotaPerSecUSec, and MemoryHigh (MemoryLimit where the memory controller is v1).
//
// Reads come from the cgroup's files (a round trip per knob and tick would cost a hundred times as much).
// systemd answers the call before it has written the file, so write() waits a bounded time for the file to
// follow. A file that is not there although the cgroup is means no limit: systemd enables the cpu controller
// of a unit only when a property asks for it.
//
// raw is "FILE TEXT|none" or "FILE TEXT|runtime": whether /run/systemd/{system.control,transient}/UNIT.d has
// a drop-in of this property. systemd has no call that takes a single property back, so restore() sets the
// original value and then removes the drop-in that our first write created; left there, it would override a
// later edit of the unit file. One that was there before (systemctl set-property --runtime) stays.
//
// Ownership: borrows the bus. Locator as CgroupDriver's. Thread rule: the thread that owns the bus.
#pragma once

#include <systemd/sd-bus.h>

#include "actuators/cgroup_driver.h"
#include "core/ports.h"

namespace flash {

class SystemdDriver final : public KnobDriver {
 public:
  /// Without a bus (null) knobs are read, and blocked.
  SystemdDriver(const HostRoot& root, CgroupLayout layout, sd_bus* bus);
  /// The bus came back, or went.
  void set_bus(sd_bus* bus) { bus_ = bus; }

  std::string_view name() const override { return "systemd"; }
  Result<std::vector<KnobInfo>> discover(const Target& target, const Rule& rule) override;
  Result<KnobReading> read(const KnobRef& ref) override;
  Result<void> write(const KnobRef& ref, double value) override;
  Result<void> restore(const KnobRef& ref, const std::string& raw) override;

 private:
  Result<KnobReading> read_files(const KnobRef& ref);
  Result<void> set(const KnobRef& ref, double value);
  bool v1(KnobKind kind) const;
  const char* setting(KnobKind kind) const;
  std::string drop_in(const KnobRef& ref, bool transient) const;

  HostRoot root_;
  CgroupLayout layout_;
  CgroupDriver files_;
  sd_bus* bus_;
};

}  // namespace flash
