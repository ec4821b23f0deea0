// Pools, recorded episodes, scores, and the shared model's file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "core/json.h"
#include "lab/pretrain/adaptation.h"
#include "lab/pretrain/augmented_state.h"
#include "lab/pretrain/episodes.h"
#include "lab/pretrain/scoring.h"
#include "lab/sim/oracle.h"
#include "lab/sim/pool.h"
#include "lab/workloads/trace.h"
#include "meta/shared_policy.h"
#include "policy/tasks/resource_limits.h"

namespace flash {
namespace {

TEST(Pool, TheSameSeedDrawsTheSamePairsAndAnotherSeedOthers) {
  const Pool a = *make_pool({.pairs = 5, .seed = 1}), b = *make_pool({.pairs = 5, .seed = 1});
  const Pool c = *make_pool({.pairs = 5, .seed = 2});
  int differ = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(std::equal(a.pairs[i].true_params().begin(), a.pairs[i].true_params().end(),
                           b.pairs[i].true_params().begin()));
    if (!std::equal(a.pairs[i].true_params().begin(), a.pairs[i].true_params().end(),
                    c.pairs[i].true_params().begin()))
      ++differ;
  }
  EXPECT_EQ(differ, 5);
}

TEST(Pool, AFileThatIsMissingOrWrongIsNamed) {
  const auto missing = make_pool({.apps = "/nonexistent/apps.json"});
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message().find("/nonexistent/apps.json"), std::string::npos);
  const std::string path = ::testing::TempDir() + "pool_test_apps.json";
  std::ofstream(path) << R"({"version": 1, "applications": [{"name": "a", "colour": 3}]})";
  const auto wrong = make_pool({.apps = path});
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message().find(path), std::string::npos) << wrong.error().message();
  EXPECT_NE(wrong.error().message().find("colour"), std::string::npos) << wrong.error().message();
}

TEST(Pool, RecordedLoadsReplaceTheTracesAndKeepTheMeanRate) {
  const std::string folder = ::testing::TempDir() + "pool_test_traces";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/a.csv") << "HashOwner,HashApp,HashFunction,Trigger,1,2,3,4\n"
                                      "o,a,idle,http,0,0,0,0\n"
                                      "o,a,busy,http,60,120,60,120\n";
  std::ofstream(folder + "/b.csv") << "minute,requests\n0,10\n1,30\n";
  const Pool own = *make_pool({.pairs = 3, .seed = 4});
  const auto pool = make_pool({.pairs = 3, .seed = 4, .traces = folder});
  ASSERT_TRUE(pool) << pool.error().message();
  const auto mean = [](const Pair& p, double length_s) {
    double sum = 0;
    for (double t = 0.5; t < length_s; ++t) sum += p.rate_at(t) / length_s;
    return sum;
  };
  const double before = std::get<Trace>(Trace::parse(own.pairs[0].application().trace)).mean_rate();
  EXPECT_NEAR(mean(pool->pairs[0], 240), before, 0.01 * before) << pool->pairs[0].application().trace;
  EXPECT_NEAR(pool->pairs[0].rate_at(90), 2 * pool->pairs[0].rate_at(30), 1e-9) << "the shape is the file's";
  EXPECT_NEAR(pool->pairs[1].rate_at(90), 3 * pool->pairs[1].rate_at(30), 1e-9) << "the second file's";
  std::ofstream(folder + "/c.csv") << "minute\n1\n";
  const auto wrong = make_pool({.pairs = 3, .seed = 4, .traces = folder});
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message().find("c.csv"), std::string::npos) << wrong.error().message();
  EXPECT_FALSE(make_pool({.traces = folder + "/absent.csv"}));
  std::filesystem::remove_all(folder);
}

