// Fills a coordinator's store, as flash-coordinator itself would, with a fleet's last hour: for the test of
// the web page and for looking at it.   fill_coordinator_store STORE NODES AGENTS_PER_NODE EPISODES
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "coordinator/store.h"
#include "core/process.h"
#include "core/random.h"

namespace flash::coordinator {
namespace {

constexpr std::size_t kDimensions = 64;
const std::vector<std::string> kApplications = {
    "checkout",  "search",   "thumbnails",
    "feed",      "payments", "ledger",
    "telemetry", "chat",     "<img src=x onerror=document.title='taken'>",
    "inventory"};

struct Fleet {
  std::size_t nodes, agents, episodes;
  std::int64_t now_us;
};

std::vector<float> embedding_of(std::size_t application, Random& random) {
  std::vector<float> e(kDimensions);
  for (std::size_t i = 0; i < e.size(); ++i) {
    const double centre = std::sin(static_cast<double>((application + 1) * (i + 3)) * 0.37);
    e[i] = static_cast<float>(centre + 0.35 * random.normal());
  }
  return e;
}

Arrived episode_of(const Fleet& fleet, std::size_t node, std::size_t agent, std::size_t k, Random& random) {
  const std::size_t application = (node * 7 + agent * 3) % kApplications.size();
  const bool frequency = agent % 10 == 0;
  const double progress = static_cast<double>(k + 1) / static_cast<double>(fleet.episodes);
  const double skill = progress + 0.3 * std::sin(static_cast<double>(node + agent));
  const auto stage = skill > 0.85   ? Stage::Serving
                     : skill > 0.55 ? Stage::Online
                     : skill > 0.25 ? Stage::Offline
                                    : Stage::Initialized;
  const std::string target = "/system.slice/" + std::to_string(agent) + ".service";
  const std::string name = kApplications[application];
  link::Episode e;
  e.agent = (frequency ? "cpu-frequency:" : "resource-limits:") + target;
  e.task = frequency ? Task::CpuFrequency : Task::ResourceLimits;
  e.target = application == 8 ? "<b>bold</b>" + std::to_string(agent)
                              : name + "-" + std::to_string(agent) + ".service";
  e.application = name;
  e.rule = "services";
  e.episode = k + 1;
  e.stage = stage;
  e.steps = 100;
  e.rewards = 96;
  e.fallback_rewards = 400;
  e.fallback_reward = 0.62 + 0.02 * random.normal();
  e.reward_mean = e.fallback_reward - 0.08 + 0.2 * progress + 0.03 * random.normal();
  e.model = "fleet-model-3";
  e.model_version = stage == Stage::Initialized ? 0 : 1 + k / 4;
  if (stage != Stage::Initialized) e.embedding = embedding_of(application, random);
  const auto left = static_cast<std::int64_t>(fleet.episodes - k);
  e.time_us = fleet.now_us - left * 3500 * 1'000'000 / static_cast<std::int64_t>(fleet.episodes);
  const std::uint64_t seq = k * fleet.agents + agent + 1;
  return {{node % 3 == 0 ? "batch" : "web", "node" + std::to_string(node)},
          {std::string(32, 'a'), seq, seq - 1, std::move(e)}};
}

int fill(const char* path, const Fleet& fleet) {
  auto store = Store::open(path, nullptr);
  if (!store) {
    std::fprintf(stderr, "%s\n", store.error().message().c_str());
    return 1;
  }
  Random random(1);
  std::uint64_t position = 0;
  for (std::size_t node = 0; node < fleet.nodes; ++node) {
    std::vector<Arrived> all;
    for (std::size_t k = 0; k < fleet.episodes; ++k)
      for (std::size_t agent = 0; agent < fleet.agents; ++agent)
        all.push_back(episode_of(fleet, node, agent, k, random));
    position += all.size();
    if (auto done = store->commit(all, 0, {1, position}); !done) {
      std::fprintf(stderr, "%s\n", done.error().message().c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace flash::coordinator

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const auto number = [&](int i) { return static_cast<std::size_t>(std::strtoul(argv[i], nullptr, 10)); };
  const std::int64_t now_us = flash::clock_now(CLOCK_REALTIME).count() / 1000;
  return flash::coordinator::fill(argv[1], {number(2), number(3), number(4), now_us});
}
