// Purpose: org.flashd.Sync on D-Bus: how the way to the fleet is, and pages of the fleet as the coordinator
// knows it. Says, changes nothing. org.flashd.Sync(5).
// Ownership: owns its connection to the bus.
// Thread rule: one thread; nothing waits. No clock.
#pragma once

#include <systemd/sd-bus.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "coordinator/messages_pages.h"
#include "core/result.h"
#include "core/time.h"

namespace flash::sync {

/// What the interface's properties are.
struct BusState {
  std::string version;
  bool flashd_connected = false;
  bool configured = false;  // has a server to speak to
  bool connected = false;
  std::string server, node, pool;
  std::uint64_t outbox = 0;  // records that wait
  std::uint64_t published = 0, taken = 0, confirmed = 0, thinned = 0;
  std::uint64_t last_watermark_us = 0;  // wall clock, when a watermark last covered something; 0: never
  std::string trouble;                  // what went wrong last; empty: nothing
};

struct BusCallbacks {
  std::function<BusState()> state;
  /// Asks the coordinator; the answer comes to answered(), with the question's id. false: it cannot be asked
  /// now.
  std::function<bool(const coordinator::FleetQuestion&)> ask;
  std::function<void(int priority, const std::string&)> say;
};

class BusService {
 public:
  /// A bus that is not there, or goes away, is tried again each minute.
  explicit BusService(BusCallbacks callbacks);
  ~BusService();
  BusService(const BusService&) = delete;
  BusService& operator=(const BusService&) = delete;

  /// -1: no bus. To poll for these events.
  int fd() const;
  short events() const;
  /// Call it often, and whenever the descriptor has something to do. Returns the time until it wants to be
  /// called again.
  Duration run(Duration now);
  /// To whom asked for it.
  void answered(const coordinator::FleetPage& page);

 private:
  struct Unref {
    void operator()(sd_bus* b) const { sd_bus_flush_close_unref(b); }
    void operator()(sd_bus_message* m) const { sd_bus_message_unref(m); }
  };
  /// A call that waits for the coordinator.
  struct Pending {
    std::unique_ptr<sd_bus_message, Unref> call;
    Duration until{};
  };
  template <auto kMember>
  static int get(sd_bus* bus, const char* path, const char* interface, const char* name,
                 sd_bus_message* reply, void* self, sd_bus_error* error) noexcept;
  static int on_fleet(sd_bus_message* call, void* self, sd_bus_error* error) noexcept;
  static const sd_bus_vtable* vtable();
  void give_up(Duration now);
  Result<void> connect();
  void lost(Duration now, const std::string& why);

  BusCallbacks callbacks_;
  std::unique_ptr<sd_bus, Unref> bus_;
  std::map<std::uint64_t, Pending> pending_;
  std::uint64_t last_id_ = 0;
  Duration now_{}, retry_at_{};
  std::string said_;
};

inline constexpr const char* kBusName = "org.flashd.Sync";
inline constexpr const char* kBusPath = "/org/flashd/Sync";
inline constexpr const char* kBusInterface = "org.flashd.Sync1";

}  // namespace flash::sync
