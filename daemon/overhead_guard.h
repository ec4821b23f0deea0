// Purpose: keeps what flashd costs the machine within a budget: the CPU time of its process and of its
// programs in the kernel, as a share of one core. Reading what is sent to it is not judged with it: that
// grows with what others send, not with how often flashd looks, and is bounded where it is read
// (StatsdCollector). Beyond it flashd samples less: a longer period, or a probe taken out, whichever saves
// more, until what is left fits; back when it fits again. Pure: the daemon measures, and does what stretch()
// and paused() say.
// Ownership: values.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/time.h"

namespace flash {

struct OverheadOptions {
  double budget_pct = 1;  // of one core; 0: no bound
  Duration window = std::chrono::seconds(30);
  bool operator==(const OverheadOptions&) const = default;
};

/// Totals since the start, as of `at` (CLOCK_MONOTONIC).
struct OwnCost {
  Duration at{};
  Duration process{};            // user and system time
  Duration reading{};            // of it: datagrams of applications, and of senders not believed
  Duration believed{};           // of reading: what was believed
  std::vector<Duration> probes;  // of their programs, in the context of any process
};

class OverheadGuard {
 public:
  /// Periods are made at most so many times as long, and no longer than kLongestPeriod.
  static constexpr int kMostStretch = 8;
  static constexpr Duration kLongestPeriod = std::chrono::seconds(10);
  /// So many windows in a row must be beyond the budget before anything is done: a burst is not a burden.
  static constexpr int kPatience = 2;
  /// What is given back must leave so much of the budget free, or it would be taken again at once.
  static constexpr double kRoom = 0.7;
  /// A probe's cost is not known while it is out: it is tried again after so long, then after twice as long.
  static constexpr Duration kFirstPause = std::chrono::minutes(10);
  static constexpr Duration kLongestPause = std::chrono::hours(2);

  /// `probes`: their names, in the order of OwnCost::probes.
  OverheadGuard(OverheadOptions options, Duration period, std::vector<std::string> probes);

  /// Other options or another period: all measures end, and counting starts over.
  void reconfigure(OverheadOptions options, Duration period);

  /// After a tick. True: stretch() or paused() changed.
  bool step(const OwnCost& cost);

  /// Periods in one.
  int stretch() const { return stretch_; }
  bool paused(std::size_t probe) const { return probes_[probe].out; }

  /// Percent of one core in the last whole window; zeros before.
  /// Without what reading took.
  double process_pct() const { return process_pct_; }
  double probe_pct(std::size_t probe) const { return probes_[probe].pct; }
  double total_pct() const;
  const OverheadOptions& options() const { return options_; }
  const std::string& probe_name(std::size_t probe) const { return probes_[probe].name; }
  std::size_t probes() const { return probes_.size(); }

  /// What is lowered and why, one text each; empty: nothing, and the budget is kept.
  std::vector<std::string> reasons() const;

 private:
  struct Probe {
    std::string name;
    double pct = 0;       // in the last window
    double pct_then = 0;  // when it was taken out
    bool out = false;
    Duration since{};  // when it was taken out or put back
    Duration pause = kFirstPause;
  };
  void begin_window(const OwnCost& cost);
  bool measure(const OwnCost& cost);
  bool lower(Duration now);
  bool raise(Duration now);
  bool may_stretch() const;

  OverheadOptions options_;
  Duration period_;
  std::vector<Probe> probes_;
  bool begun_ = false;
  OwnCost window_;  // at its begin
  double process_pct_ = 0;
  double believed_pct_ = 0;
  int beyond_ = 0;          // windows in a row
  bool exhausted_ = false;  // beyond the budget with nothing left to lower
  int stretch_ = 1;
  double process_then_ = 0;  // when the period was first stretched
};

}  // namespace flash
