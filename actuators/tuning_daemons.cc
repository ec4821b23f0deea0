#include "actuators/tuning_daemons.h"

#include <array>
#include <cerrno>
#include <optional>

namespace flash {
namespace {

struct Daemon {
  const char* bus_name;
  const char* name;
};
constexpr std::array<Daemon, 4> kDaemons = {{
    {"org.freedesktop.UPower.PowerProfiles", "power-profiles-daemon"},  // since 0.20
    {"net.hadess.PowerProfiles", "power-profiles-daemon"},
    {"com.redhat.tuned", "TuneD"},
    {"org.freedesktop.thermald", "thermald"},
}};
constexpr std::uint64_t kTimeoutUs = 250'000;
/// So that a bus that hangs is not waited for once per name and CPU set.
constexpr std::chrono::seconds kPause{30};

/// Nothing: the bus did not answer.
std::optional<bool> has_owner(sd_bus* bus, const char* name) {
  sd_bus_message* call = nullptr;
  sd_bus_message* reply = nullptr;
  int owned = 0, r = 0;
  if (sd_bus_message_new_method_call(bus, &call, "org.freedesktop.DBus", "/org/freedesktop/DBus",
                                     "org.freedesktop.DBus", "NameHasOwner") >= 0 &&
      sd_bus_message_append(call, "s", name) >= 0 &&
      (r = sd_bus_call(bus, call, kTimeoutUs, nullptr, &reply)) >= 0)
    if (sd_bus_message_read(reply, "b", &owned) < 0) owned = 0;
  sd_bus_message_unref(reply);
  sd_bus_message_unref(call);
  if (r == -ETIMEDOUT) return std::nullopt;
  return owned != 0;
}

}  // namespace

std::string TuningDaemons::in_charge() const {
  if (!bus_) return {};
  const auto now = std::chrono::steady_clock::now();
  if (now < silent_until_) return {};
  for (const auto& daemon : kDaemons) {
    const auto owned = has_owner(bus_, daemon.bus_name);
    if (!owned) {
      silent_until_ = now + kPause;
      return {};
    }
    if (*owned) return std::string(daemon.name) + " (" + daemon.bus_name + ") controls CPU frequency";
  }
  return {};
}

}  // namespace flash
