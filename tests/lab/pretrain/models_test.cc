// The models of package flash-models: they fit what flashd announces today, and are worth having.
#include <gtest/gtest.h>

#include <filesystem>

#include "lab/pretrain/scoring.h"
#include "learner/pretrained.h"
#include "policy/task.h"

namespace flash {
namespace {

class Models : public ::testing::TestWithParam<Task> {
 protected:
  std::string path() const {
    return std::string(FLASH_SOURCE_DIR) + "/models/" + std::string(to_string(GetParam())) + ".model";
  }
};

/// As daemon/learner_link announces an agent of a rule without options.
link::Announce announced(Task task) {
  link::Announce a;
  a.layout = space_layout(task_spec(task), {});
  return a;
}

TEST_P(Models, FitTheStatesActionsAndRewardOfToday) {
  const auto model = PretrainedModel::read(path(), GetParam());
  ASSERT_TRUE(model) << model.error().message();
  const auto fits = model->fits(announced(GetParam()));
  EXPECT_TRUE(fits) << fits.error().message();
  EXPECT_GT(model->gain().mean, 0);
  EXPECT_GE(model->gain().pairs, 20U);
}

TEST_P(Models, EarnMoreThanTheRulesOnPairsOfAnotherSeed) {
  const auto file = read_tensor_file(path());
  ASSERT_TRUE(file) << file.error().message();
  const auto model = to_policy_model(*file, std::string(to_string(GetParam())));
  ASSERT_TRUE(model) << model.error().message();
  const auto policy = SharedPolicy::restore(model->policy);
  ASSERT_TRUE(policy) << policy.error().message();
  const Pool unseen = *make_pool({.task = GetParam(), .pairs = 12, .seed = 771});
  const Scoring scoring(unseen, {2, 5, 1});
  const auto gains = Scoring::gains(scoring.one_shot("model", *policy), scoring.baselines()[1]);
  EXPECT_GT(interval_of(gains).mean, 0);
}

std::vector<Task> tasks_with_a_model() {
  std::vector<Task> tasks;
  for (const Task task : {Task::ResourceLimits, Task::CpuFrequency})
    if (std::filesystem::exists(std::string(FLASH_SOURCE_DIR) + "/models/" + std::string(to_string(task)) +
                                ".model"))
      tasks.push_back(task);
  return tasks;
}

TEST(ModelsFolder, HasAModelOfResourceLimits) {
  EXPECT_FALSE(tasks_with_a_model().empty());
  EXPECT_EQ(tasks_with_a_model().front(), Task::ResourceLimits);
}

INSTANTIATE_TEST_SUITE_P(Task, Models, ::testing::ValuesIn(tasks_with_a_model()), [](const auto& info) {
  return std::string(info.param == Task::ResourceLimits ? "Limits" : "Frequency");
});

}  // namespace
}  // namespace flash
