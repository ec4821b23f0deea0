#include "lab/pretrain/imitation.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numbers>

#include "core/random.h"
#include "lab/pretrain/episodes.h"
#include "lab/pretrain/imitation_progress.h"
#include "lab/sim/oracle.h"
#include "policy/action_space.h"

namespace flash {
namespace {

constexpr int kMostPoints = OracleChoice::kMost;
// Given parameters are drawn each time with this share of their deviation over the pool, else 200 points
// in 16 dimensions are learned by heart (docs/ablations/03-true-parameters.md). Chosen on pairs of another
// seed.
constexpr double kBlur = 0.5;
// Labels look ahead so many steps: what a limit that is too low costs when a burst comes is not over in
// fewer.
constexpr int kLimitsHorizon = 8;
constexpr double kRewardUnit = 0.05;  // losses are counted in this, so that the rate fits both tasks
/// Reward per step that another level must be worth more: what a state does not tell differs from second to
/// second, and without this the level does, too.
constexpr double kStayWorth = 0.007;

std::size_t size_of(int n) {
  return static_cast<std::size_t>(n);
}

/// What an action is worth, as far as the oracle looked: one knob's values at points in rising order.
struct Curve {
  int points = 0;
  std::array<float, kMostPoints> action{}, value{};

  void add(float a, float v) {
    int at = points;
    while (at > 0 && action[size_of(at - 1)] > a) --at;
    if (at > 0 && action[size_of(at - 1)] == a) return;
    for (int i = points; i > at; --i) {
      action[size_of(i)] = action[size_of(i - 1)];
      value[size_of(i)] = value[size_of(i - 1)];
    }
    action[size_of(at)] = a;
    value[size_of(at)] = v;
    ++points;
  }
  float best() const { return points > 0 ? *std::max_element(value.begin(), value.begin() + points) : 0; }
  /// Straight lines between the points and on beyond them. Value and slope.
  std::pair<float, float> at(float a) const {
    if (points < 2) return {best(), 0.0F};
    int i = 1;
    while (i + 1 < points && action[size_of(i)] < a) ++i;
    const float a0 = action[size_of(i - 1)], a1 = action[size_of(i)];
    const float slope = (value[size_of(i)] - value[size_of(i - 1)]) / (a1 - a0);
    return {value[size_of(i - 1)] + slope * (a - a0), slope};
  }
};

/// A state and what the oracle made of it. cpu-frequency: curves[0] has one point per level.
struct Row {
  std::array<float, kMaxStateDim> state{};
  std::array<Curve, kLimitsActionDim> curves{};
};

Row label(const World& world, const Oracle& oracle) {
  Row row;
  std::copy(world.state().begin(), world.state().end(), row.state.begin());
  const OracleChoice choice = oracle.decide(world.core());
  if (action_form(world.core().task()) == ActionForm::Discrete) {
    for (int i = 0; i < choice.size; ++i)
      row.curves[0].add(static_cast<float>(i), static_cast<float>(choice.candidates[size_of(i)].value));
    return row;
  }
  // The candidates vary the CPU limit at one memory limit, then the memory limit at the best CPU limit.
  const float memory = choice.candidates[0].action[1];
  for (int i = 0; i < choice.size; ++i) {
    const auto& c = choice.candidates[size_of(i)];
    if (c.action[1] == memory) row.curves[0].add(c.action[0], static_cast<float>(c.value));
  }
  const float cpu = choice.candidates[size_of(choice.size - 1)].action[0];
  for (int i = 0; i < choice.size; ++i) {
    const auto& c = choice.candidates[size_of(i)];
    if (c.action[0] == cpu) row.curves[1].add(c.action[1], static_cast<float>(c.value));
  }
  return row;
}

struct PairData {
  std::vector<Row> rows;
  std::vector<Recorded> recordings;   // of the policies that acted
  std::vector<Recorded> under_rules;  // episodes as a node begins with
};

class Imitation {
 public:
  Imitation(const Pool& pool, const ImitationOptions& o, SharedPolicy policy)
      : o_(o),
        task_(pool.pairs.front().task()),
        policy_(std::move(policy)),
        random_(o.seed),
        pool_(pool),
        batch_({task_, pool.pairs.size(), o.threads, true}) {
    measure_given();
  }

