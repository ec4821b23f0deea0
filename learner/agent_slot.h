// Purpose: what the trainer keeps of one agent. Private to learner/trainer*.cc.
// Ownership: a Trainer owns its slots; the model is borrowed from TrainerOptions.
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "learner/trainer.h"

namespace flash {

inline constexpr std::size_t kRecentUpdates = 64;  // of which the median time is shown

struct Trainer::AgentSlot {
  link::Announce announced;
  RunId run = 0;
  bool attached = false;  // announced in the present connection
  std::unique_ptr<Agent> agent;
  AgentOptions options;
  bool hopeless = false;  // could not be built; said once

  std::optional<link::Step> last;
  Stage stage = Stage::Initialized;
  bool stage_known = false;
  std::uint64_t pending_offline = 0, pending_online = 0;

  std::uint64_t version = 0, updates = 0, transitions = 0, episodes = 0;
  std::uint64_t edition_at_offer = 0, updates_at_estimate = 0, saved_updates = 0, saved_version = 0;
  bool offered = false;  // in the present connection
  bool refused = false;  // and not changed since
  Duration offered_at{}, saved_at{};
  OffPolicyEstimate estimate;
  std::string trouble;  // the last refusal or divergence, for Status

  double loss = 0;
  std::array<double, kRecentUpdates> update_us{};
  std::size_t timed = 0;

  // Pretrained: what the agent begins with.
  std::shared_ptr<const PretrainedModel> model;  // fits, and what was learned here has not taken over
  bool local = false;                            // what was learned here has taken over, for good
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
  std::uint64_t edition() const { return pretrained() ? embeddings : updates; }

  double median_us() const {
    std::vector<double> v(update_us.begin(),
                          update_us.begin() + static_cast<std::ptrdiff_t>(std::min(timed, kRecentUpdates)));
    if (v.empty()) return 0;
    const auto middle = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
    std::nth_element(v.begin(), middle, v.end());
    return *middle;
  }
};

}  // namespace flash
