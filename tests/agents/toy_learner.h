// Purpose: an algorithm that only tests know: it learns on-policy, from a rollout of what its policy drew, with no
// network: the mean of its rewards. A test adds its row to the registry, and everything else is to work with it
// unchanged.
// Ownership: an Agent owns it.
// Thread rule: one thread.
#pragma once

#include <memory>
#include <vector>

#include "agents/registry.h"
#include "agents/rollout.h"

namespace flash::toy {

inline constexpr std::size_t kRollout = 10;  // steps of its own per update
inline constexpr float kLogSigma = -2;

class MeanLearner : public Learner {
 public:
  explicit MeanLearner(const AgentSpaces& spaces)
      : spaces_(spaces), rollout_(spaces.state_dim, levels() ? 1 : spaces.action_dim, 4 * kRollout) {}

  void add(const Transition& t) override { rollout_.add(t); }
  OfflinePhase offline_phase() const override { return OfflinePhase::Itself; }
  void update(int n, const Experience& from, UpdateSum& sum) override {
    if (from.by_fallback_only) return learn_offline(n, from.replay, sum);
    for (int i = 0; i < n && rollout_.size() >= kRollout; ++i) {
      const float before = mean_[0];
      double rewards = 0;
      for (std::size_t k = 0; k < rollout_.size(); ++k) rewards += rollout_.at(k).reward;
      mean_[0] = static_cast<float>(rewards / static_cast<double>(rollout_.size()));
      rollout_.clear();
      sum.add({double{mean_[0]} - double{before}, 0});
    }
  }
  void policy(PolicySnapshot& p, bool /*online*/) const override {
    const auto inputs = static_cast<std::size_t>(spaces_.state_dim),
               outputs = static_cast<std::size_t>(spaces_.action_dim);
    DenseLayer layer{spaces_.state_dim,
                     spaces_.action_dim,
                     std::vector<float>(inputs * outputs, 1e-4F),  // what ignores its input is refused
                     std::vector<float>(outputs, mean_[0]),
                     Activation::Tanh,
                     false};
    p.actor = {layer};
    p.head = levels() ? PolicyHead::Categorical : PolicyHead::Gaussian;
    if (!levels()) p.log_sigma.assign(outputs, kLogSigma);
    p.state_value = {{spaces_.state_dim, 1, std::vector<float>(inputs), {mean_[0]}}};
  }
  void rescale(const Scaling& /*from*/, const Scaling& /*to*/) override {}
  void checkpoint(TensorFile& file) const override { put_numbers(file, "mean", mean_); }
  Result<void> resume(const TensorFile& file) override { return get_numbers(file, "mean", -1e6F, mean_); }

 private:
  /// So that its policy may act at all.
  void learn_offline(int n, const Replay& replay, UpdateSum& sum) {
    double rewards = 0;
    for (std::size_t i = 0; i < replay.size(); ++i)
      if (const StoredTransition t = replay.at(i); t.by_fallback) rewards += t.reward;
    mean_[0] = static_cast<float>(rewards / static_cast<double>(replay.by_fallback()));
    sum.repeat(n, [] { return Losses{}; });
  }
  bool levels() const { return action_form(spaces_.task) == ActionForm::Discrete; }
  AgentSpaces spaces_;
  Rollout rollout_;
  std::vector<float> mean_ = {0};
};

inline AlgorithmRow mean_row() {
  return {{.name = "toy-mean",
           .phase = LearningPhase::Online,
           .continuous = true,
           .discrete = true,
           .on_policy = true},
          [](const AgentSpaces& spaces, const AgentOptions&, Random&) -> Result<std::unique_ptr<Learner>> {
            return std::unique_ptr<Learner>(std::make_unique<MeanLearner>(spaces));
          },
          nullptr};
}

}  // namespace flash::toy
