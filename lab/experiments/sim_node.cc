#include "lab/experiments/sim_node.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <utility>

#include "core/json.h"
#include "core/printable.h"
#include "core/process.h"
#include "core/random.h"
#include "daemon/episode_summaries.h"
#include "daemon/learner_agents.h"
#include "daemon/learner_link.h"
#include "daemon/sync_link.h"
#include "lab/sim/managed_world.h"

namespace flash::lab {
namespace {

using nlohmann::ordered_json;

constexpr Duration kReportEvery = std::chrono::seconds(1);

/// In one piece, so that a reader never sees half of it.
void write_report(const std::string& path, const ordered_json& report) {
  const std::string next = path + ".next";
  std::ofstream(next) << report.dump(2, ' ', false, ordered_json::error_handler_t::replace) << '\n';
  (void)std::rename(next.c_str(), path.c_str());
}

ordered_json counters(const std::vector<std::pair<std::string, std::uint64_t>>& list) {
  ordered_json all;
  for (const auto& [name, value] : list) all[name] = value;
  return all;
}

/// The pool after an update of all its applications, which bear another name then.
Result<Pool> with_updates(const Pool& pool, int scenario) {
  Pool out;
  for (const Pair& pair : pool.pairs) {
    Application application = updated(pair.application(), scenario);
    application.name += "-update-" + std::to_string(scenario);
    FLASH_TRY(Pair changed, Pair::make(application, pair.environment(), pair.options()));
    out.pairs.push_back(std::move(changed));
  }
  return out;
}

}  // namespace

struct SimNode::Impl {
  SimNodeOptions options;
  Pool pool;
  std::unique_ptr<LearnerLink> learner;
  std::unique_ptr<SyncLink> sync;
  EpisodeSummaries episodes;
  std::vector<std::unique_ptr<ManagedWorld>> agents;  // the i-th has target id i + 1