TEST(LoadForecast, FollowsASeriesThatItsOwnPastTells) {
  // The change is half of the one before and a little noise: the forecast must beat "as now".
  LoadForecast forecast;
  Random chance(3);
  double rate = 100, change = 0, error = 0, naive = 0;
  for (int t = 0; t < 400; ++t) {
    if (t > 100) {
      const double next = rate + 0.8 * change;
      error += std::abs(forecast.next() - next);
      naive += std::abs(rate - next);
    }
    change = 0.8 * change + chance.normal();
    rate += change;
    forecast.add(rate);
  }
  EXPECT_LT(error, 0.5 * naive);
}

TEST(Episodes, ARecordingHoldsTheStateBeforeTheActionInForceAndItsReward) {
  const Pool pool = *make_pool({.pairs = 2, .seed = 3});
  Batch batch({Task::ResourceLimits, 2, 1, false});
  for (std::size_t i = 0; i < 2; ++i) batch.reset(i, pool.pairs[i], 0, i);
  Recorder recorder(batch);
  const std::vector<float> before(batch.states().begin(), batch.states().end());
  recorder.begin(batch);
  batch.step(std::vector<float>{0.5F, 0.5F, -0.5F, 0.5F});
  recorder.end(batch);
  const Recorded r = recorder.take(1);
  ASSERT_EQ(r.steps, 1);
  ASSERT_EQ(r.rows.size(), static_cast<std::size_t>(step_features(Task::ResourceLimits)));
  for (std::size_t k = 0; k < kLimitsStateDim; ++k) EXPECT_EQ(r.rows[k], before[kLimitsStateDim + k]);
  EXPECT_EQ(r.rows[kLimitsStateDim], batch.executed()[2]);
  EXPECT_EQ(r.rows.back(), batch.rewards()[1]);
  EXPECT_EQ(recorder.take(1).steps, 0) << "what was taken is gone";
}

TEST(Episodes, OneOfAdaptationHasTheUtilisationOfItsTask) {
  for (const Task task : {Task::ResourceLimits, Task::CpuFrequency}) {
    const Pair drawn = make_pool({.task = task, .pairs = 1, .seed = 3})->pairs[0];
    const auto agent = *Agent::create(agent_spaces(task), {});
    const auto utilization = [&](double load) {
      PairOptions options = drawn.options();
      options.load = load;
      const Pair pair = *Pair::make(drawn.application(), drawn.environment(), options);
      return live_one_episode(agent->snapshot(), pair, 0, 1, [](const Transition&) {}).utilization;
    };
    EXPECT_GT(utilization(0.1), 0) << to_string(task);
    EXPECT_GT(utilization(0.8), utilization(0.1)) << to_string(task);
    EXPECT_LE(utilization(0.8), 1) << to_string(task);
  }
}

TEST(Episodes, SequencesArePaddedWithZerosAndMasked) {
  const Recorded two{{1, 2, 3, 4}, 2}, one{{5, 6}, 1};
  const Recorded* both[] = {&two, &one};
  const Sequences s = sequences_of(both, 2);
  EXPECT_EQ(s.steps, 2);
  EXPECT_EQ(s.lengths, (std::vector<int>{2, 1}));
  EXPECT_EQ(s.x, (std::vector<float>{1, 2, 5, 6, 3, 4, 0, 0}));
}

TEST(Scoring, YardsticksAreInTheirOrder) {
  const Pool pool = *make_pool({.pairs = 6, .seed = 11});
  const Scoring scoring(pool, {2, 1, 1});
  const auto& y = scoring.baselines();
  ASSERT_EQ(y.size(), 5u);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_DOUBLE_EQ(y[0].score[i], 0);
    EXPECT_DOUBLE_EQ(y[3].score[i], 1);
    EXPECT_LE(y[2].reward[i], y[3].reward[i]);
  }
  EXPECT_GT(interval_of(y[1].score).mean, 0.2) << "the rules are better than chance";
  EXPECT_GT(interval_of(y[4].score).mean, interval_of(y[1].score).mean)
      << "knowing the pair is worth something";
  EXPECT_LT(interval_of(y[4].score).mean, 1) << "and foresight, too";
}

