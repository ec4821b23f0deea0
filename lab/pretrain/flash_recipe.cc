#include "lab/pretrain/flash_recipe.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>

#include "core/json.h"
#include "core/random.h"
#include "lab/pretrain/episodes.h"
#include "lab/pretrain/shared_learner.h"
#include "policy/action_space.h"

namespace flash {
namespace {

constexpr int kRecipeFormat = 1;
constexpr std::size_t kKept = 3;            // trajectories of a pair that come back at a switch
constexpr std::size_t kReplaySteps = 5000;  // per pair; 200 of them are Table 8's 10^6

Error invalid(std::string message) {
  return Error(std::errc::invalid_argument, "flash recipe: " + std::move(message));
}

std::size_t size_of(int n) {
  return static_cast<std::size_t>(n);
}

/// What is remembered of a pair while others are visited.
struct PairMemory {
  Replay replay;
  std::vector<float> embedding;  // the last one
  std::deque<Recorded> kept;     // newest last
  double reward_mean = 0;        // under the rules
};

class Recipe {
 public:
  Recipe(const Pool& pool, const FlashRecipeOptions& o, RlModel meta, SharedLearner base)
      : o_(o),
        task_(pool.pairs.front().task()),
        width_(size_of(action_size(task_))),
        meta_(std::move(meta)),
        base_(std::move(base)),
        batch_({task_, size_of(o.worlds), 1, false}) {
    for (const Pair& p : pool.pairs) {
      pairs_.push_back(&p);
      memory_.push_back({Replay(state_dim(task_), static_cast<int>(width_), kReplaySteps),
                         std::vector<float>(size_of(meta_.embedding_dim()), 0.0F),
                         {},
                         0});
    }
  }

  int rounds() const {
    const int per_pair = std::max(1, o_.episodes / (o_.worlds * o_.visits)) * o_.visits;
    return per_pair * static_cast<int>(pairs_.size());
  }

  /// Every pair lives an episode under the rules; what networks see is scaled to it.
  void begin() {
    EpisodeOptions e;
    e.seed = o_.seed;
    e.threads = o_.threads;
    std::vector<Recorded> first = fallback_episodes(pairs_, e);
    Replay all(state_dim(task_), static_cast<int>(width_), pairs_.size() * kEpisodeSteps);
    const std::size_t s = size_of(state_dim(task_)), f = size_of(step_features(task_));
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      const std::vector<float>& rows = first[i].rows;
      for (std::size_t t = 0; t + 1 < size_of(first[i].steps); ++t) {
        const float* row = rows.data() + t * f;
        Transition x;
        x.state.assign(row, row + s);
        x.action.assign(row + s, row + s + width_);
        x.reward = row[f - 1];
        x.next_state.assign(row + f, row + f + s);
        memory_[i].replay.add(x);
        all.add(x);
      }
      memory_[i].reward_mean = mean_reward_of(first[i]);
      memory_[i].kept.push_back(std::move(first[i]));
    }
    if (round_ > 0) return;
    Scaling scaling = measure(all, base_.options().discount);
    scaling.spread = kOnlineSpread;
    base_.set_scaling(scaling);
  }

  Result<TaskModel> run(const FlashPretraining& how) {
    const auto start = std::chrono::steady_clock::now();
    const auto passed = [&start] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    begin();
    meta_.toggle_meta_model_update(true);
    const int all = rounds(), begun_at = round_;
    double saved = 0, reward = 0, over_rules = 0, loss = 0, gradient = 0;
    int counted = 0;
    while (round_ < all) {
      const std::size_t pair = pair_of_visit(round_ / o_.visits);
      if (round_ % o_.visits == 0) switch_to(pair);
      FLASH_TRY(const Round r, one_round(pair));
      ++round_;
      over_rules += r.reward - memory_[pair].reward_mean;
      reward += r.reward, loss += r.critic_loss, gradient += r.gradient, ++counted;
      if (how.progress && (counted == 100 || round_ == all)) {
        how.progress({round_, all, reward / counted, over_rules / counted, loss / counted, gradient / counted,
                      passed(), begun_at});
        reward = over_rules = loss = gradient = counted = 0;
      }
      // A visit is not left in the middle: the buffer is not in the file.
      if (!how.checkpoint.empty() && round_ % o_.visits == 0 && passed() - saved > how.every_s) {
        FLASH_CHECK(write_tensor_file(how.checkpoint, checkpoint()));
        saved = passed();
      }
    }
    return result();
  }

