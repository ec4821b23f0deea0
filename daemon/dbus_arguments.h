// Purpose: what goes over the bus: names of objects and errors, texts that are UTF-8, values by their type.
// Inner part of daemon/dbus_service.
// Ownership: none.
// Thread rule: pure functions but for the message filled.
#pragma once

#include <systemd/sd-bus.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/target.h"
#include "core/time.h"

namespace flash::dbus {

inline constexpr const char* kName = "org.flashd";
inline constexpr const char* kRoot = "/org/flashd";
inline constexpr const char* kAgents = "/org/flashd/agent";
inline constexpr const char* kManager = "org.flashd.Manager1";
inline constexpr const char* kAgent = "org.flashd.Agent1";

inline constexpr const char* kFailed = "org.flashd.Error.Failed";
inline constexpr const char* kNoSuchTarget = "org.flashd.Error.NoSuchTarget";
inline constexpr const char* kAmbiguousTarget = "org.flashd.Error.AmbiguousTarget";
inline constexpr const char* kInvalidConfiguration = "org.flashd.Error.InvalidConfiguration";

/// A D-Bus error to answer with.
struct Failure {
  std::string name;
  std::string text;
};
using Outcome = std::optional<Failure>;
Failure invalid(std::string text);
/// 'text', as messages quote it.
std::string quoted(std::string_view text);

struct SlotDeleter {
  void operator()(sd_bus_slot* s) const { sd_bus_slot_unref(s); }
};
struct MessageDeleter {
  void operator()(sd_bus_message* m) const { sd_bus_message_unref(m); }
};
struct CredsDeleter {
  void operator()(sd_bus_creds* c) const { sd_bus_creds_unref(c); }
};
using Slot = std::unique_ptr<sd_bus_slot, SlotDeleter>;
using Message = std::unique_ptr<sd_bus_message, MessageDeleter>;
using Creds = std::unique_ptr<sd_bus_creds, CredsDeleter>;

/// Names come from cgroup paths, which are bytes; one that is not UTF-8 would make sd-bus refuse the whole
/// answer. Each stray byte (and NUL) becomes U+FFFD.
std::string to_utf8(std::string_view text);
/// Printable: valid UTF-8 without C0, DEL and C1 control characters.
bool printable(std::string_view text);

std::string agent_path(TargetId id);
/// The inverse.
std::optional<TargetId> id_from_path(std::string_view path);
std::string_view without_slash(std::string_view path);

/// What a person may call a target, in tiers: the first tier with a match wins.
bool matches(int tier, std::string_view wanted, const Target& t);
inline constexpr int kTiers = 3;

/// 0 for times before the epoch.
std::uint64_t microseconds(WallTime t);

/// sd_bus_message_append with the type named once, at the property.
int put(sd_bus_message* m, std::string_view text);
int put(sd_bus_message* m, double v);
int put(sd_bus_message* m, std::uint64_t v);
int put(sd_bus_message* m, std::uint32_t v);
int put(sd_bus_message* m, bool v);
int put(sd_bus_message* m, const std::vector<double>& v);
int put(sd_bus_message* m, const std::vector<std::pair<std::string, std::uint64_t>>& v);  // a{st}
int put(sd_bus_message* m, const std::vector<std::pair<std::string, double>>& v);         // a{sd}

}  // namespace flash::dbus
