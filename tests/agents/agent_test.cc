#include "agents/agent.h"
#include "core/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/random.h"
#include "policy/observation_space.h"
#include "policy/tasks/cpu_frequency.h"
#include "policy/tasks/resource_limits.h"

namespace flash {
namespace {

std::unique_ptr<Agent> make(const AgentSpaces& spaces, const AgentOptions& options = {}) {
  auto agent = Agent::create(spaces, options);
  EXPECT_TRUE(agent);
  return *std::move(agent);
}

constexpr AgentSpaces kLimits{Task::ResourceLimits, kLimitsStateDim, kLimitsActionDim},
    kFrequency{Task::CpuFrequency, kFrequencyStateDim, kFrequencyLevels};

Transition random_transition(const AgentSpaces& s, Random& random) {
  Transition t;
  for (int i = 0; i < s.state_dim; ++i) {
    t.state.push_back(static_cast<float>(random.uniform()));
    t.next_state.push_back(static_cast<float>(random.uniform()));
  }
  if (s.task == Task::CpuFrequency)
    t.action = {static_cast<float>(random.below(static_cast<std::uint64_t>(s.action_dim)))};
  else
    for (int i = 0; i < s.action_dim; ++i) t.action.push_back(static_cast<float>(random.uniform(-1, 1)));
  t.reward = static_cast<float>(random.uniform());
  return t;
}

void fill(Agent& agent, const AgentSpaces& s, int n, std::uint64_t seed) {
  Random random(seed);
  for (int i = 0; i < n; ++i) ASSERT_TRUE(agent.add(random_transition(s, random)));
}

struct Kind {
  AgentSpaces spaces;
  std::string online;
};
std::vector<Kind> kinds() {
  return {{kLimits, "ddpg"}, {kFrequency, "q-learning"}, {kFrequency, "tabular-q"}};
}
std::unique_ptr<Agent> make(const Kind& kind, std::uint64_t seed = 1) {
  AgentOptions options;
  options.online = kind.online;
  options.seed = seed;
  return make(kind.spaces, options);
}

std::string digest(const TensorFile& file) {
  return sha256_hex(encode(file));
}

TEST(Agent, RefusesSpacesAndOptionsThatAreNotPossible) {
  EXPECT_FALSE(Agent::create({Task::ResourceLimits, 0, 2}, {}));
  AgentOptions options;
  options.online = "sarsa";
  auto agent = Agent::create(kFrequency, options);
  ASSERT_FALSE(agent);
  EXPECT_EQ(agent.error().message(), "online: 'sarsa' is none of q-learning, tabular-q");
  options.online = "ddpg";
  EXPECT_FALSE(Agent::create(kFrequency, options)) << "it learns no levels";
  options.online.clear();
  options.offline = "iql";
  agent = Agent::create(kLimits, options);
  ASSERT_FALSE(agent);
  EXPECT_EQ(agent.error().message(), "offline: 'iql' is none of td3+bc, bcq");
  options.offline.clear();
  options.online = "tabular-q";
  EXPECT_FALSE(Agent::create({Task::CpuFrequency, 5, 11}, options));
  options.replay_steps = 50;
  EXPECT_FALSE(Agent::create(kFrequency, options));
}

TEST(Agent, RefusesTransitionsThatAreNotOfItsSpaces) {
  Random random(1);
  for (const AgentSpaces& s : {kLimits, kFrequency}) {
    const auto agent = make(s);
    const auto refused = [&](auto change) {
      Transition t = random_transition(s, random);
      change(t);
      return !agent->add(t);
    };
    EXPECT_TRUE(refused([](Transition& t) { t.state.pop_back(); }));
    EXPECT_TRUE(refused([](Transition& t) { t.next_state.push_back(0); }));
    EXPECT_TRUE(refused([](Transition& t) { t.action.push_back(0); }));
    EXPECT_TRUE(refused([](Transition& t) { t.action[0] = -2; }));
    EXPECT_TRUE(refused([](Transition& t) { t.state[0] = NAN; }));
    EXPECT_TRUE(refused([](Transition& t) { t.reward = INFINITY; }));
    EXPECT_TRUE(refused([](Transition& t) { t.fallback = {NAN}; }));
    EXPECT_EQ(agent->transitions(), 0u);
  }
  const auto agent = make(kFrequency);
  Transition t = random_transition(kFrequency, random);
  t.action = {10.5F};
  EXPECT_FALSE(agent->add(t));
  t.action = {11};
  EXPECT_FALSE(agent->add(t));
}

TEST(Agent, ASnapshotIsValidForItsSpacesBeforeAndAfterLearning) {
  for (const Kind& kind : kinds()) {
    const auto agent = make(kind);
    for (int learned = 0; learned < 2; ++learned) {
      const PolicySnapshot p = agent->snapshot();
      const auto valid = p.validate(kind.spaces.state_dim, kind.spaces.action_dim);
      EXPECT_TRUE(valid) << valid.error().message();
      EXPECT_EQ(p.algorithm, kind.online);
      fill(*agent, kind.spaces, 200, 3);
      EXPECT_EQ(agent->learn_online(20).updates, 20u);
    }
  }
}

TEST(Agent, LearnsNothingBeforeLearningStarts) {
  AgentOptions options;
  options.learning_starts = 3;
  const auto agent = make(kLimits, options);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(agent->ready());
    EXPECT_EQ(agent->learn_online(1).updates, 0u);
    fill(*agent, kLimits, 1, 5);
  }
  EXPECT_EQ(agent->learn_online(2).updates, 2u);
}

TEST(Agent, ExplorationFallsWithItsOwnStepsAndNotWithTheFallbacks) {
  const auto agent = make(kLimits);
  Random random(1);
  const float first = agent->snapshot().exploration.sigma;
  EXPECT_FLOAT_EQ(first, 0.2F);  // FLASH Table 8
  Transition t = random_transition(kLimits, random);
  t.by_fallback = true;
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(agent->add(t));
  EXPECT_EQ(agent->snapshot().exploration.sigma, first);
  t.by_fallback = false;
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(agent->add(t));
  EXPECT_LT(agent->snapshot().exploration.sigma, first);
}

TEST(Agent, ACheckpointComesBackBitByBitAndLearningGoesOnTheSame) {
  for (const Kind& kind : kinds()) {
    const auto a = make(kind), b = make(kind, 99);  // another seed: all that counts comes from the checkpoint
    fill(*a, kind.spaces, 150, 3);
    a->learn_online(30);
    fill(*b, kind.spaces, 150, 3);  // the replay comes from the trajectory store
    const auto file = decode_tensor_file(encode(a->checkpoint()));
    ASSERT_TRUE(file);
    const auto restored = b->restore(*file);
    ASSERT_TRUE(restored) << restored.error().message();
    EXPECT_EQ(digest(b->checkpoint()), digest(a->checkpoint()));
    for (Agent* agent : {a.get(), b.get()}) {
      fill(*agent, kind.spaces, 200, 4);  // the scaling is measured again
      agent->learn_online(30);
    }
    EXPECT_EQ(digest(b->checkpoint()), digest(a->checkpoint()));
  }
}

TEST(Agent, ACheckpointThatDoesNotFitIsRefusedAndChangesNothing) {
  for (const Kind& kind : kinds()) {
    const auto agent = make(kind);
    fill(*agent, kind.spaces, 150, 3);
    agent->learn_online(10);
    const TensorFile good = agent->checkpoint();
    agent->learn_online(10);
    const std::string before = digest(agent->checkpoint());
    const auto refused = [&](auto change) {
      TensorFile file = good;
      change(file);
      return !agent->restore(file) && digest(agent->checkpoint()) == before;
    };
    EXPECT_TRUE(refused([](TensorFile& f) { f.kind = "policy"; }));
    EXPECT_TRUE(refused([](TensorFile& f) { f.format = 2; }));
    EXPECT_TRUE(refused([](TensorFile& f) { f.meta["state_dim"] = 8; }));
    EXPECT_TRUE(refused([](TensorFile& f) { f.meta["algorithm"] = "ppo"; }));
    EXPECT_TRUE(refused([](TensorFile& f) { f.meta->erase("random"); }));
    EXPECT_TRUE(refused([](TensorFile& f) { f.meta["seen"] = -1; }));
    EXPECT_TRUE(refused([](TensorFile& f) { f.meta["reward_scale"] = 0; }));
    for (std::size_t i = 0; i < good.tensors.size(); ++i) {
      EXPECT_TRUE(refused([&](TensorFile& f) { f.tensors[i].values[0] = NAN; })) << good.tensors[i].name;
      EXPECT_TRUE(refused([&](TensorFile& f) { f.tensors[i].values.pop_back(); })) << good.tensors[i].name;
    }
    EXPECT_TRUE(agent->restore(good));
  }
}

TEST(Agent, GoesBackToItsLastFiniteParametersWhenItDiverges) {
  for (const Kind& kind : {kinds()[0], kinds()[1]}) {
    const auto agent = make(kind);
    fill(*agent, kind.spaces, 150, 3);
    agent->learn_online(10);
    TensorFile wild = agent->checkpoint();  // moments that no gradient explains: the next step is enormous
    for (Tensor& t : wild.tensors) {
      if (t.name.ends_with("/m")) std::fill(t.values.begin(), t.values.end(), 1e6F);
      if (t.name.ends_with("/v")) std::fill(t.values.begin(), t.values.end(), 0.0F);
    }
    ASSERT_TRUE(agent->restore(wild));
    const auto parameters = [&] {
      TensorFile f = agent->checkpoint();
      *f.meta = nlohmann::json::object();
      std::erase_if(f.tensors,
                    [](const Tensor& t) { return t.name.ends_with("/m") || t.name.ends_with("/v"); });
      return digest(f);
    };
    const std::string before = parameters();
    EXPECT_FALSE(agent->learn_online(20).finite);
    EXPECT_EQ(parameters(), before);
    EXPECT_TRUE(agent->snapshot().validate(kind.spaces.state_dim, kind.spaces.action_dim));
    EXPECT_TRUE(agent->learn_online(20).finite);  // its optimisers started over
    EXPECT_NE(parameters(), before);
  }
}

TEST(PrepareLibtorch, SaysWhatComputes) {
  std::string warning;
  const std::string what = prepare_libtorch(warning);
  EXPECT_EQ(what.rfind("libtorch 1.", 0), 0u) << what;
  EXPECT_NE(what.find("BLAS"), std::string::npos) << what;
  EXPECT_EQ(warning.empty(), what.find("reference BLAS") == std::string::npos) << warning;
}

}  // namespace
}  // namespace flash
