// A roll-out whose nodes earn less is taken back: real flash-syncs fetch the models and bring the episodes,
// the real flash-coordinator judges them. Only what earns is made up: a node's reward is that of the model
// that its flash-sync holds.
#include <gmock/gmock.h>

#include <cmath>

#include "coordinator/messages_models.h"
#include "core/json.h"
#include "tests/link/signed_models.h"
#include "tests/system/fleet_world.h"

namespace flash::fleet_world {
namespace {

using testing::HasSubstr;

constexpr const char* kName = "resource-limits";
constexpr std::uint64_t kFirst = 1, kAsGood = 2, kWorse = 3;
constexpr std::size_t kOfEach = 6;  // nodes with a version of a share, and without
constexpr std::uint64_t kEpisodes = 15;
constexpr std::uint32_t kShare = 50;

class ModelRollBack : public FleetWorld {
 protected:
  void SetUp() override {
    FleetWorld::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_TRUE(write_key_pair(folder_ + "/release", link::release_key()));
    start_coordinator("c1", {"--judge-interval", "1"});
    // Before there are nodes: nats-server 2.9.10 dies of a read of a stream that is just being made, and they
    // read.
    ASSERT_NO_FATAL_FAILURE(publish(kFirst, "100"));
    std::size_t with = 0, without = 0;
    for (int i = 0; with + without < 2 * kOfEach; ++i) {
      const std::string name = "n" + std::to_string(i);
      // As good a split for both roll-outs as one gets: by the second one's share.
      std::size_t& count = coordinator::in_share(name, kName, kWorse, kShare) ? with : without;
      if (count == kOfEach) continue;
      ++count;
      start_node(name, {"--models", folder_ + "/" + name + ".models", "--model-keys",
                        folder_ + "/release.pub", "--models-interval", "1"});
    }
  }
  /// Its output; its log on stderr of the test.
  std::string model(std::vector<std::string> words) {
    const std::string out = folder_ + "/model.out";
    std::filesystem::remove(out);
    words.insert(words.begin(), {std::string(FLASH_BINARY_DIR) + "/bin/flash-coordinator", "--nats", url(),
                                 "--model-keys", folder_ + "/release.pub", "--json", "model"});
    Process process(words, out);
    int status = 0;
    waitpid(process.pid(), &status, 0);
    EXPECT_EQ(status, 0) << text_of(out);
    return text_of(out);
  }
  void publish(std::uint64_t version, const std::string& share) {
    const std::string file = folder_ + "/signed";
    ASSERT_TRUE(link::write_whole_file(file, encode(link::signed_as(link::manifest(version)))));
    model({"publish", file, "--share", share});
  }
  nlohmann::json registry() { return nlohmann::json::parse(model({"list"}), nullptr, false); }
  bool withdrawn(std::uint64_t version) {
    const auto all = registry();
    for (const auto& w : all["withdrawn"])
      if (w["version"] == version) return true;
    return false;
  }
  /// What flash-sync laid out for a learner; 0: nothing.
  std::uint64_t held(const std::string& node) const {
    const auto bytes =
        link::read_whole_file(folder_ + "/" + node + ".models/" + kName + ".signed", link::kMaxSignedBytes);
    if (!bytes) return 0;
    const auto model = link::verify_signed(*link::decode_signed(*bytes), link::trusted(), "0.1.0");
    return model ? model->version : 0;
  }
  std::size_t holders(std::uint64_t version) const {
    std::size_t count = 0;
    for (const auto& [name, node] : nodes_) count += held(name) == version;
    return count;
  }
  /// Of every node, each with its own mean; they are in the coordinator's store when it returns.
  void live() {
    double own = 0.4;
    for (const auto& [name, node] : nodes_) {
      own += 0.02;
      const double reward = held(name) == kWorse ? own - 0.2 : own;
      for (std::uint64_t i = 0; i < kEpisodes; ++i) {
        link::Episode e = episode("resource-limits:/shop", {1, 2}, Stage::Serving, ++episodes_);
        e.reward_mean = reward + 0.02 * std::sin(static_cast<double>(episodes_));
        e.fallback_rewards = 10;
        e.fallback_reward = 0.3;
        e.time_us = std::chrono::duration_cast<std::chrono::microseconds>(
                        std::chrono::system_clock::now().time_since_epoch())
                        .count();
        say(name, e);
      }
    }
    ASSERT_TRUE(await([&] {
      hear();
      return stored("c1") == episodes_;
    })) << stored("c1")
        << " of " << episodes_ << " episodes are stored";
  }
  std::uint64_t episodes_ = 0;
};

TEST_F(ModelRollBack, AModelWithWhichNodesEarnLessIsWithdrawnAndTheyGoBackToTheOneBefore) {
  ASSERT_TRUE(await([&] { return holders(kFirst) == nodes_.size(); }));
  live();

  publish(kAsGood, "50");
  std::size_t share = 0;
  for (const auto& [name, node] : nodes_) share += coordinator::in_share(name, kName, kAsGood, kShare);
  ASSERT_TRUE(await([&] { return holders(kAsGood) == share; }));
  live();
  std::this_thread::sleep_for(std::chrono::seconds(4));  // it is judged every second
  EXPECT_FALSE(withdrawn(kAsGood)) << registry();
  model({"roll-out", kName, std::to_string(kAsGood), "100"});
  ASSERT_TRUE(await([&] { return holders(kAsGood) == nodes_.size(); }));

  publish(kWorse, "50");
  ASSERT_TRUE(await([&] { return holders(kWorse) == kOfEach; }));
  EXPECT_EQ(holders(kAsGood), kOfEach);
  live();
  ASSERT_TRUE(await([&] { return withdrawn(kWorse); })) << registry();
  EXPECT_THAT(registry()["withdrawn"][0]["reason"].get<std::string>(), HasSubstr("it earns less"));
  ASSERT_TRUE(await([&] { return holders(kAsGood) == nodes_.size(); }))
      << holders(kWorse) << " still hold it";
  // A node says so once the file is in its place, so a moment after it is seen there.
  const auto went_back = [&] {
    std::size_t count = 0;
    for (const auto& [name, node] : nodes_)
      count += text_of(folder_ + "/" + name + ".log").find("3 was withdrawn: back to 2") != std::string::npos;
    return count;
  };
  EXPECT_TRUE(await([&] { return went_back() == kOfEach; })) << went_back() << " said that they went back";
  std::printf("%s", model({"list"}).c_str());
}

}  // namespace
}  // namespace flash::fleet_world
