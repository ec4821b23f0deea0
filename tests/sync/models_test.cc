#include "sync/models.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "tests/actuators/temporary_folder.h"
#include "tests/link/signed_models.h"

namespace flash::sync {
namespace {

using coordinator::Models;
using std::chrono::hours;
using std::chrono::seconds;
using testing::Contains;
using testing::HasSubstr;

constexpr const char* kName = "resource-limits";

class ModelsOfANode : public ::testing::Test {
 protected:
  ModelsOfANode() {
    std::filesystem::create_directory(keys());
    const KeyPair key{link::release_key()};
    EXPECT_TRUE(write_key_pair(folder_.path() + "/release", key));
    std::filesystem::copy(folder_.path() + "/release.pub", keys());
    start();
  }
  std::string keys() const { return folder_.path() + "/keys"; }
  std::string file(const std::string& name) const { return folder_.path() + "/models/" + name; }
  void start(const std::string& software = "0.1.0") {
    ModelClientOptions options;
    options.node = "n1";
    options.directory = folder_.path() + "/models";
    options.keys = keys();
    options.software = software;
    auto made = ModelClient::open(options, [this](int, const std::string& text) { said_.push_back(text); });
    ASSERT_TRUE(made) << made.error().message();
    client_ = std::move(*made);
  }
  void put(const link::SignedModel& model, std::uint64_t version) {
    const auto m = *link::decode_manifest(model.manifest);
    put_manifest(model, version);
    for (std::size_t i = 0; i < m.chunks.size(); ++i)
      stream_[coordinator::chunk_subject(kName, version, i)] = link::chunk_of(model.model, i);
  }
  void put_manifest(const link::SignedModel& model, std::uint64_t version) {
    stream_[coordinator::manifest_subject(kName, version)] =
        encode(coordinator::SignedManifest{model.manifest, model.signature});
  }
  /// Published, and to all nodes.
  void hand_out(const link::SignedModel& model, std::uint64_t version) {
    put(model, version);
    models_.offered.push_back({kName, version, 100, 1, 1});
  }
  /// As long as there is something to do.
  void run(Duration later = seconds(40)) {
    now_ += later;
    stream_[coordinator::kModelsSubject] = state_.empty() ? encode(models_) : state_;
    do {
      const auto done =
          client_->step(now_, [this](const std::string& subject) -> Result<std::optional<std::string>> {
            ++asked_;
            const auto at = stream_.find(subject);
            return at == stream_.end() ? std::nullopt : std::optional(at->second);
          });
      ASSERT_TRUE(done) << done.error().message();
    } while (client_->busy());
  }
  std::uint64_t held() const {
    for (const auto& h : client_->state().held)
      if (h.name == kName) return h.version;
    return 0;
  }
  std::uint64_t refused(ModelRefusal r) const {
    return client_->state().refused[static_cast<std::size_t>(r)];
  }
  /// The version that a learner would find.
  std::uint64_t on_disk(const std::string& name = std::string(kName) + ".signed") const {
    const auto bytes = link::read_whole_file(file(name), link::kMaxSignedBytes);
    if (!bytes) return 0;
    const auto verified = link::verify_signed(*link::decode_signed(*bytes), link::trusted(), "0.1.0");
    return verified ? verified->version : 0;
  }

