// What happens while flashd runs: ticks, changes, signals, applications' metrics.
#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>
#include <time.h>

#include "collectors/kernel_probe.h"
#include "core/process.h"
#include "daemon/app_impl.h"
#include "daemon/log.h"
#include "daemon/version.h"

namespace flash {

Counters counters(const JournalCounters& c) {
  return {{"decisions", c.decisions},
          {"bytes", c.bytes},
          {"dropped", c.dropped},
          {"rotated", c.rotated},
          {"repaired", c.repaired}};
}

Shares overhead(const OverheadGuard& guard) {
  Shares shares = {{"process", guard.process_pct()}};
  for (std::size_t i = 0; i < guard.probes(); ++i)
    shares.emplace_back(guard.probe_name(i), guard.probe_pct(i));
  return shares;
}

void App::on_tick() {
  const Now now = read_clocks();
  node_->drain_metrics();
  const TickReport report = node_->tick(now);
  tick_duration_ = read_clocks().mono - now.mono;
  ticks_busy_ += tick_duration_;
  ++ticks_;
  if (report.failures > 0)
    log(LOG_DEBUG, std::to_string(report.failures) + " knob writes failed in this tick");
  // A tick that comes late is not made up for: the next one is a whole number of periods later.
  record(now);
  peers_->tick(now);
  keep_budget(now.mono);
  next_tick_ += period();
  const Duration after = read_clocks().mono;
  while (next_tick_ <= after) {
    next_tick_ += period();
    ++late_ticks_;
  }
  sd_event_source_set_time(timer_, to_usec(next_tick_));
  sd_event_source_set_enabled(timer_, SD_EVENT_ONESHOT);
  if (bus_ && sd_bus_is_open(bus_) <= 0) {
    log(LOG_WARNING, "the bus is gone; control goes on", {{"MESSAGE_ID", std::string(kMessageDegraded)}});
    bus_trouble_ = "the D-Bus connection was lost";
    disconnect_bus();
  }
  if (!service_ && line_.bus != "none" && now.mono >= bus_retry_at_) {
    if (!bus_) connect_bus();
    (void)offer_service();  // said as degraded
  }
  call_log_.flush(now.mono);
  say_degraded();
  say_status();
}

void App::on_changed(TargetId id, AgentChange change) {
  if (service_) service_->agent_changed(id, change);
  if (peers_) peers_->changed(id, change);
  if (!node_ || change.removed) return;
  const auto view = node_->loop().view(id);
  if (!view) return;
  if (change.added) log_managed(*view);
  if (!change.stage) return;
  log_stage(*view);
  keep_hurts();
}

void App::on_decided(const Target& target, const Decision& decision) {
  peers_->decided(target, decision);
  log_decision(target, decision);
}

std::vector<Degraded> App::degraded() const {
  std::vector<Degraded> all = node_->degraded();
  if (!journal_.trouble().empty()) all.push_back({"journal", journal_.trouble()});
  for (std::string& reason : guard_->reasons()) all.push_back({"overhead", std::move(reason)});
  return all;
}

void App::keep_budget(Duration now) {
  const auto [reading, believed] = node_->metrics_cost();
  OwnCost cost{now, own_usage().cpu, reading, believed, {}};
  for (const KernelProbe* probe : node_->probes()) cost.probes.push_back(probe->cost());
  if (guard_->step(cost)) apply_guard();
}

void App::apply_guard() {
  const std::vector<KernelProbe*>& probes = node_->probes();
  for (std::size_t i = 0; i < probes.size(); ++i)
    if (guard_->paused(i))
      probes[i]->pause("taken out, because flashd costs more than its budget");
    else
      probes[i]->resume();
}

std::vector<link::sync::Family> App::own_metrics() const {
  OwnStatus s;
  s.version = kVersion;
  s.period = period();
  s.ticks = ticks_;
  s.late_ticks = late_ticks_;
  s.last_tick = tick_duration_;
  s.busy = ticks_busy_;
  const OwnUsage usage = own_usage();
  s.cpu_seconds = seconds(usage.cpu);
  s.peak_memory_bytes = static_cast<double>(usage.peak_memory_bytes);
  s.wakeups = usage.wakeups;
  s.overhead_pct = overhead(*guard_);
  s.overhead_budget_pct = guard_->options().budget_pct;
  s.degraded = degraded();
  s.sources = node_->sources();
  s.learner_connected = learner() && learner()->state().starts_with("connected");
  if (learner()) s.learner = to_list(learner()->counters());
  s.journal = counters(journal_.counters());
  s.statsd = node_->metrics_counters();
  if (sync()) s.sync = to_list(sync()->counters());
  return flash::own_metrics(node_->loop(), s);
}

// When the knobs are set: no decision waits for its record.
void App::record(Now now) {
  const ControlLoop& loop = node_->loop();
  for (TargetId id : loop.agents()) {
    const auto* history = loop.history(id);
    if (!history || history->empty() || history->back().at.mono != now.mono) continue;
    if (const auto view = loop.view(id)) journal_.add(history->back(), *view->target);
  }
  journal_.flush(now);
}

void App::say_degraded() {
  std::vector<Degraded> all = degraded();
  if (!bus_trouble_.empty()) all.push_back({"bus", bus_trouble_});
  degraded_log_.say(std::move(all));
}

void App::say_status() {
  const ControlLoop& loop = node_->loop();
  std::string status = loop.disabled() ? "disabled: " + loop.disabled_reason()
                                       : std::to_string(loop.agents().size()) + " agents, mode " +
                                             std::string(to_string(loop.options().mode));
  if (degraded_log_.parts() > 0) status += ", degraded: " + std::to_string(degraded_log_.parts());
  if (status == said_status_) return;
  said_status_ = status;
  sd_notifyf(0, "STATUS=%s", status.c_str());
}

int App::timer_event(sd_event_source*, std::uint64_t, void* app) noexcept {
  static_cast<App*>(app)->on_tick();
  return 0;
}

int App::signal_event(sd_event_source* source, const signalfd_siginfo* info, void* data) noexcept {
  App* app = static_cast<App*>(data);
  if (info->ssi_signo == SIGHUP) {
    (void)app->reload();  // logged
    return 0;
  }
  // Before the loop ends: sd-bus closes an attached connection at its loop's exit, and units that systemd
  // owns are restored over it.
  app->stop();
  return sd_event_exit(sd_event_source_get_event(source), 0);
}

int App::cgroup_event(sd_event_source*, int, std::uint32_t, void* app) noexcept {
  static_cast<App*>(app)->node_->drain_cgroup_events(read_clocks());
  return 0;
}

int App::before_metrics(sd_event_source*, void* data) noexcept {
  App* app = static_cast<App*>(data);
  // What the loop itself does after a reading belongs to the next one, if nothing comes between.
  if (!app->has_read_) app->woke_ = clock_now(CLOCK_THREAD_CPUTIME_ID);
  app->has_read_ = false;
  return 0;
}

int App::metrics_event(sd_event_source*, int, std::uint32_t, void* app) noexcept {
  static_cast<App*>(app)->read_metrics();
  return 0;
}

int App::metrics_again(sd_event_source*, std::uint64_t, void* app) noexcept {
  static_cast<App*>(app)->read_metrics();
  return 0;
}

void App::read_metrics() {
  const Duration rest = node_->drain_metrics(woke_);
  woke_ = clock_now(CLOCK_THREAD_CPUTIME_ID);
  has_read_ = true;
  if (rest <= Duration()) return listen(true);
  // What comes meanwhile stays in the kernel, and would only wake the loop again and again.
  const std::uint64_t again = to_usec(clock_now(CLOCK_MONOTONIC) + rest);
  int r = 0;
  if (metrics_timer_) {
    r = sd_event_source_set_time(metrics_timer_, again);
  } else {
    r = sd_event_add_time(event_, &metrics_timer_, CLOCK_MONOTONIC, again, 1000, metrics_again, this);
    if (r >= 0) r = sd_event_source_set_prepare(metrics_timer_, before_metrics);
  }
  if (r >= 0) r = sd_event_source_set_enabled(metrics_timer_, SD_EVENT_ONESHOT);
  if (r >= 0) listen(false);
}

void App::listen(bool on) {
  if (on == listening_) return;
  listening_ = on;
  for (sd_event_source* source : metrics_)
    sd_event_source_set_enabled(source, on ? SD_EVENT_ON : SD_EVENT_OFF);
}

}  // namespace flash
