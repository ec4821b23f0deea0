// Purpose: how rewards and stages went over time, kept while records come: sums per span of time, so that a
// curve costs what it shows and not what was stored.
// Ownership: values.
// Thread rule: one thread. No clock.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/decision.h"
#include "core/target.h"

namespace flash::coordinator {

inline constexpr std::size_t kStages = 4;

/// What a curve needs of one record.
struct HistoryPoint {
  Task task = Task::ResourceLimits;
  std::string application;
  Stage stage = Stage::Initialized;
  std::uint64_t rewards = 0;
  double reward_mean = 0;
  std::uint64_t fallback_rewards = 0;
  double fallback_reward = 0;
  std::int64_t time_us = 0;
};

/// What came in one span of time.
struct HistoryCell {
  double rewards = 0, reward_sum = 0;           // weighted by the steps that were rewarded
  double fallbacks = 0, fallback_sum = 0;       // weighted by record: what its agent's fallback earns
  std::array<std::uint64_t, kStages> stages{};  // records by the agent's stage
};

enum class Range : std::uint8_t { Hour, Day, Month };
std::string_view to_string(Range r);  // "hour", "day", "month"
std::optional<Range> range_from_name(std::string_view name);
std::int64_t width_s(Range r);   // of one cell: 1 min, 10 min, 3 h
std::int64_t cells_of(Range r);  // 60, 144, 240

class History {
 public:
  using Cells = std::map<std::int64_t, HistoryCell>;  // by time / width

  /// A node's clock may be wrong: what is in the future, or older than the range, is left out of it.
  void add(const HistoryPoint& point, std::int64_t now_us);
  /// Empty application: all. A task and application without records has no cells. Oldest first.
  const Cells& cells(Range range, Task task, const std::string& application) const;
  std::uint64_t left_out() const { return left_out_; }  // of the longest range

  /// Applications with a curve of their own; those after that count in their task's alone.
  static constexpr std::size_t kMaxSeries = 256;

 private:
  using Series = std::map<std::pair<Task, std::string>, Cells>;
  bool add_to(Range range, const HistoryPoint& point, std::int64_t now_us);

  std::array<Series, 3> ranges_;
  std::uint64_t left_out_ = 0;
};

}  // namespace flash::coordinator