  Result<SharedPolicy> run(const std::function<void(const ImitationProgress&)>& progress) {
    FLASH_TRY(ImitationFile file, ImitationFile::open(o_, pool_.pairs.size(), task_));
    const auto start = std::chrono::steady_clock::now();
    for (int round = 0; round < o_.rounds; ++round) {
      ImitationProgress p{round + 1, o_.rounds, 0, 0, 0};
      FLASH_CHECK(meet(round));
      if (round > 0 && round <= file.rounds()) {
        FLASH_TRY(policy_, file.after(round));
      }
      p.reward = act(round);
      if (round == 0) measure_scale();
      if (round >= file.rounds()) {
        p.loss = learn(round);
        FLASH_CHECK(file.add(policy_));
      }
      p.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      if (progress) progress(p);
    }
    if (file.rounds() == o_.rounds) {
      FLASH_TRY(policy_, file.after(o_.rounds));
    }
    return std::move(policy_);
  }

 private:
  std::size_t width() const { return size_of(batch_.action_size()); }

  void measure_given() {
    const auto n = static_cast<double>(pool_.pairs.size());
    for (std::size_t i = 0; i < given_blur_.size(); ++i) {
      double sum = 0, squares = 0;
      for (const Pair& p : pool_.pairs) {
        const double value = p.true_params()[i];
        sum += value;
        squares += value * value;
      }
      given_blur_[i] = kBlur * std::sqrt(std::max(0.0, squares / n - sum * sum / (n * n)));
    }
  }

  /// The pairs of a round: the pool's in the first, then what they become when they are varied.
  Result<void> meet(int round) {
    if (round > 0 && !varies(o_, task_)) return {};
    if (round > 0) {
      FLASH_TRY(varied_, varied(pool_, random_.fork(3000 + static_cast<std::uint64_t>(round)).next()));
    }
    pairs_.clear();
    for (const Pair& p : (round == 0 ? pool_ : varied_).pairs) {
      pairs_.push_back(&p);
      given_.insert(given_.end(), p.true_params().begin(), p.true_params().end());
    }
    first_ = data_.size();
    data_.resize(first_ + pairs_.size());
    if (o_.conditioning == Conditioning::Embedding) live_under_rules(round);
    return {};
  }

  void live_under_rules(int round) {
    constexpr int kEpisodes = 3;
    Random chance = random_.fork(99).fork(static_cast<std::uint64_t>(round));
    EpisodeOptions o;
    o.threads = o_.threads;
    for (int e = 0; e < kEpisodes; ++e) {
      o.offset_s = chance.uniform(0, 86400);
      o.seed = chance.next();
      std::vector<Recorded> lived = fallback_episodes(pairs_, o);
      for (std::size_t i = 0; i < lived.size(); ++i)
        data_[first_ + i].under_rules.push_back(std::move(lived[i]));
    }
  }

