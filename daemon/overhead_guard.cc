#include "daemon/overhead_guard.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace flash {
namespace {

double share_pct(Duration used, Duration of) {
  return of > Duration() ? 100 * seconds(used) / seconds(of) : 0;
}

template <typename... Values>
std::string words(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

}  // namespace

OverheadGuard::OverheadGuard(OverheadOptions options, Duration period, std::vector<std::string> probes)
    : options_(options), period_(period) {
  for (std::string& name : probes) probes_.emplace_back().name = std::move(name);
}

void OverheadGuard::reconfigure(OverheadOptions options, Duration period) {
  if (options == options_ && period == period_) return;
  std::vector<std::string> names;
  for (Probe& p : probes_) names.push_back(std::move(p.name));
  *this = OverheadGuard(options, period, std::move(names));
}

void OverheadGuard::begin_window(const OwnCost& cost) {
  window_ = cost;
  begun_ = true;
}

bool OverheadGuard::measure(const OwnCost& cost) {
  const Duration elapsed = cost.at - window_.at;
  if (elapsed < options_.window) return false;
  const Duration reading = cost.reading - window_.reading;
  process_pct_ = share_pct(std::max(cost.process - window_.process - reading, Duration()), elapsed);
  believed_pct_ = share_pct(cost.believed - window_.believed, elapsed);
  for (std::size_t i = 0; i < probes_.size(); ++i)
    probes_[i].pct = share_pct(cost.probes.at(i) - window_.probes.at(i), elapsed);
  begin_window(cost);
  return true;
}

double OverheadGuard::total_pct() const {
  double sum = process_pct_;
  for (const Probe& p : probes_) sum += p.pct;
  return sum;
}

bool OverheadGuard::step(const OwnCost& cost) {
  if (!begun_) begin_window(cost);
  if (!measure(cost) || options_.budget_pct <= 0) return false;
  beyond_ = total_pct() > options_.budget_pct ? beyond_ + 1 : 0;
  exhausted_ = exhausted_ && beyond_ > 0;
  if (beyond_ == 0) return raise(cost.at);
  if (beyond_ < kPatience) return false;
  beyond_ = 0;
  return lower(cost.at);
}

bool OverheadGuard::may_stretch() const {
  return stretch_ < kMostStretch && period_ * stretch_ * 2 <= kLongestPeriod;
}

bool OverheadGuard::lower(Duration now) {
  // What would be left; a longer period saves the process's share alone.
  double process = process_pct_, left = total_pct();
  bool changed = false;
  while (left > options_.budget_pct) {
    Probe* costliest = nullptr;
    for (Probe& p : probes_)
      if (!p.out && p.pct > 0 && (!costliest || p.pct > costliest->pct)) costliest = &p;
    if (may_stretch() && (!costliest || process / 2 >= costliest->pct)) {
      if (stretch_ == 1) process_then_ = process;
      stretch_ *= 2;
      process /= 2;
      left -= process;
    } else if (costliest) {
      // Taken out again soon after it was put back: it waits longer.
      if (costliest->since != Duration())
        costliest->pause = now - costliest->since < costliest->pause
                               ? std::min(costliest->pause * 2, kLongestPause)
                               : kFirstPause;
      costliest->out = true;
      costliest->since = now;
      costliest->pct_then = costliest->pct;
      left -= costliest->pct;
    } else {
      break;
    }
    changed = true;
  }
  exhausted_ = !changed;
  return changed;
}

bool OverheadGuard::raise(Duration now) {
  // Twice as many ticks cost at most twice as much.
  if (stretch_ > 1 && total_pct() + process_pct_ <= kRoom * options_.budget_pct) {
    stretch_ /= 2;
    return true;
  }
  for (Probe& p : probes_) {
    if (!p.out || now - p.since < p.pause) continue;
    p.out = false;
    p.since = now;
    return true;
  }
  return false;
}

std::vector<std::string> OverheadGuard::reasons() const {
  std::vector<std::string> all;
  // Without figures that change from window to window: every other text would be another line in the journal.
  if (stretch_ > 1)
    all.push_back(
        words("flashd took %.2g %% of one core, its budget is %.2g %%: it samples every %g s, not every %g s",
              process_then_, options_.budget_pct, seconds(period_ * stretch_), seconds(period_)));
  for (const Probe& p : probes_)
    if (p.out)
      all.push_back(
          words("the %s probe took %.2g %% of one core, flashd's budget is %.2g %%: it is out for %g min",
                p.name.c_str(), p.pct_then, options_.budget_pct, seconds(p.pause) / 60));
  if (options_.budget_pct > 0 && believed_pct_ > options_.budget_pct)
    all.push_back(words(
        "reading StatsD lines takes more than %.2g %% of one core: clients should send several lines at once",
        options_.budget_pct));
  if (exhausted_)
    all.push_back(
        words("flashd costs more than its budget of %.2g %% of one core, and samples as little as it can",
              options_.budget_pct));
  return all;
}

}  // namespace flash
