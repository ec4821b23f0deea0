// Purpose: decisions that stray a little, so that there is something to learn from: offline learning from a
// controller that always does the same in the same state can only imitate it. Bounded in share, size and
// circumstances by the rule's budget, whatever a snapshot asks for.
// Ownership: an agent owns its Explorer.
// Thread rule: one thread. Randomness is a parameter (a seeded stream).
#pragma once

#include <bitset>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/decision.h"
#include "core/policy_snapshot.h"
#include "core/random.h"
#include "core/rule.h"
#include "policy/guard.h"

namespace flash {

struct ExplorationInput {
  const Rule* rule = nullptr;
  Stage stage = Stage::Initialized;
  Controller controller = Controller::None;
  const CompiledPolicy* policy = nullptr;  // the one that decides; nullptr: the fallback does
  std::span<const float> state;  // that a policy with a stochastic head is drawn from for, and the scratch
  EvaluatorScratch* scratch = nullptr;
  bool executing = false;  // control mode, not held, not disabled
  bool state_trusted = false;
  const Observation* observation = nullptr;
  double cores = 1;  // that the target could use: of the node, or of its CPU set
  std::span<const KnobView> knobs;
  std::span<const KnobContext> contexts;  // policy/learning_view.h fill_contexts()
  Action current;                         // in force
  const KnobMap<FlapRecord>* flaps = nullptr;
  std::uint64_t step = 0;            // Decision::seq
  std::uint64_t last_objection = 0;  // step of the last guard's objection; 0: none
};

/// A guard's objection keeps exploration away for so many steps.
inline constexpr std::uint64_t kQuietSteps = 5;
/// So many reversals of the flap budget are left to the controller.
inline constexpr int kFlapReserve = 2;

/// Why nothing may be varied in this step, in words; nullptr: it may.
const char* exploration_veto(const ExplorationInput& input);

/// Variations of one agent's decisions.
///
/// A variation moves one knob off the controller's value for hold_steps steps (an effect needs more than one
/// step to show): a limit by a share of its value, at most max_step; a frequency by at most max_step of the
/// range, but at least one step of the hardware. The fallback varies up and down alike; ONLINE, limits get
/// normal noise of the snapshot's sigma on the network's output (FLASH Table 8), frequencies another level
/// for the snapshot's epsilon of the steps, both within the same bounds. SERVING and observe mode: nothing.
/// Downwards only where the target keeps room (see may_go_down() in the .cc).
/// Of any 100 steps in a row at most floor(100 * share) are varied.
///
/// A policy with a stochastic head is drawn from instead, ONLINE, for online_share of the steps: hold_steps steps in
/// a row, each with a draw of its own for all knobs, so that what follows a draw can be judged by the next one. The
/// bounds are the same: a limit moves by at most max_step of what the policy decided, the draw is cut to that. A
/// draw that may not be taken (a frequency beyond max_step, a limit that would leave no room, a knob that may not be
/// varied) is not: the policy's most likely action stays, and the step does not count.
class Explorer {
 public:
  static constexpr std::size_t kWindow = 100;
  explicit Explorer(Random stream) : random_(stream) {}

  /// Once per tick, before the guards. True: `proposed` was varied, or drawn, and `words` (appended to) says how.
  bool vary(const ExplorationInput& input, Action& proposed, std::string& words);
  /// The guards did not let the variation pass: it ends, and does not count as what the controller wanted.
  void cancel();
  /// Once per tick, when `learning` has the action that came into force. Its behaviour says how likely that was under
  /// the policy where this step was drawn; else that it is not given. `as_drawn`: no guard changed or refused it.
  void record(bool as_drawn, LearningView& learning) const;

  /// What the controller wanted for the knobs that are moved now; absent: nothing is.
  const Action& wanted() const { return wanted_; }
  int varied_of_last_100() const { return static_cast<int>(recent_.count()); }

 private:
  struct Variation {
    KnobId knob;
    double size = 0;  // limits: log of the factor; frequency: kHz
    int left = 0;     // steps
    int of = 0;
  };
  /// What this step's action was drawn from.
  struct Drawn {
    bool given = false;
    PolicyHead head = PolicyHead::Gaussian;
    std::vector<float> outputs, log_sigma;
    float value = 0;  // of the state
  };
  bool begin(const ExplorationInput& input, const Action& proposed, int hold);
  bool draw_action(const ExplorationInput& input, Action& proposed, std::string& words);
  double varied(const ExplorationInput& input, const Variation& v, double base) const;

  Random random_;
  Variation now_;
  Action wanted_;
  Drawn drawn_;
  std::bitset<kWindow> recent_;
  std::size_t next_ = 0;
};

/// What a target that runs at `actual` kHz would show at `wanted`, by MIAD's own model (time in proportion to
/// 1 / frequency): the fallback goes on from where it wanted to be, not from where exploration put it.
Observation seen_at(const Observation& observation, double actual_khz, double wanted_khz);

}  // namespace flash