  /// Every pair lives o_.steps steps; rows and recordings are kept. Mean reward per step.
  double act(int round) {
    // Share of steps that begin something else, so that ways back are learned.
    constexpr double kOther = 0.08;
    constexpr int kOtherSteps = 3;
    const std::size_t n = pairs_.size();
    const Random chance = random_.fork(static_cast<std::uint64_t>(round));
    for (std::size_t i = 0; i < n; ++i) {
      Random r = chance.fork(i);
      batch_.reset(i, *pairs_[i], r.uniform(0, 86400), r.next());
    }
    std::vector<float> contexts;
    std::vector<int> all(n);
    for (std::size_t i = 0; i < n; ++i) all[i] = static_cast<int>(i);
    Recorder recorder(batch_);
    std::vector<float> actions(n * width()), outputs(n * size_of(policy_.options().outputs));
    struct Other {
      Random chance;
      int left = 0;
      std::array<float, kLimitsActionDim> action{};
    };
    std::vector<Other> other;
    for (std::size_t i = 0; i < n; ++i) other.push_back({chance.fork(i).fork(7), 0, {}});
    double sum = 0;
    const Oracle oracle(
        {.horizon = action_form(task_) == ActionForm::Continuous ? kLimitsHorizon : 0, .futures = 2});
    for (int t = 0; t < o_.steps; ++t) {
      // As on a node: an embedding per episode.
      if (round > 0 && t % kEpisodeSteps == 0) contexts = contexts_of_all(chance.fork(1000 + size_of(t)));
      batch_.workers().run(n, [&](std::size_t first, std::size_t last) {
        for (std::size_t i = first; i < last; ++i)
          data_[first_ + i].rows.push_back(label(batch_.world(i), oracle));
      });
      if (round == 0)
        std::copy(batch_.fallbacks().begin(), batch_.fallbacks().end(), actions.begin());
      else
        decide(all, contexts, outputs, actions);
      for (std::size_t i = 0; i < n; ++i) {
        Other& x = other[i];
        if (x.left == 0 && x.chance.uniform() < kOther / kOtherSteps) {
          x.left = kOtherSteps;
          for (std::size_t k = 0; k < width(); ++k)
            x.action[k] = action_form(task_) == ActionForm::Continuous
                              ? static_cast<float>(
                                    std::clamp(actions[i * width() + k] + 0.3 * x.chance.normal(), -1.0, 1.0))
                              : static_cast<float>(x.chance.below(kFrequencyLevels));
        }
        if (x.left == 0) continue;
        --x.left;
        std::copy_n(x.action.begin(), width(), actions.begin() + static_cast<std::ptrdiff_t>(i * width()));
      }
      recorder.begin(batch_);
      batch_.step(actions);
      recorder.end(batch_);
      for (float r : batch_.rewards()) sum += r;
      if ((t + 1) % kEpisodeSteps == 0 || t + 1 == o_.steps)
        for (std::size_t i = 0; i < n; ++i) data_[first_ + i].recordings.push_back(recorder.take(i));
    }
    return sum / static_cast<double>(n * size_of(o_.steps));
  }

  void decide(std::span<const int> all, std::span<const float> contexts, std::span<float> outputs,
              std::span<float> actions) const {
    policy_.evaluate(batch_.states(), all, contexts, outputs);
    to_actions(task_, outputs, batch_.states(), policy_.options().stay_margin, actions);
  }

  /// A random choice of a pair's recordings, each in part: nodes have seen a little, or much. Half of them
  /// are of episodes under the rules, which is all that a node has seen at first.
  Sequences draw(const PairData& d, Random& chance) const {
    constexpr std::size_t kMostRecordings = 3;
    constexpr int kShortest = 24, kLongest = kEpisodeSteps;
    std::vector<Recorded> parts;
    const std::size_t count = chance.uniform() < 0.1 ? 0 : 1 + chance.below(kMostRecordings);
    for (std::size_t k = 0; k < count; ++k) {
      const std::vector<Recorded>& from =
          d.recordings.empty() || chance.uniform() < 0.5 ? d.under_rules : d.recordings;
      const Recorded& r = from[chance.below(from.size())];
      const int length =
          std::min(r.steps, kShortest + static_cast<int>(chance.below(kLongest - kShortest + 1)));
      const auto first = chance.below(size_of(r.steps - length + 1));
      const auto f = static_cast<std::ptrdiff_t>(step_features(task_));
      parts.push_back({{r.rows.begin() + static_cast<std::ptrdiff_t>(first) * f,
                        r.rows.begin() + (static_cast<std::ptrdiff_t>(first) + length) * f},
                       length});
    }
    std::vector<const Recorded*> pointers;
    for (const Recorded& p : parts) pointers.push_back(&p);
    return sequences_of(pointers, step_features(task_));
  }