  TemporaryFolder folder_;
  std::unique_ptr<ModelClient> client_;
  std::map<std::string, std::string> stream_;
  Models models_;
  std::string state_;  // instead of models_
  Duration now_ = hours(1);
  int asked_ = 0;
  std::vector<std::string> said_;
};

link::SignedModel good(std::uint64_t version) {
  return link::signed_as(link::manifest(version));
}

TEST_F(ModelsOfANode, AGoodModelIsTakenAndTheOneBeforeIsKept) {
  hand_out(good(1), 1);
  run();
  EXPECT_EQ(held(), 1U);
  EXPECT_EQ(on_disk(), 1U);
  hand_out(good(2), 2);
  run();
  EXPECT_EQ(on_disk(), 2U);
  EXPECT_EQ(on_disk(std::string(kName) + ".previous.signed"), 1U);
  EXPECT_EQ(client_->state().taken, 2U);
  start();
  EXPECT_EQ(held(), 2U);
}

TEST_F(ModelsOfANode, WhatIsHeldIsNotFetchedAgain) {
  hand_out(good(1), 1);
  run();
  asked_ = 0;
  run();
  EXPECT_EQ(asked_, 1);  // the registry alone
}

TEST_F(ModelsOfANode, AForgedModelIsRefused) {
  hand_out(link::signed_as(link::manifest(1), link::model_bytes(), link::strange_key()), 1);
  run();
  EXPECT_EQ(held(), 0U);
  EXPECT_EQ(on_disk(), 0U);
  EXPECT_EQ(refused(ModelRefusal::Unsigned), 1U);
  EXPECT_THAT(said_, Contains(HasSubstr("refused model resource-limits 1: unsigned")));
}

TEST_F(ModelsOfANode, AFlippedBitOfAChunkIsRefused) {
  hand_out(good(1), 1);
  stream_[coordinator::chunk_subject(kName, 1, 1)][5] ^= 1;
  run();
  EXPECT_EQ(on_disk(), 0U);
  EXPECT_EQ(refused(ModelRefusal::Damaged), 1U);
}

TEST_F(ModelsOfANode, AMissingOrCutChunkIsRefused) {
  hand_out(good(1), 1);
  stream_.erase(coordinator::chunk_subject(kName, 1, 2));
  run();
  EXPECT_EQ(refused(ModelRefusal::Incomplete), 1U);
  stream_[coordinator::chunk_subject(kName, 1, 2)] = "short";
  run(hours(2));
  EXPECT_EQ(refused(ModelRefusal::Damaged), 1U);
  EXPECT_EQ(on_disk(), 0U);
}

TEST_F(ModelsOfANode, AChunkThatIsTooLongIsRefused) {
  hand_out(good(1), 1);
  stream_[coordinator::chunk_subject(kName, 1, 2)] += "x";
  run();
  EXPECT_EQ(refused(ModelRefusal::TooLarge), 1U);
  EXPECT_EQ(on_disk(), 0U);
}

TEST_F(ModelsOfANode, AMalformedStateOrManifestIsRefused) {
  state_ = "rubbish";
  run();
  EXPECT_EQ(refused(ModelRefusal::Malformed), 1U);
  state_.clear();
  hand_out(good(1), 1);
  stream_[coordinator::manifest_subject(kName, 1)] = "rubbish";
  run();
  EXPECT_EQ(refused(ModelRefusal::Malformed), 2U);
  EXPECT_EQ(on_disk(), 0U);
}

TEST_F(ModelsOfANode, AnOlderVersionIsNotTakenEvenWhereItsSignatureHolds) {
  hand_out(good(5), 5);
  run();
  models_.offered.clear();
  hand_out(good(4), 4);
  run();
  EXPECT_EQ(on_disk(), 5U);
  EXPECT_EQ(refused(ModelRefusal::Old), 1U);
  start();  // it is not forgotten over a restart
  run();
  EXPECT_EQ(on_disk(), 5U);
  EXPECT_EQ(refused(ModelRefusal::Old), 1U);
}

TEST_F(ModelsOfANode, AnOldModelUnderANewVersionsSubjectIsRefused) {
  hand_out(good(5), 5);
  run();
  models_.offered.push_back({kName, 6, 100, 1, 1});
  put(good(4), 6);
  run();
  EXPECT_EQ(on_disk(), 5U);
  EXPECT_EQ(refused(ModelRefusal::Old), 1U);
}

TEST_F(ModelsOfANode, AModelForNewerSoftwareWaitsForIt) {
  auto m = link::manifest(1);
  m.software = "0.2.0";
  hand_out(link::signed_as(m), 1);
  run();
  EXPECT_EQ(refused(ModelRefusal::Software), 1U);
  start("0.2.1");
  run();
  EXPECT_EQ(held(), 1U);
}

TEST_F(ModelsOfANode, WhatIsRefusedIsNotFetchedAtEachLook) {
  hand_out(good(1), 1);
  stream_[coordinator::chunk_subject(kName, 1, 0)][5] ^= 1;
  for (int i = 0; i < 100; ++i) run();
  EXPECT_LT(refused(ModelRefusal::Damaged), 9U);
  put(good(1), 1);  // published again
  run(hours(2));
  EXPECT_EQ(held(), 1U);
}

TEST_F(ModelsOfANode, AWithdrawnModelGoesBackToTheOneBeforeAndDoesNotReturn) {
  hand_out(good(1), 1);
  run();
  hand_out(good(2), 2);
  run();
  models_.offered.pop_back();
  models_.withdrawn.push_back({kName, 2, "worse", 1});
  run();
  EXPECT_EQ(held(), 1U);
  EXPECT_EQ(on_disk(), 1U);
  EXPECT_EQ(client_->state().went_back, 1U);
  run();
  EXPECT_EQ(client_->state().went_back, 1U);
  start();
  EXPECT_EQ(held(), 1U);
  models_.withdrawn.push_back({kName, 1, "worse too", 1});
  models_.offered.clear();
  run();
  EXPECT_EQ(on_disk(), 0U);
  EXPECT_FALSE(std::filesystem::exists(file(std::string(kName) + ".signed")));
}

TEST_F(ModelsOfANode, WhatWasDamagedOnDiskIsNotHeldAfterARestart) {
  hand_out(good(1), 1);
  run();
  hand_out(good(2), 2);
  run();
  std::fstream(file(std::string(kName) + ".signed"), std::ios::in | std::ios::out).seekp(5000) << "damage";
  start();
  EXPECT_EQ(held(), 1U);
  EXPECT_EQ(on_disk(), 1U);
  run();
  EXPECT_EQ(on_disk(), 2U);
}

TEST_F(ModelsOfANode, WithoutAKeyNothingIsAskedFor) {
  std::filesystem::remove_all(keys());
  start();
  hand_out(good(1), 1);
  run();
  EXPECT_EQ(asked_, 0);
}

TEST_F(ModelsOfANode, ANodeOutsideTheShareTakesNothing) {
  hand_out(good(1), 1);
  models_.offered[0].share = 0;
  run();
  EXPECT_EQ(held(), 0U);
  models_.offered[0].share = 100;
  run();
  EXPECT_EQ(held(), 1U);
}

}  // namespace
}  // namespace flash::sync
