// Behaviour that must not change unnoticed: digests of simulator runs of fixed seeds, under the rules, under flashd's own
// tick, and with the packaged models. tests/lab/pretrain/digests.json has what they were; a change that is meant says so in
// its commit and writes them again:
//   FLASH_ACCEPT_DIGESTS=1 build/release/bin/digests_test
// Arithmetic of learned policies differs in its last bits from one instruction set to another, so their digests are kept
// per kernel; on a processor whose kernels are not among them these tests are skipped.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <span>
#include <string>

#include "agents/agent.h"
#include "core/json.h"
#include "core/network_kernels.h"
#include "core/tensor_file.h"
#include "lab/pretrain/learning_run.h"
#include "lab/sim/managed_world.h"
#include "lab/sim/pool.h"
#include "lab/sim/world.h"
#include "learner/pretrained.h"
#include "meta/gru_kernels.h"
#include "policy/decision_json.h"

namespace flash::digests_test {
namespace {

constexpr std::uint64_t kSeed = 4242;
const std::string kFile = FLASH_SOURCE_DIR "/tests/lab/pretrain/digests.json";

/// Numbers, bit by bit.
class Bits {
 public:
  template <class T>
  void add(const T& number) {
    static_assert(std::is_arithmetic_v<T>);
    char bytes[sizeof number];
    std::memcpy(bytes, &number, sizeof number);
    text_.append(bytes, sizeof number);
  }
  template <class T>
  void add_all(std::span<const T> numbers) {
    for (const T& n : numbers) add(n);
  }
  void add_text(const std::string& text) { text_ += text; }
  std::string digest() const { return sha256_hex(text_); }

 private:
  std::string text_;
};

class Digests : public testing::TestWithParam<Task> {
 protected:
  static Pool pool() { return *make_pool({.task = GetParam(), .pairs = 6, .seed = kSeed}); }

  /// `key` is what the digest depends on beside the code.
  static void expect(const std::string& name, const std::string& key, const std::string& digest) {
    nlohmann::ordered_json all = nlohmann::ordered_json::object();
    if (std::ifstream in(kFile); in) all = nlohmann::ordered_json::parse(in);
    auto& kept = all[std::string(to_string(GetParam()))][name];
    if (std::getenv("FLASH_ACCEPT_DIGESTS")) {
      kept[key] = digest;
      std::ofstream(kFile) << all.dump(1) << "\n";
      return;
    }
    if (!kept.is_object() || !kept.contains(key)) GTEST_SKIP() << "no digest of kernels " << key;
    EXPECT_EQ(kept[key].get<std::string>(), digest) << name << ", kernels " << key;
  }
  static std::string kernels() {
    std::string warning;
    prepare_libtorch(warning);
    auto* core = reinterpret_cast<char* (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_corename"));
    return std::string(network_kernels().front().name) + " " + std::string(gru::best().name) + " " +
           (core ? core() : "no OpenBLAS");
  }
};

TEST_P(Digests, WorldsUnderTheRules) {
  const Pool pairs = pool();
  Bits bits;
  for (const Pair& pair : pairs.pairs) {
    World world;
    world.reset(pair, 500, kSeed, true);
    for (int t = 0; t < 300; ++t) {
      world.step_fallback();
      bits.add_all(world.state());
      bits.add(world.reward());
      bits.add_all(world.core().in_force());
    }
  }
  expect("rules", "all", bits.digest());
}

TEST_P(Digests, WorldsUnderActionsOfAllKinds) {
  const Pool pairs = pool();
  Bits bits;
  for (const Pair& pair : pairs.pairs) {
    World world;
    world.reset(pair, 500, kSeed);
    Random random(kSeed);
    for (int t = 0; t < 300; ++t) {
      float action[kMostKnobs] = {};
      for (float& a : action)
        a = GetParam() == Task::ResourceLimits ? static_cast<float>(2 * random.uniform() - 1)
                                               : static_cast<float>(random.below(11));
      world.step({action, static_cast<std::size_t>(action_size(GetParam()))});
      bits.add_all(world.state());
      bits.add(world.reward());
      bits.add_all(world.executed());
    }
  }
  expect("actions", "all", bits.digest());
}

TEST_P(Digests, DecisionsOfTheTick) {
  const Pool pairs = pool();
  Bits bits;
  for (const Pair& pair : pairs.pairs) {
    Rule rule = pair.rule();
    rule.exploration.fallback_share = 0.2;
    ManagedWorld managed(pair, rule, 500, kSeed);
    for (int t = 0; t < 300; ++t) {
      managed.step();
      Target target;
      target.name = "web";
      bits.add_text(to_json_text(managed.decision(), target));
    }
  }
  expect("tick", "all", bits.digest());
}

TEST_P(Digests, LivesWithThePackagedModel) {
  const std::string key = kernels(), task(to_string(GetParam()));
  auto model = PretrainedModel::read(FLASH_SOURCE_DIR "/models/" + task + ".model", GetParam());
  ASSERT_TRUE(model) << model.error().message();
  const auto begins = std::make_shared<const PretrainedModel>(*std::move(model));
  const Pool pairs = pool();
  Bits bits;
  for (const Pair& pair : pairs.pairs) {
    LearningRun life(pair, pair.rule(), begins, without_learning({.offset_s = 500, .seed = kSeed}));
    for (int e = 0; e < 6; ++e) {
      const EpisodeStats episode = life.live();
      for (const double number : {episode.reward, episode.violations, episode.cpu, episode.memory,
                                  episode.place, episode.learned, episode.explored})
        bits.add(number);
      bits.add(static_cast<int>(episode.stage));
    }
  }
  expect("models", key, bits.digest());
}

INSTANTIATE_TEST_SUITE_P(Task, Digests, testing::Values(Task::ResourceLimits, Task::CpuFrequency),
                         [](const auto& info) {
                           return std::string(info.param == Task::ResourceLimits ? "Limits" : "Frequency");
                         });

}  // namespace
}  // namespace flash::digests_test
