#include "lab/pretrain/episodes.h"

#include <algorithm>
#include <cmath>

#include "core/random.h"
#include "lab/sim/oracle.h"
#include "policy/action_space.h"
#include "policy/learning_view.h"

namespace flash {
namespace {

/// The fallback's variation, about that of ExplorationOptions' defaults, in the network's form.
constexpr double kVariedShare = 0.1;
constexpr int kHold = 3;
constexpr double kLimitStep = 0.06;  // of [-1,1]: about 15 % of a limit whose range spans a factor of 100

std::size_t size_of(int n) {
  return static_cast<std::size_t>(n);
}

}  // namespace

int step_features(Task task) {
  return state_dim(task) + action_size(task) + 1;
}

Recorder::Recorder(const Batch& batch)
    : states_(size_of(batch.state_size())), actions_(size_of(batch.action_size())), recorded_(batch.size()) {}

void Recorder::begin(const Batch& batch) {
  before_.assign(batch.states().begin(), batch.states().end());
}

void Recorder::end(const Batch& batch) {
  for (std::size_t i = 0; i < recorded_.size(); ++i) {
    Recorded& r = recorded_[i];
    r.rows.insert(r.rows.end(), before_.begin() + static_cast<std::ptrdiff_t>(i * states_),
                  before_.begin() + static_cast<std::ptrdiff_t>((i + 1) * states_));
    const auto executed = batch.executed().subspan(i * actions_, actions_);
    r.rows.insert(r.rows.end(), executed.begin(), executed.end());
    r.rows.push_back(batch.rewards()[i]);
    ++r.steps;
  }
}

Recorded Recorder::take(std::size_t i) {
  return std::exchange(recorded_[i], {});
}

double mean_reward_of(const Recorded& recorded) {
  const std::size_t f = recorded.rows.size() / size_of(recorded.steps);
  double sum = 0;
  for (std::size_t i = f - 1; i < recorded.rows.size(); i += f) sum += recorded.rows[i];
  return sum / recorded.steps;
}

Trajectory trajectory_of(const Recorded& recorded, Task task) {
  const auto f = static_cast<std::ptrdiff_t>(step_features(task)), s = std::ptrdiff_t{state_dim(task)};
  Trajectory t(size_of(recorded.steps));
  auto row = recorded.rows.begin();
  for (TrajectoryStep& x : t) {
    x.state.assign(row, row + s);
    x.action.assign(row + s, row + f - 1);
    x.reward = row[f - 1];
    row += f;
  }
  return t;
}

Sequences sequences_of(std::span<const Recorded* const> recordings, int features) {
  Sequences s;
  s.features = features;
  s.count = static_cast<int>(recordings.size());
  for (const Recorded* r : recordings) {
    s.steps = std::max(s.steps, r->steps);
    s.lengths.push_back(r->steps);
  }
  const std::size_t f = size_of(features), n = recordings.size();
  s.x.assign(size_of(s.steps) * n * f, 0.0F);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t t = 0; t < size_of(recordings[i]->steps); ++t)
      std::copy_n(recordings[i]->rows.begin() + static_cast<std::ptrdiff_t>(t * f), f,
                  s.x.begin() + static_cast<std::ptrdiff_t>((t * n + i) * f));
  return s;
}

void to_actions(Task task, std::span<const float> outputs, std::span<const float> states, float stay_margin,
                std::span<float> actions) {
  if (action_form(task) == ActionForm::Continuous) {
    std::copy(outputs.begin(), outputs.end(), actions.begin());
    return;
  }
  const std::size_t levels = outputs.size() / actions.size(), entries = states.size() / actions.size();
  for (std::size_t i = 0; i < actions.size(); ++i)
    actions[i] = static_cast<float>(decided_level(outputs.subspan(i * levels, levels),
                                                  states.subspan(i * entries, entries), stay_margin));
}

std::vector<Recorded> fallback_episodes(std::span<const Pair* const> pairs, const EpisodeOptions& o) {
  if (pairs.empty()) return {};
  const Task task = pairs.front()->task();
  Batch batch({task, pairs.size(), o.threads, true});
  const Random random(o.seed);
  for (std::size_t i = 0; i < pairs.size(); ++i)
    batch.reset(i, *pairs[i], o.offset_s, random.fork(i).state());
  Recorder recorder(batch);
  const std::size_t width = size_of(batch.action_size());
  std::vector<float> actions(pairs.size() * width);
  struct Varied {
    Random chance;
    int left = 0;
    std::size_t knob = 0;
    float by = 0;
  };
  std::vector<Varied> varied;
  for (std::size_t i = 0; i < pairs.size(); ++i) varied.push_back({random.fork(i).fork(1), 0, 0, 0});
  for (int t = 0; t < o.warm_up + o.steps; ++t) {
    std::copy(batch.fallbacks().begin(), batch.fallbacks().end(), actions.begin());
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      Varied& v = varied[i];
      if (v.left == 0 && v.chance.uniform() < kVariedShare / kHold) {
        v.left = kHold;
        v.knob = v.chance.below(width);
        const double way = v.chance.uniform() < 0.5 ? -1 : 1;
        v.by = static_cast<float>(
            action_form(task) == ActionForm::Continuous ? way * kLimitStep * v.chance.uniform(0.3, 1) : way);
      }
      if (v.left == 0) continue;
      --v.left;
      float& a = actions[i * width + v.knob];
      a = action_form(task) == ActionForm::Continuous
              ? std::clamp(a + v.by, -1.0F, 1.0F)
              : std::clamp(a + v.by, 0.0F, static_cast<float>(kFrequencyLevels - 1));
    }
    recorder.begin(batch);
    batch.step(actions);
    if (t >= o.warm_up) recorder.end(batch);
  }
  std::vector<Recorded> out;
  for (std::size_t i = 0; i < pairs.size(); ++i) out.push_back(recorder.take(i));
  return out;
}

std::vector<double> mean_rewards(std::span<const Pair* const> pairs, int episodes, const EpisodeOptions& o,
                                 const BatchPolicy& policy) {
  constexpr double kApart = 1000;  // seconds between the episodes' places in the trace
  if (pairs.empty()) return {};
  const std::size_t n = pairs.size() * size_of(episodes);
  Batch batch({pairs.front()->task(), n, o.threads, true});
  for (std::size_t i = 0; i < n; ++i) {
    const Pair& pair = *pairs[i / size_of(episodes)];
    const int episode = static_cast<int>(i % size_of(episodes));
    batch.reset(i, pair, o.offset_s + kApart * episode,
                episode_random(pair, o.seed, episode).fork(0).state());
  }
  std::vector<float> actions(n * size_of(batch.action_size()));
  std::vector<double> sums(pairs.size(), 0.0);
  for (int t = 0; t < o.warm_up + o.steps; ++t) {
    policy(batch, actions);
    batch.step(actions);
    if (t < o.warm_up) continue;
    for (std::size_t i = 0; i < n; ++i) sums[i / size_of(episodes)] += batch.rewards()[i];
  }
  for (double& s : sums) s /= static_cast<double>(episodes * o.steps);
  return sums;
}

}  // namespace flash
