#include "sync/bus_service.h"

#include <syslog.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/utf8.h"

namespace flash::sync {
namespace {

constexpr Duration kRetry = std::chrono::minutes(1);
constexpr Duration kPatience = std::chrono::seconds(10);  // with the coordinator
constexpr std::size_t kMaxPending = 16;
constexpr const char* kFailed = "org.flashd.Error.Failed";

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

int append_row(sd_bus_message* m, const coordinator::FleetRow& row, bool agent) {
  const double nan = std::nan("");
  return sd_bus_message_append(m, "(ssssssttddt)", row.node.c_str(), row.pool.c_str(), row.target.c_str(),
                               row.application.c_str(), agent ? std::string(to_string(row.task)).c_str() : "",
                               agent ? std::string(to_string(row.stage)).c_str() : "", row.agents,
                               row.serving, row.reward.value_or(nan), row.fallback.value_or(nan),
                               static_cast<std::uint64_t>(row.time_us));
}

/// Rows come from other nodes: what is not UTF-8 would close our own connection to the bus.
bool may_be_said(const coordinator::FleetRow& row) {
  return is_utf8(row.node) && is_utf8(row.pool) && is_utf8(row.target) && is_utf8(row.application);
}

}  // namespace

template <auto kMember>
int BusService::get(sd_bus*, const char*, const char*, const char*, sd_bus_message* reply, void* self,
                    sd_bus_error*) noexcept {
  return put(reply, static_cast<BusService*>(self)->callbacks_.state().*kMember);
}

int BusService::on_fleet(sd_bus_message* call, void* data, sd_bus_error* error) noexcept {
  auto& self = *static_cast<BusService*>(data);
  const char* what = nullptr;
  const char* text = nullptr;
  coordinator::FleetQuestion question;
  if (const int r = sd_bus_message_read(call, "sst", &what, &text, &question.offset); r < 0) return r;
  question.agents = std::string_view(what) == "agents";
  question.text = text;
  if (!question.agents && std::string_view(what) != "nodes")
    return sd_bus_error_set(error, SD_BUS_ERROR_INVALID_ARGS, "what is nodes or agents");
  if (auto valid = coordinator::validate(question); !valid)
    return sd_bus_error_set(error, SD_BUS_ERROR_INVALID_ARGS, valid.error().message().c_str());
  if (self.pending_.size() >= kMaxPending)
    return sd_bus_error_set(error, SD_BUS_ERROR_LIMITS_EXCEEDED,
                            "too many questions wait for the coordinator");
  question.id = ++self.last_id_;
  if (!self.callbacks_.ask(question))
    return sd_bus_error_set(error, kFailed, "flash-sync is not connected to the fleet's server");
  self.pending_[question.id] = {std::unique_ptr<sd_bus_message, Unref>(sd_bus_message_ref(call)),
                                self.now_ + kPatience};
  return 1;
}

void BusService::answered(const coordinator::FleetPage& page) {
  const auto it = pending_.find(page.id);
  if (it == pending_.end()) return;
  const Pending pending = std::move(it->second);
  pending_.erase(it);
  sd_bus_message* raw = nullptr;
  if (sd_bus_message_new_method_return(pending.call.get(), &raw) < 0) return;
  const std::unique_ptr<sd_bus_message, Unref> reply(raw);
  sd_bus_message_append(raw, "t", page.total);
  sd_bus_message_open_container(raw, 'a', "(ssssssttddt)");
  for (const coordinator::FleetRow& row : page.rows)
    if (may_be_said(row)) append_row(raw, row, !row.target.empty());
  sd_bus_message_close_container(raw);
  sd_bus_send(nullptr, raw, nullptr);
}

void BusService::give_up(Duration now) {
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (now < it->second.until) {
      ++it;
      continue;
    }
    sd_bus_reply_method_errorf(it->second.call.get(), kFailed, "the coordinator does not answer");
    it = pending_.erase(it);
  }
}

const sd_bus_vtable* BusService::vtable() {
  static constexpr sd_bus_vtable kTable[] = {
      SD_BUS_VTABLE_START(0),
      SD_BUS_PROPERTY("Version", "s", BusService::get<&BusState::version>, 0, SD_BUS_VTABLE_PROPERTY_CONST),
      SD_BUS_PROPERTY("FlashdConnected", "b", BusService::get<&BusState::flashd_connected>, 0, 0),
      SD_BUS_PROPERTY("Configured", "b", BusService::get<&BusState::configured>, 0, 0),
      SD_BUS_PROPERTY("Connected", "b", BusService::get<&BusState::connected>, 0, 0),
      SD_BUS_PROPERTY("Server", "s", BusService::get<&BusState::server>, 0, 0),
      SD_BUS_PROPERTY("Node", "s", BusService::get<&BusState::node>, 0, 0),
      SD_BUS_PROPERTY("Pool", "s", BusService::get<&BusState::pool>, 0, 0),
      SD_BUS_PROPERTY("Outbox", "t", BusService::get<&BusState::outbox>, 0, 0),
      SD_BUS_PROPERTY("Taken", "t", BusService::get<&BusState::taken>, 0, 0),
      SD_BUS_PROPERTY("Published", "t", BusService::get<&BusState::published>, 0, 0),
      SD_BUS_PROPERTY("Confirmed", "t", BusService::get<&BusState::confirmed>, 0, 0),
      SD_BUS_PROPERTY("Thinned", "t", BusService::get<&BusState::thinned>, 0, 0),
      SD_BUS_PROPERTY("LastWatermark", "t", BusService::get<&BusState::last_watermark_us>, 0, 0),
      SD_BUS_PROPERTY("Trouble", "s", BusService::get<&BusState::trouble>, 0, 0),
      SD_BUS_METHOD_WITH_NAMES("Fleet", "sst", SD_BUS_PARAM(what) SD_BUS_PARAM(text) SD_BUS_PARAM(offset),
                               "ta(ssssssttddt)", SD_BUS_PARAM(total) SD_BUS_PARAM(rows),
                               BusService::on_fleet, SD_BUS_VTABLE_UNPRIVILEGED),
      SD_BUS_VTABLE_END,
  };
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
  const int r = sd_bus_add_object_vtable(raw, nullptr, kBusPath, kBusInterface, vtable(), this);
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
  pending_.clear();
  bus_.reset();
  retry_at_ = now + kRetry;
  if (why != said_) callbacks_.say(LOG_INFO, why);
  said_ = why;
}

Duration BusService::run(Duration now) {
  now_ = now;
  give_up(now);
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
  const Duration longest = pending_.empty() ? kRetry : Duration(std::chrono::seconds(1));
  if (until_us == UINT64_MAX) return longest;
  return std::clamp(Duration(std::chrono::microseconds(until_us)) - now, Duration{}, longest);
}

}  // namespace flash::sync
