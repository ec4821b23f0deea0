// Who may change something: root, and whom polkit lets. Nothing here waits: the bus and polkit are asked
// asynchronously.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "daemon/dbus_impl.h"

namespace flash {

using namespace dbus;

namespace {

// Nobody can fill our memory with questions, nor keep root from the kill switch by leaving polkit's
// unanswered.
constexpr std::size_t kPendingCalls = 1024;
constexpr std::size_t kPendingPerUser = 8;
constexpr std::uint64_t kBusTimeoutUs = 5'000'000;
constexpr std::uint64_t kPolkitTimeoutUs = 10'000'000;
constexpr std::uint64_t kInteractiveTimeoutUs = 120'000'000;  // somebody types a password

}  // namespace

const DbusService::Impl::ChangeMethod* DbusService::Impl::change_method(const char* member) {
  for (const auto& row : change_methods())
    if (std::strcmp(row.member, member) == 0) return &row;
  return nullptr;
}

int DbusService::Impl::begin_change(sd_bus_message* call, sd_bus_error* error) {
  const ChangeMethod* method = change_method(sd_bus_message_get_member(call));
  if (!method) return -ENOSYS;  // a row of the vtable without a row in kChanges: the table test finds it
  if (pending.size() >= kPendingCalls)
    return sd_bus_error_set(error, SD_BUS_ERROR_LIMITS_EXCEEDED, "too many calls wait for authorisation");

  Pending& p = pending.emplace_back();
  p.self = this;
  p.method = method;
  p.call.reset(sd_bus_message_ref(call));
  p.record.method = method->member;
  if (const char* sender = sd_bus_message_get_sender(call)) p.record.sender = sender;
  if (sd_bus_is_bus_client(bus) > 0) {
    sd_bus_slot* slot = nullptr;
    sd_bus_message* raw = nullptr;
    int r = sd_bus_message_new_method_call(bus, &raw, "org.freedesktop.DBus", "/org/freedesktop/DBus",
                                           "org.freedesktop.DBus", "GetConnectionCredentials");
    Message question(raw);
    if (r >= 0) r = sd_bus_message_append(raw, "s", p.record.sender.c_str());
    if (r >= 0) r = sd_bus_call_async(bus, &slot, raw, on_credentials, &p, kBusTimeoutUs);
    if (r < 0) {
      deny(p, std::string("the bus cannot say who is calling: ") + std::strerror(-r));
      return 1;
    }
    p.slot.reset(slot);
    return 1;
  }

  // A direct connection: the socket knows its peer.
  sd_bus_creds* raw = nullptr;
  const int r = sd_bus_get_owner_creds(bus, SD_BUS_CREDS_EUID | SD_BUS_CREDS_PID, &raw);
  Creds creds(raw);
  if (r < 0 || sd_bus_creds_get_euid(raw, &p.record.uid) < 0) {
    deny(p, "the caller cannot be identified");
    return 1;
  }
  (void)sd_bus_creds_get_pid(raw, &p.record.pid);
  have_caller(p);
  return 1;
}

int DbusService::Impl::on_credentials(sd_bus_message* m, void* userdata, sd_bus_error*) noexcept {
  Pending& p = *static_cast<Pending*>(userdata);
  bool known = false;
  if (!sd_bus_message_is_method_error(m, nullptr) && sd_bus_message_enter_container(m, 'a', "{sv}") > 0) {
    while (sd_bus_message_enter_container(m, 'e', "sv") > 0) {
      const char* key = nullptr;
      std::uint32_t value = 0;
      if (sd_bus_message_read_basic(m, 's', &key) < 0) break;
      if (std::strcmp(key, "UnixUserID") == 0 || std::strcmp(key, "ProcessID") == 0) {
        const bool uid = key[0] == 'U';
        if (sd_bus_message_read(m, "v", "u", &value) < 0) break;
        uid ? static_cast<void>(p.record.uid = value)
            : static_cast<void>(p.record.pid = static_cast<pid_t>(value));
        known = known || uid;
      } else if (sd_bus_message_skip(m, "v") < 0) {
        break;
      }
      if (sd_bus_message_exit_container(m) < 0) break;
    }
  }
  if (known)
    p.self->have_caller(p);
  else
    p.self->deny(p, "the bus does not know the caller");
  return 0;
}

void DbusService::Impl::have_caller(Pending& p) {
  // Before anybody is asked for a password.
  if (auto bad = p.method->parse(*this, p.call.get(), p.record.arguments, p.run))
    return finish(p, bad, "failed", nullptr);
  // As sd_bus_query_sender_privilege(): root, and whoever flashd itself runs as (a private bus in a test).
  if (p.record.uid == 0 || p.record.uid == geteuid())
    carry_out(p);
  else if (sd_bus_is_bus_client(bus) > 0)
    ask_polkit(p);
  else
    deny(p, "only root may do this on a direct connection");
}

void DbusService::Impl::ask_polkit(Pending& p) {
  const auto waiting = std::count_if(pending.begin(), pending.end(), [&p](const Pending& each) {
    return &each != &p && each.asks_polkit && each.record.uid == p.record.uid;
  });
  if (static_cast<std::size_t>(waiting) >= kPendingPerUser)
    return finish(p, Failure{SD_BUS_ERROR_LIMITS_EXCEEDED, "too many of your calls wait for authorisation"},
                  "denied", nullptr);
  p.asks_polkit = true;
  const bool interactive = sd_bus_message_get_allow_interactive_authorization(p.call.get()) > 0;
  sd_bus_message* raw = nullptr;
  int r = sd_bus_message_new_method_call(bus, &raw, "org.freedesktop.PolicyKit1",
                                         "/org/freedesktop/PolicyKit1/Authority",
                                         "org.freedesktop.PolicyKit1.Authority", "CheckAuthorization");
  Message question(raw);
  // Subject, action, no details, AllowUserInteraction = 1, no cancellation id.
  if (r >= 0)
    r = sd_bus_message_append(raw, "(sa{sv})sa{ss}us", "system-bus-name", 1, "name", "s",
                              p.record.sender.c_str(), p.method->action, 0,
                              static_cast<std::uint32_t>(interactive), "");
  sd_bus_slot* slot = nullptr;
  if (r >= 0)
    r = sd_bus_call_async(bus, &slot, raw, on_polkit, &p,
                          interactive ? kInteractiveTimeoutUs : kPolkitTimeoutUs);
  if (r < 0) return deny(p, std::string("polkit cannot be asked: ") + std::strerror(-r));
  p.slot.reset(slot);
}

int DbusService::Impl::on_polkit(sd_bus_message* m, void* userdata, sd_bus_error*) noexcept {
  Pending& p = *static_cast<Pending*>(userdata);
  const std::string action = std::string("polkit action ") + p.method->action;
  if (const sd_bus_error* e = sd_bus_message_get_error(m)) {
    const bool absent = sd_bus_error_has_name(e, SD_BUS_ERROR_SERVICE_UNKNOWN) ||
                        sd_bus_error_has_name(e, SD_BUS_ERROR_NAME_HAS_NO_OWNER);
    p.self->deny(p, absent
                        ? "only root may do this: polkit is not running"
                        : "polkit did not answer (" + action + "): " + (e->message ? e->message : e->name));
    return 0;
  }
  int authorized = 0, challenge = 0;
  if (sd_bus_message_enter_container(m, 'r', "bba{ss}") <= 0 ||
      sd_bus_message_read(m, "bb", &authorized, &challenge) < 0)
    p.self->deny(p, "polkit's answer was not understood");
  else if (authorized)
    p.self->carry_out(p);
  else
    p.self->deny(p,
                 challenge ? "authentication is needed (" + action + ")" : "not authorised (" + action + ")");
  return 0;
}

void DbusService::Impl::deny(Pending& p, const std::string& why) {
  finish(p, Failure{SD_BUS_ERROR_ACCESS_DENIED, p.record.method + ": " + why}, "denied", nullptr);
}

void DbusService::Impl::carry_out(Pending& p) {
  sd_bus_message* raw = nullptr;
  if (int r = sd_bus_message_new_method_return(p.call.get(), &raw); r < 0)
    return finish(p, Failure{kFailed, std::strerror(-r)}, "failed", nullptr);
  Message reply(raw);
  const Outcome outcome = p.run(raw);
  finish(p, outcome, outcome ? "failed" : "done", raw);
}

/// Answers, logs and forgets the call: `p` is gone afterwards.
void DbusService::Impl::finish(Pending& p, const Outcome& outcome, std::string_view verdict,
                               sd_bus_message* reply) {
  if (outcome)
    sd_bus_reply_method_errorf(p.call.get(), outcome->name.c_str(), "%s", to_utf8(outcome->text).c_str());
  else
    sd_bus_send(bus, reply, nullptr);
  p.record.verdict = verdict;
  if (outcome) p.record.message = outcome->text;
  if (callbacks.log) callbacks.log(p.record);
  pending.remove_if([&p](const Pending& each) { return &each == &p; });
}

}  // namespace flash
