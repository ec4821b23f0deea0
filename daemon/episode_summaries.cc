#include "daemon/episode_summaries.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "daemon/learner_agents.h"
#include "daemon/local_peer.h"

namespace flash {
namespace {

double told(double reward_mean) {
  return std::clamp(reward_mean, link::kLeastReward, link::kMostReward);
}

void say_policy(const AgentView& view, link::Episode& e) {
  e.fallback_rewards = view.fallback_rewards;
  if (std::isfinite(view.fallback_reward)) e.fallback_reward = told(view.fallback_reward);
  if (!view.snapshot) return;
  e.model_version = view.snapshot->version;
  e.embedding = view.snapshot->embedding;
}

void say_target(const Target& target, link::Episode& e) {
  e.agent = learning_key(target);
  e.task = target.task();
  e.target = plain(target.name);
  e.application = plain(target.application);
  e.rule = plain(target.rule);
}

}  // namespace

std::optional<link::Episode> EpisodeSummaries::decided(const Target& target, const Decision& d,
                                                       const View& view) {
  Open& open = open_[target.id];
  if (open.steps > 0 && d.reward.given && d.reward.trusted && std::isfinite(d.reward.value)) {
    ++open.rewards;
    open.reward_sum += d.reward.value;
  }
  std::optional<link::Episode> done;
  if (open.ended) {
    done.emplace();
    say_target(target, *done);
    if (const auto seen = view(target.id)) say_policy(*seen, *done);
    done->episode = open.episode;
    done->stage = open.stage;
    done->steps = open.steps;
    done->rewards = open.rewards;
    if (open.rewards > 0) done->reward_mean = told(open.reward_sum / open.rewards);
    done->time_us = std::chrono::duration_cast<std::chrono::microseconds>(open.at.time_since_epoch()).count();
    open = {};
  }
  open.episode = d.episode;
  open.stage = d.stage;
  ++open.steps;
  open.at = d.at.wall;
  open.ended = d.learning.end_of_episode;
  return done;
}

}  // namespace flash