// A score is a difference to what others earned in the same episodes.
TEST(Scoring, ABatchIsJudgedOnTheYardsticksEpisodes) {
  const Pool pool = *make_pool({.pairs = 3, .seed = 11});
  std::vector<const Pair*> pairs;
  for (const Pair& p : pool.pairs) pairs.push_back(&p);
  const auto constant = [](std::span<float> action) { std::fill(action.begin(), action.end(), 0.1F); };
  EpisodeOptions many{.steps = 20, .warm_up = 5, .offset_s = 700, .seed = 4, .threads = 1};
  const std::vector<double> batch =
      mean_rewards(pairs, 2, many, [&](const Batch&, std::span<float> actions) { constant(actions); });
  EvaluationOptions one{.episodes = 2, .steps = 20, .warm_up = 5, .offset_s = 700, .seed = 4};
  for (std::size_t i = 0; i < pairs.size(); ++i)
    EXPECT_NEAR(batch[i],
                mean_reward(*pairs[i], one, [&](const World&, std::span<float> action) { constant(action); }),
                1e-6);
}

SharedPolicyOptions small() {
  SharedPolicyOptions o;
  o.state_dim = 3;
  o.outputs = o.action_width = 2;
  o.encoder = {EncoderKind::Set, 4, 8, 1, 8, 1e-2};
  o.hidden = {8};
  return o;
}

TEST(SharedPolicy, LearnsWhatOnlyThePairTells) {
  // Two pairs with the same states; the wanted output is +-0.5, and only the reward in the trajectory tells
  // which.
  SharedPolicyOptions o = small();
  o.rate = 1e-2;
  auto policy = *SharedPolicy::create(o);
  const auto context = [](float reward) {
    const Recorded r{{0.1F, 0.2F, 0.3F, 0, 0, reward, 0.3F, 0.2F, 0.1F, 0, 0, reward}, 2};
    const Recorded* one = &r;
    return sequences_of({&one, 1}, 6);
  };
  const Sequences good = context(1), bad = context(-1);
  const Sequences* contexts[] = {&good, &bad};
  const std::vector<float> states = {0.1F, 0.2F, 0.3F, 0.1F, 0.2F, 0.3F};
  const int pair[] = {0, 1};
  double loss = 0;
  for (int i = 0; i < 300; ++i)
    loss = policy.train(states, pair, contexts, {}, [](std::span<const float> y, std::span<float> dy) {
      double sum = 0;
      for (std::size_t k = 0; k < y.size(); ++k) {
        const float error = y[k] - (k < 2 ? 0.5F : -0.5F);
        sum += error * error;
        dy[k] = error;
      }
      return sum;
    });
  EXPECT_LT(loss, 0.01);
  const std::vector<float> e = policy.embed(contexts);
  std::vector<float> y(4);
  policy.evaluate(states, pair, e, y);
  EXPECT_NEAR(y[0], 0.5, 0.1);
  EXPECT_NEAR(y[2], -0.5, 0.1);
  // The snapshot of a pair, evaluated as flashd does it, is the same policy.
  for (int p = 0; p < 2; ++p) {
    PolicySnapshot s = policy.snapshot(std::span<const float>(e).subspan(4 * static_cast<std::size_t>(p), 4));
    const CompiledPolicy compiled(std::move(s));
    EvaluatorScratch scratch;
    compiled.actor.prepare(scratch);
    const auto out = compiled.actor.evaluate(std::span<const float>(states).first(3), scratch);
    EXPECT_NEAR(out[0], y[2 * static_cast<std::size_t>(p)], 1e-5);
  }
}