  void open_links();
  void add_agents();
  ManagedWorld* agent_of(TargetId id);
  void decided(const Target& target, const Decision& decision);
  void wait(Duration until);
  void tick();
  ordered_json report() const;
  ordered_json report_of(const ManagedWorld& agent) const;
};

SimNode::SimNode(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SimNode::~SimNode() = default;

Result<std::unique_ptr<SimNode>> SimNode::open(SimNodeOptions options) {
  auto impl = std::make_unique<Impl>();
  options.pool.pairs = options.first + options.agents;
  FLASH_TRY(impl->pool, make_pool(options.pool));
  if (options.update) {
    FLASH_TRY(impl->pool, with_updates(impl->pool, *options.update));
  }
  impl->options = std::move(options);
  impl->open_links();
  impl->add_agents();
  return std::unique_ptr<SimNode>(new SimNode(std::move(impl)));
}

ManagedWorld* SimNode::Impl::agent_of(TargetId id) {
  return id.value >= 1 && id.value <= agents.size() ? agents[id.value - 1].get() : nullptr;
}

/// As flashd wires its own.
void SimNode::Impl::open_links() {
  const std::uint64_t epoch = random_seed();
  LearnerCallbacks learning;
  learning.offer = [this](Now, TargetId id,
                          const std::shared_ptr<const PolicySnapshot>& policy) -> Result<void> {
    ManagedWorld* agent = agent_of(id);
    if (agent == nullptr) return Error(std::errc::no_such_file_or_directory, "no such agent");
    return agent->offer(*policy);
  };
  learning.log = [](LearnerEvent, const std::string& text) { print_line(stderr, "simnode: " + text); };
  LearnerOptions to_learner;
  to_learner.socket = options.learner;
  to_learner.user = "root";
  to_learner.settings.seed = options.seed;
  // Where a simulated second passes faster, there is as much less time to learn in it.
  const double share = std::min(seconds(options.period), 1.0);
  link::LearningSettings& s = to_learner.settings;
  s.offline_updates = std::max(1U, static_cast<std::uint32_t>(s.offline_updates * share));
  s.publish_interval_s = std::max(0.5, s.publish_interval_s * share);
  learner = std::make_unique<LearnerLink>(
      to_learner, LearnerSession{"flash-simnode", epoch, options.period, options.episode_steps}, learning);
  SyncCallbacks syncing;
  syncing.reading = [](Now, const auto&) { return false; };
  syncing.metrics = [] { return std::vector<link::sync::Family>(); };
  syncing.changed = [](bool, const std::string&) {};
  syncing.nearest = [this](Now, const link::sync::NearestPair& pair) {
    return learner->set_nearest(pair.agent, pair.neighbour) != LearnerLink::NearestSet::NoAgent;
  };
  syncing.log = [](bool, const std::string& text) { print_line(stderr, "simnode: " + text); };
  SyncOptions to_sync;
  to_sync.socket = options.sync;
  to_sync.user = "root";
  sync = std::make_unique<SyncLink>(to_sync, "flash-simnode", epoch, syncing);
}

void SimNode::Impl::add_agents() {
  const Random random(options.seed);
  for (std::size_t i = 0; i < options.agents; ++i) {
    const Pair& pair = pool.pairs[options.first + i];
    ManagedOptions managed;
    managed.id = i + 1;
    managed.episode_steps = options.episode_steps;
    managed.events.decided = [this](const Target& t, const Decision& d) { decided(t, d); };
    managed.clock = read_clocks;
    Random own = random.fork(i);
    agents.push_back(std::make_unique<ManagedWorld>(pair, pair.rule(), own.uniform(0, 3600), own.next(),
                                                    std::move(managed)));
    const AgentView view = agents.back()->view();
    learner->agent_added(*view.target, *view.layout, view.rule->learning_group());
  }
}

void SimNode::Impl::decided(const Target& target, const Decision& decision) {
  if (agent_of(target.id) == nullptr) return;  // its first tick, while it is made
  learner->decided(target, decision);
  const auto view = [this](TargetId id) { return std::optional(agent_of(id)->view()); };
  auto ended = episodes.decided(target, decision, view);
  if (!ended) return;
  if (const link::Embedded* own = learner->embedded(target.id)) {
    ended->model = own->model;
    ended->embedding = own->embedding;
  }
  sync->episode_ended(std::move(*ended));
}

/// Serves the sockets meanwhile.
void SimNode::Impl::wait(Duration until) {
  for (Duration left = until - read_clocks().mono; left > Duration{}; left = until - read_clocks().mono) {
    std::array<pollfd, 2> fds{{{learner->fd(), POLLIN, 0}, {sync->fd(), POLLIN, 0}}};
    (void)poll(fds.data(), fds.size(),
               static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count()));
    if (fds[0].revents != 0) learner->process(read_clocks());
    if (fds[1].revents != 0) sync->process(read_clocks());
  }
}

void SimNode::Impl::tick() {
  for (auto& agent : agents) (void)agent->step();
  learner->tick(read_clocks());
  sync->tick(read_clocks());
}

ordered_json SimNode::Impl::report_of(const ManagedWorld& agent) const {
  const AgentView view = agent.view();
  const TargetId id = view.target->id;
  ordered_json j = {{"agent", learning_key(*view.target)},
                    {"application", view.target->application},
                    {"stage", to_string(view.stage)},
                    {"episode", view.episode},
                    {"controller", to_string(view.controller)},
                    {"learning", learner->doing(id)},
                    {"policy", view.snapshot ? view.snapshot->model : ""},
                    {"nearest", nullptr}};
  if (const link::Neighbour* n = learner->nearest(id))
    j["nearest"] = {{"node", n->node},         {"agent", n->agent},           {"application", n->application},
                    {"distance", n->distance}, {"similarity", n->similarity}, {"episodes", n->episodes}};
  return j;
}

ordered_json SimNode::Impl::report() const {
  ordered_json all = {{"agents", ordered_json::array()},
                      {"learner", learner->state()},
                      {"sync", sync->state()},
                      {"learner_counters", counters(to_list(learner->counters()))},
                      {"sync_counters", counters(to_list(sync->counters()))}};
  for (const auto& agent : agents) all["agents"].push_back(report_of(*agent));
  return all;
}

void SimNode::run(const std::function<bool()>& ended) {
  Duration next = read_clocks().mono, report_at{};
  while (!ended()) {
    impl_->tick();
    const Duration now = read_clocks().mono;
    if (now >= report_at) {
      write_report(impl_->options.report, impl_->report());
      report_at = now + kReportEvery;
    }
    next = std::max(next + impl_->options.period, now);  // a busy machine slows the simulation
    impl_->wait(next);
  }
  write_report(impl_->options.report, impl_->report());
}

}  // namespace flash::lab
