#include "sync/continuity.h"

#include <algorithm>

namespace flash::sync {
namespace {

// What is counted from zero is believed up to so many times the highest recent rate, and so few anyway.
constexpr double kBusier = 4, kFewPerSecond = 100;
// A growth is a jump where it is so many times the highest recent rate and more than all that was counted
// before: then it is rather another process's counter.
constexpr double kJump = 16;
// So many changes within the pages that are remembered are no accident.
constexpr std::size_t kOften = 2;

bool fell(const CountedSeries& before, const CountedSeries& now) {
  if (before.counts.size() != now.counts.size()) return true;
  for (std::size_t i = 0; i < now.counts.size(); ++i)
    if (now.counts[i] < before.counts[i]) return true;
  return false;
}

}  // namespace

bool Continuity::changes_often() const {
  return changes_.size() >= kOften;
}

std::size_t Continuity::bytes() const {
  constexpr std::size_t kNode = 112;
  std::size_t all = starts_.size() * kNode;
  for (const auto& [name, on] : goes_on_) all += kNode + name.size();
  for (const auto& [name, fallen] : fallen_) all += kNode + name.size();
  return all;
}

void Continuity::next_page() {
  ++page_;
  while (!changes_.empty() && changes_.front() + kRemembered < page_) changes_.pop_front();
}

bool Continuity::note_change() {
  next_page();
  changes_.push_back(page_);
  return changes_often();
}

bool Continuity::came_back(const PageCounters& before, const PageCounters& now) {
  bool back = false;
  for (auto it = fallen_.begin(); it != fallen_.end();) {
    const auto is = now.series.find(it->first), was = before.series.find(it->first);
    const bool here = is != now.series.end() && is->second.counts.back() >= it->second.from;
    back |= here && (was == before.series.end() || was->second.counts.back() < it->second.from);
    it = here || it->second.page + kRemembered < page_ ? fallen_.erase(it) : std::next(it);
  }
  if (before.process_start) starts_[*before.process_start] = page_ - 1;
  std::erase_if(starts_, [&](const auto& s) { return s.second + kRemembered < page_; });
  if (now.process_start && now.process_start != before.process_start)
    back |= starts_.contains(*now.process_start);
  return back;
}

Continuity::Verdict Continuity::judge(const PageCounters& before, const PageCounters& now, double covers_s) {
  next_page();
  const bool starts_known = before.process_start && now.process_start;
  const bool other_process = starts_known && *before.process_start != *now.process_start;
  const bool back = came_back(before, now);

  std::array<double, kCountedKinds> grown{}, anew{}, counted{};
  bool any_fell = false;
  goes_on_.clear();
  for (const auto& [name, series] : now.series) {
    const auto kind = static_cast<std::size_t>(series.kind);
    const auto it = before.series.find(name);
    const bool known = it != before.series.end();
    if (known) counted[kind] += it->second.counts.back();
    if (known && !other_process && !fell(it->second, series)) {
      goes_on_[name] = true;
      grown[kind] += series.counts.back() - it->second.counts.back();
      continue;
    }
    anew[kind] += series.counts.back();
    if (!known) continue;
    any_fell = true;
    if (fallen_.size() < kMaxFallen) fallen_.try_emplace(name, Fallen{it->second.counts.back(), page_});
  }

  Verdict verdict;
  for (std::size_t k = 0; k < kCountedKinds; ++k) {
    const double fastest = rates_[k].empty() ? 0 : *std::max_element(rates_[k].begin(), rates_[k].end());
    if (anew[k] > covers_s * std::max(kFewPerSecond, kBusier * fastest))
      verdict.doubt = "its counters began anew: differences do, too";
    // Errors do jump.
    if (static_cast<Counted>(k) == Counted::Errors) continue;
    if (grown[k] > std::max(covers_s * std::max(kFewPerSecond, kJump * fastest), counted[k]))
      verdict.doubt = "its counters have more than doubled at once: the next answer tells whether they go on";
    else if (settling_ && grown[k] > covers_s * std::max(kFewPerSecond, kBusier * fastest))
      verdict.doubt = "its counters begin: the next answer tells whether they go on";
  }
  settling_ = any_fell && !verdict.doubt.empty();
  if (any_fell && starts_known && !other_process)
    verdict.doubt = "its counters fell, although the process is the same: differences begin anew";
  if (back) {
    changes_.push_back(page_);
    settling_ = true;
    verdict.doubt = "its counters went back and came again: differences begin anew";
  }
  if (changes_often()) {
    verdict.several = true;
    verdict.doubt =
        "its counters go back and forth: several processes answer in turn (workers of one port?), or one "
        "that "
        "begins anew again and again; give each a page of its own, or one that adds them up";
  }
  if (!verdict.doubt.empty()) return verdict;
  for (std::size_t k = 0; k < kCountedKinds; ++k) {
    rates_[k].push_back((grown[k] + anew[k]) / covers_s);
    if (rates_[k].size() > kRemembered) rates_[k].pop_front();
  }
  return verdict;
}

}  // namespace flash::sync
