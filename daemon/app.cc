#include "daemon/app.h"

#include <signal.h>
#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "actuators/ledger.h"
#include "actuators/restore.h"
#include "collectors/kernel_probe.h"
#include "core/process.h"
#include "daemon/app_impl.h"
#include "daemon/bus_connection.h"
#include "daemon/drivers.h"
#include "daemon/log.h"
#include "daemon/restore_policy.h"
#include "daemon/version.h"
#include "host/file_io.h"

namespace flash {
namespace {

constexpr Duration kBusRetry = std::chrono::seconds(5);
/// The longest that starting waits for the bus. A tick does not wait for it at all, except in a call that
/// changes a unit (actuators/systemd_driver.cc).
constexpr Duration kBusWait = std::chrono::seconds(2);

/// Keys whose change waits for a restart.
std::vector<std::string> needs_restart(const DaemonConfig& before, const DaemonConfig& after) {
  std::vector<std::string> keys;
  if (before.state_directory != after.state_directory) keys.push_back("/state_directory");
  if (before.statsd.socket != after.statsd.socket) keys.push_back("/statsd/socket");
  if (before.statsd.udp != after.statsd.udp) keys.push_back("/statsd/udp");
  return keys;
}

}  // namespace

App::~App() {
  disconnect_bus();
  peers_.reset();
  node_.reset();
  for (sd_event_source* source : metrics_) sd_event_source_unref(source);
  sd_event_source_unref(metrics_timer_);
  sd_event_source_unref(timer_);
  sd_event_unref(event_);
}

// The connection itself; units that systemd owns are changed over it too.
void App::connect_bus() {
  bus_retry_at_ = read_clocks().mono + kBusRetry;
  bus_ = open_bus(line_.bus, bus_trouble_);
  if (!bus_) return;
  if (int r = sd_bus_attach_event(bus_, event_, SD_EVENT_PRIORITY_NORMAL); r < 0) {
    bus_trouble_ = std::string("D-Bus and the event loop: ") + std::strerror(-r);
    disconnect_bus();
  }
}

// The service on it, once the connection stands. EEXIST: another flashd has the name.
Result<void> App::offer_service() {
  bus_retry_at_ = read_clocks().mono + kBusRetry;
  if (!bus_) return {};
  if (sd_bus_is_ready(bus_) <= 0) {
    bus_trouble_ = "the D-Bus daemon does not answer";
    bus_retry_at_ = {};  // the next tick looks again; that costs nothing
    return {};
  }
  node_->set_bus(bus_);
  auto opened = open_service();
  // The connection stays without the service: units are still changed over it.
  bus_trouble_ = opened ? std::string() : "no D-Bus service: " + opened.error().message();
  allow_writes();
  return opened;
}

/// Where there is a bus, who is in control can be reached on it by its name: without it the kill switch would
/// not be heard, and another may have it. A bus that is gone or silent stops nobody: the host's lock is held.
void App::allow_writes() {
  const bool nameless = !line_.dry_run && bus_ && sd_bus_is_ready(bus_) > 0 && !service_;
  node_->ledger().forbid(nameless ? bus_trouble_ + " (--bus none: without a bus)" : std::string());
}

Result<void> App::open_service() {
  DbusCallbacks callbacks;
  callbacks.version = kVersion;
  callbacks.now = read_clocks;
  callbacks.reload = [this] { return reload(); };
  callbacks.verify = [this] { return node_->actuator().verify(); };
  callbacks.degraded = [this] { return degraded(); };
  callbacks.sources = [this] { return node_->sources(); };
  callbacks.learner = [this] { return learner() ? learner()->state() : std::string("switched off"); };
  callbacks.learner_error = [this] { return learner() ? learner()->counters().last_error : std::string(); };
  callbacks.learner_counters = [this] { return learner() ? to_list(learner()->counters()) : Counters(); };
  callbacks.sync = [this] { return sync() ? sync()->state() : std::string("switched off"); };
  callbacks.sync_counters = [this] { return sync() ? to_list(sync()->counters()) : Counters(); };
  callbacks.learning = [this](TargetId id) { return learner() ? learner()->doing(id) : std::string(); };
  callbacks.nearest = [this](TargetId id) {
    const link::Neighbour* n = learner() ? learner()->nearest(id) : nullptr;
    return n ? link::words_of(*n) : std::string();
  };
  callbacks.journal_counters = [this] { return counters(journal_.counters()); };
  callbacks.metrics_counters = [this] { return node_->metrics_counters(); };
  callbacks.period = [this] { return period(); };
  callbacks.overhead = [this] { return overhead(*guard_); };
  callbacks.overhead_budget = [this] { return guard_->options().budget_pct; };
  callbacks.ticks = [this] { return ticks_; };
  callbacks.tick_duration = [this] { return tick_duration_; };
  callbacks.log = [this](const ChangeRecord& call) { call_log_.say(call, read_clocks().mono); };
  FLASH_TRY(auto service, DbusService::open(bus_, node_->loop(), std::move(callbacks)));
  FLASH_CHECK(service->acquire_name());
  service_ = std::move(service);
  return {};
}

void App::disconnect_bus() {
  if (node_) node_->set_bus(nullptr);
  service_.reset();
  if (!bus_) return;
  // Not flushed: that waits forever where the bus hangs, and what was sent has left already.
  sd_bus_detach_event(bus_);
  sd_bus_close_unref(bus_);
  bus_ = nullptr;
  if (node_) allow_writes();
}

Result<void> App::start() {
  sigset_t mask;
  sigemptyset(&mask);
  for (int s : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&mask, s);
  sigprocmask(SIG_BLOCK, &mask, nullptr);
  signal(SIGPIPE, SIG_IGN);

  if (int r = sd_event_default(&event_); r < 0) return Error::from_errno(-r, "event loop");
  connect_bus();
  const bool ready = bus_ && wait_ready(bus_, kBusWait);
  LoopEvents events;
  events.changed = [this](TargetId id, AgentChange change) { on_changed(id, change); };
  events.decided = [this](const Target& t, const Decision& d) { on_decided(t, d); };
  state_directory_ = line_.state_directory.empty() ? config_.state_directory : line_.state_directory;
  NodeOptions options{HostRoot(line_.root), state_directory_, ready ? bus_ : nullptr, line_.dry_run};
  options.lock = line_.lock;
  FLASH_TRY(node_, Node::open(std::move(options), config_, std::move(events)));
  std::vector<std::string> probes;
  for (const KernelProbe* probe : node_->probes()) probes.emplace_back(probe->probe());
  guard_.emplace(config_.overhead, config_.period, std::move(probes));
  configure_journal();
  peers_ = std::make_unique<Peers>(event_, *node_, [this] { return own_metrics(); });
  peers_->configure(read_clocks(), config_, line_.dry_run);
  // The name before the first write.
  if (auto offered = offer_service();
      !offered && offered.error().is(std::errc::file_exists) && !line_.dry_run)
    return std::move(offered).error();
  if (!line_.dry_run) take_over();
  recall_hurts();
  LedgerRestore orphans;
  orphans.report = node_->start(read_clocks());
  log_restore(orphans);

  const Now now = read_clocks();
  next_tick_ = now.mono;
  const std::uint64_t accuracy = std::clamp<std::uint64_t>(to_usec(config_.period) / 50, 1000, 50000);
  int r =
      sd_event_add_time(event_, &timer_, CLOCK_MONOTONIC, to_usec(next_tick_), accuracy, timer_event, this);
  if (r >= 0) r = sd_event_source_set_enabled(timer_, SD_EVENT_ONESHOT);
  // Before metrics and bus: a flood of either must not hold up the tick.
  if (r >= 0) r = sd_event_source_set_priority(timer_, SD_EVENT_PRIORITY_IMPORTANT);
  for (int s : {SIGTERM, SIGINT, SIGHUP})
    if (r >= 0) r = sd_event_add_signal(event_, nullptr, s, signal_event, this);
  if (int fd = node_->cgroup_events_fd(); r >= 0 && fd >= 0)
    r = sd_event_add_io(event_, nullptr, fd, EPOLLIN, cgroup_event, this);
  for (int fd : node_->metrics_fds())
    if (r >= 0) r = sd_event_add_io(event_, &metrics_.emplace_back(), fd, EPOLLIN, metrics_event, this);
  // One of them is told before each wait: from there on it is counted what a wake-up for them takes.
  if (r >= 0 && !metrics_.empty()) r = sd_event_source_set_prepare(metrics_.front(), before_metrics);
  if (r >= 0) r = sd_event_set_watchdog(event_, 1);
  if (r < 0) return Error::from_errno(-r, "event sources");
  return {};
}

// What an earlier daemon left in the ledger: kept on purpose (upgrade), or left behind by a crash that no
// ExecStopPost= followed.
void App::take_over() {
  restore_previous(node_->previous_state_directory());
  Ledger& ledger = node_->ledger();
  const std::size_t left = ledger.entries().size();
  if (ledger.keep() || config_.restore.crash == OnExit::Keep) {
    if (left > 0) log(LOG_NOTICE, "resuming " + std::to_string(left) + " knobs of the daemon before");
  } else {
    log_restore(restore_from_ledger(ledger, node_->drivers(), RestoreRequest::Restore));
  }
  if (auto cleared = ledger.set_keep(false, ""); !cleared && left > 0)
    log(LOG_ERR, cleared.error().message());
  unlink(upgrade_marker(state_directory_).c_str());
}

/// How often policies hurt which target, of the flashd before.
void App::recall_hurts() {
  auto records = read_hurt_records(state_directory_);
  if (!records)
    log(LOG_WARNING, "which policies hurt before is not known: " + records.error().message());
  else
    node_->loop().recall_hurts(read_clocks(), hurts_ = *std::move(records));
}

void App::keep_hurts() {
  std::vector<HurtRecord> now = node_->loop().hurts();
  if (line_.dry_run || now == hurts_) return;
  hurts_ = std::move(now);
  if (auto kept = write_hurt_records(state_directory_, hurts_); !kept)
    log(LOG_WARNING, "that a policy hurt is forgotten with this process: " + kept.error().message());
}

/// The flashd before had another state directory: its values must not become our originals.
void App::restore_previous(const std::string& directory) {
  if (directory.empty() || directory == state_directory_ || !exists(directory + "/ledger")) return;
  log(LOG_NOTICE, "the flashd before had its ledger in " + directory + "; what it left is put back");
  auto ledger = Ledger::open(directory, boot_id(HostRoot(line_.root)));
  if (ledger)
    log_restore(restore_from_ledger(*ledger, node_->drivers(), RestoreRequest::Restore));
  else
    log(LOG_ERR, "it cannot be put back: " + ledger.error().message());
}

int App::run() {
  if (auto started = start(); !started) {
    log(LOG_ERR, started.error().message());
    return 1;
  }
  log(LOG_INFO, "flashd " + std::string(kVersion) +
                    " started: " + std::to_string(node_->loop().agents().size()) + " agents, mode " +
                    std::string(to_string(config_.loop.mode)) + (line_.dry_run ? ", dry run" : ""));
  sd_notify(0, "READY=1");
  say_status();
  const int r = sd_event_loop(event_);
  if (r < 0) {
    log(LOG_ERR, std::string("event loop: ") + std::strerror(-r));
    stop();
  }
  return r < 0 ? 1 : 0;
}

void App::stop() {
  sd_notify(0, "STOPPING=1");
  call_log_.flush(read_clocks().mono, true);
  // Putting back may take a while: who sends to us with blocking calls shall not wait for that.
  for (sd_event_source*& source : metrics_) source = sd_event_source_disable_unref(source);
  metrics_.clear();
  node_->close_metrics();
  const Cause cause = find_cause(state_directory_);
  if (on_exit_for(config_.restore, cause) == OnExit::Keep) {
    Ledger& ledger = node_->ledger();
    if (!ledger.entries().empty()) {
      if (auto kept = ledger.set_keep(true, to_string(cause)); kept)
        log(LOG_NOTICE,
            std::to_string(ledger.entries().size()) + " knobs are kept (" + std::string(to_string(cause)) +
                ")",
            {{"MESSAGE_ID", std::string(kMessageRestore)}});
      else
        log(LOG_ERR, "knobs could not be marked to be kept: " + kept.error().message());
    }
  } else {
    LedgerRestore restored;
    restored.report = node_->actuator().restore_all();
    log_restore(restored);
  }
  log(LOG_INFO,
      "flashd ended after " + std::to_string(ticks_) + " ticks, " + std::to_string(late_ticks_) + " late");
}

void App::configure_journal() {
  JournalOptions options = config_.journal;
  if (options.directory.empty()) options.directory = state_directory_ + "/journal";
  if (line_.dry_run) options.enabled = false;  // it leaves nothing behind
  journal_.configure(std::move(options));
}

Result<void> App::reload() {
  sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu",
             static_cast<unsigned long long>(to_usec(read_clocks().mono)));
  ConfigResult loaded = load_config(config_paths(line_));
  if (!loaded) {
    for (const std::string& error : loaded.errors) log(LOG_ERR, error);
    log(LOG_ERR, "the configuration has errors; the old one stays");
    sd_notify(0, "READY=1");
    std::string all;
    for (const std::string& error : loaded.errors) all += (all.empty() ? "" : "\n") + error;
    return Error(std::errc::invalid_argument, all);
  }
  for (const std::string& key : needs_restart(config_, *loaded.config))
    log(LOG_WARNING, key + " changed; that takes effect when flashd is restarted");
  config_ = std::move(*loaded.config);
  node_->reconfigure(read_clocks(), config_);
  guard_->reconfigure(config_.overhead, config_.period);
  apply_guard();
  configure_journal();
  peers_->configure(read_clocks(), config_, line_.dry_run);
  if (service_) service_->manager_changed();
  sd_notify(0, "READY=1");
  say_status();
  log(LOG_NOTICE, "configuration reloaded: " + std::to_string(config_.rules.size()) + " rules, " +
                      std::to_string(node_->loop().agents().size()) + " agents");
  return {};
}

ConfigPaths config_paths(const CommandLine& line) {
  ConfigPaths paths{line.config, line.config + ".d"};
  paths.any_owner = line.once || line.dry_run;
  return paths;
}

int run_daemon(const CommandLine& line, DaemonConfig config) {
  return App(line, std::move(config)).run();
}

}  // namespace flash