  TensorFile checkpoint() {
    TensorFile file = to_tensor_file(model());
    file.meta["recipe"] = fingerprint();
    file.meta["recipe"]["round"] = round_;
    std::vector<float> embeddings;
    for (const PairMemory& m : memory_)
      embeddings.insert(embeddings.end(), m.embedding.begin(), m.embedding.end());
    file.tensors.push_back({"recipe/embeddings",
                            {static_cast<std::int64_t>(memory_.size()), meta_.embedding_dim()},
                            std::move(embeddings)});
    return file;
  }

  Result<void> resume(const std::string& path) {
    FLASH_TRY(const TensorFile file, read_tensor_file(path));
    const auto said = [&path](const Error& e) { return invalid(path + ": " + e.message()); };
    auto saved = to_task_model(file, std::string(to_string(task_)));
    if (!saved) return said(saved.error());
    const auto recipe = file.meta->find("recipe");
    if (recipe == file.meta->end() || !recipe->is_object())
      return invalid(path + ": a finished model, not a checkpoint of this recipe");
    const nlohmann::json mine = fingerprint();
    for (const auto& [key, value] : mine.items())
      if (!recipe->contains(key) || (*recipe)[key] != value)
        return invalid(path + ": its " + key + " is another than " + value.dump());
    if (!recipe->contains("round") || !(*recipe)["round"].is_number_integer() || (*recipe)["round"] < 0 ||
        (*recipe)["round"] > rounds() || (*recipe)["round"].get<int>() % o_.visits != 0)
      return invalid(path + ": round is missing or impossible");
    const Tensor* embeddings = file.find("recipe/embeddings");
    const auto e = size_of(meta_.embedding_dim());
    if (embeddings == nullptr || embeddings->values.size() != memory_.size() * e ||
        !std::all_of(embeddings->values.begin(), embeddings->values.end(),
                     [](float v) { return std::isfinite(v); }))
      return invalid(path + ": embeddings are missing or impossible");
    auto base = SharedLearner::restore(saved->base);
    if (!base) return said(base.error());
    if (auto restored = meta_.restore(saved->meta); !restored) return said(restored.error());
    base_ = *std::move(base);
    round_ = (*recipe)["round"].get<int>();
    for (std::size_t i = 0; i < memory_.size(); ++i)
      std::copy_n(embeddings->values.begin() + static_cast<std::ptrdiff_t>(i * e), e,
                  memory_[i].embedding.begin());
    return {};
  }

 private:
  struct Round {
    double reward = 0, critic_loss = 0, gradient = 0;
  };

  /// What a checkpoint must have in common with this run.
  nlohmann::json fingerprint() const {
    return {{"format", kRecipeFormat}, {"pairs", pairs_.size()}, {"episodes", o_.episodes},
            {"worlds", o_.worlds},     {"visits", o_.visits},    {"batch", o_.batch},
            {"seed", o_.seed}};
  }

  /// All pairs in a new order, and again.
  std::size_t pair_of_visit(int visit) {
    const auto n = static_cast<int>(pairs_.size());
    if (visit / n != pass_) {
      pass_ = visit / n;
      Random chance = Random(o_.seed).fork(1000 + static_cast<std::uint64_t>(pass_));
      order_.resize(pairs_.size());
      for (std::size_t i = 0; i < order_.size(); ++i) order_[i] = i;
      for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[chance.below(i)]);
    }
    return order_[size_of(visit % n)];
  }

