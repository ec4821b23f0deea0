#include "core/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "core/json.h"
#include "core/tensor_file.h"

namespace flash::layout_test {
namespace {

using ::testing::HasSubstr;

SpaceLayout limits() {
  return {Task::ResourceLimits,
          {"cpu", "memory", "load"},
          {"cpu-limit", "memory-limit"},
          0,
          "default, alpha 0.5"};
}

TEST(SpaceLayout, CountsWhatItsFormSays) {
  EXPECT_EQ(limits().state_dim(), 3);
  EXPECT_EQ(limits().action_dim(), 2);
  EXPECT_EQ(limits().action_size(), 2);
  const SpaceLayout levels = {Task::CpuFrequency, {"ips"}, {"cpu-frequency"}, 11, ""};
  EXPECT_EQ(levels.action_dim(), 11);
  EXPECT_EQ(levels.action_size(), 1);
}

TEST(SpaceLayout, OfTheSameSizeAndAnotherMeaningIsAnother) {
  const SpaceLayout ours = limits();
  EXPECT_EQ(difference(ours, ours), "");
  SpaceLayout theirs = ours;
  std::swap(theirs.state[0], theirs.state[1]);
  EXPECT_NE(theirs.digest(), ours.digest());
  EXPECT_EQ(difference(theirs, ours), "state entry 0 is 'memory' there, 'cpu' here");
  theirs = ours;
  std::swap(theirs.actions[0], theirs.actions[1]);
  EXPECT_NE(theirs.digest(), ours.digest());
  EXPECT_EQ(same_layout(theirs, ours).error().message(),
            "another layout: action 0 is 'memory-limit' there, 'cpu-limit' here");
  theirs = ours;
  theirs.state.pop_back();
  EXPECT_EQ(difference(theirs, ours), "it knows 2, here are 3; state entry 'load' is only here");
  theirs = ours;
  theirs.task = Task::CpuFrequency;
  EXPECT_THAT(difference(theirs, ours), HasSubstr("the task is cpu-frequency there"));
}

TEST(SpaceLayout, ARewardDiffersOnlyWhereBothSayIt) {
  SpaceLayout theirs = limits();
  theirs.reward = "paper, alpha 0.5";
  EXPECT_EQ(theirs.digest(), limits().digest()) << "numbers mean the same";
  EXPECT_EQ(difference(theirs, limits()),
            "the reward is 'paper, alpha 0.5' there, 'default, alpha 0.5' here");
  theirs.reward.clear();
  EXPECT_EQ(difference(theirs, limits()), "");
}

TEST(SpaceLayout, ADigestTellsWhereANameEnds) {
  SpaceLayout a = limits(), b = limits();
  a.state = {"ab", "c"};
  b.state = {"a", "bc"};
  EXPECT_NE(a.digest(), b.digest());
  EXPECT_EQ(a.digest().size(), 16u);
}

TEST(SpaceLayout, GoesThroughJson) {
  for (const SpaceLayout& layout :
       {limits(), SpaceLayout{Task::CpuFrequency, {"ips"}, {"cpu-frequency"}, 11, ""}}) {
    const auto back = layout_from_json(layout_to_json(layout));
    ASSERT_TRUE(back) << back.error().message();
    EXPECT_EQ(*back, layout);
  }
}

TEST(SpaceLayout, WhatIsNoneIsRefusedWithTheReason) {
  const auto with = [](auto&& change) {
    JsonBox box = layout_to_json(limits());
    change(*box);
    const auto layout = layout_from_json(box);
    return layout ? std::string("taken") : layout.error().message();
  };
  using nlohmann::json;
  EXPECT_EQ(with([](json&) {}), "taken");
  EXPECT_EQ(with([](json& j) { j = 3; }), "layout: not an object");
  EXPECT_EQ(with([](json& j) { j["colour"] = 1; }), "layout: an unknown key 'colour'");
  EXPECT_EQ(with([](json& j) { j["task"] = "bake"; }), "layout: task: not a name that is known");
  EXPECT_EQ(with([](json& j) { j.erase("state"); }), "layout: state: not a list of names");
  EXPECT_EQ(with([](json& j) { j["state"][0] = 1; }), "layout: state: not a list of names");
  EXPECT_EQ(with([](json& j) { j["state"][0] = "load"; }), "layout: 'load' is there twice");
  EXPECT_EQ(with([](json& j) { j["actions"] = json::array(); }),
            "layout: 0 names of actions, 1 to 64 are allowed");
  EXPECT_THAT(with([](json& j) { j["state"][0] = "a\nb"; }), HasSubstr("no plain text"));
  EXPECT_EQ(with([](json& j) { j["levels"] = 11; }), "layout: 11 levels of continuous actions");
  EXPECT_EQ(with([](json& j) { j["levels"] = -1; }), "layout: levels: not a number of them");
  EXPECT_EQ(with([](json& j) { j["task"] = "cpu-frequency"; }), "layout: levels of more than one knob");
  EXPECT_EQ(with([](json& j) { j["reward"] = 2; }), "layout: reward: not a text");
}

TEST(SpaceLayout, APolicysFileSaysItAndOneOfBeforeMeansWhatItMeantThen) {
  PolicySnapshot policy;
  policy.layout = limits();
  const TensorFile file = to_tensor_file(policy);
  ASSERT_TRUE(to_policy(file));
  EXPECT_EQ(to_policy(file)->layout, limits());
  TensorFile other = file;
  other.meta["layout"]["state"] = {"a", "a"};
  EXPECT_EQ(to_policy(other).error().message(), "meta.layout: 'a' is there twice");
  other.meta["layout"] = *layout_to_json({Task::CpuFrequency, {"ips"}, {"cpu-frequency"}, 11, ""});
  EXPECT_EQ(to_policy(other).error().message(), "meta.layout: is of another task than the policy");
  policy.layout.reset();
  const auto before = to_policy(to_tensor_file(policy));
  ASSERT_TRUE(before) << before.error().message();
  EXPECT_EQ(before->layout, layout_before_named(Task::ResourceLimits));
  EXPECT_EQ(before->layout->state_dim(), 9);
}

}  // namespace
}  // namespace flash::layout_test
