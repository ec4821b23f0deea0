// Pretrained models from files, and agents that begin with one.
#include "learner/pretrained.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "learner/model_trial.h"
#include "learner/trainer.h"
#include "tests/actuators/temporary_folder.h"
#include "tests/learner/learner_fixtures.h"
#include "tests/learner/small_model.h"

namespace flash {
namespace {

using std::chrono::seconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

link::Announce fitting() {
  link::Announce a = announce();
  a.layout.reward = "default, alpha 0.5";
  return a;
}

class Pretrained : public ::testing::Test {
 protected:
  Pretrained() {
    hello_.epoch = 7;
    hello_.settings.learning_starts = 20;
    hello_.settings.offline_updates = 30;
    hello_.settings.publish_interval_s = 10;
    hello_.settings.snapshot_lifetime_s = 100;
    hello_.settings.replay_steps = 400;
    std::filesystem::create_directory(models());
  }
  std::string models() const { return folder_.path() + "/models"; }
  std::string path() const { return models() + "/resource-limits.model"; }
  LogSink say() {
    return [this](const Event& e) { said_.push_back(e.message); };
  }
  void start(const PolicyModel& model, const link::Announce& agent = fitting()) {
    ASSERT_TRUE(write_tensor_file(path(), to_tensor_file(model)));
    start_again(agent);
  }
  void start_again(const link::Announce& agent = fitting()) {
    trainer_.reset();
    store_.reset();
    store_ = std::make_unique<TrajectoryStore>(*TrajectoryStore::open(folder_.path() + "/t.sqlite", nullptr));
    TrainerOptions options;
    options.clock = [this] { return now_.mono; };
    options.models = PretrainedModels::load(models(), say());
    trainer_ =
        std::make_unique<Trainer>(std::move(options), *Checkpoints::open(folder_.path()), *store_, say());
    trainer_->configure(hello_);
    run_ = store_->begin_run(agent, hello_.epoch)->id;
    trainer_->announce(agent, run_, now_);
  }
  /// Episodes of 60 steps; `reward` is what every action earns.
  void live(std::uint64_t first, std::uint64_t last, Stage stage, double reward = 0.5) {
    for (std::uint64_t i = first; i <= last; ++i) {
      link::Step s = step(i, 60, stage);
      s.state = {static_cast<float>(i % 5) / 5, static_cast<float>(i % 3) / 3, 0.5F};
      s.action = {static_cast<float>(i % 7) / 7, -static_cast<float>(i % 3) / 3};
      s.fallback = s.action;
      s.reward = static_cast<float>(reward);
      s.controller =
          stage == Stage::Online || stage == Stage::Serving ? Controller::Learned : Controller::Fallback;
      const std::vector<TrajectoryStore::Entry> entries = {{run_, &s}};
      ASSERT_TRUE(store_->append(entries));
      trainer_->take(s, now_);
    }
    while (trainer_->work(now_)) {
    }
  }
  std::vector<PolicySnapshot> offers() {
    std::vector<PolicySnapshot> out;
    for (const link::Offer& o : trainer_->take_offers())
      out.push_back(*to_policy(*decode_tensor_file(o.policy)));
    return out;
  }
  std::string doing() { return trainer_->statuses().at(0).doing; }

