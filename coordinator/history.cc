#include "coordinator/history.h"

namespace flash::coordinator {
namespace {

struct RangeRow {
  Range range;
  std::string_view name;
  std::int64_t width_s, cells;
};
constexpr std::array kRanges = {
    RangeRow{Range::Hour, "hour", 60, 60},
    RangeRow{Range::Day, "day", 600, 144},
    RangeRow{Range::Month, "month", 10800, 240},
};
constexpr std::int64_t kMicroseconds = 1'000'000;
constexpr std::int64_t kFutureUs = 60 * kMicroseconds;  // that two nodes' clocks may differ

const RangeRow& row_of(Range r) {
  return kRanges[static_cast<std::size_t>(r)];
}

void count(HistoryCell& cell, const HistoryPoint& p) {
  const auto rewards = static_cast<double>(p.rewards);
  cell.rewards += rewards;
  cell.reward_sum += p.rewards > 0 ? rewards * p.reward_mean : 0;
  if (p.fallback_rewards > 0) {
    cell.fallbacks += 1;
    cell.fallback_sum += p.fallback_reward;
  }
  ++cell.stages[static_cast<std::size_t>(p.stage) % kStages];
}

}  // namespace

std::string_view to_string(Range r) {
  return row_of(r).name;
}

std::optional<Range> range_from_name(std::string_view name) {
  for (const RangeRow& row : kRanges)
    if (row.name == name) return row.range;
  return std::nullopt;
}

std::int64_t width_s(Range r) {
  return row_of(r).width_s;
}

std::int64_t cells_of(Range r) {
  return row_of(r).cells;
}

bool History::add_to(Range range, const HistoryPoint& point, std::int64_t now_us) {
  const std::int64_t width_us = width_s(range) * kMicroseconds;
  const std::int64_t newest = now_us / width_us, at = point.time_us / width_us;
  if (point.time_us > now_us + kFutureUs || at <= newest - cells_of(range)) return false;
  Series& series = ranges_[static_cast<std::size_t>(range)];
  const auto into = [&](const std::string& application) {
    const std::pair key(point.task, application);
    auto it = series.find(key);
    if (it == series.end()) {
      if (!application.empty() && series.size() >= kMaxSeries) return;
      it = series.emplace(key, Cells()).first;
    }
    Cells& cells = it->second;
    count(cells[at], point);
    cells.erase(cells.begin(), cells.upper_bound(newest - cells_of(range)));
  };
  into("");
  if (!point.application.empty()) into(point.application);
  return true;
}

void History::add(const HistoryPoint& point, std::int64_t now_us) {
  add_to(Range::Hour, point, now_us);
  add_to(Range::Day, point, now_us);
  if (!add_to(Range::Month, point, now_us)) ++left_out_;
}

const History::Cells& History::cells(Range range, Task task, const std::string& application) const {
  static const Cells kNone;
  const Series& series = ranges_[static_cast<std::size_t>(range)];
  const auto it = series.find({task, application});
  return it == series.end() ? kNone : it->second;
}

}  // namespace flash::coordinator
