// Purpose: offline learning of one agent around its online learner: when to start over, how many updates the data
// bear, what goes over to online learning, whichever the method. docs/adr/0004-offline-learning.md says why so.
// Private to this room.
// Ownership: an Agent owns its Offline.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agents/learner.h"
#include "agents/registry.h"

namespace flash {

/// A few hundred transitions are soon learned by heart, and then the policy is worse than after fewer
/// updates; so the number of updates follows the data, whatever the caller asks for.
inline constexpr double kUpdatesPerTransition = 1.5;
/// Networks begun with less than two thirds of the data are replaced by new ones: normalisation and what was
/// learned from the first steps, when limits come down from "the whole node", do not stay forever.
inline constexpr double kBeginAnew = 1.5;
/// So do networks of a checkpoint, unless online learning has gone on from them: new ones are begun once the fallback's
/// transitions are so many times those that the checkpoint's learned from, or all that the replay holds.
/// New networks take the seat after so many updates (or all that the data bear).
inline constexpr int kUpdatesToTakeOver = 500;

class Offline {
 public:
  /// REQUIRES of what follows: the online row's learners have the phase HandOver.
  Offline(const AgentSpaces& spaces, const AgentOptions& options, const AlgorithmRow& method,
          const AlgorithmRow& online)
      : spaces_(spaces), options_(options), method_(method), online_(online) {}

  /// Is there too little yet to learn more from than a checkpoint's networks did?
  bool keeps(const Replay& replay) const { return replay.by_fallback() < keep_until_; }
  /// How many of `n` updates the data bear; makes new networks when it is time.
  /// REQUIRES: the replay holds a transition of the fallback; not keeps().
  int prepare(int n, const Replay& replay, Random& random);
  /// One update from the fallback's transitions; `renewed` when new networks and scaling took the seat.
  /// REQUIRES: prepare() allowed it.
  Losses update(const Replay& replay, Scaling& scaling, std::unique_ptr<Learner>& learner, Random& random,
                bool& renewed);
  /// Something was not finite: what is in training is thrown away.
  void diverged();

  /// Online: while an actor is still held near the data (bc_weight), the update is made here.
  std::optional<Losses> update_online(Learner& learner, const Experience& from, std::uint64_t online_updates);
  void rescale(const Scaling& from, const Scaling& to);

  /// Did it make the policy that is in the seat? Saved with a checkpoint; all else is made again from the
  /// data.
  bool in_seat() const { return in_seat_; }
  /// A checkpoint was restored; what its policy has learned, from `transitions` of any policy (0: nothing), is kept
  /// until there is enough to learn more from.
  void restored(bool in_seat, std::uint64_t transitions);
  /// "td3+bc", "bcq" or "iql".
  std::string_view algorithm() const { return method_.name.name; }
  /// Levels: the policy's scores; empty where there are none (the learner's values decide).
  std::vector<DenseLayer> scores() const;

 private:
  struct Networks {
    OfflinePair pair;
    Scaling scaling;
  };

  AgentSpaces spaces_;
  AgentOptions options_;
  AlgorithmRow method_, online_;
  double bearable_ = 0, updates_ = 0;    // of the newest networks
  std::size_t began_with_ = 0;           // transitions of the fallback when they were made; 0: make new ones
  std::size_t keep_until_ = 0;           // transitions of the fallback: a checkpoint's networks stay
  std::optional<Networks> next_;         // in training, not yet in the seat
  std::unique_ptr<OfflineMethod> live_;  // what stands beside the agent's learner
  bool in_seat_ = false;
};

}  // namespace flash
