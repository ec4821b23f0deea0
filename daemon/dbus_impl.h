// Purpose: the service behind DbusService, shared by its parts: dbus_tables.cc (object tree and properties),
// dbus_changes.cc (what may be changed), dbus_authorisation.cc (by whom). Included by these alone.
// Ownership: see DbusService.
// Thread rule: the thread of the control loop.
#pragma once

#include <functional>
#include <initializer_list>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/dbus_arguments.h"
#include "daemon/dbus_quota.h"
#include "daemon/dbus_service.h"

namespace flash {

struct DbusService::Impl {
  /// Carries out an authorised call: fills the reply or says why not.
  using Run = std::function<dbus::Outcome(sd_bus_message* reply)>;

  /// Reads and checks a changing call's arguments; `run` will carry it out.
  struct ChangeMethod {
    const char* member;
    const char* action;  // polkit
    dbus::Outcome (*parse)(Impl& self, sd_bus_message* call, std::string& arguments, Run& run);
  };

  /// "Who is this connection?", on its way to the bus.
  struct Question {
    Impl* self = nullptr;
    std::string name;
    dbus::Slot slot;
    std::list<Question>::iterator at;
  };

  /// A changing call that waits for the bus' or polkit's answer.
  struct Pending {
    Impl* self = nullptr;
    std::list<Pending>::iterator at;
    const ChangeMethod* method = nullptr;
    dbus::Message call;
    dbus::Slot slot;
    Run run;
    ChangeRecord record;
    bool has_caller = false;
    bool asks_polkit = false;
  };

  Impl(sd_bus* b, ControlLoop& l, DbusCallbacks c);
  ~Impl() {
    questions.clear();
    pending.clear();
    slots.clear();
    sd_bus_unref(bus);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Result<void> attach();

  // -- looking up
  std::optional<TargetId> find(std::string_view wanted, dbus::Failure& failure) const;
  dbus::Failure ambiguous(std::string_view wanted, const std::vector<TargetId>& hits) const;
  dbus::Outcome some_or_all(const std::string& wanted, std::vector<TargetId>& ids) const;

  // -- changing calls
  static std::span<const ChangeMethod> change_methods();
  static const ChangeMethod* change_method(const char* member);
  int begin_change(sd_bus_message* call, sd_bus_error* error);
  int turn_away(sd_bus_message* call, const ChangeMethod& method, BusQuota::Caller& caller);
  void log_turned_away(const ChangeMethod& method, const BusQuota::Caller& caller, const char* sender);
  void ask_who(BusQuota::Caller& caller, const char* name);
  void have_caller(Pending& p, const BusQuota::Caller& caller);
  void ask_polkit(Pending& p);
  void deny(Pending& p, const std::string& why);
  void carry_out(Pending& p);
  void finish(Pending& p, const dbus::Outcome& outcome, std::string_view verdict, sd_bus_message* reply);
  // -- how much may be asked for
  std::size_t answer_bytes(sd_bus_message* call) const;
  static int on_call(sd_bus_message* call, void* userdata, sd_bus_error*) noexcept;

  static int on_credentials(sd_bus_message* m, void* userdata, sd_bus_error*) noexcept;
  static int on_polkit(sd_bus_message* m, void* userdata, sd_bus_error*) noexcept;

  void manager_emit(std::initializer_list<const char*> names) noexcept;

  sd_bus* bus;
  ControlLoop& loop;
  DbusCallbacks callbacks;
  std::vector<dbus::Slot> slots;
  BusQuota quota;
  std::list<Question> questions;
  std::list<Pending> pending;
  // The agent of the property call being answered: sd-bus looks the object up before it reads properties.
  AgentView found;
};

}  // namespace flash
