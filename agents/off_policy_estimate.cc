#include "agents/off_policy_estimate.h"

#include <algorithm>
#include <cmath>

namespace flash {
namespace {

/// The lower triangle L of a = L L^T, in place (row-major). The ridge keeps a positive definite.
void cholesky(std::vector<float>& a, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = a[i * n + j];
      for (std::size_t k = 0; k < j; ++k) sum -= double(a[i * n + k]) * a[j * n + k];
      a[i * n + j] = static_cast<float>(i == j ? std::sqrt(std::max(sum, 1e-9)) : sum / a[j * n + j]);
    }
}

/// x of L L^T x = b, in place.
void substitute(const std::vector<float>& l, std::vector<double>& b) {
  const std::size_t n = b.size();
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) b[i] -= l[i * n + k] * b[k];
    b[i] /= l[i * n + i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) b[i] -= l[k * n + i] * b[k];
    b[i] /= l[i * n + i];
  }
}

/// phi(s, a): 1, the normalised entries, their products, tanh of random projections.
class Features {
 public:
  Features(const std::vector<StoredTransition>& log, const std::vector<std::vector<float>>& actions,
           const EstimateOptions& o, Random random) {
    const std::size_t states = log.front().state.size(), acts = actions.front().size();
    std::vector<double> mean(states + acts, 0.0), square(states + acts, 0.0);
    const auto n = static_cast<double>(log.size());
    const auto value = [&](std::size_t t, std::size_t i) {
      return double(i < states ? log[t].state[i] : actions[t][i - states]);
    };
    for (std::size_t i = 0; i < mean.size(); ++i) {
      for (std::size_t t = 0; t < log.size(); ++t) mean[i] += value(t, i) / n;
      for (std::size_t t = 0; t < log.size(); ++t) square[i] += std::pow(value(t, i) - mean[i], 2) / n;
      const double deviation = std::sqrt(square[i]);
      if (deviation < 1e-4) continue;  // never varied: nothing can be said about it
      entry_.push_back(i);
      mean_.push_back(mean[i]);
      scale_.push_back(std::max(deviation, 0.01));
    }
    states_ = states;
    projections_.resize(static_cast<std::size_t>(o.random_features) * (entry_.size() + 1));
    for (double& p : projections_) p = random.normal() / std::sqrt(static_cast<double>(entry_.size()) + 1);
    z_.resize(entry_.size());
    size_ = 1 + z_.size() + z_.size() * (z_.size() + 1) / 2 + static_cast<std::size_t>(o.random_features);
  }
  std::size_t size() const { return size_; }
  void fill(std::span<const float> state, std::span<const float> action, float* phi) {
    for (std::size_t i = 0; i < entry_.size(); ++i) {
      const double x = entry_[i] < states_ ? state[entry_[i]] : action[entry_[i] - states_];
      z_[i] = std::clamp((x - mean_[i]) / scale_[i], -4.0, 4.0);
    }
    *phi++ = 1;
    for (double z : z_) *phi++ = static_cast<float>(z);
    for (std::size_t i = 0; i < z_.size(); ++i)
      for (std::size_t j = 0; j <= i; ++j) *phi++ = static_cast<float>(z_[i] * z_[j] / 2);
    const double* p = projections_.data();
    while (p != projections_.data() + projections_.size()) {
      double sum = *p++;
      for (double z : z_) sum += *p++ * z;
      *phi++ = static_cast<float>(std::tanh(2 * sum));
    }
  }

 private:
  std::vector<std::size_t> entry_;
  std::vector<double> mean_, scale_, projections_, z_;
  std::size_t states_ = 0, size_ = 0;
};

}  // namespace

