// Who may change something: root, and whom polkit lets; and how much strangers may ask for at all. Nothing
// here waits: the bus and polkit are asked asynchronously, and who a caller is only once.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "daemon/dbus_impl.h"

namespace flash {

using namespace dbus;

namespace {

using QuotaReply = BusQuota::Reply;

// Nobody can fill our memory with calls that wait, nor keep root from the kill switch: a caller who is not
// known yet may be root, so these few are per connection; strangers' questions to polkit stay below the 128
// answers that a bus daemon lets one wait for.
constexpr std::size_t kWaitingPerCaller = 8;
constexpr std::size_t kPolkitPerUser = 8;
constexpr std::size_t kPolkitInAll = 64;
constexpr std::size_t kTextBytes = 4096;
// Messages in our own queue, which the bus daemon does not take.
constexpr std::uint64_t kUnsentForStrangers = 64;
constexpr std::uint64_t kBusTimeoutUs = 25'000'000;  // as long as callers wait
constexpr std::uint64_t kPolkitTimeoutUs = 10'000'000;
constexpr std::uint64_t kInteractiveTimeoutUs = 120'000'000;  // somebody types a password

/// Does it hold a text longer than any that is taken? Nothing of the call is read afterwards.
bool has_endless_text(sd_bus_message* call) {
  char type = 0;
  bool endless = false;
  while (!endless && sd_bus_message_peek_type(call, &type, nullptr) > 0) {
    const char* text = nullptr;
    if (type != SD_BUS_TYPE_STRING) {
      if (sd_bus_message_skip(call, nullptr) < 0) break;
    } else if (sd_bus_message_read_basic(call, type, &text) < 0) {
      break;
    } else {
      endless = std::strlen(text) > kTextBytes;
    }
  }
  (void)sd_bus_message_rewind(call, 1);
  return endless;
}

void refuse(sd_bus_message* call) {
  (void)sd_bus_reply_method_errorf(call, SD_BUS_ERROR_LIMITS_EXCEEDED,
                                   "too many calls of your user: ask again later, and more seldom");
}

}  // namespace

const DbusService::Impl::ChangeMethod* DbusService::Impl::change_method(const char* member) {
  for (const auto& row : change_methods())
    if (std::strcmp(row.member, member) == 0) return &row;
  return nullptr;
}

/// About so many bytes will be sent for it.
std::size_t DbusService::Impl::answer_bytes(sd_bus_message* call) const {
  constexpr std::size_t kSmall = 512, kObject = 4096, kDocument = 40960, kDecision = 2048, kKnobsRead = 65536;
  const auto is = [call](const char* interface, const char* member) {
    return sd_bus_message_is_method_call(call, interface, member) > 0;
  };
  if (is("org.freedesktop.DBus.ObjectManager", nullptr)) return kObject * (loop.agents().size() + 2);
  if (is("org.freedesktop.DBus.Introspectable", nullptr)) return kDocument + 64 * loop.agents().size();
  if (is("org.freedesktop.DBus.Properties", "GetAll")) return kObject;
  if (is(nullptr, "ListAgents")) return kSmall + 256 * loop.agents().size();
  if (is(nullptr, "Verify")) return kKnobsRead;  // reads every knob: what it costs is not the answer
  const bool why = is(nullptr, "Why");
  if (!why && !is(nullptr, "GetRewards")) return kSmall;
  std::uint32_t n = 0;
  const bool given = sd_bus_message_read(call, "u", &n) > 0;
  (void)sd_bus_message_rewind(call, 1);
  const auto id = id_from_path(sd_bus_message_get_path(call));
  const auto* history = given && id ? loop.history(*id) : nullptr;
  return kSmall +
         (history ? std::min<std::size_t>(n, history->size()) * (why ? kDecision : sizeof(double)) : 0);
}

/// Sees every call first. What changes something has bounds of its own, in begin_change().
int DbusService::Impl::on_call(sd_bus_message* call, void* userdata, sd_bus_error*) noexcept {
  Impl& s = *static_cast<Impl*>(userdata);
  const char* sender = sd_bus_message_get_sender(call);
  if (sd_bus_message_is_method_call(call, nullptr, nullptr) <= 0 || sd_bus_is_bus_client(s.bus) <= 0 ||
      !sender)
    return 0;
  const Duration now = s.callbacks.now().mono;
  BusQuota::Caller& caller = s.quota.caller(sender, now);
  if (s.quota.trusted(caller)) return 0;
  const char* interface = sd_bus_message_get_interface(call);
  const bool change = change_method(sd_bus_message_get_member(call)) &&
                      (!interface || std::strcmp(interface, kManager) == 0) &&
                      std::strcmp(sd_bus_message_get_path(call), kRoot) == 0;
  if (change) return 0;
  if (!caller.uid) s.ask_who(caller, sender);
  std::uint64_t unsent = 0;
  (void)sd_bus_get_n_queued_write(s.bus, &unsent);
  const QuotaReply verdict =
      unsent > kUnsentForStrangers ? QuotaReply::Ignore : s.quota.read(caller, s.answer_bytes(call), now);
  if (verdict == QuotaReply::Serve) return 0;
  if (verdict == QuotaReply::Refuse) refuse(call);
  return 1;
}

/// Once per connection; the answer comes to on_credentials().
void DbusService::Impl::ask_who(BusQuota::Caller& caller, const char* name) {
  if (caller.asked) return;
  Question& q = questions.emplace_back();
  q.self = this;
  q.name = name;
  q.at = std::prev(questions.end());
  sd_bus_slot* slot = nullptr;
  sd_bus_message* raw = nullptr;
  int r = sd_bus_message_new_method_call(bus, &raw, "org.freedesktop.DBus", "/org/freedesktop/DBus",
                                         "org.freedesktop.DBus", "GetConnectionCredentials");
  Message question(raw);
  if (r >= 0) r = sd_bus_message_append(raw, "s", name);
  if (r >= 0) r = sd_bus_call_async(bus, &slot, raw, on_credentials, &q, kBusTimeoutUs);
  if (r < 0) {  // out of memory, or our queue is full: the next call asks again
    questions.pop_back();
    return;
  }
  q.slot.reset(slot);
  caller.asked = true;
}

int DbusService::Impl::begin_change(sd_bus_message* call, sd_bus_error* error) {
  const ChangeMethod* method = change_method(sd_bus_message_get_member(call));
  if (!method) return -ENOSYS;  // a row of the vtable without a row in kChanges: the table test finds it
  if (has_endless_text(call))
    return sd_bus_error_set(error, SD_BUS_ERROR_INVALID_ARGS, "an argument has more than 4096 bytes");

  const bool on_bus = sd_bus_is_bus_client(bus) > 0;
  const char* sender = sd_bus_message_get_sender(call);
  BusQuota::Caller* caller = on_bus && sender ? &quota.caller(sender, callbacks.now().mono) : nullptr;
  if (caller && !caller->uid) {
    ask_who(*caller, sender);
    if (!caller->asked || caller->waiting >= kWaitingPerCaller) return turn_away(call, *method, *caller);
    ++caller->waiting;
  }
  Pending& p = pending.emplace_back();
  p.at = std::prev(pending.end());
  p.self = this;
  p.method = method;
  p.call.reset(sd_bus_message_ref(call));
  p.record.method = method->member;
  if (sender) p.record.sender = sender;
  if (caller) {
    if (caller->uid) have_caller(p, *caller);
    return 1;
  }

  // A direct connection: the socket knows its peer.
  sd_bus_creds* raw = nullptr;
  const int r = sd_bus_get_owner_creds(bus, SD_BUS_CREDS_EUID | SD_BUS_CREDS_PID, &raw);
  Creds creds(raw);
  BusQuota::Caller peer;
  uid_t uid = 0;
  if (r < 0 || sd_bus_creds_get_euid(raw, &uid) < 0) {
    deny(p, "the caller cannot be identified");
    return 1;
  }
  peer.uid = uid;
  (void)sd_bus_creds_get_pid(raw, &peer.pid);
  have_caller(p, peer);
  return 1;
}

/// A stranger's call beyond its budget.
int DbusService::Impl::turn_away(sd_bus_message* call, const ChangeMethod& method, BusQuota::Caller& caller) {
  if (quota.refuse(caller, callbacks.now().mono) == QuotaReply::Refuse) refuse(call);
  log_turned_away(method, caller, sd_bus_message_get_sender(call));
  return 1;
}

void DbusService::Impl::log_turned_away(const ChangeMethod& method, const BusQuota::Caller& caller,
                                        const char* sender) {
  if (!callbacks.log) return;
  ChangeRecord record;
  record.method = method.member;
  record.sender = sender ? sender : "";
  record.uid = caller.uid.value_or(record.uid);
  record.pid = caller.pid;
  record.verdict = "denied";
  record.message = "too many calls";
  callbacks.log(record);
}

int DbusService::Impl::on_credentials(sd_bus_message* m, void* userdata, sd_bus_error*) noexcept {
  Question& q = *static_cast<Question*>(userdata);
  Impl& s = *q.self;
  uid_t uid = static_cast<uid_t>(-1);
  pid_t pid = 0;
  bool known = false;
  if (!sd_bus_message_is_method_error(m, nullptr) && sd_bus_message_enter_container(m, 'a', "{sv}") > 0) {
    while (sd_bus_message_enter_container(m, 'e', "sv") > 0) {
      const char* key = nullptr;
      std::uint32_t value = 0;
      if (sd_bus_message_read_basic(m, 's', &key) < 0) break;
      if (std::strcmp(key, "UnixUserID") == 0 || std::strcmp(key, "ProcessID") == 0) {
        const bool is_uid = key[0] == 'U';
        if (sd_bus_message_read(m, "v", "u", &value) < 0) break;
        is_uid ? static_cast<void>(uid = value) : static_cast<void>(pid = static_cast<pid_t>(value));
        known = known || is_uid;
      } else if (sd_bus_message_skip(m, "v") < 0) {
        break;
      }
      if (sd_bus_message_exit_container(m) < 0) break;
    }
  }
  const std::string name = std::move(q.name);
  s.questions.erase(q.at);
  const Duration now = s.callbacks.now().mono;
  BusQuota::Caller& caller = s.quota.caller(name, now);
  caller.asked = false;
  caller.waiting = 0;
  if (known) s.quota.identify(caller, uid, pid, now);
  std::vector<Pending*> mine;
  for (Pending& p : s.pending)
    if (!p.has_caller && p.record.sender == name) mine.push_back(&p);
  const BusQuota::Caller copy = caller;  // what is carried out may ask for callers again
  for (Pending* p : mine) {
    if (known)
      s.have_caller(*p, copy);
    else
      s.deny(*p, "the bus does not know the caller");
  }
  return 0;
}

void DbusService::Impl::have_caller(Pending& p, const BusQuota::Caller& caller) {
  p.has_caller = true;
  p.record.uid = *caller.uid;
  p.record.pid = caller.pid;
  const bool on_bus = sd_bus_is_bus_client(bus) > 0;
  // Root, and whoever flashd itself runs as (a private bus in a test), are outside every bound.
  const bool trusted = quota.trusted(caller);
  if (!trusted && on_bus) {
    const QuotaReply verdict = quota.change(caller, callbacks.now().mono);
    if (verdict != QuotaReply::Serve) {
      if (verdict == QuotaReply::Refuse) refuse(p.call.get());
      log_turned_away(*p.method, caller, p.record.sender.c_str());
      pending.erase(p.at);
      return;
    }
  }
  // Before anybody is asked for a password.
  if (auto bad = p.method->parse(*this, p.call.get(), p.record.arguments, p.run))
    return finish(p, bad, "failed", nullptr);
  if (trusted)
    carry_out(p);
  else if (on_bus)
    ask_polkit(p);
  else
    deny(p, "only root may do this on a direct connection");
}

void DbusService::Impl::ask_polkit(Pending& p) {
  std::size_t of_user = 0, in_all = 0;
  for (const Pending& each : pending) {
    in_all += each.asks_polkit ? 1 : 0;
    of_user += each.asks_polkit && each.record.uid == p.record.uid ? 1 : 0;
  }
  if (of_user >= kPolkitPerUser || in_all >= kPolkitInAll)
    return finish(p, Failure{SD_BUS_ERROR_LIMITS_EXCEEDED, "too many calls wait for authorisation"}, "denied",
                  nullptr);
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
  pending.erase(p.at);
}

}  // namespace flash
