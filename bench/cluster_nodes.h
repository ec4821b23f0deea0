// Purpose: many nodes in one process, for measuring what is behind them: each has flash-sync's own outbox and
// dispatch and says its own records; connections are shared, one per Nodes.
// Ownership: owns outboxes (files in a folder) and the connection.
// Thread rule: run() on one thread; the counters may be read from others.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "coordinator/nats.h"
#include "core/random.h"
#include "core/result.h"
#include "core/time.h"
#include "sync/dispatch.h"
#include "sync/outbox.h"

namespace flash::bench {

struct NodesOptions {
  coordinator::NatsOptions nats;
  std::string folder;  // of the outboxes
  int first = 0, nodes = 100;
  int agents = 10;            // per node
  Duration period{};          // of an agent's episodes
  std::uint64_t backlog = 0;  // instead of a period: each node always has so many that wait
  Duration round = std::chrono::milliseconds(500);  // as flash-sync's: a commit per round
};

/// Milliseconds, of each record.
struct Latencies {
  std::vector<float> put, published;  // from the episode's end, or from its (last) publish, to the watermark
};

class Nodes {
 public:
  static Result<std::unique_ptr<Nodes>> open(const NodesOptions& options, const Random& random);

  /// Tells episodes until `telling` is false, then goes on until all are confirmed or `ending` is true.
  Result<void> run(const std::atomic<bool>& telling, const std::atomic<bool>& ending);

  std::uint64_t told() const { return told_; }
  std::uint64_t confirmed() const { return confirmed_; }
  std::uint64_t published() const { return published_; }
  /// Of what is confirmed from now on, instead of before.
  void forget_latencies() { forget_ = true; }
  /// After run().
  const Latencies& latencies() const { return latencies_; }
  /// After run(): what each run has told.
  std::vector<std::pair<std::string, std::uint64_t>> told_by_run() const;

 private:
  struct Node {
    std::string name;
    sync::Outbox outbox;
    sync::Dispatch dispatch;
    Duration next_round{}, next_episode{};
    std::uint64_t told = 0;
    struct InFlight {
      Duration put, published;
    };
    std::deque<InFlight> waiting;  // records beyond the watermark: seq told - waiting.size() + 1 and on
  };

  explicit Nodes(const NodesOptions& options) : options_(options) {}
  Result<void> add_node(int index, const Random& random);
  Result<void> connect();
  Result<void> round(Node& node, Duration now, bool telling);
  Result<void> tell(Node& node, Duration now);
  Result<void> send(Node& node, Duration now);
  Result<void> hear(const coordinator::Message& message);
  Result<void> due_rounds(bool telling);

  NodesOptions options_;
  Duration gap_{};  // between a node's episodes
  std::vector<Node> nodes_;
  std::unordered_map<std::string, std::size_t> by_subject_;
  std::unique_ptr<coordinator::Nats> nats_;
  Latencies latencies_;
  std::atomic<std::uint64_t> told_ = 0, confirmed_ = 0, published_ = 0;
  std::atomic<bool> forget_ = false;
};

}  // namespace flash::bench
