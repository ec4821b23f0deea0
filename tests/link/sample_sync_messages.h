// Purpose: one filled-in message of each type between flashd and flash-sync.
// Ownership: values.
// Thread rule: pure functions.
#pragma once

#include <vector>

#include "link/sync_messages.h"
#include "tests/link/sample_messages.h"

namespace flash::link::sync {

inline Scrape sample_scrape() {
  return {.rule = "web",
          .url = "http://127.0.0.1:9100/metrics",
          .latency = "a{b=\"c\"}",
          .errors = "e",
          .unit = TimeUnit::Microseconds};
}
inline Reading sample_reading() {
  return {.rule = "web",
          .covers_s = 1,
          .requests = 3,
          .has_latency = true,
          .p50_ms = 1,
          .p99_ms = 2,
          .samples = 3};
}

inline Episode sample_episode() {
  return {.agent = "resource-limits:/web",
          .target = "web",
          .rule = "all",
          .stage = Stage::Online,
          .steps = 100,
          .rewards = 90,
          .reward_mean = 0.5,
          .model = "3f2a9c1b00112233",
          .embedding = {1, 2}};
}

inline std::vector<Down> sample_down() {
  return {
      HelloDown{"flashd 0.1.0", 9},
      Scrapes{{sample_scrape()}},
      Scrapes{},
      Family{"a_seconds", FamilyType::Counter, "seconds", "A.", {"x", "y"}, {"1", "2", "3", ""}, {0.5, 2}},
      MetricsEnd{},
      EpisodeEnd{3, sample_episode()}};
}
inline std::vector<Up> sample_up() {
  return {HelloUp{"flash-sync 0.1.0", 7, true},
          sample_reading(),
          Reading{.rule = "web", .covers_s = 1, .requests = 3, .no_latency = "no bucket"},
          Reading{.rule = "web", .state = ReadingState::Invalid, .reason = "no"},
          WantMetrics{},
          EpisodesStored{3},
          NearestPair{"cpu-frequency:1", sample_neighbour()}};
}

}  // namespace flash::link::sync
