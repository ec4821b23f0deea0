// Purpose: does a target miss its objective more often under the learned policy than it would under the
// rules? docs/agents/life_cycle.md.
// Ownership: a value; an agent owns its account.
// Thread rule: one thread.
#pragma once

namespace flash {

/// Counts misses of the objective (SP < 1) apart: in steps in which the policy was free, and in steps in
/// which it was held to what the rules ask for, or the rules were in charge. The second share is at most what
/// the rules alone would have: a held policy gives as much as they do, of limits also more (guard_table). Old
/// steps fade, and with them what is known of the rules.
class ObjectiveAccount {
 public:
  /// Of the task's row (policy/task.h). `slack`: misses that are allowed on top: a policy must be able to start, and chance
  /// brings some. A held limit may still be more than the rules ask for, so holding costs little
  /// (docs/ablations/13-objective-guard-limits.md). `known`: steps, after fading, that must say what the rules would miss;
  /// 0: whatever is known is enough.
  ObjectiveAccount(double slack, double known) : slack_(slack), known_(known) {}

  /// A step under control ended. A run of misses that began while the policy was free counts as the policy's
  /// to its end, even if the policy is held meanwhile: else the first seconds of a burst would be the
  /// policy's and the rest the rules'.
  void step(bool missed, bool held);

  /// The policy is to be held: it is overdrawn(), or what the rules miss is being measured again.
  bool holds() const { return measuring_ || overdrawn(); }

  /// The free steps have more misses than the held ones' share explains, and `slack` more.
  bool overdrawn() const;

  /// The policy misses more than `slack`, and fewer than `known` steps say what the rules would miss: it is
  /// held, without a break, until kMeasured steps say it. Without this, a few hard steps at the start could
  /// make the rules' share high and excuse the policy forever: an account that never holds learns nothing new
  /// about the rules.
  bool measuring() const { return measuring_; }

  /// Shares of the steps, 0 to 1; 0 where there are none.
  double policy_share() const { return free_.share(); }
  double rules_share() const { return held_.share(); }

  static constexpr double kFade = 2000;  // steps; about so many count

  static constexpr double kMeasured = 110;  // steps, so that a bout lasts a minute or two

 private:
  struct Steps {
    double steps = 0, misses = 0;
    void fade() {
      steps *= 1 - 1 / kFade;
      misses *= 1 - 1 / kFade;
    }
    double share() const { return steps > 0 ? misses / steps : 0; }
  };
  double slack_, known_;
  Steps free_, held_;
  bool in_policys_run_ = false, measuring_ = false;
};

}  // namespace flash