  TemporaryFolder folder_;
  link::HelloDown hello_;
  Now now_{std::chrono::hours(1), WallTime(std::chrono::hours(400'000))};
  std::unique_ptr<TrajectoryStore> store_;
  std::unique_ptr<Trainer> trainer_;
  RunId run_ = 0;
  std::vector<std::string> said_;
};

TEST_F(Pretrained, AnAgentBeginsWithTheModelAfterItsFirstEpisode) {
  start(small_model());
  live(1, 59, Stage::Initialized);
  EXPECT_THAT(offers(), IsEmpty());  // no episode, no embedding
  live(60, 61, Stage::Initialized);
  const auto made = offers();
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(made[0].algorithm, "flash");
  EXPECT_EQ(made[0].embedding.size(), 4U);
  EXPECT_TRUE(made[0].validate(3, 2));
  EXPECT_TRUE(made[0].estimate.given);
  EXPECT_FLOAT_EQ(made[0].estimate.fallback, 0.5F);
  EXPECT_FLOAT_EQ(made[0].estimate.learned, 0.56F);
  EXPECT_FLOAT_EQ(made[0].estimate.lower, -0.02F);
  EXPECT_THAT(made[0].model, HasSubstr("a test's"));
  EXPECT_THAT(doing(), HasSubstr("pretrained policy"));
  EXPECT_THAT(said_, Contains(HasSubstr("begins with a test's")));
}

TEST_F(Pretrained, TheEmbeddingIsMadeOncePerEpisodeAndNotWhileServing) {
  start(small_model());
  live(1, 61, Stage::Initialized);
  const auto first = offers();
  ASSERT_EQ(first.size(), 1U);
  now_.mono += seconds(20);
  live(62, 119, Stage::Online, 0.9);
  EXPECT_EQ(trainer_->counters().embedded, 1U);
  live(120, 121, Stage::Online, 0.9);
  EXPECT_EQ(trainer_->counters().embedded, 2U);
  const auto second = offers();
  ASSERT_EQ(second.size(), 1U);
  EXPECT_NE(first[0].embedding, second[0].embedding);
  EXPECT_EQ(first[0].actor[0].weights, second[0].actor[0].weights);  // FLASH 3.3: the model is fixed
  live(122, 300, Stage::Serving, 0.9);
  EXPECT_EQ(trainer_->counters().embedded, 2U);
}

TEST_F(Pretrained, TheEmbeddingKeepsTheInitialStageHoweverManyBetterEpisodesFollow) {
  start(small_model());
  live(1, 61, Stage::Initialized, 0.1);
  ASSERT_EQ(offers().size(), 1U);
  std::uint64_t next = 62;
  for (int k = 0; k < 40; ++k) {
    now_.mono += seconds(20);
    live(next, next + 59, Stage::Online, 0.5 + 0.01 * k);
    next += 60;
  }
  const auto made = offers();
  ASSERT_FALSE(made.empty());

  TrajectoryBuffer known = *TrajectoryBuffer::create({.state_dim = 3, .action_dim = 2});
  TrajectoryBuffer without = known;
  const auto episodes = *store_->episodes(fitting().key, 100);
  ASSERT_TRUE(episodes.back().initial);
  for (auto e = episodes.rbegin(); e != episodes.rend(); ++e) {
    if (!e->complete) continue;
    Trajectory t;
    const std::vector<StoredStep> steps = *store_->trajectory(e->id);
    for (const StoredStep& s : steps)
      if (s.earned) t.push_back({s.step.state, s.step.action, *s.earned});
    ASSERT_TRUE(known.insert(t, e->initial));
    if (!e->initial) {
      ASSERT_TRUE(without.insert(t));
    }
  }
  const auto policy = *SharedPolicy::restore(small_model().policy);
  const std::vector<float> with = policy.embed(std::span<const TrajectoryBuffer>(&known, 1));
  const std::vector<float> own = policy.embed(std::span<const TrajectoryBuffer>(&without, 1));
  double apart = 0;
  for (std::size_t i = 0; i < with.size(); ++i) {
    EXPECT_NEAR(made.back().embedding[i], with[i], 1e-6);
    apart += std::abs(with[i] - own[i]);
  }
  EXPECT_GT(apart, 1e-4) << "else this would show nothing";
}

link::NearestPair shop(const link::Embedded& own, double times) {
  link::Neighbour n{
      .model = own.model, .node = "n2", .agent = "resource-limits:/shop", .application = "shop"};
  for (const float v : own.embedding) n.embedding.push_back(static_cast<float>(times) * v);
  return {own.agent, n};
}

TEST_F(Pretrained, ANeighbourPullsTheEmbeddingWhileOwnTrajectoriesAreFew) {
  start(small_model());
  live(1, 61, Stage::Initialized);
  const auto own = trainer_->take_embedded();
  ASSERT_EQ(own.size(), 1U);
  EXPECT_EQ(own[0].embedding, offers().at(0).embedding);
  const link::NearestPair pair = shop(own[0], 1.25);
  trainer_->nearest(pair);
  now_.mono += seconds(20);
  live(62, 63, Stage::Initialized);
  const auto pulled = offers();
  ASSERT_EQ(pulled.size(), 1U);
  const double s = similarity(own[0].embedding, pair.neighbour.embedding);
  const double k = 4 * (s - 0.5) / 0.5, share = k / (1 + k);  // one trajectory of its own
  for (std::size_t i = 0; i < own[0].embedding.size(); ++i)
    EXPECT_NEAR(pulled[0].embedding[i], own[0].embedding[i] * (1 + 0.25 * share), 1e-5);
  EXPECT_THAT(pulled[0].model, HasSubstr(" % of shop@n2's"));
  EXPECT_THAT(doing(), HasSubstr(" % of shop@n2's"));
  EXPECT_EQ(trainer_->take_embedded().at(0).embedding, own[0].embedding);  // the fleet is told its own
  now_.mono += seconds(20);
  live(64, 301, Stage::Initialized);
  const auto later = trainer_->take_embedded();
  const auto less = offers();
  ASSERT_FALSE(less.empty());
  const double now = less.back().embedding[0] - later.back().embedding[0];
  const double whole = pair.neighbour.embedding[0] - later.back().embedding[0];
  EXPECT_LT(now / whole, share - 0.1);
}

TEST_F(Pretrained, ANeighbourThatIsNotLikeItChangesNothing) {
  start(small_model());
  live(1, 61, Stage::Initialized);
  const auto own = trainer_->take_embedded();
  ASSERT_EQ(own.size(), 1U);
  offers();
  trainer_->nearest(shop(own[0], -1));
  now_.mono += seconds(20);
  live(62, 63, Stage::Initialized);
  ASSERT_EQ(trainer_->counters().neighbours, 1U);
  EXPECT_EQ(offers().at(0).embedding, own[0].embedding);
}

TEST_F(Pretrained, ANeighbourThatCannotBeIsRefusedAndCounted) {
  start(small_model());
  live(1, 61, Stage::Initialized);
  const auto own = trainer_->take_embedded();
  ASSERT_EQ(own.size(), 1U);
  offers();
  const auto refused = [&](const std::string& why, auto change) {
    link::NearestPair pair = shop(own[0], 1);
    change(pair.neighbour);
    said_.clear();
    trainer_->nearest(pair);
    EXPECT_THAT(said_, Contains(HasSubstr(why)));
  };
  refused("another task", [](auto& n) { n.task = Task::CpuFrequency; });
  refused("of the model other", [](auto& n) { n.model = "other"; });
  refused("embedding of 5 numbers", [](auto& n) { n.embedding.push_back(0); });
  refused("not finite", [](auto& n) { n.embedding[1] = NAN; });
  refused("far from everything", [](auto& n) { n.embedding[1] = 1e6F; });
  EXPECT_EQ(trainer_->counters().neighbours_refused, 5U);
  EXPECT_EQ(trainer_->counters().neighbours, 0U);
  now_.mono += seconds(20);
  live(62, 63, Stage::Initialized);
  EXPECT_THAT(offers(), IsEmpty());
}

TEST_F(Pretrained, FarFromEverythingSeenTheFallbackStaysAndTheAgentLearnsAsWithoutAModel) {
  start(small_model(1e-4));
  live(1, 61, Stage::Initialized);
  EXPECT_THAT(offers(), IsEmpty());
  EXPECT_THAT(said_, Contains(HasSubstr("out of distribution")));
  EXPECT_THAT(doing(), HasSubstr("out of distribution"));
  live(62, 300, Stage::Offline);
  now_.mono += seconds(20);
  live(301, 361, Stage::Offline);
  const auto made = offers();
  ASSERT_FALSE(made.empty());
  EXPECT_NE(made.back().algorithm, "flash");
  EXPECT_THAT(made.back().model, HasSubstr("out of distribution"));  // flashctl show says it
}

TEST_F(Pretrained, APolicyThatTheLifeCycleSentBackGivesWayForGood) {
  start(small_model());
  live(1, 120, Stage::Initialized);
  live(121, 200, Stage::Online, 0.1);
  ASSERT_EQ(offers().back().algorithm, "flash");
  now_.mono += seconds(20);
  live(201, 330, Stage::Offline);
  EXPECT_THAT(said_, Contains(HasSubstr("what was learned here replaces the pretrained policy")));
  auto made = offers();
  ASSERT_FALSE(made.empty());
  EXPECT_NE(made.back().algorithm, "flash");
  EXPECT_THAT(doing(), Not(HasSubstr("pretrained")));
  // Also in the next process.
  trainer_->save(now_, true, seconds(5));
  start_again();
  live(331, 400, Stage::Offline);
  for (const PolicySnapshot& p : offers()) EXPECT_NE(p.algorithm, "flash");
  EXPECT_THAT(doing(), Not(HasSubstr("pretrained")));
}

TEST_F(Pretrained, AModelThatDoesNotFitIsRefusedWithAReasonAndLearningGoesOn) {
  link::Announce other = fitting();
  other.layout.reward = "paper, alpha 0.5";
  start(small_model(), other);
  EXPECT_THAT(said_, Contains(HasSubstr("'default, alpha 0.5' there, 'paper, alpha 0.5' here")));
  live(1, 61, Stage::Initialized);
  live(62, 300, Stage::Offline);
  now_.mono += seconds(20);
  live(301, 361, Stage::Offline);
  const auto made = offers();
  ASSERT_FALSE(made.empty());
  EXPECT_NE(made.back().algorithm, "flash");

  const auto pretrained = PretrainedModel::read(path(), Task::ResourceLimits);
  ASSERT_TRUE(pretrained) << pretrained.error().message();
  EXPECT_TRUE(pretrained->fits(fitting()));
  other = fitting();
  std::swap(other.layout.state[1], other.layout.state[2]);
  EXPECT_EQ(pretrained->fits(other).error().message(),
            "another layout: state entry 1 is 'memory' there, 'pressure' here");
  other = fitting();
  other.layout.state.push_back("more");
  EXPECT_THAT(pretrained->fits(other).error().message(), HasSubstr("it knows 3, here are 4"));
  other = fitting();
  std::swap(other.layout.actions[0], other.layout.actions[1]);
  EXPECT_THAT(pretrained->fits(other).error().message(), HasSubstr("action 0 is 'cpu-limit' there"));
}

TEST_F(Pretrained, AModelWhosePoliciesFitNoMessageIsRefusedWhenItIsRead) {
  const auto read = [](int width) {
    SharedPolicyOptions o = policy_options();
    o.hidden = {width, width};
    PolicyModel m = small_model();
    m.policy = SharedPolicy::create(o)->checkpoint();
    auto made = PretrainedModel::from_bytes(encode(to_tensor_file(m)), Task::ResourceLimits, 1);
    return made ? std::string() : made.error().message();
  };
  EXPECT_EQ(read(240), "");
  EXPECT_THAT(read(256), HasSubstr("at most 261120 can be offered"));
}

TEST_F(Pretrained, AFileThatIsDamagedOrOfAnotherKindIsNamedAndLeftOut) {
  const auto trouble = [&] {
    said_.clear();
    const PretrainedModels models = PretrainedModels::load(this->models(), say());
    EXPECT_EQ(models.of(Task::ResourceLimits), nullptr);
    return said_.at(0);
  };
  EXPECT_THAT(trouble(), HasSubstr("no pretrained model " + path()));
  std::string bytes = encode(to_tensor_file(small_model()));
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(path()) << bytes;
  EXPECT_THAT(trouble(), testing::AllOf(HasSubstr(path()), HasSubstr("digest")));
  std::ofstream(path()) << "";
  EXPECT_THAT(trouble(), HasSubstr(path()));
  PolicyModel wrong = small_model();
  wrong.layout.state.pop_back();
  ASSERT_TRUE(write_tensor_file(path(), to_tensor_file(wrong)));
  EXPECT_THAT(trouble(), testing::AllOf(HasSubstr(path()), HasSubstr("its layout")));
  wrong = small_model();
  wrong.layout.task = Task::CpuFrequency;
  ASSERT_TRUE(write_tensor_file(path(), to_tensor_file(wrong)));
  EXPECT_THAT(trouble(), HasSubstr("is of task 'cpu-frequency'"));
  wrong = small_model();
  std::vector<std::vector<float>> pool(10, std::vector<float>{1, 2});
  wrong.seen = *SeenEmbeddings::create(pool);
  ASSERT_TRUE(write_tensor_file(path(), to_tensor_file(wrong)));
  EXPECT_THAT(trouble(), HasSubstr("another size"));
}

std::shared_ptr<const PretrainedModel> of_the_fleet(std::uint64_t version, double width = 100) {
  const std::string bytes = encode(to_tensor_file(small_model(width, version)));
  return std::make_shared<const PretrainedModel>(
      *PretrainedModel::from_bytes(bytes, Task::ResourceLimits, version));
}

TEST_F(Pretrained, AModelOfTheFleetTakesThePlaceOfThePackagedOne) {
  start(small_model());
  live(1, 61, Stage::Initialized);
  EXPECT_THAT(offers().back().model, Not(HasSubstr("version")));
  trainer_->hand_out(Task::ResourceLimits, {of_the_fleet(2)});
  EXPECT_EQ(trainer_->handed_out().at(Task::ResourceLimits).version, 2U);
  now_.mono += seconds(20);
  live(62, 80, Stage::Online);
  EXPECT_THAT(offers().back().model, HasSubstr("version 2"));
  EXPECT_EQ(trainer_->models_in_words(), "resource-limits model 2");
  trainer_->hand_out(Task::ResourceLimits, {});  // withdrawn
  now_.mono += seconds(20);
  live(81, 100, Stage::Online);
  EXPECT_THAT(offers().back().model, Not(HasSubstr("version")));
  EXPECT_THAT(trainer_->models_in_words(), HasSubstr("of the packages"));
}

TEST_F(Pretrained, AnAgentThatServesKeepsWhatItHas) {
  start(small_model());
  live(1, 61, Stage::Initialized);
  live(62, 70, Stage::Serving);
  (void)offers();
  trainer_->hand_out(Task::ResourceLimits, {of_the_fleet(2)});
  now_.mono += seconds(60);
  live(71, 130, Stage::Serving);
  for (const PolicySnapshot& p : offers()) EXPECT_THAT(p.model, Not(HasSubstr("version")));
}

TEST_F(Pretrained, AModelThatWouldEarnLessHereIsRefusedAndTheOneBeforeStays) {
  start(small_model());
  // The more of the first resource, the better; a policy that was never trained gives about the middle.
  for (std::uint64_t i = 1; i <= 300; ++i) {
    link::Step s = step(i, 60, Stage::Initialized);
    s.state = {static_cast<float>(i % 5) / 5, static_cast<float>(i % 3) / 3, 0.5F};
    s.action = {static_cast<float>(i % 7) / 7, -static_cast<float>(i % 3) / 3};
    s.fallback = s.action;
    s.reward = 2 * static_cast<float>((i - 1) % 7) / 7;
    const std::vector<TrajectoryStore::Entry> entries = {{run_, &s}};
    ASSERT_TRUE(store_->append(entries));
    trainer_->take(s, now_);
  }
  trainer_->hand_out(Task::ResourceLimits, {of_the_fleet(2)});
  const Trainer::HandedOut& state = trainer_->handed_out().at(Task::ResourceLimits);
  EXPECT_EQ(state.version, 0U);
  EXPECT_EQ(state.refused, 1U);
  EXPECT_THAT(state.trouble, HasSubstr("earns less than the fallback"));
  EXPECT_THAT(said_, Contains(HasSubstr("refused resource-limits model")));
  EXPECT_THAT(trainer_->models_in_words(), HasSubstr("refused 1"));
}

/// A model that gives this for all resources in every state.
PretrainedModel that_always_gives(float action) {
  PolicyModel m = small_model();
  for (Tensor& t : m.policy.tensors) {
    if (t.name != "policy/parameters") continue;
    std::fill(t.values.end() - 18, t.values.end(), 0.0F);  // the last layer: two rows of eight, two biases
    std::fill(t.values.end() - 2, t.values.end(), std::atanh(action));
  }
  return *PretrainedModel::from_bytes(encode(to_tensor_file(m)), Task::ResourceLimits, 1);
}

TEST_F(Pretrained, ATrialIsAgainstTheModelInUseAndNotTheFallbackAlone) {
  start(small_model());
  // The more of the first resource, the better; the fallback has given everything between -1 and 1.
  float before = 0;
  for (std::uint64_t i = 1; i <= 400; ++i) {
    link::Step s = step(i, 60, Stage::Initialized);
    s.state = {static_cast<float>(i % 5) / 5, static_cast<float>(i % 3) / 3, 0.5F};
    s.action = {static_cast<float>(i % 11) / 5 - 1, static_cast<float>(i % 4) / 1.5F - 1};
    s.fallback = s.action;
    s.reward = before;
    before = s.action[0];
    const std::vector<TrajectoryStore::Entry> entries = {{run_, &s}};
    ASSERT_TRUE(store_->append(entries));
  }
  const std::vector<link::Announce> agents = {fitting()};
  const PretrainedModel much = that_always_gives(0.8F), some = that_always_gives(0.2F);
  const TrialResult alone = try_model(some, nullptr, agents, *store_);
  EXPECT_EQ(alone.tried, 1U);
  EXPECT_TRUE(alone.passed()) << alone.trouble;
  const TrialResult less = try_model(some, &much, agents, *store_);
  EXPECT_EQ(less.worse, 1U);
  EXPECT_FALSE(less.passed());
  EXPECT_THAT(less.trouble, HasSubstr("earns less than the model in use"));
  const TrialResult more = try_model(much, &some, agents, *store_);
  EXPECT_TRUE(more.passed()) << more.trouble;
  const TrialResult same = try_model(much, &much, agents, *store_);
  EXPECT_TRUE(same.passed()) << same.trouble;
}

}  // namespace
}  // namespace flash
