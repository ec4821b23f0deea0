// Purpose: offline learning of one agent around its online learner: which method, when to begin anew, how
// many updates the data bear, what goes over to online learning. docs/adr/0004-offline-learning.md says why
// so. Private to this room: includes torch. Ownership: an Agent owns its Offline. Thread rule: one thread.
#pragma once

#include <optional>
#include <string>

#include "agents/offline_td3_bc.h"

namespace flash {

/// A few hundred transitions are soon learned by heart, and then the policy is worse than after fewer
/// updates; so the number of updates follows the data, whatever the caller asks for.
inline constexpr double kUpdatesPerTransition = 1.5;
/// Networks begun with less than two thirds of the data are replaced by new ones: normalisation and what was
/// learned from the first steps, when limits come down from "the whole node", do not stay for ever.
inline constexpr double kBeginAnew = 1.5;
/// New networks take the seat after so many updates (or all that the data bear).
inline constexpr int kUpdatesToTakeOver = 500;

class Offline {
 public:
  /// How many of `n` updates the data bear; makes new networks when it is time.
  /// REQUIRES: the replay holds a transition of the fallback.
  int prepare(int n, const Replay& replay, double discount, const Ddpg& ddpg, Random& random);
  /// One update from the fallback's transitions; `renewed` when new networks and scaling took the seat.
  /// REQUIRES: prepare() allowed it.
  Losses update(const Replay& replay, Scaling& scaling, Ddpg& ddpg, Random& random, bool& renewed);
  /// Something was not finite: networks in training are thrown away.
  void diverged();

  /// Online: while the actor is still held near the data (bc_weight), the update is made here.
  std::optional<Losses> update_online(const Replay& replay, const Scaling& scaling, Ddpg& ddpg,
                                      std::uint64_t online_updates, Random& random);
  void rescale(const Scaling& from, const Scaling& to);

  /// Did it make the policy that is in the seat? Saved with a checkpoint; all else is made again from the
  /// data.
  bool in_seat() const { return in_seat_; }
  void restored(bool in_seat) { in_seat_ = in_seat; }

 private:
  struct Limits {
    Ddpg ddpg;
    Td3Bc td3;
    Scaling scaling;
  };
  double bearable_ = 0, updates_ = 0;  // of the newest networks
  std::size_t began_with_ = 0;         // transitions of the fallback when they were made; 0: make new ones
  std::optional<Limits> next_;         // in training, not yet in the seat
  std::optional<Td3Bc> live_;          // what stands beside the agent's Ddpg
  bool in_seat_ = false;
};

}  // namespace flash
