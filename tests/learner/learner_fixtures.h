// Purpose: agents and steps for the tests of learner/.
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <cstdint>
#include <string>

#include "core/random.h"
#include "link/messages.h"

namespace flash {

inline link::Announce announce(const std::string& name = "limits_1",
                               const std::string& key = "resource-limits:/web") {
  link::Announce a;
  a.agent = name;
  a.key = key;
  a.application = "web";
  a.rule = "services";
  a.layout.state = {"cpu", "memory", "pressure"};
  a.layout.actions = {"cpu-limit", "memory-limit"};
  return a;
}

/// Step `seq` of a stream without gaps: episodes of `episode_steps`, the fallback in charge, all trusted, and
/// a reward of -seq for the action of the step before.
inline link::Step step(std::uint64_t seq, std::uint32_t episode_steps = 10, Stage stage = Stage::Offline) {
  link::Step s;
  s.agent = "limits_1";
  s.seq = seq;
  s.time_us = 1'700'000'000'000'000 + static_cast<std::int64_t>(seq) * 1'000'000;
  s.episode = (seq - 1) / episode_steps;
  s.step = static_cast<std::uint32_t>((seq - 1) % episode_steps);
  s.stage = stage;
  s.controller = Controller::Fallback;
  s.end_of_episode = seq % episode_steps == 0;
  const auto x = static_cast<float>(seq);
  s.state = {x, x + 0.25F, x + 0.5F};
  s.state_trusted = true;
  s.action = {0.5F, -0.5F};
  s.fallback = {0.25F, -0.25F};
  s.reward_given = seq > 1;
  s.reward_trusted = seq > 1;
  s.reward = -x;
  return s;
}

}  // namespace flash
