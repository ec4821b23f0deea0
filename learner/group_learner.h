// Purpose: what the trainer keeps: of what learns, and of each announced agent that it learns for. Agents whose rules share
// parameters have one learner together, any other a learner of its own: a group of one. Private to learner/trainer*.cc.
// Ownership: a Trainer owns both; a learner knows its pupils and each pupil its learner, which outlives it.
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "learner/trainer.h"

namespace flash {

inline constexpr std::size_t kRecentUpdates = 64;  // of which the median time is shown

/// Networks, replay and versions. Whoever of its pupils lived through a step: it is learned from here.
struct Trainer::GroupLearner {
  std::string key;    // of its files: the agent's, or group_key()
  std::string group;  // its name; empty: of an agent alone
  SpaceLayout layout;
  std::vector<Pupil*> pupils;   // as they came
  std::size_t most_pupils = 1;  // at once so far, up to a power of two: the replay's share does not shrink

  std::unique_ptr<Agent> agent;
  AgentOptions options;
  bool hopeless = false;  // could not be built; said once

  Stage stage = Stage::Initialized;  // stage_of()
  std::set<std::string> in_round;    // pupils that ended an episode since offline updates were asked for
  std::uint64_t pending_offline = 0, pending_online = 0;

  std::uint64_t version = 0, updates = 0, transitions = 0;
  std::uint64_t updates_at_estimate = 0, saved_updates = 0, saved_version = 0;
  Duration saved_at{};
  OffPolicyEstimate estimate;
  bool local = false;   // what was learned here has taken over from pretrained policies, for good
  std::string trouble;  // the last one of its own, for Status

  double loss = 0;
  std::array<double, kRecentUpdates> update_us{};
  std::size_t timed = 0;

  double median_us() const {
    std::vector<double> v(update_us.begin(),
                          update_us.begin() + static_cast<std::ptrdiff_t>(std::min(timed, kRecentUpdates)));
    if (v.empty()) return 0;
    const auto middle = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
    std::nth_element(v.begin(), middle, v.end());
    return *middle;
  }
};

/// An announced agent: where it is in its life, what it was offered, and the pretrained policy that it began with.
struct Trainer::Pupil {
  link::Announce announced;
  GroupLearner* learner = nullptr;
  RunId run = 0;
  bool attached = false;  // announced in the present connection

  std::optional<link::Step> last;
  Stage stage = Stage::Initialized;
  bool stage_known = false;
  std::uint64_t episodes = 0;

  std::uint64_t offered_version = 0, edition_at_offer = 0;
  bool offered = false;  // in the present connection
  bool refused = false;  // and not changed since
  Duration offered_at{};
  std::string trouble;  // the last refusal, for Status

  // Pretrained: what the agent begins with.
  std::shared_ptr<const PretrainedModel> model;  // fits, and what was learned here has not taken over
  std::optional<PretrainedModel::InitialPolicy> beginning;
  bool episode_ended = false;    // the embedding is to be made again
  std::uint64_t embeddings = 0;  // made for it
  std::string unfamiliar;        // why the pretrained policy is not offered though it fits
  std::vector<float> own;        // the embedding of its own trajectories, of own_model
  std::string own_model;
  std::optional<link::Neighbour> neighbour;
  struct Mean {
    double sum = 0;
    std::uint64_t count = 0;
    double value() const { return count > 0 ? sum / static_cast<double>(count) : 0; }
  };
  Mean earned, fallback_earned;  // reward per step, of the pretrained policy in the seat and of the fallback

  bool pretrained() const { return model != nullptr && beginning.has_value(); }
  /// Changes when the policy that would be offered does.
  std::uint64_t edition() const { return pretrained() ? embeddings : learner->updates; }
};

}  // namespace flash