  void switch_to(std::size_t pair) {
    meta_.switch_pair();
    for (const Recorded& r : memory_[pair].kept) insert(r);
  }

  void insert(const Recorded& r) {
    const Trajectory one = trajectory_of(r, task_);
    static_cast<void>(meta_.insert_traj_samples({&one, 1}));
  }

  Result<Round> one_round(std::size_t pair) {
    Random chance = Random(o_.seed).fork(5000 + static_cast<std::uint64_t>(round_));
    PairMemory& mine = memory_[pair];
    FLASH_TRY(mine.embedding, meta_.get_embedding());
    FLASH_CHECK(choose_others(pair, chance));
    for (std::size_t i = 0; i < batch_.size(); ++i)
      batch_.reset(i, *pairs_[pair], chance.uniform(0, 86400), chance.next());
    const double done = static_cast<double>(round_) / rounds();
    base_.set_rate(o_.rate * (done < 0.5 ? 1 : 1 - 0.9 * (done - 0.5) / 0.5));
    Recorder recorder(batch_);
    std::vector<float> outputs(batch_.size() * size_of(base_.options().actions)),
        actions(batch_.size() * width_), gradient(mine.embedding.size());
    Round r;
    std::vector<Transition> begun(batch_.size());
    const std::size_t s = size_of(batch_.state_size());
    for (int t = 0; t < kEpisodeSteps; ++t) {
      base_.act(batch_.states(), mine.embedding, outputs);
      to_actions(task_, outputs, batch_.states(), 0, actions);
      explore(actions, done, chance);
      for (std::size_t i = 0; i < batch_.size(); ++i) {
        const auto state = batch_.states().subspan(i * s, s);
        begun[i].state.assign(state.begin(), state.end());
      }
      recorder.begin(batch_);
      batch_.step(actions);
      recorder.end(batch_);
      for (std::size_t i = 0; i < batch_.size(); ++i) {
        const auto executed = batch_.executed().subspan(i * width_, width_);
        const auto next = batch_.states().subspan(i * s, s);
        begun[i].action.assign(executed.begin(), executed.end());
        begun[i].reward = batch_.rewards()[i];
        begun[i].next_state.assign(next.begin(), next.end());
        mine.replay.add(begun[i]);
        r.reward += begun[i].reward;
      }
      const SharedLearner::Report report = update(pair, chance, gradient);
      r.critic_loss += report.critic_loss / kEpisodeSteps;
      if (report.finite) FLASH_CHECK(meta_.add_gradient(gradient));
    }
    r.reward /= static_cast<double>(batch_.size()) * kEpisodeSteps;
    diverged_ = base_.keep_finite() ? 0 : diverged_ + 1;
    if (diverged_ > 10) return invalid("the base learner diverges again and again");
    for (std::size_t i = 0; i < batch_.size(); ++i) {
      Recorded recorded = recorder.take(i);
      insert(recorded);
      if (i < kKept) mine.kept.push_back(std::move(recorded));
    }
    while (mine.kept.size() > kKept) mine.kept.pop_front();
    FLASH_TRY(const MetaUpdate updated, meta_.end_episode());
    r.gradient = updated.gradient;
    return r;
  }

  /// Pairs that share this round's minibatches, with the embeddings that the encoder gives them now.
  Result<void> choose_others(std::size_t pair, Random& chance) {
    others_.clear();
    for (int k = 0; k < std::min(o_.others, static_cast<int>(pairs_.size()) - 1); ++k) {
      const std::size_t other = (pair + 1 + chance.below(pairs_.size() - 1)) % pairs_.size();
      std::vector<Trajectory> kept;
      for (const Recorded& r : memory_[other].kept) kept.push_back(trajectory_of(r, task_));
      FLASH_TRY(memory_[other].embedding, meta_.embedding_of(kept));
      others_.push_back(other);
    }
    return {};
  }

