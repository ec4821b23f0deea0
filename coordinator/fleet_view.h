// Purpose: the fleet in memory as the HTTP API shows it: read from the store through a connection of its own,
// so that nobody who looks holds up what is collected.
// Ownership: owns its connection to the store.
// Thread rule: one thread. No clock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/embedding_map.h"
#include "coordinator/history.h"
#include "coordinator/store.h"
#include "core/result.h"

namespace flash::coordinator {

/// What the coordinator knows beside its store.
struct LiveState {
  bool connected = false;
  std::string server;
  std::map<std::string, std::string> node_states;  // as heartbeats tell; a node that is not there: "unknown"
};

/// Of what is known; nothing: of nothing.
class Mean {
 public:
  void add(std::optional<double> value) {
    if (!value) return;
    sum_ += *value;
    ++count_;
  }
  std::optional<double> value() const {
    return count_ > 0 ? std::optional(sum_ / static_cast<double>(count_)) : std::nullopt;
  }

 private:
  double sum_ = 0;
  std::size_t count_ = 0;
};

struct NodeView {
  std::string node, pool, state;
  std::size_t agents = 0;
  std::array<std::size_t, kStages> stages{};
  std::optional<double> reward, fallback;  // means of its agents' latest
  std::uint64_t records = 0;
  // Records that are stored but not covered by a watermark: something before them is missing.
  std::uint64_t lag = 0;
  std::int64_t latest_us = 0;
};

class FleetView {
 public:
  static Result<FleetView> open(const std::string& store_path);

  /// What changed since. `live` is taken as it is.
  Result<void> refresh(std::int64_t now_us, const LiveState& live);

  const StoreCounts& counts() const { return counts_; }
  const LiveState& live() const { return live_; }
  const std::vector<FleetAgent>& agents() const { return agents_; }  // in order of node and agent
  const std::vector<NodeView>& nodes() const { return nodes_; }      // in order of node
  const std::vector<FleetCoordinator>& coordinators() const { return coordinators_; }
  const History& history() const { return history_; }
  std::int64_t read_us() const { return read_us_; }

  /// Agents of a task whose embeddings one model made, and where they lie in the plane: those of different
  /// models are not comparable.
  struct Placed {
    std::string model;
    std::vector<const FleetAgent*> agents;
    EmbeddingMap map;
    std::map<std::string, std::size_t> models;  // of all of the task: how many agents
  };
  /// REQUIRES: nobody keeps it beyond the next refresh().
  /// Empty: the model that most of the task's agents have.
  const Placed& placed(Task task, const std::string& model);

 private:
  explicit FleetView(Store store) : store_(std::move(store)) {}
  Result<void> read_history(std::int64_t now_us);
  void summarize(const std::vector<RunMark>& marks);

  Store store_;
  StoreCounts counts_;
  LiveState live_;
  std::vector<FleetAgent> agents_;
  std::vector<NodeView> nodes_;
  std::vector<FleetCoordinator> coordinators_;
  History history_;
  std::optional<std::int64_t> history_at_;  // the last record that is in it
  std::int64_t read_us_ = 0;
  std::map<std::pair<Task, std::string>, Placed> placed_;
};

std::optional<double> reward_of(const FleetAgent& agent);
std::optional<double> fallback_of(const FleetAgent& agent);
/// What learning is worth: reward above the fallback's.
std::optional<double> gain_of(std::optional<double> reward, std::optional<double> fallback);

}  // namespace flash::coordinator
