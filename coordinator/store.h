// Purpose: the coordinator's records on disk, each once, whatever comes twice: (node, run, seq) is its key.
// Ownership: owns the file.
// Thread rule: one thread; others may read the file beside it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/history.h"
#include "coordinator/messages.h"
#include "coordinator/messages_pages.h"
#include "coordinator/rollback.h"
#include "core/result.h"
#include "core/time.h"

namespace flash::coordinator {

struct Arrived {
  Origin origin;
  Record record;
};

/// A record that is not stored, and must not hold up what follows it in its outbox.
struct PassedOver {
  std::string node;
  RecordPlace place;
};

/// What the store keeps of one node at most; far more than an honest one needs (it has 256 records on their
/// way, and a run per outbox file). The least recently heard make room.
struct NodeQuota {
  std::size_t agents = 4096;
  std::size_t runs = 16;
  std::size_t uncovered = 2048;  // records of a run beyond its watermark: nothing removes them
};

/// Where in the stream the store stands; its records and this are one commit.
struct Position {
  std::int64_t stream_created_ns = 0;
  std::uint64_t last = 0;
  bool operator==(const Position&) const = default;
};

struct FleetAgent {
  std::string node, pool;
  link::Episode latest;
  std::uint64_t records = 0;
  std::uint64_t episodes_to_serving = 0;  // records up to the first one in SERVING; 0: none yet
  std::int64_t first_us = 0;              // wall clock of its first record
  /// Of the newest embedding from the running mean of those before it, of one model; nullopt: there is no
  /// mean.
  std::optional<double> drift;
};

struct Committed {
  std::uint64_t fresh = 0, duplicates = 0;
  struct NodeWatermark {
    std::string node;
    Watermark watermark;
  };
  std::vector<NodeWatermark> watermarks;                       // of every run that something came of
  std::vector<FleetAgent> agents;                              // that something new came of, as they are now
  std::vector<std::pair<std::string, std::string>> forgotten;  // node and agent that made room for others
  std::uint64_t over_quota = 0;  // records that were not stored: their node has its share
};

/// A node as its last heartbeat said.
struct FleetNode {
  std::string node, pool;
  std::string software, flashd, mode;  // flashd's own: empty while it is away
  std::uint64_t agents = 0, outbox = 0;
  std::int64_t last_seen_us = 0;
  bool operator==(const FleetNode&) const = default;
};

struct FleetCoordinator {
  std::string name;
  std::uint64_t position = 0;
  bool in_step = false;
  std::uint64_t lease = 0;  // revision of the lease that it holds; 0: it does not
  std::int64_t last_seen_us = 0;
};

/// While somebody listened to heartbeats without a break.
struct Watch {
  std::int64_t since_us = 0, until_us = 0;
};

struct RetentionOptions {
  double days = 30;
  double mib = 4096;
};

struct Retained {
  std::uint64_t thinned = 0;            // records that became part of a summary
  std::uint64_t summaries_dropped = 0;  // the oldest ones: summaries alone were too many
  bool more = false;                    // there is more to do
};

struct StoreCounts {
  std::uint64_t records = 0;
  std::uint64_t duplicates = 0, refused = 0;         // since the store was made
  std::uint64_t thinned = 0, summaries_dropped = 0;  // likewise
};

/// How far a run is safe, and how far it is known.
struct RunMark {
  std::string node, run;
  std::uint64_t watermark = 0, highest = 0;
};

struct FleetRun {
  std::string node, run;
  std::uint64_t records = 0, watermark = 0;  // records: also those that became summaries
};

class Store {
 public:
  /// As link::sqlite::Database::open().
  static Result<Store> open(const std::string& path, std::string* note);
  static Result<Store> open_to_read(const std::string& path);
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  ~Store();

  Result<Position> position() const;
  void set_quota(const NodeQuota& quota);
  /// All or nothing, on the disk when it returns. `refused`: messages that were none; of those that had a
  /// place in an outbox, the watermark goes over it once it comes there.
  Result<Committed> commit(std::span<const Arrived> records, std::uint64_t refused, const Position& position,
                           std::span<const PassedOver> passed_over = {});

  /// A bounded piece of work: of the oldest records, those that are too old or too many become summaries per
  /// agent and hour. The newest of each agent stays, and what no watermark covers yet.
  Result<Retained> retain(const RetentionOptions& options, std::int64_t now_us, std::size_t most = 2000);
  /// Nodes replace what was known of them; coordinators are all there are.
  Result<void> save(std::span<const FleetNode> nodes, std::span<const FleetCoordinator> coordinators,
                    const Watch& watch);
  Result<std::vector<FleetNode>> nodes() const;                // in order of name
  Result<std::vector<FleetCoordinator>> coordinators() const;  // in order of name
  Result<Watch> watch() const;

  Result<StoreCounts> counts() const;
  Result<std::vector<FleetAgent>> agents() const;  // in order of node and agent
  Result<std::vector<FleetRun>> runs() const;      // in order of node
  Result<std::vector<RunMark>> marks() const;      // in order of node; costs nothing per record
  /// Agents, or nodes, with that text in a name: at most so many from there on, in order of node and agent.
  struct Rows {
    std::uint64_t total = 0;  // that match
    std::vector<FleetRow> rows;
  };
  Result<Rows> agent_rows(const std::string& text, std::uint64_t offset, std::size_t most) const;
  Result<Rows> node_rows(const std::string& text, std::uint64_t offset, std::size_t most) const;
  /// The number of the newest record here, 0 without any; numbers grow as records come.
  Result<std::int64_t> newest() const;
  /// At most so many records after that number, in order.
  Result<std::vector<std::pair<std::int64_t, HistoryPoint>>> history_after(std::int64_t number,
                                                                           std::size_t most) const;
  /// What nodes' learned policies of a task earned more than the fallback, by whole episodes in [from,
  /// before) and from `after` on (wall clock of the nodes).
  struct Spans {
    std::int64_t from_us = 0, before_us = 0, after_us = 0;
  };
  Result<std::vector<NodeGain>> gains(const std::string& task, const Spans& spans) const;

 private:
  struct Impl;
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flash::coordinator