  SharedLearner::Report update(std::size_t pair, Random& chance, std::span<float> gradient) {
    std::vector<SharedLearner::Share> shares;
    const int others = static_cast<int>(others_.size()), each = others > 0 ? o_.batch / 2 / others : 0;
    const auto share = [&](std::size_t of, int rows) {
      const PairMemory& m = memory_[of];
      shares.push_back({&m.replay, m.embedding, rows, m.reward_mean});
    };
    share(pair, o_.batch - each * others);
    for (std::size_t other : others_) share(other, each);
    return base_.update(shares, chance, gradient);
  }

  /// Table 8: normal noise of 0.2 times a factor that falls (from 1 to 0.25 over the run); Table 10: a share
  /// of random levels that falls from 1 to 0.05 over the first tenth.
  void explore(std::span<float> actions, double done, Random& chance) const {
    if (action_form(task_) == ActionForm::Continuous) {
      const double sigma = 0.2 * (1 - 0.75 * done);
      for (float& a : actions) a = static_cast<float>(std::clamp(a + sigma * chance.normal(), -1.0, 1.0));
      return;
    }
    const double epsilon = std::max(0.05, 1 - 0.95 * done / 0.1);
    for (float& a : actions)
      if (chance.uniform() < epsilon) a = static_cast<float>(chance.below(kFrequencyLevels));
  }

  TaskModel model() {
    TaskModel m;
    m.task = to_string(task_);
    m.model = "flash recipe, " + std::to_string(pairs_.size()) + " pairs, " + std::to_string(o_.episodes) +
              " episodes each, seed " + std::to_string(o_.seed);
    m.meta = meta_.checkpoint();
    m.base = base_.checkpoint();
    return m;
  }

  Result<TaskModel> result() {
    meta_.toggle_meta_model_update(false);
    std::vector<std::vector<float>> seen;
    for (const PairMemory& m : memory_) {
      std::vector<Trajectory> kept;
      for (const Recorded& r : m.kept) kept.push_back(trajectory_of(r, task_));
      FLASH_TRY(std::vector<float> e, meta_.embedding_of(kept));
      seen.push_back(std::move(e));
    }
    TaskModel m = model();
    if (auto embeddings = SeenEmbeddings::create(std::move(seen))) m.seen = *std::move(embeddings);
    return m;
  }

  FlashRecipeOptions o_;
  Task task_;
  std::size_t width_;
  RlModel meta_;
  SharedLearner base_;
  Batch batch_;
  std::vector<const Pair*> pairs_;
  std::vector<PairMemory> memory_;
  std::vector<std::size_t> order_, others_;
  int pass_ = -1, round_ = 0, diverged_ = 0;
};

}  // namespace

Result<TaskModel> pretrain_flash(const Pool& pool, const FlashPretraining& how) {
  const FlashRecipeOptions& o = how.options;
  if (pool.pairs.empty()) return invalid("a pool without pairs");
  if (o.worlds < 1 || o.visits < 1 || o.episodes < 1)
    return invalid("worlds, visits and episodes must be at least 1");
  if (o.batch < 2 * std::max(1, o.others) || o.others < 0)
    return invalid("a minibatch needs rows of the present pair and of each other");
  const Task task = pool.pairs.front().task();
  MetaOptions m = o.meta;
  m.seed = o.seed;
  FLASH_TRY(RlModel meta, RlModel::create(m));
  FLASH_CHECK(meta.register_base_learner(std::string(to_string(task)), state_dim(task), action_size(task)));
  SharedLearnerOptions s;
  s.task = task;
  s.state_dim = state_dim(task);
  s.actions = action_dim(task);
  s.embedding = meta.embedding_dim();
  s.seed = o.seed;
  FLASH_TRY(SharedLearner base, SharedLearner::create(s));
  Recipe recipe(pool, o, std::move(meta), std::move(base));
  if (!how.resume.empty()) FLASH_CHECK(recipe.resume(how.resume));
  return recipe.run(how);
}

}  // namespace flash
