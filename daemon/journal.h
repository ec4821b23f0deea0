// Purpose: the decision journal on disk: every decision of every tick as one line of JSON
// (policy/decision_json.h without `words`), in one directory:
//   decisions.jsonl           what is being written
//   decisions.NNNNNNNN.jsonl  full ones, the highest number is the newest
// flashd --replay reads them (daemon/journal_reader.h). Bounded by size: the oldest file goes first. A line
// is 1.5 to 5 KiB: 64 MiB hold four to twelve hours of one target at one tick per second, a few minutes of a
// hundred. docs/adr/0007-decision-journal.md.
// Ownership: owns the open file. Nothing here may fail a tick: what cannot be written is counted and said.
// Thread rule: one thread. Time is a parameter.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/decision.h"
#include "core/result.h"
#include "core/target.h"
#include "core/time.h"
#include "host/file_io.h"

namespace flash {

struct JournalOptions {
  bool enabled = true;
  double max_bytes = 64.0 * 1024 * 1024;  // of all files together
  std::string directory;                  // empty: STATE_DIRECTORY/journal
  bool operator==(const JournalOptions&) const = default;
};

struct JournalCounters {
  std::uint64_t decisions = 0;  // written
  std::uint64_t bytes = 0;
  std::uint64_t dropped = 0;   // decisions that could not be written
  std::uint64_t rotated = 0;   // files
  std::uint64_t repaired = 0;  // files whose last line was half written and was cut off
};

class DecisionJournal {
 public:
  /// Full files; with the current one that makes at most max_bytes.
  static constexpr int kFiles = 8;
  /// Decisions that wait for flush(); beyond it they are dropped.
  static constexpr std::size_t kBufferBytes = 16u << 20;
  /// How long a journal that cannot be written is left alone.
  static constexpr Duration kRetry = std::chrono::seconds(10);

  /// Opens nothing yet: the first flush() does. REQUIRES: a directory, unless disabled.
  void configure(JournalOptions options);

  /// Keeps the decision's line in memory.
  void add(const Decision& decision, const Target& target);
  /// Writes what add() kept, with one write(2). Call it once per tick, when the knobs are set.
  void flush(Now now);

  const JournalCounters& counters() const { return counters_; }
  /// Why decisions are not written; empty when they are.
  const std::string& trouble() const { return trouble_; }

 private:
  struct Full {
    std::uint64_t number = 0;
    std::uint64_t bytes = 0;
  };
  Result<void> open();
  Result<void> write_all();
  Result<void> rotate();
  void trim(std::uint64_t current);
  std::string current_path() const;
  std::string full_path(std::uint64_t number) const;

  JournalOptions options_{.enabled = false};
  Fd file_;
  std::vector<Full> full_;  // oldest first
  std::string buffer_;
  std::uint64_t buffered_ = 0;  // decisions in it
  Duration retry_at_{};
  std::string trouble_;
  JournalCounters counters_;
};

/// The number of a full journal file's name, 0 if it is none ("decisions.00000012.jsonl": 12).
std::uint64_t journal_file_number(std::string_view name);
inline constexpr std::string_view kJournalCurrent = "decisions.jsonl";

}  // namespace flash
