// Purpose: org.flashd's and org.flashd.Sync's methods as JSON: a call goes out with sd-bus types, the answer
// comes back decoded.
// Ownership: owns its connection.
// Thread rule: one thread; calls block until answered.
#pragma once

#include <systemd/sd-bus.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/options.h"

namespace flash::cli {

inline constexpr const char* kManagerPath = "/org/flashd";
inline constexpr const char* kManagerInterface = "org.flashd.Manager1";
inline constexpr const char* kAgentInterface = "org.flashd.Agent1";

/// Whom a client speaks to.
struct Peer {
  const char* bus_name;
  const char* program;  // for messages
};
inline constexpr Peer kFlashd{"org.flashd", "flashd"};
inline constexpr Peer kFlashSync{"org.flashd.Sync", "flash-sync"};

class BusClient {
 public:
  /// Empty address: the system bus (DBUS_SYSTEM_BUS_ADDRESS is honoured). Throws CliError(Exit::NotRunning).
  explicit BusClient(const std::string& address, Peer peer = kFlashd);

  /// The method's results as an array. Throws CliError with the exit code that fits the D-Bus error.
  template <class... Args>
  nlohmann::json call(const std::string& path, const char* interface, const char* member,
                      const char* types = "", Args... args) {
    Message m = prepare(path, interface, member);
    check(sd_bus_message_append(m.get(), types, args...), "sending");
    return send(m.get(), kReadTimeoutUs);
  }

  /// The same for a call that changes something: polkit may ask a person first.
  template <class... Args>
  nlohmann::json change(const char* member, const char* types = "", Args... args) {
    Message m = prepare(kManagerPath, kManagerInterface, member);
    check(sd_bus_message_set_allow_interactive_authorization(m.get(), 1), "sending");
    check(sd_bus_message_append(m.get(), types, args...), "sending");
    return send(m.get(), kChangeTimeoutUs);
  }

 private:
  struct Unref {
    void operator()(sd_bus* b) const { sd_bus_flush_close_unref(b); }
    void operator()(sd_bus_message* m) const { sd_bus_message_unref(m); }
  };
  using Message = std::unique_ptr<sd_bus_message, Unref>;
  static constexpr std::uint64_t kReadTimeoutUs = 25'000'000;
  static constexpr std::uint64_t kChangeTimeoutUs = 180'000'000;

  Message prepare(const std::string& path, const char* interface, const char* member);
  nlohmann::json send(sd_bus_message* m, std::uint64_t timeout_us);
  static void check(int r, const char* what);

  Peer peer_;
  std::unique_ptr<sd_bus, Unref> bus_;
};

}  // namespace flash::cli
