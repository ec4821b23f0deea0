// The registry of models and the lease's bucket, against a real server.
#include "coordinator/registry.h"

#include <gmock/gmock.h>

#include <chrono>
#include <functional>

#include "tests/link/signed_models.h"
#include "tests/system/fleet_world.h"

namespace flash::fleet_world {
namespace {

using coordinator::kModelsSubject;
using coordinator::kModelStream;
using coordinator::Models;
using coordinator::Nats;
using coordinator::offer;
using coordinator::Registry;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kName = "resource-limits";

class RegistryTest : public FleetWorld {
 protected:
  void SetUp() override {
    FleetWorld::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    connection_ = connect();
    ASSERT_TRUE(connection_);
  }
  std::unique_ptr<Nats> connect() {
    auto made = Nats::connect_surely({.url = url(), .credentials = {}, .ca = {}, .name = "test"});
    EXPECT_TRUE(made) << made.error().message();
    return made ? std::move(*made) : nullptr;
  }
  Result<void> publish(std::uint64_t version, std::uint32_t share) {
    const auto m = link::manifest(version);
    return registry().publish(link::signed_as(m), m, share, 1);
  }
  Registry& registry() {
    if (!registry_) registry_.emplace(*connection_);
    return *registry_;
  }
  /// Of which the stream has something.
  std::set<std::uint64_t> versions() {
    std::set<std::uint64_t> out;
    const auto subjects = *connection_->subjects(kModelStream, "flash.v1.ck.>");
    for (const std::string& s : subjects)
      if (const auto v = coordinator::version_of_subject(s, kName)) out.insert(*v);
    return out;
  }
  std::unique_ptr<Nats> connection_;
  std::optional<Registry> registry_;
};

TEST_F(RegistryTest, OfTwoThatWriteTheFirstStateAtOnceNeitherIsLost) {
  const auto other = connect();
  bool once = false;
  const auto done = registry().change([&](Models& m) {
    if (!once) {
      once = true;
      EXPECT_TRUE(Registry(*other).change([](Models& n) { return offer(n, "cpu-frequency", 1, 10, 1); }));
    }
    return offer(m, kName, 1, 10, 1);
  });
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_EQ(registry().models()->offered.size(), 2U);
}

// What nats-server 2.9.10 stores before may be lost (docs/adr/0012).
TEST_F(RegistryTest, NothingIsMadeByAConnectionYoungerThanTwoSeconds) {
  using std::chrono::steady_clock;
  const auto is_made_late = [this](const std::function<Result<void>(Nats&)>& make) {
    const auto began = steady_clock::now();
    const auto fresh = connect();
    const auto done = make(*fresh);
    EXPECT_TRUE(done) << done.error().message();
    return steady_clock::now() - began >= std::chrono::seconds(2);
  };
  EXPECT_TRUE(is_made_late([](Nats& n) -> Result<void> {
    FLASH_TRY([[maybe_unused]] const auto state, n.ensure_stream({.name = "FIRST", .subjects = "first.>"}));
    return {};
  }));
  EXPECT_TRUE(is_made_late([](Nats& n) { return n.ensure_model_stream(1); }));
  EXPECT_TRUE(is_made_late([](Nats& n) { return n.open_bucket("first", 1); }));
}

TEST_F(RegistryTest, ChunksThatNobodyIsHandedAnyMoreAreRemovedWhenANewVersionIsPublished) {
  ASSERT_TRUE(publish(1, 100));
  ASSERT_TRUE(publish(2, 100));
  EXPECT_EQ(versions(), (std::set<std::uint64_t>{1, 2}));
  ASSERT_TRUE(publish(3, 10));
  EXPECT_EQ(versions(), (std::set<std::uint64_t>{2, 3}));  // to go back to
  ASSERT_TRUE(publish(4, 10));
  EXPECT_EQ(versions(), (std::set<std::uint64_t>{2, 3, 4}));  // most nodes have 2
  ASSERT_TRUE(registry().change([](Models& m) { return coordinator::withdraw(m, kName, 3, "bad", 2); }));
  ASSERT_TRUE(publish(5, 100));
  EXPECT_EQ(versions(), (std::set<std::uint64_t>{2, 4, 5}));
  EXPECT_EQ(registry().trouble(), "");
}

TEST_F(RegistryTest, RubbishInPlaceOfTheStateIsNamedAndTheStateBeforeItCounts) {
  ASSERT_TRUE(publish(1, 100));
  ASSERT_TRUE(connection_->put(kModelStream, kModelsSubject, "rubbish"));
  ASSERT_TRUE(connection_->put(kModelStream, kModelsSubject, "more of it"));
  const auto models = registry().models();
  ASSERT_TRUE(models) << models.error().message();
  ASSERT_EQ(models->offered.size(), 1U);
  EXPECT_THAT(registry().trouble(), AllOf(HasSubstr("flash.v1.bc.models: message 7 is passed over"),
                                          HasSubstr("message 6 is passed over"), HasSubstr("5 counts")));
  ASSERT_TRUE(registry().change([](Models& m) { return coordinator::roll_out(m, kName, 1, 50, 2); }));
  EXPECT_EQ(registry().models()->offered[0].share, 50U);
  EXPECT_EQ(registry().trouble(), "");
}

TEST_F(RegistryTest, AStreamOfAnEarlierVersionIsMadeAsThisOneWantsIt) {
  ASSERT_TRUE(connection_->request(
      "$JS.API.STREAM.CREATE.FLASH_MODELS",
      R"({"name":"FLASH_MODELS","subjects":["flash.v1.bc.models","flash.v1.ck.>"],)"
      R"("retention":"limits","storage":"file","num_replicas":1,"max_msgs_per_subject":1,)"
      R"("max_bytes":1073741824,"max_msg_size":132096,"discard":"new","max_age":0})",
      std::chrono::seconds(5)));
  ASSERT_TRUE(publish(1, 100));
  ASSERT_TRUE(connection_->put(kModelStream, kModelsSubject, "rubbish"));
  EXPECT_EQ(registry().models()->offered.size(), 1U);
}

TEST_F(RegistryTest, ABucketThatDoesNotAnswerIsGivenUpSoon) {
  ASSERT_TRUE(connection_->open_bucket("FLASH_LEASE", 1));
  ASSERT_TRUE(connection_->bucket_put("speaker", "me", 0));
  ASSERT_TRUE(connection_->request("$JS.API.STREAM.DELETE.KV_FLASH_LEASE", "", std::chrono::seconds(5)));
  const auto silent = connect();  // takes what is said, and says nothing
  ASSERT_TRUE(silent->subscribe("$KV.FLASH_LEASE.>"));
  ASSERT_TRUE(silent->newest("none", "none"));  // the server knows it by now
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(connection_->bucket_put("speaker", "me", 1));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2 * Nats::kBucketWait);
}

}  // namespace
}  // namespace flash::fleet_world
