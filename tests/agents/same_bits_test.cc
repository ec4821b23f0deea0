// Learning that must not change unnoticed: digests of the state and the policy of an agent of each algorithm after
// a life of fixed seed. tests/agents/same_bits.json has what they were, per kernels, since arithmetic differs in its
// last bits from one instruction set to another. A change that is meant says so in its commit and writes them again:
//   FLASH_ACCEPT_DIGESTS=1 build/release/bin/agents_learning_test
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "agents/agent.h"
#include "core/json.h"
#include "core/network_kernels.h"
#include "core/random.h"
#include "core/tensor_file.h"
#include "policy/action_space.h"
#include "policy/observation_space.h"
#include "policy/tasks/cpu_frequency.h"
#include "policy/tasks/resource_limits.h"

namespace flash::same_bits {
namespace {

const std::string kFile = FLASH_SOURCE_DIR "/tests/agents/same_bits.json";

struct Life {
  std::string offline, online;
  Task task = Task::ResourceLimits;
};

std::vector<Life> lives() {
  return {{"td3+bc", "ddpg", Task::ResourceLimits},     {"bcq", "ddpg", Task::ResourceLimits},
          {"td3+bc", "q-learning", Task::CpuFrequency}, {"iql", "q-learning", Task::CpuFrequency},
          {"bcq", "q-learning", Task::CpuFrequency},    {"td3+bc", "tabular-q", Task::CpuFrequency}};
}

AgentSpaces spaces_of(const Life& life) {
  if (life.task == Task::ResourceLimits) return {life.task, kLimitsStateDim, kLimitsActionDim};
  return {life.task, kFrequencyStateDim, kFrequencyLevels};
}

AgentOptions options_of(const Life& life) {
  AgentOptions o;
  o.seed = 7;
  o.offline = life.offline;
  o.online = life.online;
  return o;
}

/// Steps of a small world: the state follows the action a little, the reward prefers the middle.
class Steps {
 public:
  explicit Steps(const Life& life)
      : life_(life), state_(static_cast<std::size_t>(spaces_of(life).state_dim)) {}

  void add(Agent& agent, int n, bool by_fallback) {
    const AgentSpaces s = spaces_of(life_);
    const bool levels = s.task == Task::CpuFrequency;
    for (int i = 0; i < n; ++i) {
      Transition t;
      t.state = state_;
      double sum = 0;
      for (int a = 0; a < (levels ? 1 : s.action_dim); ++a) {
        const double x = levels ? static_cast<double>(random_.below(static_cast<std::uint64_t>(s.action_dim)))
                                : random_.uniform(-1, 1);
        t.action.push_back(static_cast<float>(x));
        sum += levels ? 2 * x / (s.action_dim - 1) - 1 : x;
      }
      for (float& x : state_) x = static_cast<float>(0.8 * double{x} + 0.1 * sum + 0.1 * random_.uniform());
      t.reward = static_cast<float>(1 - 0.5 * sum * sum + 0.05 * random_.normal());
      t.next_state = state_;
      t.by_fallback = by_fallback;
      t.fallback = t.next_fallback = std::vector<float>(t.action.size(), levels ? 3.0F : 0.25F);
      ASSERT_TRUE(agent.add(t));
    }
  }

 private:
  Life life_;
  std::vector<float> state_;
  Random random_{11};
};

std::string bits_of(Agent& agent) {
  PolicySnapshot policy = agent.snapshot();
  policy.estimate = agent.estimate();
  return encode(agent.checkpoint()) + encode(to_tensor_file(policy));
}

/// Offline, online, back to offline, saved and restored, with the scaling measured again in between.
std::string digest_of(const Life& life) {
  auto agent = *Agent::create(spaces_of(life), options_of(life));
  Steps steps(life);
  std::string all;
  const auto note = [&](const UpdateReport& r) {
    all += std::to_string(r.updates) + " " + nlohmann::json({r.critic_loss, r.actor_loss}).dump() +
           (agent->learned() ? " learned\n" : "\n");
  };
  steps.add(*agent, 150, true);
  for (int i = 0; i < 3; ++i) note(agent->learn_offline(40));
  all += bits_of(*agent);
  note(agent->learn_offline(400));
  all += bits_of(*agent);
  for (int i = 0; i < 30; ++i) {
    steps.add(*agent, 8, i % 3 == 0);
    note(agent->learn_online(3));
  }
  all += bits_of(*agent);
  steps.add(*agent, 100, true);
  note(agent->learn_offline(200));
  note(agent->learn_online(5));
  const TensorFile saved = agent->checkpoint();
  all += bits_of(*agent);
  auto other = *Agent::create(spaces_of(life), options_of(life));
  Steps again(life);
  again.add(*other, 300, true);
  if (!other->restore(saved)) return "not restored";
  all += bits_of(*other);
  agent = std::move(other);
  note(agent->learn_online(30));
  note(agent->learn_offline(60));
  note(agent->learn_online(2200));
  return sha256_hex(all + bits_of(*agent));
}

TEST(SameBits, OfAnAgentOfEachAlgorithm) {
  std::string warning;
  prepare_libtorch(warning);
  auto* core = reinterpret_cast<char* (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_corename"));
  const std::string key = std::string(network_kernels().front().name) + " " + (core ? core() : "no OpenBLAS");
  nlohmann::ordered_json all = nlohmann::ordered_json::object();
  if (std::ifstream in(kFile); in) all = nlohmann::ordered_json::parse(in);
  const bool accept = std::getenv("FLASH_ACCEPT_DIGESTS") != nullptr;
  if (!accept && !all.contains(key)) GTEST_SKIP() << "no digest of kernels " << key;
  for (const Life& life : lives()) {
    const std::string name = life.offline + ", " + life.online, digest = digest_of(life);
    if (accept)
      all[key][name] = digest;
    else
      EXPECT_EQ(all[key][name], digest) << name;
  }
  if (accept) std::ofstream(kFile) << all.dump(1) << "\n";
}

}  // namespace
}  // namespace flash::same_bits
