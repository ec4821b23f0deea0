#include "daemon/node.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "actuators/host_lock.h"
#include "actuators/knob_board.h"
#include "actuators/ledger.h"
#include "actuators/restore.h"
#include "collectors/kernel_probe.h"
#include "collectors/prometheus_collector.h"
#include "collectors/registry.h"
#include "collectors/request_collector.h"
#include "collectors/slo_ladder.h"
#include "collectors/statsd_collector.h"
#include "core/process.h"
#include "daemon/drivers.h"
#include "daemon/targets.h"
#include "host/cgroup_id.h"
#include "host/cgroup_layout.h"
#include "host/cgroup_watch.h"
#include "host/parse.h"
#include "policy/rule_match.h"

namespace flash {
namespace {

/// Cgroups that came, went or are looked at again between two ticks, at about 20 us each; the rest waits for
/// the next wake-up, so that a tick is never late for them.
constexpr std::size_t kCgroupsPerWakeUp = 512;

/// What the arbiter may hand out: all online CPUs and all memory of the machine.
void fill_capacity(const HostRoot& root, NodeCapacity& capacity, std::vector<int>& online,
                   std::vector<Degraded>& degraded) {
  if (auto text = read_file(root.sys("devices/system/cpu/online")))
    if (auto cpus = parse_cpu_list(*text)) online = *cpus;
  if (online.empty()) {
    degraded.push_back({"node", "the list of online CPUs cannot be read; one is assumed"});
    online = {0};
  }
  capacity.cores = static_cast<double>(online.size());
  if (auto text = read_file(root.proc("meminfo")))
    if (auto info = parse_meminfo(*text))
      capacity.memory_bytes = static_cast<double>(info->total_bytes.value_or(0));
  if (capacity.memory_bytes <= 0)
    degraded.push_back({"node", "the size of memory cannot be read; it does not bound memory limits"});
}

/// Rules that name a metrics page.
std::vector<ScrapedRule> scraped_rules(const DaemonConfig& config) {
  std::vector<ScrapedRule> all;
  for (const auto& rule : config.rules)
    if (const PrometheusOptions& p = rule->slo.prometheus; !p.url.empty())
      all.push_back({rule->name, from_seconds(p.interval_s), from_seconds(p.timeout_s), !p.latency.empty(),
                     rule->slo.latency_p99_ms.value_or(0)});
  return all;
}

/// Where systemd did not make it: the directory of its own that StatsD's socket has unless told otherwise.
void make_statsd_directory(const std::string& socket) {
  if (socket != StatsdEndpoints().socket) return;
  for (auto at = socket.find('/', 1); at != socket.npos; at = socket.find('/', at + 1))
    (void)::mkdir(socket.substr(0, at).c_str(), 0755);
}

}  // namespace

struct Node::Impl {
  Impl(NodeOptions o, const DaemonConfig& c) : options(std::move(o)), rules(c.rules) {}

  LoopOptions loop_options(const DaemonConfig& config) const {
    LoopOptions loop_options = config.loop;
    loop_options.capacity.cores = capacity.cores;
    loop_options.capacity.memory_bytes = capacity.memory_bytes;
    if (options.dry_run) loop_options.mode = std::min(loop_options.mode, Mode::Recommend);
    return loop_options;
  }

  /// In a dry run a rule that says control recommends.
  Targets::Rules rules_in_effect() const {
    Targets::Rules all = rules;
    if (!options.dry_run) return all;
    for (auto& rule : all) {
      if (rule->mode != Mode::Control) continue;
      Rule tame = *rule;
      tame.mode = Mode::Recommend;
      rule = std::make_shared<const Rule>(std::move(tame));
    }
    return all;
  }

  /// What others create below cgroups of theirs costs us nothing unless a rule may select it.
  void follow_rules() {
    if (watch)
      watch->follow_in_open([this](std::string_view path) {
        return std::any_of(rules.begin(), rules.end(),
                           [&](const auto& rule) { return may_match_below(*rule, path); });
      });
  }

  Result<Ledger> open_ledger() {
    if (!host_lock) {
      FLASH_TRY(HostLock lock, HostLock::take(options.lock, options.state_directory));
      host_lock.emplace(std::move(lock));
    }
    return Ledger::open(options.state_directory, boot_id(options.root));
  }

