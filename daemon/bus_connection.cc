#include "daemon/bus_connection.h"

#include <cstring>

#include "core/process.h"

namespace flash {
namespace {

constexpr std::uint64_t kCallUs = 1'000'000;

}  // namespace

sd_bus* open_bus(const std::string& address, std::string& trouble) {
  if (address == "none") return nullptr;
  sd_bus* bus = nullptr;
  int r = 0;
  if (address.empty()) {
    r = sd_bus_open_system(&bus);
  } else {
    r = sd_bus_new(&bus);
    if (r >= 0) r = sd_bus_set_address(bus, address.c_str());
    if (r >= 0) r = sd_bus_set_bus_client(bus, 1);
    if (r >= 0) r = sd_bus_start(bus);
  }
  if (r >= 0) r = sd_bus_set_method_call_timeout(bus, kCallUs);
  if (r >= 0) return bus;
  sd_bus_close_unref(bus);
  trouble = std::string("no D-Bus: ") + std::strerror(-r);
  return nullptr;
}

bool wait_ready(sd_bus* bus, Duration longest) {
  const Duration end = read_clocks().mono + longest;
  while (sd_bus_is_ready(bus) <= 0) {
    const int r = sd_bus_process(bus, nullptr);
    if (r < 0) return false;
    if (r > 0) continue;
    const Duration now = read_clocks().mono;
    if (now >= end || sd_bus_wait(bus, to_usec(end - now)) < 0) return false;
  }
  return true;
}

}  // namespace flash
