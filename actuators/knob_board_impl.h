// Purpose: what the parts of KnobBoard share: its knobs as they stand, and how a view follows its lease.
// Ownership: KnobBoard's.
// Thread rule: as KnobBoard's. For actuators/knob_board*.cc alone.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "actuators/knob_board.h"

namespace flash {

inline constexpr double kNoSetting = std::numeric_limits<double>::quiet_NaN();
inline constexpr const char* kTakenByOther = "another target controls it";

struct KnobBoard::Knob {
  KnobDriver* driver = nullptr;
  KnobRef ref;
  std::string blocked;  // by the driver or by another target
  LeaseOptions lease;
  std::uint64_t ledger_id = 0;  // 0: nothing of ours is in force
  double ours = kNoSetting;     // read back after our last write
  std::string ours_mode;
  std::string ours_raw;           // of a CPU set: one line per policy
  double seen = kNoSetting;       // the foreign value that our hands are off for
  std::optional<Duration> until;  // end of the hold (monotonic); none: until told otherwise
  std::string hold_reason;
  bool reassert_pending = false;  // a foreign value is in force that we have not overwritten yet
  int reasserts = 0;
  int holds = 0;  // in a row
  Duration last_hold{};
  Duration ours_since{};
  bool taken = false;  // by another target
  double min_interval_s = 0;
  std::optional<Duration> last_write;
  int failures = 0;  // writes that failed in a row
  Duration retry_at{};
  std::string failure;

  void write_failed(Duration now, const std::string& why, bool unanswered);
  bool same(const KnobReading& r) const {
    return same_setting(ref.kind, r.value, ours) && r.mode == ours_mode;
  }
};

struct KnobBoard::Managed {
  Target target;
  Rule rule;
  bool denied = false;      // a write was not permitted: what blocks it is asked again
  std::uint32_t looks = 0;  // ticks in which a knob of the rule was not there
  std::vector<Knob> knobs;
  std::vector<KnobView> views;  // of the same index
};

struct KnobBoard::Step {
  std::size_t outcome = 0;
  Managed* managed = nullptr;
  Knob* knob = nullptr;
  KnobView* view = nullptr;
  KnobReading before;
  double value = 0;
  bool grows = false;
  bool first = false;  // the knob had no ledger entry before this call
  bool attempted = false;
  bool cancelled = false;
};

/// The view as its lease has it: who may write, and if nobody, why.
void show_lease(KnobView& view, LeaseState lease, const std::string& blocked, bool readable);

/// "12 s"
std::string seconds_text(Duration d);

}  // namespace flash
