#include "sync/bus_service.h"

#include <syslog.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace flash::sync {
namespace {

constexpr Duration kRetry = std::chrono::minutes(1);

int put(sd_bus_message* m, const std::string& v) {
  return sd_bus_message_append_basic(m, 's', v.c_str());
}
int put(sd_bus_message* m, std::uint64_t v) {
  return sd_bus_message_append_basic(m, 't', &v);
}
int put(sd_bus_message* m, bool v) {
  const int truth = v;
  return sd_bus_message_append_basic(m, 'b', &truth);
}

template <auto kMember>
int get(sd_bus*, const char*, const char*, const char*, sd_bus_message* reply, void* self,
        sd_bus_error*) noexcept {
  const auto& callbacks = *static_cast<const BusCallbacks*>(self);
  return put(reply, callbacks.state().*kMember);
}

constexpr sd_bus_vtable kTable[] = {
    SD_BUS_VTABLE_START(0),
    SD_BUS_PROPERTY("Version", "s", get<&BusState::version>, 0, SD_BUS_VTABLE_PROPERTY_CONST),
    SD_BUS_PROPERTY("FlashdConnected", "b", get<&BusState::flashd_connected>, 0, 0),
    SD_BUS_PROPERTY("Configured", "b", get<&BusState::configured>, 0, 0),
    SD_BUS_PROPERTY("Connected", "b", get<&BusState::connected>, 0, 0),
    SD_BUS_PROPERTY("Server", "s", get<&BusState::server>, 0, 0),
    SD_BUS_PROPERTY("Node", "s", get<&BusState::node>, 0, 0),
    SD_BUS_PROPERTY("Pool", "s", get<&BusState::pool>, 0, 0),
    SD_BUS_PROPERTY("Outbox", "t", get<&BusState::outbox>, 0, 0),
    SD_BUS_PROPERTY("Taken", "t", get<&BusState::taken>, 0, 0),
    SD_BUS_PROPERTY("Published", "t", get<&BusState::published>, 0, 0),
    SD_BUS_PROPERTY("Confirmed", "t", get<&BusState::confirmed>, 0, 0),
    SD_BUS_PROPERTY("Thinned", "t", get<&BusState::thinned>, 0, 0),
    SD_BUS_PROPERTY("LastWatermark", "t", get<&BusState::last_watermark_us>, 0, 0),
    SD_BUS_PROPERTY("Trouble", "s", get<&BusState::trouble>, 0, 0),
    SD_BUS_VTABLE_END,
};

}  // namespace

const sd_bus_vtable* sync_vtable() {
  return kTable;
}

BusService::BusService(BusCallbacks callbacks) : callbacks_(std::move(callbacks)) {}
BusService::~BusService() = default;

int BusService::fd() const {
  return bus_ ? sd_bus_get_fd(bus_.get()) : -1;
}

short BusService::events() const {
  return bus_ ? static_cast<short>(std::max(0, sd_bus_get_events(bus_.get()))) : short{0};
}

Result<void> BusService::connect() {
  sd_bus* raw = nullptr;
  if (const int r = sd_bus_open_system(&raw); r < 0) return Error::from_errno(-r, "no system bus");
  bus_.reset(raw);
  sd_bus_set_exit_on_disconnect(raw, 0);
  const int r = sd_bus_add_object_vtable(raw, nullptr, kBusPath, kBusInterface, kTable, &callbacks_);
  if (r < 0) return Error::from_errno(-r, "the object on the bus");
  // The answer is not waited for: another flash-sync may have the name, and then keeps it.
  const auto named = [](sd_bus_message* m, void* self, sd_bus_error*) noexcept -> int {
    auto& callbacks = *static_cast<BusCallbacks*>(self);
    std::uint32_t answer = 0;
    if (sd_bus_message_is_method_error(m, nullptr))
      callbacks.say(LOG_WARNING, std::string("not on the bus as org.flashd.Sync: ") +
                                     sd_bus_message_get_error(m)->message);
    else if (sd_bus_message_read(m, "u", &answer) >= 0 && answer > 2)
      callbacks.say(LOG_WARNING, "not on the bus as org.flashd.Sync: another one has the name");
    return 1;
  };
  const int asked = sd_bus_request_name_async(raw, nullptr, kBusName, SD_BUS_NAME_QUEUE, named, &callbacks_);
  if (asked < 0) return Error::from_errno(-asked, "the name on the bus");
  return {};
}

void BusService::lost(Duration now, const std::string& why) {
  bus_.reset();
  retry_at_ = now + kRetry;
  if (why != said_) callbacks_.say(LOG_INFO, why);
  said_ = why;
}

Duration BusService::run(Duration now) {
  if (!bus_) {
    if (now < retry_at_) return retry_at_ - now;
    if (auto done = connect(); !done) {
      lost(now, done.error().message());
      return kRetry;
    }
  }
  int r = 1;
  while (r > 0) r = sd_bus_process(bus_.get(), nullptr);
  if (r < 0) {
    lost(now, std::string("the system bus went away: ") + std::strerror(-r));
    return kRetry;
  }
  std::uint64_t until_us = UINT64_MAX;
  sd_bus_get_timeout(bus_.get(), &until_us);
  if (until_us == UINT64_MAX) return kRetry;
  return std::max(Duration{}, Duration(std::chrono::microseconds(until_us)) - now);
}

}  // namespace flash::sync
