// Purpose: what is in the files of an earlier version (tests/upgrade/README.md), for the program that wrote them and for the
// tests that open them.
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/decision.h"
#include "core/target.h"
#include "link/episode.h"
#include "link/messages.h"
#include "tests/actuators/temporary_folder.h"

namespace flash::upgrade {

/// The files of one version, copied to where they may be written.
class Files {
 public:
  explicit Files(const std::string& version) {
    std::filesystem::copy(std::string(FLASH_SOURCE_DIR) + "/tests/upgrade/" + version, folder_.path(),
                          std::filesystem::copy_options::recursive);
    // A checkout's files may be writable by a group; what others can write is not believed.
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path()))
      std::filesystem::permissions(
          entry.path(), entry.is_directory()
                            ? std::filesystem::perms::owner_all
                            : std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }
  std::string at(const std::string& name) const { return folder_.path() + "/" + name; }
  const std::string& folder() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

// A run of flashd 0.1.0 with an agent of each task.
inline constexpr std::uint64_t kEpoch = 7;
inline constexpr std::uint64_t kLastStep = 140;  // of each agent
inline constexpr std::uint64_t kOnlineFrom = 121;
inline constexpr std::uint32_t kEpisodeSteps = 10;
inline constexpr std::int64_t kBegin_us = 1'700'000'000'000'000;

/// As flashd 0.1.0 announced them: names of the state's entries and rewards were written down here, since those of today may
/// be others.
inline link::Announce agent_of(Task task) {
  link::Announce a;
  a.layout.task = task;
  if (task == Task::ResourceLimits) {
    a.agent = "limits_11";
    a.key = "resource-limits:/system.slice/web.service";
    a.application = "web";
    a.rule = "services";
    a.layout.actions = {"cpu-limit", "memory-limit"};
    a.layout.state = {"cpu_limit",     "memory_limit", "cpu_utilization", "memory_utilization", "sp_latency",
                      "sp_throughput", "load_change",  "cpu_use",         "memory_use"};
    a.layout.reward = "default, alpha 0.5";
  } else {
    a.agent = "frequency_22";
    a.key = "cpu-frequency:0-3";
    a.application = "batch";
    a.rule = "clock";
    a.layout.actions = {"cpu-frequency"};
    a.layout.levels = 11;
    a.layout.state = {"ips",         "ips_known",     "cpu_usage",      "frequency",
                      "sp_latency",  "sp_throughput", "ips_gain",       "cpu_usage_3",
                      "cpu_usage_8", "cpu_usage_64",  "cpu_usage_peak", "latency",
                      "latency_8",   "latency_64"};
    a.layout.reward = "default, alpha 0.5, power price 0.25";
  }
  return a;
}

inline link::Step step_of(Task task, std::uint64_t seq) {
  const link::Announce a = agent_of(task);
  link::Step s;
  s.agent = a.agent;
  s.seq = seq;
  s.time_us = kBegin_us + static_cast<std::int64_t>(seq) * 1'000'000;
  s.episode = (seq - 1) / kEpisodeSteps;
  s.step = static_cast<std::uint32_t>((seq - 1) % kEpisodeSteps);
  s.stage = seq < kOnlineFrom ? Stage::Offline : Stage::Online;
  s.controller = seq < kOnlineFrom ? Controller::Fallback : Controller::Learned;
  s.explored = seq % 11 == 0;
  s.end_of_episode = seq % kEpisodeSteps == 0;
  for (std::uint32_t i = 0; i < a.layout.state.size(); ++i)
    s.state.push_back(static_cast<float>((seq * (i + 3)) % 17) / 16.0F);
  s.state_trusted = seq % 29 != 0;
  if (task == Task::ResourceLimits) {
    s.action = {static_cast<float>(seq % 9) / 8 - 0.5F, static_cast<float>(seq % 5) / 4 - 0.5F};
    s.fallback = {s.action[0], 0.25F};
  } else {
    s.action = {static_cast<float>(seq % 11)};
    s.fallback = {static_cast<float>((seq + 1) % 11)};
  }
  s.reward_given = seq > 1;
  s.reward_trusted = seq > 1 && seq % 31 != 0;
  s.reward = static_cast<float>((seq - 1) % 8) / 8;
  return s;
}

/// Episode `number` of node n1's agent of that task.
inline link::Episode episode_of(Task task, std::uint64_t number) {
  const link::Announce a = agent_of(task);
  link::Episode e;
  e.agent = a.key;
  e.task = task;
  e.target = task == Task::ResourceLimits ? "web.service" : "cpus 0-3";
  e.application = a.application;
  e.rule = a.rule;
  e.episode = number;
  e.stage = number < 3 ? Stage::Online : Stage::Serving;
  e.steps = 100;
  e.rewards = 90;
  e.reward_mean = 0.5 + static_cast<double>(number) / 64;
  e.fallback_rewards = 10;
  e.fallback_reward = 0.25;
  e.model_version = 3;
  e.model = "m1";
  e.embedding = {1, 2, static_cast<float>(number)};
  e.time_us = kBegin_us + static_cast<std::int64_t>(number) * 100'000'000;
  return e;
}

}  // namespace flash::upgrade
