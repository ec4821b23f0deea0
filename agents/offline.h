// Purpose: offline learning of one agent around its online learner: which method, when to start over, how
// many updates the data bear, what goes over to online learning. docs/adr/0004-offline-learning.md says why
// so. Private to this room: includes torch.
// Ownership: an Agent owns its Offline.
// Thread rule: one thread.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "agents/offline_bcq.h"
#include "agents/offline_iql.h"
#include "agents/offline_td3_bc.h"
#include "agents/tabular_q.h"

namespace flash {

using OnlineLearner = std::variant<Ddpg, QLearning, TabularQ>;

/// A few hundred transitions are soon learned by heart, and then the policy is worse than after fewer
/// updates; so the number of updates follows the data, whatever the caller asks for.
inline constexpr double kUpdatesPerTransition = 1.5;
/// Networks begun with less than two thirds of the data are replaced by new ones: normalisation and what was
/// learned from the first steps, when limits come down from "the whole node", do not stay forever.
inline constexpr double kBeginAnew = 1.5;
/// New networks take the seat after so many updates (or all that the data bear).
inline constexpr int kUpdatesToTakeOver = 500;

class Offline {
 public:
  explicit Offline(const AgentOptions& options) : options_(options) {}

  /// How many of `n` updates the data bear; makes new networks when it is time.
  /// REQUIRES: the replay holds a transition of the fallback; the learner is not tabular (it needs none of
  /// this).
  int prepare(int n, const Replay& replay, const OnlineLearner& learner, Random& random);
  /// One update from the fallback's transitions; `renewed` when new networks and scaling took the seat.
  /// REQUIRES: prepare() allowed it.
  Losses update(const Replay& replay, Scaling& scaling, OnlineLearner& learner, Random& random,
                bool& renewed);
  /// Something was not finite: what is in training is thrown away.
  void diverged();

  /// Online: while DDPG's actor is still held near the data (bc_weight), the update is made here.
  std::optional<Losses> update_online(const Replay& replay, const Scaling& scaling, Ddpg& ddpg,
                                      std::uint64_t online_updates, Random& random);
  void rescale(const Scaling& from, const Scaling& to);

  /// Did it make the policy that is in the seat? Saved with a checkpoint; all else is made again from the
  /// data.
  bool in_seat() const { return in_seat_; }
  void restored(bool in_seat) { in_seat_ = in_seat; }
  /// "td3+bc", "bcq" or "iql".
  const std::string& algorithm(bool frequency) const {
    return frequency ? options_.frequency_offline : options_.limits_offline;
  }
  /// cpu-frequency: the policy's scores per level; empty where there are none (Q-learning's values decide).
  std::vector<DenseLayer> scores() const;

 private:
  using Method = std::variant<std::monostate, Td3Bc, Bcq, LevelsTd3Bc, Iql, DiscreteBcq>;
  struct Networks {
    OnlineLearner learner;
    Method method;
    Scaling scaling;
  };
  static Losses update_method(Method& method, OnlineLearner& learner, Adam& hand_over, const Replay& replay,
                              const Scaling& scaling, Random& random);

  AgentOptions options_;
  double bearable_ = 0, updates_ = 0;  // of the newest networks
  std::size_t began_with_ = 0;         // transitions of the fallback when they were made; 0: make new ones
  std::optional<Networks> next_;       // in training, not yet in the seat
  Method live_;                        // what stands beside the agent's learner
  Adam hand_over_;                     // of the newest networks
  bool in_seat_ = false;
};

}  // namespace flash
