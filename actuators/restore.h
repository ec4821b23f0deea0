// Purpose: puts back what the ledger says was there before, and proves it by reading back. Used by the board
// for its own knobs and by `flashd --restore`, a fresh process without configuration.
// Ownership: borrows drivers and ledger.
// Thread rule: one thread.
#pragma once

#include <span>
#include <vector>

#include "actuators/ledger.h"
#include "core/ports.h"

namespace flash {

/// nullptr: there is none of this name.
KnobDriver* driver_named(std::span<KnobDriver* const> drivers, std::string_view name);

/// One knob. `restored` is true when nothing of ours is in force any more: read back equals the original; or
/// the knob is gone with its cgroup; or someone else has changed it since (neither the original nor what we
/// last wrote or announced), which is left as it is and said in `message`. In a damaged ledger the last of
/// these proves nothing, so it counts as not restored.
RestoreReport::Item restore_knob(KnobDriver& driver, const LedgerEntry& entry);

/// The policies of a CPU set's frequency, each as an entry of its own (the driver's raw text has one line per
/// policy): somebody can have changed one of them, and the others are still ours. Empty for other knobs.
std::vector<LedgerEntry> parts_of(const LedgerEntry& entry);

/// All of them, again and again while that makes progress: v1 refuses a child's limit above its parent's, so
/// one may have to wait for another.
RestoreReport restore_knobs(std::span<KnobDriver* const> drivers, const std::vector<LedgerEntry>& entries);

enum class RestoreRequest : std::uint8_t {
  AsMarked,  // what the ledger's keep marker says; no marker: restore
  Restore,   // whatever it says
  Keep,      // whatever it says: only report
};

struct LedgerRestore {
  RestoreReport report;
  bool kept = false;              // left in force for the next daemon, which resumes the leases
  std::string kept_because;       // the marker's reason
  std::size_t previous_boot = 0;  // entries of an earlier boot: nothing to put back
  // Of the ledger: something may be in force that it does not tell of any more.
  std::vector<std::string> problems;

  /// All that we changed is as it was before, for certain.
  bool proven() const { return !kept && problems.empty() && report.complete(); }
};

/// The whole of `flashd --restore`. Idempotent. Entries that are proven restored leave the ledger, others
/// stay.
LedgerRestore restore_from_ledger(Ledger& ledger, std::span<KnobDriver* const> drivers,
                                  RestoreRequest request);

}  // namespace flash