  std::vector<float> contexts_of_all(Random chance) const {
    if (o_.conditioning == Conditioning::Privileged)
      return {given_.begin() + static_cast<std::ptrdiff_t>(first_ * given_blur_.size()), given_.end()};
    if (o_.conditioning == Conditioning::None) return {};
    std::vector<Sequences> sequences;
    for (std::size_t i = first_; i < data_.size(); ++i) sequences.push_back(draw(data_[i], chance));
    std::vector<const Sequences*> pointers;
    for (const Sequences& s : sequences) pointers.push_back(&s);
    return policy_.embed(pointers);
  }

  /// Mean and deviation of states and steps in the first round.
  void measure_scale() {
    constexpr float kLeast = 0.05F;
    const auto scale = [kLeast](std::size_t n, auto&& each) {
      std::vector<double> sum(n, 0), squares(n, 0);
      double count = 0;
      each([&](const float* row) {
        ++count;
        for (std::size_t i = 0; i < n; ++i) sum[i] += row[i], squares[i] += double{row[i]} * row[i];
      });
      std::pair<std::vector<float>, std::vector<float>> out;
      for (std::size_t i = 0; i < n; ++i) {
        const double mean = sum[i] / count;
        out.first.push_back(static_cast<float>(mean));
        out.second.push_back(
            std::max(kLeast, static_cast<float>(std::sqrt(std::max(0.0, squares[i] / count - mean * mean)))));
      }
      return out;
    };
    const auto states = scale(size_of(batch_.state_size()), [&](auto&& row) {
      for (const PairData& d : data_)
        for (const Row& r : d.rows) row(r.state.data());
    });
    const std::size_t f = size_of(step_features(task_));
    const auto steps = scale(f, [&](auto&& row) {
      for (const PairData& d : data_)
        for (const Recorded& r : d.recordings)
          for (int t = 0; t < r.steps; ++t) row(r.rows.data() + size_of(t) * f);
    });
    policy_.set_scale(states.first, states.second, steps.first, steps.second);
  }

  double learn(int round) {
    Random chance = random_.fork(500 + static_cast<std::uint64_t>(round));
    const std::size_t s = size_of(batch_.state_size());
    double tail = 0;
    int counted = 0;
    for (int u = 0; u < o_.updates; ++u) {
      const double done = static_cast<double>(round * o_.updates + u) / (o_.rounds * o_.updates);
      policy_.set_learning_rate(o_.rate * (0.1 + 0.9 * 0.5 * (1 + std::cos(std::numbers::pi * done))));
      std::vector<Sequences> sequences;
      std::vector<const Sequences*> contexts;
      std::vector<float> states, given;
      std::vector<int> pair;
      std::vector<const Row*> rows;
      for (int p = 0; p < o_.pairs_per_update; ++p) {
        const std::size_t which = chance.below(data_.size());
        const PairData& d = data_[which];
        if (o_.conditioning == Conditioning::Embedding) sequences.push_back(draw(d, chance));
        if (o_.conditioning == Conditioning::Privileged)
          for (std::size_t i = 0; i < given_blur_.size(); ++i)
            given.push_back(given_[which * given_blur_.size() + i] +
                            static_cast<float>(given_blur_[i] * chance.normal()));
        for (int r = 0; r < o_.rows_per_pair; ++r) {
          const Row& row = d.rows[chance.below(d.rows.size())];
          states.insert(states.end(), row.state.begin(), row.state.begin() + static_cast<std::ptrdiff_t>(s));
          pair.push_back(p);
          rows.push_back(&row);
        }
      }
      for (const Sequences& q : sequences) contexts.push_back(&q);
      const double loss =
          policy_.train(states, pair, contexts, given, [&](std::span<const float> y, std::span<float> dy) {
            return action_form(task_) == ActionForm::Continuous ? lost_by_limits(rows, y, dy)
                                                                : lost_by_levels(rows, y, dy);
          });
      if (u >= o_.updates - 100) tail += loss, ++counted;
    }
    return counted > 0 ? tail / counted : 0;
  }

