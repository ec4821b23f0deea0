// Pretraining from the oracle on a small pool (label learning: fixed seeds).
#include <gtest/gtest.h>

#include <filesystem>

#include "lab/pretrain/imitation.h"
#include "lab/pretrain/scoring.h"

namespace flash {
namespace {

Scored learned(Task task) {
  const Pool pool = *make_pool({.task = task, .pairs = 40, .seed = 1});
  ImitationOptions o;
  o.rounds = 3;
  o.steps = 100;
  o.updates = 250;
  auto policy = imitate_oracle(pool, o, nullptr);
  EXPECT_TRUE(policy);
  const Pool unseen = *make_pool({.task = task, .pairs = 12, .seed = 77});
  const Scoring scoring(unseen, {3, 5, 2});
  const Scored s = scoring.one_shot("ours", *policy);
  EXPECT_GT(Scoring::gain(s, scoring.baselines()[1]).mean, 0.01) << "better than the rule-based controller";
  return s;
}

TEST(Imitation, AFewRoundsBeatTheRulesOnUnseenPairsOfLimits) {
  EXPECT_GT(interval_of(learned(Task::ResourceLimits).score).mean, 0.6);
}

TEST(Imitation, AFewRoundsBeatTheRulesOnUnseenPairsOfFrequency) {
  EXPECT_GT(interval_of(learned(Task::CpuFrequency).score).mean, 0.3);
}

TEST(Imitation, VariedPairsTeachWhatToDoWithHardlyAnyLoad) {
  const Pool pool = *make_pool({.pairs = 40, .seed = 1});
  const Pool drawn = *make_pool({.pairs = 16, .seed = 78});
  Pool idle;  // recorded loads are like that most of the time, generated ones never
  for (const Pair& p : drawn.pairs) {
    PairOptions options = p.options();
    options.load = 0.02;
    idle.pairs.push_back(*Pair::make(p.application(), p.environment(), options));
  }
  const Scoring scoring(idle, {3, 5, 2});
  const auto score = [&](bool as_drawn) {
    ImitationOptions o;
    o.rounds = 4;
    o.steps = 100;
    o.updates = 250;
    o.as_drawn = as_drawn;
    const auto policy = imitate_oracle(pool, o, nullptr);
    EXPECT_TRUE(policy);
    return interval_of(scoring.one_shot("ours", *policy).score).mean;
  };
  const double varied = score(false), as_drawn = score(true);
  EXPECT_GT(varied, as_drawn + 0.1) << varied << ' ' << as_drawn;
}

TEST(Imitation, AnInterruptedRunGoesOnAndEndsWhereTheOtherDoes) {
  const std::string file = ::testing::TempDir() + "imitation_test.progress";
  std::filesystem::remove(file);
  const Pool pool = *make_pool({.pairs = 3, .seed = 1});
  ImitationOptions o;
  o.rounds = 3;
  o.steps = 100;
  o.updates = 20;
  const auto through = imitate_oracle(pool, o, nullptr);
  ASSERT_TRUE(through);
  o.progress_file = file;
  struct Interruption {};
  EXPECT_THROW(static_cast<void>(imitate_oracle(pool, o,
                                                [](const ImitationProgress& p) {
                                                  if (p.round == 2) throw Interruption();
                                                })),
               Interruption);
  const auto resumed = imitate_oracle(pool, o, nullptr);
  ASSERT_TRUE(resumed) << resumed.error().message();
  EXPECT_EQ(encode(resumed->checkpoint()), encode(through->checkpoint()));
  const auto again = imitate_oracle(pool, o, nullptr);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(encode(again->checkpoint()), encode(through->checkpoint())) << "nothing was left to do";
  o.updates = 21;
  const auto refused = imitate_oracle(pool, o, nullptr);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("updates"), std::string::npos) << refused.error().message();
}

TEST(Imitation, RefusesWhatItCannotLearnFrom) {
  EXPECT_FALSE(imitate_oracle({}, {}, nullptr));
  const Pool pool = *make_pool({.pairs = 1});
  ImitationOptions o;
  o.steps = 10;
  EXPECT_FALSE(imitate_oracle(pool, o, nullptr));
}

}  // namespace
}  // namespace flash
