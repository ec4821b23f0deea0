// Purpose: other programs that tune CPU frequency by themselves. While one owns its bus name, two hands would
// be on the same knob: frequency control then degrades to recommend, unless the rule claims it.
// Ownership: borrows the bus.
// Thread rule: the thread that owns the bus.
#pragma once

#include <systemd/sd-bus.h>

#include <chrono>
#include <string>

namespace flash {

class TuningDaemons {
 public:
  /// No bus (null): nobody can be seen.
  explicit TuningDaemons(sd_bus* bus) : bus_(bus) {}
  /// The bus came back, or went.
  void set_bus(sd_bus* bus) { bus_ = bus; }

  /// "power-profiles-daemon (net.hadess.PowerProfiles) controls CPU frequency", or empty. Asks the bus daemon
  /// (a few local round trips); a bus that does not answer within a quarter of a second counts as nobody
  /// for half a minute.
  std::string in_charge() const;

 private:
  sd_bus* bus_;
  mutable std::chrono::steady_clock::time_point silent_until_{};
};

}  // namespace flash
