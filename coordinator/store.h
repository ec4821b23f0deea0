// Purpose: the coordinator's records on disk, each once, whatever comes twice: (node, run, seq) is its key.
// Ownership: owns the file. Thread rule: one thread; others may read the file beside it.
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
#include "core/result.h"
#include "core/time.h"

namespace flash::coordinator {

struct Arrived {
  Origin origin;
  Record record;
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
};

struct Committed {
  std::uint64_t fresh = 0, duplicates = 0;
  struct NodeWatermark {
    std::string node;
    Watermark watermark;
  };
  std::vector<NodeWatermark> watermarks;  // of every run that something came of
  std::vector<FleetAgent> agents;         // that something new came of, as they are now
};

struct StoreCounts {
  std::uint64_t records = 0;
  std::uint64_t duplicates = 0, refused = 0;  // since the store was made
};

/// How far a run is safe, and how far it is known.
struct RunMark {
  std::string node, run;
  std::uint64_t watermark = 0, highest = 0;
};

struct FleetRun {
  std::string node, run;
  std::uint64_t records = 0, watermark = 0;
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
  /// All or nothing, on the disk when it returns. `refused`: messages that were none.
  Result<Committed> commit(std::span<const Arrived> records, std::uint64_t refused, const Position& position);

  Result<StoreCounts> counts() const;
  Result<std::vector<FleetAgent>> agents() const;  // in order of node and agent
  Result<std::vector<FleetRun>> runs() const;      // in order of node
  Result<std::vector<RunMark>> marks() const;      // in order of node; costs nothing per record
  /// The number of the newest record here, 0 without any; numbers grow as records come.
  Result<std::int64_t> newest() const;
  /// At most so many records after that number, in order.
  Result<std::vector<std::pair<std::int64_t, HistoryPoint>>> history_after(std::int64_t number,
                                                                           std::size_t most) const;

 private:
  struct Impl;
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flash::coordinator
