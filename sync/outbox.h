// Purpose: what the coordinator is to be told, on disk until it is safe there. Bounded: where the coordinator
// is away for too long, every second of the oldest records goes, and is counted.
// Ownership: owns the file.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "link/sync_messages.h"

namespace flash::sync {

struct OutboxCounts {
  std::uint64_t waiting = 0;
  // Since the file was made.
  std::uint64_t taken = 0, confirmed = 0, thinned = 0;
};

class Outbox {
 public:
  struct Item {
    std::uint64_t epoch = 0;  // of flashd
    link::sync::EpisodeEnd episode;
  };
  struct Row {
    std::uint64_t seq = 0, prev = 0;  // as coordinator::Record has them
    std::string episode;              // as coordinator::encode_episode() wrote it
  };

  /// As link::sqlite::Database::open(). `fresh_run` names the file if it is new.
  static Result<Outbox> open(const std::string& path, const std::string& fresh_run, std::size_t max_records,
                             std::string* note);
  Outbox(Outbox&&) noexcept;
  Outbox& operator=(Outbox&&) noexcept;
  ~Outbox();

  /// The name under which its records are known, unique per file.
  const std::string& run() const;
  /// All or nothing, on the disk when it returns. What it has taken already is left out.
  Result<void> add(std::span<const Item> items);
  /// At most so many, the oldest after `seq` first.
  Result<std::vector<Row>> after(std::uint64_t seq, std::size_t most) const;
  /// All up to this one are safe elsewhere: they go.
  Result<void> confirm(std::uint64_t seq);
  const OutboxCounts& counts() const;

 private:
  struct Impl;
  explicit Outbox(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flash::sync
