// Purpose: does a target miss its objective more often under the learned policy than it would under the
// rules? docs/agents/life_cycle.md.
// Ownership: a value; an agent owns its account.
// Thread rule: one thread.
#pragma once

#include "core/target.h"

namespace flash {

/// Misses of the objective (SP < 1) of the steps in which the policy was free, and of those in which it was
/// held to what the rules ask for, or the rules were in charge. The second are what the rules would have, and
/// no more: a held policy gives as much, of limits also more (guard_table). Old steps fade, and with them
/// what is known of the rules.
class ObjectiveAccount {
 public:
  explicit ObjectiveAccount(Task task) : slack_(slack(task)), known_(known(task)) {}

  /// A step under control ended. A run of misses that began while the policy was free is the policy's to its
  /// end, though it is held meanwhile: the first seconds of a burst must not be the policy's and the rest the
  /// rules'.
  void step(bool missed, bool held);

  /// The policy is to be held: it is overdrawn(), or what the rules miss is being measured again.
  bool holds() const { return measuring_ || overdrawn(); }

  /// The free steps have more misses than the held ones' share explains, and slack() more.
  bool overdrawn() const;

  /// The policy misses more than slack(), and fewer than known() steps say what the rules would: it is held,
  /// in one piece, until kMeasured say it. Without this a share that a few hard steps at the start had made
  /// high would excuse the policy forever: an account that never holds learns nothing of the rules.
  bool measuring() const { return measuring_; }

  /// Shares of the steps, 0 to 1; 0 where there are none.
  double policy_share() const { return free_.share(); }
  double rules_share() const { return held_.share(); }

  static constexpr double kFade = 2000;  // steps; about so many count

  /// Misses: a policy must be able to begin, and chance to have its way. A held limit may still be more than
  /// the rules ask for, which costs little; a held frequency is the rules', and all that was learned is lost
  /// (docs/EXPERIMENTS.md, bootstrap: both chosen there).
  static constexpr double slack(Task task) { return task == Task::CpuFrequency ? 15 : 3; }

  /// Steps, after fading; 0: whatever is known is enough. On limits measuring bought nothing that could be
  /// told from chance (same place).
  static constexpr double known(Task task) { return task == Task::CpuFrequency ? 50 : 0; }
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