TEST(SharedPolicy, HalfOfAnEmbeddingIsThatOfTheInitialStageWhereThereIsMore) {
  const auto policy = *SharedPolicy::create(small());
  const auto buffer = [] {
    return *TrajectoryBuffer::create({.state_dim = 3, .action_dim = 2, .trajectories = 4, .steps = 10});
  };
  const Trajectory under_rules = {{{0.1F, 0.2F, 0.3F}, {0, 0.5F}, 0.1F}, {{0.3F, 0.1F, 0}, {1, 0}, 0.3F}};
  const Trajectory own = {{{1, 2, 3}, {-1, 0.5F}, 0.9F}, {{2, 1, 0}, {0.5F, -1}, 0.7F}};
  std::vector<TrajectoryBuffer> known(4, buffer());  // nothing, initial, own, both
  for (int k : {1, 3}) ASSERT_TRUE(known[static_cast<std::size_t>(k)].insert(under_rules, true));
  for (int k : {2, 3}) ASSERT_TRUE(known[static_cast<std::size_t>(k)].insert(own));
  const std::vector<float> e = policy.embed(known);
  const auto dim = static_cast<std::size_t>(policy.context_dim());
  ASSERT_EQ(e.size(), 4 * dim);
  for (std::size_t i = 0; i < dim; ++i) {
    EXPECT_EQ(e[i], 0);
    EXPECT_NE(e[dim + i], e[2 * dim + i]);
    EXPECT_NEAR(e[3 * dim + i], (e[dim + i] + e[2 * dim + i]) / 2, 1e-6);
  }
}

TEST(SharedPolicy, ComesBackFromItsFileAsItWas) {
  SharedPolicyOptions options = small();
  options.stay_margin = 0.25F;
  auto policy = *SharedPolicy::create(options);
  policy.set_scale(std::vector<float>{1, 2, 3}, std::vector<float>{1, 2, 4}, std::vector<float>(6, 0.5F),
                   std::vector<float>(6, 2));
  auto again = SharedPolicy::restore(*decode_tensor_file(encode(policy.checkpoint())));
  ASSERT_TRUE(again) << again.error().message();
  const Recorded r{{1, 2, 3, 4, 5, 6}, 1};
  const Recorded* one = &r;
  const Sequences context = sequences_of({&one, 1}, 6);
  const Sequences* contexts[] = {&context};
  EXPECT_EQ(policy.embed(contexts), again->embed(contexts));
  EXPECT_EQ(again->options().stay_margin, 0.25F);
  EXPECT_EQ(again->snapshot(again->embed(contexts)).stay_margin, 0.25F);
  const std::vector<float> e = policy.embed(contexts), state = {3, 2, 1};
  const int pair[] = {0};
  std::vector<float> y(2), z(2);
  policy.evaluate(state, pair, e, y);
  again->evaluate(state, pair, e, z);
  EXPECT_EQ(y, z);
}

TEST(SharedPolicy, AFileThatDoesNotFitIsRefusedWithTheReason) {
  const TensorFile good = SharedPolicy::create(small())->checkpoint();
  const auto refused = [](const TensorFile& file) {
    auto policy = SharedPolicy::restore(file);
    return policy ? std::string() : policy.error().message();
  };
  TensorFile file = good;
  file.kind = "meta-learner";
  EXPECT_EQ(refused(file), "shared policy: not one of format 1");
  file = good;
  file.meta["task"] = "make-coffee";
  EXPECT_EQ(refused(file), "shared policy: task is missing or not one");
  file = good;
  file.meta["hidden"] = {1, 2, 3, 4, 5};
  EXPECT_EQ(refused(file), "shared policy: hidden is missing");
  file = good;
  file.meta["state_dim"] = -1;
  EXPECT_EQ(refused(file), "shared policy: state_dim is missing or not a count");
  for (const nlohmann::json& margin : {nlohmann::json("much"), nlohmann::json(-1), nlohmann::json(1e30)}) {
    file = good;
    file.meta["stay_margin"] = margin;
    EXPECT_THAT(refused(file), ::testing::HasSubstr("stay_margin"));
  }
  file = good;
  file.tensors.front().values[0] = std::nanf("");
  EXPECT_EQ(refused(file), "shared policy: array 'state/mean' has an impossible number");
  file = good;
  file.meta["encoder"]["hidden"] = 16;
  EXPECT_NE(refused(file), "") << "arrays of another shape";
}

}  // namespace
}  // namespace flash
