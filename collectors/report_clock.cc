#include "collectors/report_clock.h"

#include <algorithm>

namespace flash {
namespace {

/// Twice the longest flush interval, so that the pauses of several workers that flush one after the other
/// and then rest together are remembered from one rest to the next.
constexpr Duration kPeriod = std::chrono::seconds(120);
constexpr double kTypical_s = 60;

}  // namespace

Duration ReportClock::longest_pause() const {
  return std::max(longest_now_, longest_before_);
}

void ReportClock::remember(Duration now, Duration pause) {
  if (now - period_began_ > kPeriod) {
    longest_before_ = now - period_began_ > 2 * kPeriod ? Duration{} : longest_now_;
    longest_now_ = {};
    period_began_ = now;
  }
  longest_now_ = std::max(longest_now_, pause);
  const double s = seconds(pause);
  typical_s_ = pauses_ == 0 ? s : typical_s_ + (s - typical_s_) * std::min(1.0, s / kTypical_s);
  pauses_ = std::min(pauses_ + 1, kKnown);
}

void ReportClock::heard(Duration now, Duration since_look) {
  const Duration longest = std::max(kLongest, 2 * since_look);
  const Duration pause = now - heard_at_;
  if (!heard_ || pause > longest) {
    // Its first word, or the first after so long that it may be another program by now.
    covers_ = {};
    typical_s_ = 0;
    pauses_ = 0;
    longest_now_ = longest_before_ = {};
    period_began_ = first_heard_at_ = now;
  } else if (state_ == State::Silent) {
    // What a source says at once that spoke in nearly every look is of this one. Another may have had nothing
    // to say, or speak less often from now on: of all the time, then, and the pause counts as one.
    covers_ = from_seconds(typical_s_) * 2 < since_look * 3 ? since_look : pause;
    longest_now_ = std::max(longest_now_, pause);
  } else {
    covers_ = pause;
    remember(now, pause);
  }
  heard_ = true;
  heard_at_ = now;
  state_ = State::Spoke;
}

void ReportClock::look(Duration now, bool spoke) {
  const Duration since_look = looked_ ? now - looked_at_ : Duration{};
  looked_ = true;
  looked_at_ = now;
  if (spoke) return heard(now, since_look);
  if (!heard_) return;
  const Duration quiet = now - heard_at_, half = since_look / 2;
  const bool known = pauses_ >= kKnown && heard_at_ - first_heard_at_ >= kLearned;
  const Duration longest = known ? longest_pause() : std::max(kLongest, 2 * since_look);
  if (quiet > 2 * longest + half)
    state_ = State::Silent;
  else
    state_ = quiet + half < covers_ ? State::Holds : State::Late;
}

Validity ReportClock::validity(Duration tick) const {
  switch (state_) {
    case State::Unheard:
    case State::Silent:
      return Validity::Missing;
    case State::Late:
      return Validity::Stale;
    case State::Spoke:
    case State::Holds:
      break;
  }
  const bool fine = tick <= Duration{} || (fits(covers_, tick) && fits(from_seconds(typical_s_), tick));
  return fine ? Validity::Good : Validity::Degraded;
}

}  // namespace flash
