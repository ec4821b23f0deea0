#include "daemon/peers.h"

#include <cstring>
#include <string>
#include <utility>

#include "collectors/prometheus_collector.h"
#include "core/process.h"
#include "daemon/local_peer.h"
#include "daemon/log.h"
#include "daemon/version.h"

namespace flash {
namespace {

std::string software() {
  return "flashd " + std::string(kVersion);
}

/// Rules that name a metrics page, as flash-sync is told them.
std::vector<link::sync::Scrape> scrapes_of(const DaemonConfig& config) {
  std::vector<link::sync::Scrape> all;
  for (const auto& rule : config.rules)
    if (const PrometheusOptions& p = rule->slo.prometheus; !p.url.empty())
      all.push_back({rule->name, p.url, p.interval_s, p.timeout_s, p.latency, p.requests, p.errors, p.unit});
  return all;
}

ScrapeResult result_of(const link::sync::Reading& r) {
  using From = link::sync::ReadingState;
  using To = ScrapeResult::State;
  const To state = r.state == From::Good          ? To::Good
                   : r.state == From::First       ? To::First
                   : r.state == From::Unreachable ? To::Unreachable
                                                  : To::Invalid;
  return {.state = state,
          .reason = plain(r.reason),
          .covers_s = r.covers_s,
          .requests = r.requests,
          .errors = r.errors,
          .has_errors = r.has_errors,
          .has_latency = r.has_latency,
          .p50_ms = r.p50_ms,
          .p99_ms = r.p99_ms,
          .samples = r.samples,
          .exact = r.exact,
          .at_least = r.at_least,
          .no_latency = plain(r.no_latency)};
}

}  // namespace

Peers::Peers(sd_event* event, Node& node, OwnMetrics metrics)
    : event_(event), node_(node), metrics_(std::move(metrics)), epoch_(random_seed()) {}

Peers::~Peers() {
  sd_event_source_disable_unref(learner_source_);
  sd_event_source_disable_unref(sync_source_);
}

void Peers::configure(Now now, const DaemonConfig& config, bool dry_run) {
  configure_learner(now, config, config.learner.enabled && !dry_run);
  configure_sync(now, config);
}

void Peers::configure_learner(Now now, const DaemonConfig& config, bool wanted) {
  if (!wanted) {
    learner_source_ = sd_event_source_disable_unref(learner_source_);
    learner_.reset();
    return;
  }
  const int episode_steps = config.loop.episode_steps;
  if (learner_) {
    learner_->reconfigure(now, config.learner, config.period, episode_steps);
  } else {
    LearnerSession session{software(), epoch_, config.period, episode_steps};
    learner_ = std::make_unique<LearnerLink>(config.learner, std::move(session), learner_callbacks());
    learner_source_ = listen(learner_->fd(), learner_event, "learner");
  }
  const ControlLoop& loop = node_.loop();
  for (TargetId id : loop.agents())
    if (const auto view = loop.view(id))
      learner_->agent_added(*view->target, *view->layout, view->rule->learning_group());
}

void Peers::configure_sync(Now now, const DaemonConfig& config) {
  PrometheusCollector& pages = *node_.metrics_pages();
  if (!config.sync.enabled) {
    sync_source_ = sd_event_source_disable_unref(sync_source_);
    sync_.reset();
    pages.set_source(false, "sync.enabled is false");
    return;
  }
  if (sync_) {
    sync_->reconfigure(now, config.sync);
  } else {
    pages.set_source(false, "flash-sync is not connected");
    sync_ = std::make_unique<SyncLink>(config.sync, software(), random_seed(), sync_callbacks());
    sync_source_ = listen(sync_->fd(), sync_event, "flash-sync");
  }
  sync_->set_scrapes(scrapes_of(config));
}

/// A process that lives where flashd sets limits is a tenant, whatever its user is.
std::string Peers::target_around(std::string_view cgroup) const {
  const ControlLoop& loop = node_.loop();
  for (TargetId id : loop.agents()) {
    const auto view = loop.view(id);
    if (!view || id.kind != TargetKind::Cgroup) continue;
    const std::string& path = view->target->cgroup;
    if (cgroup.starts_with(path) && (cgroup.size() == path.size() || cgroup[path.size()] == '/')) return path;
  }
  return {};
}

LearnerCallbacks Peers::learner_callbacks() {
  LearnerCallbacks callbacks;
  callbacks.target_around = [this](std::string_view cgroup) { return target_around(cgroup); };
  callbacks.offer = [this](Now at, TargetId id, std::shared_ptr<const PolicySnapshot> policy) {
    return node_.loop().offer_snapshot(at, id, std::move(policy));
  };
  callbacks.log = [](LearnerEvent event, const std::string& text) {
    log(event == LearnerEvent::Connected ? LOG_INFO : LOG_WARNING, text,
        {{"MESSAGE_ID", std::string(kMessageLearner)}, {"FLASHD_LEARNER", std::string(to_string(event))}});
  };
  return callbacks;
}

SyncCallbacks Peers::sync_callbacks() {
  SyncCallbacks callbacks;
  callbacks.target_around = [this](std::string_view cgroup) { return target_around(cgroup); };
  callbacks.reading = [this](Now at, const link::sync::Reading& r) {
    return node_.metrics_pages()->take(at, r.rule, result_of(r));
  };
  callbacks.nearest = [this](Now, const link::sync::NearestPair& pair) {
    using Set = LearnerLink::NearestSet;
    const Set set = learner_ ? learner_->set_nearest(pair.agent, pair.neighbour) : Set::NoAgent;
    if (set == Set::NoAgent) return false;
    log(set == Set::Another ? LOG_INFO : LOG_DEBUG,
        pair.agent + ": the nearest known pair is " + link::words_of(pair.neighbour),
        {{"MESSAGE_ID", std::string(kMessageSync)}});
    return true;
  };
  callbacks.metrics = metrics_;
  callbacks.changed = [this](bool there, const std::string& why_not) {
    node_.metrics_pages()->set_source(there, why_not);
  };
  callbacks.log = [](bool trouble, const std::string& text) {
    log(trouble ? LOG_WARNING : LOG_INFO, text, {{"MESSAGE_ID", std::string(kMessageSync)}});
  };
  return callbacks;
}

/// After the tick, the bus and the metrics: neither peer is trusted.
sd_event_source* Peers::listen(int fd, sd_event_io_handler_t handler, const char* what) {
  sd_event_source* source = nullptr;
  int r = sd_event_add_io(event_, &source, fd, EPOLLIN, handler, this);
  if (r >= 0) r = sd_event_source_set_priority(source, SD_EVENT_PRIORITY_IDLE);
  if (r < 0) log(LOG_ERR, "no " + std::string(what) + ": event source: " + std::strerror(-r));
  return source;
}

void Peers::tick(Now now) {
  if (learner_) learner_->tick(now);
  if (sync_) sync_->tick(now);
}

void Peers::changed(TargetId id, AgentChange change) {
  if (change.removed) {
    if (learner_) learner_->agent_removed(id);
    episodes_.removed(id);
  } else if (learner_ && (change.added || change.layout)) {
    if (const auto view = node_.loop().view(id))
      learner_->agent_added(*view->target, *view->layout, view->rule->learning_group());
  }
}

void Peers::decided(const Target& target, const Decision& decision) {
  if (learner_) learner_->decided(target, decision);
  const auto view = [this](TargetId id) { return node_.loop().view(id); };
  auto ended = episodes_.decided(target, decision, view);
  if (!ended || !sync_) return;
  if (const link::Embedded* own = learner_ ? learner_->embedded(target.id) : nullptr) {
    ended->model = own->model;
    ended->embedding = own->embedding;
  }
  sync_->episode_ended(std::move(*ended));
}

int Peers::learner_event(sd_event_source*, int, std::uint32_t, void* data) noexcept {
  Peers* peers = static_cast<Peers*>(data);
  if (peers->learner_) peers->learner_->process(read_clocks());
  return 0;
}

int Peers::sync_event(sd_event_source*, int, std::uint32_t, void* data) noexcept {
  Peers* peers = static_cast<Peers*>(data);
  if (peers->sync_) peers->sync_->process(read_clocks());
  return 0;
}

}  // namespace flash