  NodeOptions options;
  Targets::Rules rules;
  std::vector<Degraded> degraded;  // found at start, for good
  NodeCapacity capacity;
  std::vector<int> online;
  std::optional<CgroupLayout> layout;
  std::optional<CgroupIdentifier> identifier;
  std::optional<CgroupWatch> watch;
  std::vector<std::unique_ptr<Collector>> collectors;  // in the order of a tick
  StatsdCollector* statsd = nullptr;
  PrometheusCollector* pages = nullptr;
  std::vector<KernelProbe*> probes;
  std::optional<HostLock> host_lock;
  std::optional<Ledger> ledger;
  std::unique_ptr<Drivers> drivers;
  std::unique_ptr<KnobBoard> board;
  std::unique_ptr<ControlLoop> loop;
  std::unique_ptr<Targets> targets;
};

std::string host_lock_path(const HostRoot& root) {
  return root.path("/run/flashd/lock");
}

Node::Node(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Node::~Node() = default;

Result<std::unique_ptr<Node>> Node::open(NodeOptions options, const DaemonConfig& config, LoopEvents events) {
  auto impl = std::make_unique<Impl>(std::move(options), config);
  const HostRoot& root = impl->options.root;
  if (impl->options.lock.empty()) impl->options.lock = host_lock_path(root);
  fill_capacity(root, impl->capacity, impl->online, impl->degraded);

  if (auto layout = CgroupLayout::detect(root)) {
    impl->layout = std::move(*layout);
    if (auto watch = CgroupWatch::open(*impl->layout))
      impl->watch.emplace(std::move(*watch));
    else
      impl->degraded.push_back({"cgroup", "cgroups are not followed: " + watch.error().message()});
  }  // else the collector of cgroups says that there are none
  impl->identifier.emplace(root, impl->layout ? *impl->layout : CgroupLayout());

  impl->collectors = build_collectors({&root, impl->layout ? &*impl->layout : nullptr});
  for (const auto& c : impl->collectors)
    if (auto* probe = dynamic_cast<KernelProbe*>(c.get())) impl->probes.push_back(probe);
  StatsdOptions statsd;
  statsd.socket = impl->options.metrics ? config.statsd.socket : "";
  make_statsd_directory(statsd.socket);
  statsd.udp = impl->options.metrics ? config.statsd.udp : "";
  // The order is that of slo.source "auto".
  std::vector<SloFeed> feeds;
  statsd.clocks = [] { return StatsdClocks{clock_now(CLOCK_BOOTTIME), clock_now(CLOCK_REALTIME)}; };
  statsd.cpu = [] { return clock_now(CLOCK_THREAD_CPUTIME_ID); };
  // Processes of a captured host, or of another root, are not to be found here: there everybody is believed.
  std::optional<StatsdSenders> senders;
  if (root.real()) senders.emplace(root, impl->layout ? &*impl->layout : nullptr);
  if (auto collector = StatsdCollector::open(std::move(statsd), std::move(senders))) {
    impl->statsd = collector->get();
    feeds.push_back({.source = SloSource::Statsd,
                     .collector = std::move(*collector),
                     .why_not = [](TargetId) { return "the application says nothing"; },
                     .always = true});
  } else {
    impl->degraded.push_back({"statsd", collector.error().message()});
  }
  auto pages = std::make_unique<PrometheusCollector>();
  impl->pages = pages.get();
  impl->pages->configure(scraped_rules(config), config.period);
  feeds.push_back({.source = SloSource::Prometheus,
                   .collector = std::move(pages),
                   .why_not = [raw = impl->pages](TargetId id) { return raw->why_not(id); }});
  auto requests = std::make_unique<RequestCollector>(root, impl->layout ? &*impl->layout : nullptr);
  impl->probes.push_back(requests.get());
  const auto why_not = [raw = requests.get()](TargetId id) { return raw->why_not(id); };
  feeds.push_back({.source = SloSource::Kernel, .collector = std::move(requests), .why_not = why_not});
  impl->collectors.push_back(std::make_unique<SloLadder>(std::move(feeds)));

  if (impl->options.dry_run) {
    impl->ledger.emplace(Ledger::unwritable("dry run: nothing is written"));
  } else if (auto ledger = impl->open_ledger()) {
    impl->ledger.emplace(std::move(*ledger));
  } else if (ledger.error().is(std::errc::operation_would_block)) {
    return std::move(ledger).error();
  } else {
    impl->ledger.emplace(
        Ledger::waiting(ledger.error().message(), [raw = impl.get()] { return raw->open_ledger(); }));
  }

  impl->drivers = std::make_unique<Drivers>(root, impl->layout.value_or(CgroupLayout()), impl->options.bus);
  impl->board = std::make_unique<KnobBoard>(impl->drivers->all(), *impl->ledger);

  std::vector<Collector*> collectors;
  for (const auto& c : impl->collectors) collectors.push_back(c.get());
  impl->loop = std::make_unique<ControlLoop>(impl->loop_options(config), std::move(collectors), *impl->board,
                                             std::move(events));
  impl->targets = std::make_unique<Targets>(*impl->loop, *impl->identifier, impl->online);
  return std::unique_ptr<Node>(new Node(std::move(impl)));
}

RestoreReport Node::start(Now now) {
  impl_->follow_rules();
  if (impl_->watch) impl_->targets->apply(now, impl_->watch->drain(now));
  impl_->targets->set_rules(now, impl_->rules_in_effect());
  return impl_->board->restore_orphans();
}

void Node::set_bus(sd_bus* bus) {
  impl_->drivers->set_bus(bus);
}

ControlLoop& Node::loop() {
  return *impl_->loop;
}
Actuator& Node::actuator() {
  return *impl_->board;
}
Ledger& Node::ledger() {
  return *impl_->ledger;
}
std::string Node::previous_state_directory() const {
  return impl_->host_lock ? impl_->host_lock->previous_directory() : std::string();
}
const std::vector<KnobDriver*>& Node::drivers() const {
  return impl_->drivers->all();
}

int Node::cgroup_events_fd() const {
  return impl_->watch ? impl_->watch->fd() : -1;
}
std::vector<int> Node::metrics_fds() const {
  return impl_->statsd ? std::vector<int>(impl_->statsd->fds().begin(), impl_->statsd->fds().end())
                       : std::vector<int>();
}

void Node::drain_cgroup_events(Now now) {
  if (impl_->watch) impl_->targets->apply(now, impl_->watch->drain(now, kCgroupsPerWakeUp));
}

Duration Node::drain_metrics(std::optional<Duration> woke) {
  if (!impl_->statsd) return {};
  impl_->statsd->drain(woke);
  return impl_->statsd->rest();
}

void Node::close_metrics() {
  if (impl_->statsd) impl_->statsd->close();
}

std::pair<Duration, Duration> Node::metrics_cost() const {
  if (!impl_->statsd) return {};
  const StatsdReadingCost& cost = impl_->statsd->cost();
  return {cost.all(), cost.believed};
}

std::vector<std::pair<std::string, std::uint64_t>> Node::metrics_counters() const {
  if (!impl_->statsd) return {};
  const StatsdCounters& c = impl_->statsd->counters();
  return {{"datagrams", c.datagrams},
          {"bytes", c.bytes},
          {"lines", c.lines},
          {"used", c.used},
          {"unused", c.unused},
          {"unassigned", c.unassigned},
          {"refused", c.refused},
          {"events", c.events},
          {"malformed", c.malformed},
          {"truncated", c.truncated},
          {"dropped", c.dropped},
          {"foreign", c.foreign},
          {"strangers", c.strangers},
          {"over_budget", c.over_budget},
          {"strangers_at_door", c.strangers_at_door},
          {"over_budget_at_door", c.over_budget_at_door}};
}

TickReport Node::tick(Now now) {
  // Also without an event: a watch that ran out of watches scans from here.
  drain_cgroup_events(now);
  return impl_->loop->tick(now);
}

PrometheusCollector* Node::metrics_pages() {
  return impl_->pages;
}

const std::vector<KernelProbe*>& Node::probes() const {
  return impl_->probes;
}

void Node::reconfigure(Now now, const DaemonConfig& config) {
  impl_->rules = config.rules;
  impl_->pages->configure(scraped_rules(config), config.period);
  impl_->follow_rules();
  impl_->loop->change_options(impl_->loop_options(config));
  impl_->targets->set_rules(now, impl_->rules_in_effect());
}

std::vector<SignalSource> Node::sources() const {
  std::vector<SignalSource> all;
  for (const auto& c : impl_->collectors)
    for (SignalSource& s : sources_of(*c)) all.push_back(std::move(s));
  return all;
}

std::vector<Degraded> Node::degraded() const {
  std::vector<Degraded> all = impl_->degraded;
  for (const auto& c : impl_->collectors)
    for (Degraded& d : c->degraded()) all.push_back(std::move(d));
  for (Degraded& d : impl_->board->degraded()) all.push_back(std::move(d));
  if (impl_->watch && !impl_->watch->degraded_reason().empty())
    all.push_back({"cgroup", impl_->watch->degraded_reason()});
  for (const auto& [what, why] : impl_->targets->refused()) all.push_back({what.first, why});
  for (const Degraded& d : impl_->targets->notes()) all.push_back(d);
  return all;
}

}  // namespace flash
