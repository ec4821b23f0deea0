// Purpose: what a silence means. Many sources add up what they count and say it once per flush interval of
// their own, 2 to 60 s: StatsD clients their counters and aggregated timers, a page's workers their share of
// it. A look that finds nothing new is then no zero; and what comes at last is of all the time since the
// report before. ReportClock learns from the looks alone how often a source speaks.
// Ownership: a value of fixed size.
// Thread rule: none needed. No clock: the caller says when.
//
//   - What was said is of the time since the report before (covers()), and holds for as long again.
//   - After that the source is late, and what it said is stale.
//   - Silence means that there was nothing to say once it lasts clearly longer than the longest pause of
//     the last minutes: more than twice as long. Until the source has paused kKnown times in kLearned (the
//     workers of one application may flush one after the other and then rest together), that is the longest
//     flush interval there is. A source that spoke in every look is believed in the third without.
#pragma once

#include <cstdint>

#include "core/sample.h"
#include "core/time.h"

namespace flash {

class ReportClock {
 public:
  enum class State : std::uint8_t {
    Unheard,  // never, or not since it fell silent for longer than any flush interval
    Spoke,    // in this look
    Holds,    // not in this look, and it is not due yet
    Late,     // due
    Silent,   // there was nothing to say
  };

  /// Once per look at the source, in order of time. `spoke`: it said something since the look before.
  void look(Duration now, bool spoke);

  State state() const { return state_; }
  bool speaks() const { return state_ == State::Spoke || state_ == State::Holds; }
  /// The time that what it said last is of; 0: not known, it was its first word.
  Duration covers() const { return covers_; }
  /// The longest recent pause; 0: none was seen.
  Duration longest_pause() const;
  /// How far what it said last can be trusted now. Good: it is of at most two ticks (fits()); Degraded: of
  /// more, so that what it says of several decisions cannot be told apart; Stale: it is late; Missing: it
  /// was not heard, or fell silent. `tick`: between two decisions; 0: not known yet.
  Validity validity(Duration tick) const;

  /// A quarter more than two ticks: neither side's timer is exact.
  static bool fits(Duration covers, Duration tick) { return covers * 4 <= tick * 9; }

  /// The longest flush interval in use is a minute; clients' timers drift.
  static constexpr Duration kLongest = std::chrono::seconds(70);
  static constexpr int kKnown = 5;  // pauses
  static constexpr Duration kLearned = std::chrono::seconds(12);

 private:
  void heard(Duration now, Duration since_look);
  void remember(Duration now, Duration pause);

  State state_ = State::Unheard;
  bool looked_ = false, heard_ = false;
  Duration looked_at_{}, heard_at_{}, first_heard_at_{};
  Duration covers_{};
  double typical_s_ = 0;  // pause, mean over time of about kTypical
  int pauses_ = 0;        // seen, up to kKnown
  // The longest pause of this period and of the one before: 2 to 4 minutes.
  Duration longest_now_{}, longest_before_{}, period_began_{};
};

}  // namespace flash
