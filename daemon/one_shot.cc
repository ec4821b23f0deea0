#include "daemon/one_shot.h"

#include <systemd/sd-bus.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "actuators/host_lock.h"
#include "actuators/ledger.h"
#include "actuators/restore.h"
#include "core/json.h"
#include "core/printable.h"
#include "core/process.h"
#include "daemon/bus_connection.h"
#include "daemon/drivers.h"
#include "daemon/log.h"
#include "daemon/node.h"
#include "daemon/restore_policy.h"
#include "policy/decision_json.h"

namespace flash {
namespace {

void print_json(const nlohmann::json& document) {
  std::puts(printable_json(document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace)).c_str());
}

void print_decision(const Target& target, const Decision& decision) {
  const nlohmann::json document = to_json(decision, target);
  print_line(stdout,
             target.name + " (" + std::string(to_string(target.task())) + ", rule " + target.rule + ")");
  print_text(stdout, "  " + document.value("words", "") + "\n");
}

}  // namespace

int run_once(const CommandLine& line, const DaemonConfig& config) {
  std::string bus_trouble;
  sd_bus* bus = open_bus(line.bus, bus_trouble);
  LoopEvents events;
  nlohmann::json agents = nlohmann::json::array();
  bool second = false;
  events.decided = [&](const Target& target, const Decision& decision) {
    if (!second) return;
    if (line.json)
      agents.push_back(to_json(decision, target));
    else
      print_decision(target, decision);
  };
  NodeOptions options{HostRoot(line.root), "", bus, true, false};
  auto node = Node::open(std::move(options), config, std::move(events));
  if (!node) {
    log(LOG_ERR, node.error().message());
    return 1;
  }
  // A captured host has no time of its own: its two ticks are one period apart on made clocks.
  const bool real = line.root == "/";
  Now now = real ? read_clocks() : Now{};
  (*node)->start(now);
  (*node)->tick(now);
  if (real) {
    const auto wait = std::chrono::duration_cast<std::chrono::microseconds>(config.period);
    usleep(static_cast<useconds_t>(wait.count()));
    now = read_clocks();
  } else {
    now = {now.mono + config.period, now.wall + config.period};
  }
  second = true;
  (*node)->tick(now);
  const std::vector<Degraded> degraded = (*node)->degraded();
  if (line.json) {
    nlohmann::json reasons = nlohmann::json::array();
    for (const Degraded& d : degraded) reasons.push_back({{"part", d.part}, {"reason", d.reason}});
    print_json({{"agents", agents}, {"degraded", reasons}});
  } else {
    if ((*node)->loop().agents().empty()) std::puts("no target is selected by a rule of the configuration");
    for (const Degraded& d : degraded) print_line(stdout, "degraded: " + d.part + ": " + d.reason);
  }
  node->reset();
  sd_bus_close_unref(bus);
  return 0;
}

std::string last_state_directory(const CommandLine& line) {
  return HostLock::last_directory(line.lock.empty() ? host_lock_path(HostRoot(line.root)) : line.lock);
}

int run_restore(const CommandLine& line, const DaemonConfig& config) {
  const HostRoot root(line.root);
  const std::string state = line.state_directory.empty() ? config.state_directory : line.state_directory;
  auto ledger = Ledger::open(state, boot_id(root));
  if (!ledger) {
    log(LOG_ERR, ledger.error().is(std::errc::operation_would_block)
                     ? "a running flashd holds the ledger; 'flashctl disable' makes it restore"
                     : ledger.error().message());
    return 1;
  }
  // Run by hand, --restore restores. Run by systemd after a stop, what the daemon marked when it ended
  // counts, and where it could not mark anything the operator's choice for that cause.
  RestoreRequest request = RestoreRequest::Restore;
  if (line.cause != Cause::Auto || std::getenv("SERVICE_RESULT")) {
    const Cause cause = line.cause == Cause::Auto ? find_cause(state) : line.cause;
    if (line.cause == Cause::Auto && ledger->keep())
      request = RestoreRequest::AsMarked;
    else if (on_exit_for(config.restore, cause) == OnExit::Keep)
      request = RestoreRequest::Keep;
  }
  std::string bus_trouble;
  sd_bus* bus = open_bus(line.bus, bus_trouble);
  LedgerRestore restored;
  {
    auto layout = CgroupLayout::detect(root);
    Drivers drivers(root, layout ? *layout : CgroupLayout(), bus);
    restored = restore_from_ledger(*ledger, drivers.all(), request);
  }
  sd_bus_close_unref(bus);

  const bool good = restored.proven() || (restored.kept && restored.problems.empty());
  if (line.json) {
    nlohmann::json items = nlohmann::json::array();
    for (const RestoreReport::Item& item : restored.report.items)
      items.push_back({{"knob", knob_name(item.ref.kind)},
                       {"driver", item.ref.driver},
                       {"locator", item.ref.locator},
                       {"restored", item.restored},
                       {"message", item.message}});
    print_json({{"restored", restored.proven()},
                {"kept", restored.kept},
                {"previous_boot", restored.previous_boot},
                {"problems", restored.problems},
                {"items", items}});
  } else {
    log_restore(restored);
    if (restored.kept)
      log(LOG_NOTICE,
          "knobs are kept in force" +
              (restored.kept_because.empty() ? std::string() : " (" + restored.kept_because + ")"));
    else if (restored.report.items.empty() && good)
      log(LOG_INFO, "nothing to restore");
  }
  return good ? 0 : 1;
}

}  // namespace flash
