// Purpose: one filled-in message of each type.
// Ownership: values.
// Thread rule: pure functions.
#pragma once

#include <vector>

#include "link/messages.h"

namespace flash::link {

inline Step sample_step(std::string agent = "limits_4711", std::uint64_t seq = 7) {
  Step s;
  s.agent = std::move(agent);
  s.seq = seq;
  s.time_us = 1795190400000000;
  s.episode = 3;
  s.step = 41;
  s.stage = Stage::Online;
  s.controller = Controller::Learned;
  s.explored = true;
  s.state = {0.25f, 1.5f, -3e-7f};
  s.state_trusted = true;
  s.action = {-1.0f, 0.5f};
  s.fallback = {0.125f, 1.0f};
  s.reward_given = true;
  s.reward_trusted = true;
  s.reward = 0.75f;
  return s;
}

inline Neighbour sample_neighbour() {
  return {.task = Task::CpuFrequency,
          .model = "3f2a9c1b00112233",
          .node = "n2",
          .agent = "cpu-frequency:0-3",
          .application = "shop",
          .distance = 0.5,
          .similarity = 0.875,
          .episodes = 12,
          .reward_known = true,
          .reward = 0.25,
          .embedding = {1, -2}};
}

inline std::vector<Down> sample_down() {
  HelloDown hello{.software = "flashd 0.1.0", .epoch = 0xfedcba9876543210, .period_s = 0.5};
  hello.settings.limits_offline = "bcq";
  hello.settings.double_q = false;
  hello.settings.seed = 42;
  Announce announce{.agent = "limits_4711",
                    .key = "resource-limits:/system.slice/wäb.service",
                    .application = "web",
                    .rule = "",
                    .group = "shop",
                    .layout = {Task::ResourceLimits,
                               {"cpu", "memory"},
                               {"cpu-limit", "memory-limit"},
                               0,
                               "default, alpha 0.5"},
                    .model_version = 12};
  Step other = sample_step("frequency_1", 1);
  other.stage = Stage::Initialized;
  other.controller = Controller::None;
  other.explored = other.state_trusted = other.reward_given = other.reward_trusted = false;
  other.end_of_episode = true;
  other.time_us = -5;
  other.state = other.action = other.fallback = {};
  other.reward = -0.5f;
  return {hello,
          announce,
          Gone{"limits_4711"},
          Steps{{sample_step(), other}},
          Verdict{"limits_4711", 3, false, "version 3 is not above 5"},
          Verdict{"limits_4711", 6, true, ""},
          NearestPair{"frequency_1", sample_neighbour()}};
}

inline std::vector<Up> sample_up() {
  return {HelloUp{"flash-learner 0.1.0", "OpenBLAS 0.3.21 serial, SkylakeX", 4242},
          Stored{"limits_4711", 90},
          Acknowledge{{{"limits_4711", 91}, {"frequency_1", 4}}},
          Acknowledge{},
          Offer{{"limits_4711", "limits_4712"}, std::string("FLASHTF1\0\xff\x01", 11)},
          Status{.agent = "limits_4711",
                 .doing = "learning online",
                 .transitions = 120,
                 .updates = 1000,
                 .episodes = 2,
                 .loss = 0.125,
                 .update_us = 300,
                 .rss_mib = 180.5,
                 .cpu_share = 0.01},
          Embedded{"limits_4711", "3f2a9c1b00112233", {0.5f, -1.0f}}};
}

}  // namespace flash::link
