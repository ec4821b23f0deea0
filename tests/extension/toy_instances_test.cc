// A target that has a knob per device: what its agent's actions set is named by device, in one order, and when a device
// comes or goes the agent is another one to its policy and to the learner.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "learner/trajectory_store.h"
#include "link/messages.h"
#include "tests/extension/toy_task.h"

namespace flash::toy_task {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ToyInstancesTest : public ToyTaskTest {
 protected:
  ToyInstancesTest() : ToyTaskTest({"sdb", "sda"}) {}  // the driver's order is no order
  const SpaceLayout& layout() { return *loop_->view(id_)->layout; }
  std::shared_ptr<const PolicySnapshot> policy(std::uint64_t version) {
    PolicySnapshot p = policy_of(toy_.task);
    const auto outputs = layout().actions.size();
    p.layout = layout();
    p.version = version;
    DenseLayer layer{2, static_cast<int>(outputs), {}, {}, Activation::Tanh};
    for (std::size_t i = 0; i < outputs; ++i) {
      layer.weights.insert(layer.weights.end(), {0.1F, 0.5F});
      layer.bias.push_back(-0.2F);
    }
    p.actor = {layer};
    return std::make_shared<const PolicySnapshot>(std::move(p));
  }
  KnobId on(const char* device) const { return {toy_.knob, device}; }
};

TEST_F(ToyTaskTest, WithoutInstancesTheLayoutIsThatOfTheKinds) {
  run(1);
  const SpaceLayout& layout = *loop_->view(id_)->layout;
  EXPECT_THAT(layout.actions, ElementsAre("toy-shares"));
  EXPECT_EQ(layout.digest(), space_layout(task_spec(toy_.task), *rule_).digest());
}

TEST_F(ToyInstancesTest, AnActionIsNamedByItsDevice) {
  run(8);
  EXPECT_THAT(layout().actions, ElementsAre("toy-shares/sda", "toy-shares/sdb"));
  EXPECT_TRUE(layout().check());
  EXPECT_EQ(agents_.find(id_)->announce.layout, layout());
  const auto said = link::decode_down(link::encode(link::Down(agents_.find(id_)->announce)));
  ASSERT_TRUE(said) << said.error().message();
  EXPECT_EQ(std::get<link::Announce>(*said).layout, layout());
  EXPECT_EQ(last_.learning.action.size(), 2U);
  const KnobId other[] = {on("nvme0"), on("sda")};
  const SpaceLayout moved = space_layout(task_spec(toy_.task), *rule_, other);
  EXPECT_EQ(moved.action_dim(), layout().action_dim());
  EXPECT_NE(moved.digest(), layout().digest());
}

TEST_F(ToyInstancesTest, ADeviceThatComesMakesAnotherLayoutAndThePolicyLeaves) {
  run(8);
  ASSERT_TRUE(loop_->offer_snapshot(now(), id_, policy(1)));
  go_on(1);
  ASSERT_NE(loop_->view(id_)->snapshot, nullptr);
  const auto old = policy(2);
  const SpaceLayout before = layout();
  const std::string key = agents_.find(id_)->announce.key;
  TrajectoryStore store = *TrajectoryStore::open(folder_ + "/trajectories.sqlite", nullptr);
  const auto first = store.begin_run(agents_.find(id_)->announce, 7)->id;

  actuator_.come(id_, on("nvme0"), 10, 1, kMost);
  go_on(1);
  EXPECT_THAT(layout().actions, ElementsAre("toy-shares/nvme0", "toy-shares/sda", "toy-shares/sdb"));
  const auto view = loop_->view(id_);
  EXPECT_EQ(view->snapshot, nullptr);
  EXPECT_EQ(view->snapshots.refused[static_cast<std::size_t>(SnapshotRefusal::OtherLayout)], 1U);
  EXPECT_THAT(view->snapshots.last_refusal, HasSubstr("another layout"));
  EXPECT_EQ(last_.controller, Controller::Fallback);
  EXPECT_EQ(agents_.find(id_)->announce.layout, layout());
  EXPECT_TRUE(agents_.next_batch().steps.empty())
      << "what has the old numbers is not said under the new layout";
  EXPECT_NE(store.begin_run(agents_.find(id_)->announce, 7)->id, first);
  const auto refused = loop_->offer_snapshot(now(), id_, old);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("another layout"));
  go_on(3);
  EXPECT_EQ(last_.learning.action.size(), 3U);
  EXPECT_EQ(agents_.next_batch().steps.size(), 3U);
  EXPECT_TRUE(loop_->offer_snapshot(now(), id_, policy(3)));

  actuator_.go(id_, on("nvme0"));
  go_on(1);
  EXPECT_EQ(layout(), before);
  EXPECT_EQ(loop_->view(id_)->snapshot, nullptr);
}

}  // namespace
}  // namespace flash::toy_task
