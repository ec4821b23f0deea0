#include "core/algorithms.h"

#include <gtest/gtest.h>

namespace flash::algorithms_test {
namespace {

using Names = std::vector<std::string_view>;

TEST(Algorithms, AreListedByFormAndPhaseTheDefaultFirst) {
  EXPECT_EQ(algorithm_names(ActionForm::Continuous, LearningPhase::Offline), (Names{"td3+bc", "bcq"}));
  EXPECT_EQ(algorithm_names(ActionForm::Discrete, LearningPhase::Offline), (Names{"td3+bc", "iql", "bcq"}));
  EXPECT_EQ(algorithm_names(ActionForm::Continuous, LearningPhase::Online), (Names{"ddpg"}));
  EXPECT_EQ(algorithm_names(ActionForm::Discrete, LearningPhase::Online), (Names{"q-learning", "tabular-q"}));
}

TEST(Algorithms, ANameThatIsNoneOfThemIsAnErrorThatNamesTheKeyAndThem) {
  const auto found = find_algorithm("learner.x", "iql", ActionForm::Continuous, LearningPhase::Offline);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().message(), "learner.x: 'iql' is none of td3+bc, bcq");
  EXPECT_FALSE(find_algorithm("x", "td3+bc", ActionForm::Continuous, LearningPhase::Online));
  EXPECT_EQ(find_algorithm("x", "iql", ActionForm::Discrete, LearningPhase::Offline)->name, "iql");
  EXPECT_EQ(find_algorithm("x", "", ActionForm::Discrete, LearningPhase::Online)->name, "q-learning");
}

TEST(Algorithms, OneMoreIsThereAsLongAsItsRow) {
  {
    const Registry<AlgorithmName>::Addition toy(
        kAlgorithms, {.name = "toy", .phase = LearningPhase::Online, .continuous = true, .on_policy = true});
    EXPECT_EQ(algorithm_names(ActionForm::Continuous, LearningPhase::Online), (Names{"ddpg", "toy"}));
    EXPECT_EQ(algorithm_names(ActionForm::Discrete, LearningPhase::Online),
              (Names{"q-learning", "tabular-q"}));
    EXPECT_TRUE(find_algorithm("x", "toy", ActionForm::Continuous, LearningPhase::Online)->on_policy);
  }
  EXPECT_FALSE(find_algorithm("x", "toy", ActionForm::Continuous, LearningPhase::Online));
}

}  // namespace
}  // namespace flash::algorithms_test
