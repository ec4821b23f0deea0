// Purpose: org.flashd on D-Bus. Translates calls into ControlLoop calls and views into properties; decides
// nothing itself except who may change something. daemon/dbus/org.flashd.xml is the written contract.
// Ownership: borrows the bus and the loop, both outlive it. The bus must be attached to the event loop (or be
// processed) by its owner.
// Thread rule: the thread of the control loop. No call blocks: credentials and polkit are asked
// asynchronously.
#pragma once

#include <sys/types.h>
#include <systemd/sd-bus.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectors/signal_source.h"
#include "core/ports.h"
#include "core/result.h"
#include "core/target.h"
#include "core/time.h"
#include "policy/control_loop.h"

namespace flash {

/// One changing call, for the log: who asked for what, and what came of it.
struct ChangeRecord {
  std::string sender;  // unique bus name; empty on a direct connection
  uid_t uid = static_cast<uid_t>(-1);
  pid_t pid = 0;
  std::string method;
  std::string arguments;
  std::string verdict;  // "done", "denied", "failed"
  std::string message;  // why denied or failed
};

using Counters = std::vector<std::pair<std::string, std::uint64_t>>;
using Shares = std::vector<std::pair<std::string, double>>;

/// What is not the loop's. All are called from the bus' thread; a missing one is answered with an empty
/// value.
struct DbusCallbacks {
  std::string version;
  std::function<Now()> now;  // required
  std::function<Result<void>()> reload;
  std::function<std::vector<std::string>()> verify;
  std::function<std::vector<Degraded>()> degraded;
  std::function<std::vector<SignalSource>()> sources;
  std::function<std::string()> learner;  // "absent", "connected: ...", "closed: ..."
  std::function<std::string()> learner_error;
  std::function<Counters()> learner_counters;
  std::function<std::string()> sync;  // "absent", "connected: ...", "closed: ..."
  std::function<Counters()> sync_counters;
  std::function<std::string(TargetId)> learning;  // what the learner does for an agent, in words
  std::function<std::string(TargetId)> nearest;   // the known pair nearest to an agent's, in words
  std::function<Counters()> journal_counters;
  std::function<Counters()> metrics_counters;
  std::function<Shares()> overhead;  // percent of one core by part
  std::function<double()> overhead_budget;
  std::function<Duration()> period;
  std::function<std::uint64_t()> ticks;
  std::function<Duration()> tick_duration;
  std::function<void(const ChangeRecord&)> log;
};

class DbusService {
 public:
  /// Puts the object tree on the bus. Does not ask for the name: see acquire_name().
  static Result<std::unique_ptr<DbusService>> open(sd_bus* bus, ControlLoop& loop, DbusCallbacks callbacks);
  ~DbusService();
  DbusService(const DbusService&) = delete;
  DbusService& operator=(const DbusService&) = delete;

  /// Takes the name org.flashd. EEXIST if another flashd has it; EACCES if the bus policy refuses.
  Result<void> acquire_name();

  /// Wire to LoopEvents::changed. Sends InterfacesAdded or InterfacesRemoved when the agent came or went,
  /// else PropertiesChanged of what changed.
  void agent_changed(TargetId id, AgentChange change) noexcept;
  /// The global mode or the kill switch changed other than by a call on the bus (reload by signal).
  void manager_changed() noexcept;

  struct Impl;  // daemon/dbus_impl.h

 private:
  explicit DbusService(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The method and property tables given to sd-bus; a test compares them with org.flashd.xml.
const sd_bus_vtable* dbus_manager_vtable();
const sd_bus_vtable* dbus_agent_vtable();

/// org.flashd.xml as introspection data: what Introspect answers for a path. Documentation becomes
/// org.gtk.GDBus.DocString annotations, because introspection parsers (busctl's) refuse foreign elements.
/// `interface` empty: only the children.
std::string dbus_introspection(std::string_view interface, bool object_manager,
                               const std::vector<std::string>& children);

}  // namespace flash
