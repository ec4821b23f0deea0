#include "bench/cluster_nodes.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "coordinator/messages.h"
#include "core/process.h"

namespace flash::bench {
namespace {

constexpr Duration kSlice = std::chrono::milliseconds(10);
constexpr std::size_t kEmbedding = 64;

Duration mono() {
  return clock_now(CLOCK_MONOTONIC);
}

float milliseconds(Duration d) {
  return static_cast<float>(seconds(d) * 1000);
}

/// As flashd says it of a service in the learned stage.
link::Episode episode_of(int agent, std::uint64_t number) {
  link::Episode e;
  e.target = "service-" + std::to_string(agent) + ".service";
  e.agent = "resource-limits:/system.slice/" + e.target;
  e.application = "shop";
  e.rule = "services";
  e.episode = number;
  e.stage = Stage::Serving;
  e.steps = e.rewards = 100;
  e.reward_mean = 0.75;
  e.fallback_rewards = 1000;
  e.fallback_reward = 0.5;
  e.model_version = 12;
  e.embedding.assign(kEmbedding, 0.125F * static_cast<float>(agent + 1));
  e.time_us =
      std::chrono::duration_cast<std::chrono::microseconds>(read_clocks().wall.time_since_epoch()).count();
  return e;
}

std::string run_name(Random random) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(random.next()),
                static_cast<unsigned long long>(random.next()));
  return text;
}

}  // namespace

Result<std::unique_ptr<Nodes>> Nodes::open(const NodesOptions& options, const Random& random) {
  std::unique_ptr<Nodes> all(new Nodes(options));
  all->gap_ = options.period / std::max(options.agents, 1);
  for (int i = 0; i < options.nodes; ++i) FLASH_CHECK(all->add_node(options.first + i, random));
  FLASH_CHECK(all->connect());
  return all;
}

Result<void> Nodes::add_node(int index, const Random& random) {
  char name[32];
  std::snprintf(name, sizeof name, "node-%06d", index);
  const Random own = random.fork(static_cast<std::uint64_t>(index));
  std::string note;
  FLASH_TRY(auto outbox,
            sync::Outbox::open(options_.folder + "/" + name + ".db", run_name(own), 200000, &note));
  Node node{.name = name, .outbox = std::move(outbox), .dispatch = sync::Dispatch(), .waiting = {}};
  // Spread over a round and a period: nodes do not start together.
  Random phase = own.fork(1);
  const Duration now = mono();
  node.next_round = now + from_seconds(seconds(options_.round) * phase.uniform());
  node.next_episode = now + from_seconds(seconds(gap_) * phase.uniform());
  by_subject_[coordinator::watermark_subject(name)] = nodes_.size();
  nodes_.push_back(std::move(node));
  return {};
}

Result<void> Nodes::connect() {
  FLASH_TRY(nats_, coordinator::Nats::connect(options_.nats));
  FLASH_CHECK(nats_->subscribe(coordinator::watermark_subject("*")));
  for (Node& node : nodes_) node.dispatch.restart();
  return {};
}

/// What has ended since the last round, in one commit.
Result<void> Nodes::tell(Node& node, Duration now) {
  std::vector<sync::Outbox::Item> items;
  const auto add = [&](Duration at) {
    const std::uint64_t n = node.told++;
    const auto agents = static_cast<std::uint64_t>(options_.agents);
    items.push_back({1, {node.told, episode_of(static_cast<int>(n % agents), n / agents)}});
    node.waiting.push_back({at, now});
  };
  if (options_.backlog > 0)
    while (node.waiting.size() < options_.backlog) add(now);
  else
    for (; node.next_episode <= now; node.next_episode += gap_) add(node.next_episode);
  FLASH_CHECK(node.outbox.add(items));
  told_ += items.size();
  return {};
}

Result<void> Nodes::send(Node& node, Duration now) {
  const sync::Dispatch::Wanted wanted = node.dispatch.wanted(now);
  if (wanted.most == 0) return {};
  FLASH_TRY(const auto rows, node.outbox.after(wanted.after, wanted.most));
  const std::string subject = coordinator::record_subject({"default", node.name});
  const std::uint64_t before = node.told - node.waiting.size();
  for (const auto& row : rows) {
    FLASH_CHECK(nats_->publish(
        subject, coordinator::encode_record(node.outbox.run(), row.seq, row.prev, row.episode)));
    node.dispatch.sent(now, row.seq);
    node.waiting[row.seq - before - 1].published = now;
    ++published_;
  }
  return {};
}

Result<void> Nodes::round(Node& node, Duration now, bool telling) {
  if (telling) FLASH_CHECK(tell(node, now));
  return send(node, now);
}

Result<void> Nodes::hear(const coordinator::Message& message) {
  const auto at = by_subject_.find(message.subject);
  if (at == by_subject_.end()) return {};  // of another connection's node
  Node& node = nodes_[at->second];
  FLASH_TRY(const coordinator::Watermark mark, coordinator::decode_watermark(message.bytes));
  const Duration now = mono();
  if (mark.run != node.outbox.run() || !node.dispatch.confirmed(now, mark.seq)) return {};
  if (forget_.exchange(false)) latencies_ = {};
  for (std::uint64_t seq = node.told - node.waiting.size() + 1; seq <= mark.seq; ++seq) {
    latencies_.put.push_back(milliseconds(now - node.waiting.front().put));
    latencies_.published.push_back(milliseconds(now - node.waiting.front().published));
    node.waiting.pop_front();
    ++confirmed_;
  }
  FLASH_CHECK(node.outbox.confirm(mark.seq));
  return send(node, now);  // a window may follow the one record
}

Result<void> Nodes::due_rounds(bool telling) {
  for (Node& node : nodes_) {
    const Duration now = mono();
    if (node.next_round > now) continue;
    FLASH_CHECK(round(node, now, telling));
    node.next_round = std::max(node.next_round + options_.round, now);
  }
  return {};
}

Result<void> Nodes::run(const std::atomic<bool>& telling, const std::atomic<bool>& ending) {
  while (!ending && (telling || confirmed_ < told_)) {
    FLASH_CHECK(due_rounds(telling));
    const Duration until = mono() + kSlice;
    for (Duration left = kSlice; left > Duration{}; left = until - mono()) {
      FLASH_TRY(const auto message, nats_->next(left));
      if (message) FLASH_CHECK(hear(*message));
    }
  }
  return {};
}

std::vector<std::pair<std::string, std::uint64_t>> Nodes::told_by_run() const {
  std::vector<std::pair<std::string, std::uint64_t>> all;
  for (const Node& node : nodes_) all.emplace_back(node.outbox.run(), node.told);
  return all;
}

}  // namespace flash::bench
