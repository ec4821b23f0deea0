// Models of the fleet in the learner's inbox: which are believed.
#include "learner/model_inbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "tests/actuators/temporary_folder.h"
#include "tests/learner/small_model.h"
#include "tests/link/signed_models.h"

namespace flash {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class Inbox : public ::testing::Test {
 protected:
  Inbox() {
    EXPECT_TRUE(write_key_pair(folder_.path() + "/release", link::release_key()));
    start();
  }
  void start() {
    inbox_ = std::make_unique<ModelInbox>(ModelInboxOptions{folder_.path(), folder_.path() + "/release.pub",
                                                            "0.1.0", folder_.path() + "/accepted-models"},
                                          [this](const Event& e) { said_.push_back(e.message); });
  }
  /// The versions that are believed.
  std::vector<std::uint64_t> look() {
    std::vector<std::uint64_t> versions;
    for (const auto& found : inbox_->look())
      for (const auto& m : found.models) versions.push_back(m->version());
    return versions;
  }
  /// As flash-sync puts it there, the one before it beside; it passes its trial.
  void use(std::uint64_t version, std::uint64_t before) {
    put("resource-limits.previous.signed", before);
    put("resource-limits.signed", version);
    EXPECT_THAT(look(), Contains(version));
    inbox_->accepted(Task::ResourceLimits, version);
  }
  void put(const std::string& name, std::uint64_t version, const KeyPair& key = link::release_key()) {
    const std::string bytes = encode(to_tensor_file(small_model(100, version)));
    ASSERT_TRUE(link::write_whole_file(folder_.path() + "/" + name,
                                       encode(link::signed_as(link::manifest(version, bytes), bytes, key))));
  }
  TemporaryFolder folder_;
  std::unique_ptr<ModelInbox> inbox_;
  std::vector<std::string> said_;
};

TEST_F(Inbox, FindsWhatChangedTheNewestFirst) {
  EXPECT_TRUE(inbox_->look().empty());
  put("resource-limits.previous.signed", 3);
  put("resource-limits.signed", 4);
  const auto found = inbox_->look();
  ASSERT_EQ(found.size(), 1U);
  ASSERT_EQ(found[0].models.size(), 2U);
  EXPECT_EQ(found[0].models[0]->version(), 4U);
  EXPECT_EQ(found[0].models[1]->version(), 3U);
  EXPECT_TRUE(inbox_->look().empty());
  std::filesystem::remove(folder_.path() + "/resource-limits.signed");
  ASSERT_EQ(inbox_->look().size(), 1U);
}

TEST_F(Inbox, BelievesNothingBecauseItLiesThere) {
  put("resource-limits.signed", 4, link::strange_key());
  const auto found = inbox_->look();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(found[0].models.empty());
  EXPECT_EQ(inbox_->refused(), 1U);
  EXPECT_THAT(said_, Contains(HasSubstr("not signed by a trusted key")));
  // A model of another task under this name, well signed.
  put("cpu-frequency.signed", 4);
  EXPECT_TRUE(inbox_->look()[0].models.empty());
}

TEST_F(Inbox, AnOlderModelThanOneThatWasAcceptedIsRefusedAlsoAfterARestart) {
  use(2, 1);
  use(5, 2);
  put("resource-limits.signed", 4);
  EXPECT_THAT(look(), ElementsAre(2U));
  EXPECT_THAT(said_, Contains(HasSubstr("version 4 is older than version 5, which was accepted here")));
  start();
  put("resource-limits.previous.signed", 1);
  EXPECT_TRUE(look().empty());
  EXPECT_EQ(inbox_->refused(), 2U);
  put("resource-limits.signed", 5);
  EXPECT_THAT(look(), ElementsAre(5U));
}

TEST_F(Inbox, AWithdrawalGoesBackToTheVersionBeforeAndTheNextOneIsTaken) {
  use(2, 1);
  use(5, 2);
  use(2, 2);  // 5 was withdrawn
  start();
  EXPECT_THAT(look(), ElementsAre(2U, 2U));
  inbox_->accepted(Task::ResourceLimits, 2);
  use(6, 2);
  use(2, 2);
  put("resource-limits.signed", 5);  // between: not what 6 goes back to
  EXPECT_THAT(look(), ElementsAre(2U));
}

TEST_F(Inbox, WhereTwoCameBetweenTwoLooksTheOneBetweenMayBeGoneBackTo) {
  use(2, 1);
  use(7, 6);
  start();
  use(6, 6);
  put("resource-limits.signed", 2);
  EXPECT_THAT(look(), ElementsAre(6U));
}

TEST_F(Inbox, TasksHaveTheirOwnVersions) {
  use(5, 2);
  put("cpu-frequency.signed", 3);
  EXPECT_TRUE(look().empty());  // a model of resource limits under this name
  EXPECT_THAT(said_, Not(Contains(HasSubstr("is older"))));
}

TEST_F(Inbox, WhereWhatWasAcceptedCannotBeReadNothingIsBelieved) {
  use(5, 2);
  std::ofstream(folder_.path() + "/accepted-models") << "resource-limits 5";
  start();
  EXPECT_TRUE(look().empty());
  EXPECT_THAT(said_, Contains(HasSubstr("accepted-models does not say which models were accepted")));
  inbox_->accepted(Task::ResourceLimits, 0);
  std::filesystem::remove(folder_.path() + "/accepted-models");
  start();
  EXPECT_THAT(look(), ElementsAre(5U, 2U));
}

}  // namespace
}  // namespace flash