  static double lost_by_limits(std::span<const Row* const> rows, std::span<const float> y,
                               std::span<float> dy) {
    double lost = 0;
    const auto n = static_cast<float>(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::size_t k = 0; k < kLimitsActionDim; ++k) {
        const Curve& c = rows[i]->curves[k];
        const auto [value, slope] = c.at(y[i * kLimitsActionDim + k]);
        lost += std::max(0.0F, c.best() - value);
        dy[i * kLimitsActionDim + k] = -slope / (n * static_cast<float>(kRewardUnit));
      }
    return lost / n;
  }

  /// Squared error of each level's value against the mean of the levels; returns what the highest score
  /// loses.
  static double lost_by_levels(std::span<const Row* const> rows, std::span<const float> y,
                               std::span<float> dy) {
    double lost = 0;
    const std::size_t levels = y.size() / rows.size();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Curve& c = rows[i]->curves[0];
      float mean = 0;
      for (std::size_t k = 0; k < levels; ++k) mean += c.value[k] / static_cast<float>(levels);
      std::size_t best = 0;
      for (std::size_t k = 0; k < levels; ++k) {
        const float error = y[i * levels + k] - (c.value[k] - mean) / static_cast<float>(kRewardUnit);
        // Huber: a level far below the others need not be known exactly.
        dy[i * levels + k] = std::clamp(error, -2.0F, 2.0F) / static_cast<float>(y.size()) * 2;
        if (y[i * levels + k] > y[i * levels + best]) best = k;
      }
      lost += c.best() - c.value[best];
    }
    return lost / static_cast<double>(rows.size());
  }

  const ImitationOptions& o_;
  Task task_;
  SharedPolicy policy_;
  Random random_;
  const Pool& pool_;
  Pool varied_;                     // of the round
  std::vector<const Pair*> pairs_;  // of the round
  std::vector<PairData> data_;      // of all pairs that were met
  std::size_t first_ = 0;           // of the round's among them
  std::vector<float> given_;        // as data_
  std::array<double, kTrueParameters> given_blur_{};
  Batch batch_;
};

}  // namespace

bool varies(const ImitationOptions& options, Task task) {
  return action_form(task) == ActionForm::Continuous && !options.as_drawn;
}

Result<SharedPolicy> imitate_oracle(const Pool& pool, const ImitationOptions& options,
                                    const std::function<void(const ImitationProgress&)>& progress) {
  const auto bad = [](const char* what) { return Error(std::errc::invalid_argument, what); };
  if (pool.pairs.empty()) return bad("a pool without pairs");
  if (options.rounds < 1 || options.steps < kEpisodeSteps || options.updates < 1)
    return bad("rounds and updates must be at least 1, steps at least an episode's");
  if (options.pairs_per_update < 1 || options.rows_per_pair < 1) return bad("an update needs rows");
  const Task task = pool.pairs.front().task();
  SharedPolicyOptions p = options.policy;
  p.task = task;
  p.state_dim = state_dim(task);
  p.outputs = action_dim(task);
  p.action_width = action_size(task);
  p.conditioning = options.conditioning;
  p.given = kTrueParameters;
  p.seed = options.seed;
  if (action_form(task) == ActionForm::Discrete) p.stay_margin = static_cast<float>(kStayWorth / kRewardUnit);
  FLASH_TRY(SharedPolicy policy, SharedPolicy::create(p));
  return Imitation(pool, options, std::move(policy)).run(progress);
}

}  // namespace flash
