// Purpose: the decision journal, read: one line becomes what replay needs of a decision. Lines come from
// outside (an operator may name any file): everything is bounded and checked, unknown keys are passed over.
// Ownership: values.
// Thread rule: pure functions; only read_journal() touches files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/decision.h"
#include "core/result.h"
#include "core/target.h"

namespace flash {

inline constexpr std::size_t kJournalMaxLine = std::size_t{1} << 20;
inline constexpr std::size_t kJournalMaxSteps = 4096;  // of a frequency table

struct JournalEntry {
  std::uint64_t seq = 0;
  std::int64_t time_us = 0;
  std::string time;  // RFC 3339
  Task task = Task::ResourceLimits;
  std::string target, agent, cgroup, application;
  Controller controller = Controller::None;
  bool explored = false;
  std::uint64_t model_version = 0;
  Action current, proposed;
  std::vector<KnobContext> contexts;  // `ranges`; empty: not recorded
  std::vector<float> state;           // in the order of state_entry(); empty: not known
  bool state_trusted = false;
};

/// EINVAL names the key: "ranges.cpu-limit.upper: is below lower".
Result<JournalEntry> parse_journal_line(std::string_view line);

struct JournalRead {
  std::size_t files = 0;
  std::uint64_t lines = 0;
  std::uint64_t half_lines = 0;  // last lines without an end: of a crash, or being written right now
};

/// One file, or all of a journal's directory, oldest first. `take` sees every entry; an error of its own ends
/// the reading. Errors: "FILE:LINE: what". ENOENT: no journal there.
Result<JournalRead> read_journal(const std::string& path,
                                 const std::function<Result<void>(const JournalEntry&)>& take);

}  // namespace flash
