// Purpose: records for the coordinator's tests.
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <string>

#include "coordinator/messages.h"

namespace flash::coordinator {

inline const std::string kRun(32, 'a');

inline Record record(std::uint64_t seq, std::uint64_t prev,
                     const std::string& agent = "resource-limits:/web") {
  return {kRun,
          seq,
          prev,
          {.agent = agent,
           .target = "web",
           .application = "shop",
           .rule = "all",
           .episode = seq,
           .stage = Stage::Serving,
           .steps = 100,
           .rewards = 90,
           .reward_mean = 0.5,
           .fallback_rewards = 10,
           .fallback_reward = 0.25,
           .model_version = 3,
           .model = "m1",
           .embedding = {1, 2},
           .time_us = static_cast<std::int64_t>(seq) * 1'000'000}};
}

}  // namespace flash::coordinator