OffPolicyEstimate off_policy_estimate(const Replay& replay, int levels, const EstimatedPolicy& policy,
                                      const EstimateOptions& o, Random random) {
  OffPolicyEstimate e;
  e.method = "fqe";
  std::vector<StoredTransition> log;
  for (std::size_t i = 0; i < replay.size(); ++i)
    if (const StoredTransition t = replay.at(i); t.by_fallback) log.push_back(t);
  if (log.size() > o.most) log.erase(log.begin(), log.end() - static_cast<std::ptrdiff_t>(o.most));
  e.transitions = log.size();
  if (log.size() < o.least) return e;

  std::vector<std::vector<float>> actions;
  actions.reserve(log.size());
  double reward_mean = 0;
  for (const StoredTransition& t : log) {
    actions.emplace_back(t.action.begin(), t.action.end());
    if (levels > 1)
      for (float& a : actions.back()) a = 2 * a / static_cast<float>(levels - 1) - 1;
    reward_mean += t.reward / static_cast<double>(log.size());
  }
  Features features(log, actions, o, random.fork(1));
  const std::size_t f = features.size();
  const std::size_t n = log.size();
  const std::size_t count = std::min(static_cast<std::size_t>(o.blocks), n / 5);
  std::vector<float> phi(n * f), next(n * f), start(n * f), reward(n);
  float least = 0, most = 0;
  for (std::size_t t = 0; t < n; ++t) {
    features.fill(log[t].state, actions[t], phi.data() + t * f);
    features.fill(log[t].state, policy(log[t].state), start.data() + t * f);
    features.fill(log[t].next_state, policy(log[t].next_state), next.data() + t * f);
    reward[t] = static_cast<float>(log[t].reward - reward_mean);
    least = std::min(least, reward[t]);
    most = std::max(most, reward[t]);
  }

  // The policy's reward per step over the horizon from the logged states, less what was earned there; blocks
  // of steps weighed by `weight`.
  std::vector<float> gram(f * f), parameters(f);
  std::vector<double> b(f);
  const auto advantage = [&](const std::vector<float>& weight) {
    std::fill(gram.begin(), gram.end(), 0.0F);
    double total = 0, earned = 0;
    for (std::size_t t = 0; t < n; ++t) {
      const float w = weight[t * count / n];
      if (w == 0) continue;
      total += w;
      earned += w * reward[t];
      const float* x = phi.data() + t * f;
      for (std::size_t i = 0; i < f; ++i) {
        const float wx = w * x[i];
        float* row = gram.data() + i * f;
        for (std::size_t j = 0; j <= i; ++j) row[j] += wx * x[j];
      }
    }
    for (std::size_t i = 0; i < f; ++i)
      gram[i * f + i] += static_cast<float>((i == 0 ? 1e-6 : o.ridge) * total);
    cholesky(gram, f);
    const auto value = [&](const float* x, int steps) {
      float sum = 0;
      for (std::size_t i = 0; i < f; ++i) sum += x[i] * parameters[i];
      // What k steps can earn at most is known from the rewards: errors of extrapolation do not feed
      // themselves.
      return std::clamp(sum, static_cast<float>(steps) * least, static_cast<float>(steps) * most);
    };
    for (int k = 0; k < o.horizon; ++k) {
      std::fill(b.begin(), b.end(), 0.0);
      for (std::size_t t = 0; t < n; ++t) {
        const float w = weight[t * count / n];
        if (w == 0) continue;
        const float y = w * (reward[t] + (k == 0 ? 0 : value(next.data() + t * f, k)));
        const float* x = phi.data() + t * f;
        for (std::size_t i = 0; i < f; ++i) b[i] += y * x[i];
      }
      substitute(gram, b);
      parameters.assign(b.begin(), b.end());
    }
    double sum = 0;
    for (std::size_t t = 0; t < n; ++t)
      if (const float w = weight[t * count / n]; w != 0) sum += w * value(start.data() + t * f, o.horizon);
    return (sum / o.horizon - earned) / total;
  };
  const double gain = advantage(std::vector<float>(count, 1.0F));
  double mean = 0, squares = 0;
  std::vector<float> weight(count);
  std::vector<double> drawn;
  Random draw = random.fork(2);
  for (int r = 0; r < o.replicates; ++r) {
    std::fill(weight.begin(), weight.end(), 0.0F);
    for (std::size_t k = 0; k < count; ++k) weight[draw.below(count)] += 1;
    drawn.push_back(advantage(weight));
    mean += drawn.back() / o.replicates;
  }
  for (double d : drawn) squares += (d - mean) * (d - mean) / (o.replicates - 1);
  // Student's t with count - 1 degrees of freedom, to first order.
  const double t = 1.96 * (1 + 1.4 / static_cast<double>(std::max<std::size_t>(count, 3) - 1));
  const double half = std::hypot(t * o.widen * std::sqrt(squares), o.model_error);
  if (!std::isfinite(gain) || !std::isfinite(half)) return e;
  e.given = true;
  e.fallback = static_cast<float>(reward_mean);
  e.learned = static_cast<float>(reward_mean + gain);
  e.lower = static_cast<float>(gain - half);
  e.upper = static_cast<float>(gain + half);
  return e;
}

OffPolicyEstimate off_policy_estimate(const Replay& replay, const PolicySnapshot& snapshot,
                                      const EstimateOptions& options, Random random) {
  const CompiledNetwork actor(snapshot.actor, snapshot.mean, snapshot.scale, snapshot.embedding);
  EvaluatorScratch scratch;
  actor.prepare(scratch);
  const bool frequency = action_form(snapshot.task) == ActionForm::Discrete;
  const int levels = frequency ? actor.outputs() : 0;
  return off_policy_estimate(
      replay, levels,
      [&](std::span<const float> state) {
        const auto y = actor.evaluate(state, scratch);
        if (!frequency) return std::vector<float>(y.begin(), y.end());
        const std::size_t best = decided_level(y, state, snapshot.stay_margin);
        return std::vector<float>{2 * static_cast<float>(best) / static_cast<float>(levels - 1) - 1};
      },
      options, random);
}

}  // namespace flash
