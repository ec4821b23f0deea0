// Purpose: limits of units and scopes that systemd owns. A direct write there is lost at the next
// daemon-reload or set-property, so these go through org.freedesktop.systemd1.Manager.SetUnitProperties with
// runtime = true. Which property a limit has, and that it has none, is in actuators/limit_files.
//
// Reads come from the cgroup's files (a round trip per knob and tick would cost a hundred times as much).
// systemd answers the call before it has written the file, so write() waits a bounded time for the file to
// follow. A file that is not there although the cgroup is means no limit: systemd enables the cpu controller
// of a unit only when a property asks for it.
//
// A property belongs to the unit, not to the cgroup: it outlives a restart of the service and even its stop,
// by a drop-in /run/systemd/{system.control,transient}/UNIT.d/50-PROPERTY.conf. Hence the locator is the
// unit's cgroup path without an inode, a knob is only gone when neither the cgroup nor such a drop-in is
// there, and raw is "FILE TEXT|none" or "FILE TEXT|runtime", which says whether there is one.
//
// systemd has no call that takes a single property back. restore() sets the original value, and where our
// first write created the drop-in, empties it: left as it is, it would override a later edit of the unit
// file. Emptied and not removed, with its time kept, because systemd compares its drop-ins with the disk and
// would tell everybody that the unit needs a daemon-reload. What stays until the next boot is an empty file
// without effect. A drop-in that was there before (systemctl set-property --runtime) stays and holds the
// original value.
//
// Ownership: borrows the bus.
// Thread rule: the thread that owns the bus.
#pragma once

#include <systemd/sd-bus.h>

#include <chrono>
#include <optional>
#include <string>
#include <unordered_map>

#include "actuators/cgroup_driver.h"
#include "core/ports.h"
#include "core/time.h"

namespace flash {

struct SystemdDriverOptions {
  Duration answer_within = std::chrono::seconds(2);
  /// After a call that was not answered none is made for so long: the tick must not wait again for each unit.
  Duration pause = std::chrono::seconds(30);
};

class SystemdDriver final : public KnobDriver {
 public:
  /// Without a bus (null) knobs are read, and blocked.
  SystemdDriver(const HostRoot& root, CgroupLayout layout, sd_bus* bus, SystemdDriverOptions options = {});
  /// The bus came back, or went.
  void set_bus(sd_bus* bus) { bus_ = bus; }

  std::string_view name() const override { return "systemd"; }
  Result<std::vector<KnobInfo>> discover(const Target& target, const Rule& rule) override;
  Result<KnobReading> read(const KnobRef& ref) override;
  Result<void> write(const KnobRef& ref, double value) override;
  Result<void> restore(const KnobRef& ref, const std::string& raw) override;
  void close(const KnobRef& ref) override;

 private:
  Result<KnobReading> read_files(const KnobRef& ref, const LimitFile& row);
  Result<void> set(const KnobRef& ref, const LimitFile& row, double value);
  Result<void> put(const KnobRef& ref, const LimitFile& row, double value);
  bool v1(const LimitFile& row) const;
  const char* setting(const LimitFile& row) const;
  bool has_word(const LimitFile& row) const;
  Result<const LimitFile*> row_of(const KnobRef& ref) const;
  std::string drop_in(const KnobRef& ref, const LimitFile& row) const;

  HostRoot root_;
  CgroupLayout layout_;
  CgroupDriver files_;
  sd_bus* bus_;
  SystemdDriverOptions options_;
  std::chrono::steady_clock::time_point silent_until_{};
  std::unordered_map<std::string, KnobMap<KnobRef>> known_;  // CgroupDriver's name of the knobs, by path
};

/// The value of "CPUQuota=", "MemoryHigh=" or "MemoryLimit=" in a drop-in as systemd writes them: "50.00%" is
/// 0.5 cores, empty and "infinity" are no limit. Nothing if the text does not set it.
std::optional<double> drop_in_value(std::string_view text, KnobKind kind, std::string_view setting);

}  // namespace flash
