// Purpose: the service behind DbusService, shared by its parts: dbus_tables.cc (object tree and properties),
// dbus_changes.cc (what may be changed), dbus_authorisation.cc (by whom). Included by these alone.
// Ownership: see DbusService. Thread rule: the thread of the control loop.
#pragma once

#include <functional>
#include <initializer_list>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/dbus_arguments.h"
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

  /// A changing call that waits for the bus' or polkit's answer.
  struct Pending {
    Impl* self = nullptr;
    const ChangeMethod* method = nullptr;
    dbus::Message call;
    dbus::Slot slot;
    Run run;
    ChangeRecord record;
    bool asks_polkit = false;
  };

  Impl(sd_bus* b, ControlLoop& l, DbusCallbacks c) : bus(sd_bus_ref(b)), loop(l), callbacks(std::move(c)) {}
  ~Impl() {
    pending.clear();
    slots.clear();
    sd_bus_unref(bus);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Result<void> attach();

  // -- looking up
  std::optional<TargetId> find(std::string_view wanted, dbus::Failure& failure) const;
  dbus::Outcome some_or_all(const std::string& wanted, std::vector<TargetId>& ids) const;

  // -- changing calls
  static std::span<const ChangeMethod> change_methods();
  static const ChangeMethod* change_method(const char* member);
  int begin_change(sd_bus_message* call, sd_bus_error* error);
  void have_caller(Pending& p);
  void ask_polkit(Pending& p);
  void deny(Pending& p, const std::string& why);
  void carry_out(Pending& p);
  void finish(Pending& p, const dbus::Outcome& outcome, std::string_view verdict, sd_bus_message* reply);
  static int on_credentials(sd_bus_message* m, void* userdata, sd_bus_error*) noexcept;
  static int on_polkit(sd_bus_message* m, void* userdata, sd_bus_error*) noexcept;

  void manager_emit(std::initializer_list<const char*> names) noexcept;

  sd_bus* bus;
  ControlLoop& loop;
  DbusCallbacks callbacks;
  std::vector<dbus::Slot> slots;
  std::list<Pending> pending;
  // The agent of the property call being answered: sd-bus looks the object up before it reads properties.
  AgentView found;
};

}  // namespace flash
