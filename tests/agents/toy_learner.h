// Purpose: an algorithm that only tests know: it learns on-policy, from what add() brings it, with no network: the
// mean of its rewards. A test adds its row to the registry, and everything else is to work with it unchanged.
// Ownership: an Agent owns it.
// Thread rule: one thread.
#pragma once

#include <memory>
#include <vector>

#include "agents/registry.h"

namespace flash::toy {

inline constexpr std::uint64_t kRollout = 10;  // steps of its own per update

class MeanLearner : public Learner {
 public:
  explicit MeanLearner(const AgentSpaces& spaces) : spaces_(spaces) {}

  void add(const Transition& t) override {
    sum_ += t.reward;
    ++steps_;
  }
  void update(int n, const Experience& /*from*/, UpdateSum& sum) override {
    for (int i = 0; i < n && steps_ >= kRollout; ++i) {
      const float before = mean_[0];
      mean_[0] = static_cast<float>(sum_ / static_cast<double>(steps_));
      sum_ = 0;
      steps_ = 0;
      sum.add({double{mean_[0]} - double{before}, 0});
    }
  }
  void policy(PolicySnapshot& p, bool /*online*/) const override {
    const auto inputs = static_cast<std::size_t>(spaces_.state_dim),
               outputs = static_cast<std::size_t>(spaces_.action_dim);
    DenseLayer layer{spaces_.state_dim,
                     spaces_.action_dim,
                     std::vector<float>(inputs * outputs),
                     std::vector<float>(outputs, mean_[0]),
                     Activation::Tanh,
                     false};
    p.actor = {layer};
  }
  void rescale(const Scaling& /*from*/, const Scaling& /*to*/) override {}
  void checkpoint(TensorFile& file) const override { put_numbers(file, "mean", mean_); }
  Result<void> resume(const TensorFile& file) override { return get_numbers(file, "mean", -1e6F, mean_); }

 private:
  AgentSpaces spaces_;
  double sum_ = 0;
  std::uint64_t steps_ = 0;
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
