// Purpose: all knobs of all targets: leases (who may write), the ledger (what was there before), and one
// ordered transaction per tick.
//
// Leases. In every observe() a knob that we wrote is compared with what we read back after that write:
//   same                    -> Ours
//   foreign, rule Yield     -> Yielded for hold_s; the foreign value is the new original and leaves the
//                              ledger (nothing of ours is in force, so nothing is to be restored)
//   foreign, rule Reassert  -> stays Ours, so the next apply() writes again, up to reassert_limit times; then
//                              Contended for hold_s, with the foreign value as the new original
//   foreign, rule Leave     -> Contended until the target is adopted again after a restart
//
// While hands are off, every further foreign value restarts the hold: a person who is still trying is never
// interrupted. After the hold the knob is Unclaimed. Someone who rewrites it again then is not an
// accident: the hold doubles each time up to hold_cap, so a rewriter in a loop and we do not flap. The
// doubling ends once a value of ours has stood for as long as the last hold.
//
// Transactions. The unit that is undone as a whole is the target, not the call: the knobs of one target
// belong together (its CPU and memory were decided together), while two targets are as a rule strangers, and
// one container whose memory cannot shrink (v1 EBUSY) must not take the CPU away again from all others. Where
// targets are not strangers but nested, those below a failed one are undone with it. The order is global:
// shrinking first, children before parents, then growing, parents before children, so that a child's limit
// never exceeds its parent's (v1 refuses that, EINVAL). Knobs of one target that bound each other
// (actuators/limit_files: KnobCoupling) are written so that the bound holds in between, too; what would break
// it in the end is refused.
//
// Ownership: drivers and ledger are borrowed and outlive it.
// Thread rule: one thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "actuators/ledger.h"
#include "core/ports.h"
#include "host/descriptor_reserve.h"

namespace flash {

struct KnobBoardOptions {
  double hold_cap_s = 6 * 3600;  // longest hold that repeated foreign writes lead to
  double rediscover_s = 5;  // how often it is asked again what CPUs can do and what blocks their frequency
};

class KnobBoard final : public Actuator {
 public:
  KnobBoard(std::vector<KnobDriver*> drivers, Ledger& ledger, KnobBoardOptions options = {});
  ~KnobBoard() override;

  /// Idempotent: a target that is there keeps its leases and gets the rule's new options. A knob found in the
  /// ledger with our last value in force is Ours again with its old original (crash or upgrade that kept).
  Result<void> adopt(const Target& target, const Rule& rule) override;
  RestoreReport release(TargetId target) override;
  /// Knobs that outlive the cgroup (a property of a systemd unit does) go back to their originals.
  void forget(TargetId target) override;
  void observe(Now now) override;
  std::span<const KnobView> knobs(TargetId target) const override;
  std::vector<KnobOutcome> apply(Now now, std::span<const KnobChange> changes) override;
  void hold(TargetId target, Now now, std::optional<Duration> until, std::string reason) override;
  void unhold(TargetId target) override;
  /// Also of ledger entries that no adopted target owns.
  RestoreReport restore_all() override;
  /// Ledger entries that no adopted target owns (a rule went away while we were down). For after the first
  /// discovery.
  RestoreReport restore_orphans();
  std::vector<std::string> verify() override;
  std::vector<Degraded> degraded() const override;

 private:
  struct Knob;
  struct Managed;
  struct Step;

  void discover(Managed& managed, const Rule& rule);
  void resume(Knob& knob, const KnobReading& reading);
  void settle(Knob& knob, KnobView& view, Now now);
  bool only_policies_moved(Knob& knob, KnobView& view, const KnobReading& reading, Now now);
  void put_back_untouched(Knob& knob);
  void foreign(Knob& knob, KnobView& view, const KnobReading& reading, Now now);
  void hands_off(Knob& knob, KnobView& view, LeaseState state, std::optional<Duration> until,
                 std::string why);
  void drop(Knob& knob);
  bool has_grown(const Knob& knob, const KnobView& view, const KnobInfo& offered) const;
  void refresh_blocked(Now now);
  void look_for_missing();
  bool instances_changed(const Managed& managed) const;
  Step step_for(const KnobChange& change);
  std::optional<Step> prepare(Now now, const KnobChange& change, std::span<const Step> earlier,
                              KnobOutcome& out);
  static const Step* unbounded(std::span<const Step> steps, std::string& why);
  static void refuse_unbounded(std::vector<Step>& steps, std::vector<KnobOutcome>& outcomes);
  static void put_in_order(std::span<Step> steps);
  Result<void> announce(Now now, std::span<Step> steps);
  Result<void> execute(Step& step, KnobOutcome& outcome);
  void undo(std::span<Step> steps, std::size_t failed, bool pending, std::vector<KnobOutcome>& outcomes);
  void note_ledger(const Result<void>& done);
  /// Of knobs that leave, after they were put back.
  static void close(std::span<const Knob> knobs);
  void look_after_ledger(Now now);
  RestoreReport put_back(const std::vector<LedgerEntry>& entries);
  bool taken_by_other(const KnobRef& ref) const;
  Knob* knob_of(std::uint64_t ledger_id, KnobView** view);

  std::vector<KnobDriver*> drivers_;
  Ledger& ledger_;
  KnobBoardOptions options_;
  std::unordered_map<TargetId, std::unique_ptr<Managed>> managed_;
  DescriptorReserve reserve_;           // spent on putting back
  std::vector<LedgerValue> confirmed_;  // scratch of apply()
  std::string ledger_trouble_;          // of the last write; empty: fine
  bool ledger_rewritten_ = false;       // somebody had removed it
  bool orphans_ = false;                // entries without a target could not be put back yet
  Duration next_rediscover_{};
};

}  // namespace flash
