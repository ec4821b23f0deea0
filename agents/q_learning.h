// Purpose: Q-learning with a network for cpu-frequency: FLASH A.4 and Table 10 (Mnih et al. 2015), double Q
// (van Hasselt et al. 2016). docs/agents/q_learning.md says what differs from the table and why. Private to
// this room: includes torch.
// Ownership: QLearning owns its networks.
// Thread rule: one thread.
#pragma once

#include <memory>
#include <vector>

#include "agents/learner.h"
#include "agents/minibatch.h"
#include "agents/net.h"

namespace flash {

struct QLearningOptions {
  int batch = 32;      // Table 10
  double rate = 3e-3;  // Table 10: 1e-4, too slow for one update per second
  double tau = 0.005;  // instead of Table 10's copy (1.0) every 10,000 steps
  std::vector<int> hidden = {64, 64};
  bool layer_norm = true;  // hidden layers; not in the table
  bool double_q = true;
  double discount = 0.99;  // Table 10
};

struct QLearning {
  QLearningOptions options;
  Network q, target_q;
  Adam adam;
};

/// S inputs, one output per level.
QLearning make_q_learning(int state_dim, int levels, const QLearningOptions& options, Random& random);

/// y_t = r_t+1 + gamma Q'(s_t+1, argmax_a Q(s_t+1, a)) with double Q, else r_t+1 + gamma max_a Q'(s_t+1, a);
/// held constant. [B,1].
at::Tensor q_target(const QLearning& learner, const Minibatch& batch);
/// 1/N sum H(y_t - Q(s_t, a_t)), H Huber's loss (Mnih et al. 2015 clip the error's gradient to [-1,1]).
at::Tensor q_loss(const QLearning& learner, const Minibatch& batch, const at::Tensor& target_t);

/// One update of the network and its target. Returns the loss. REQUIRES: batch has level_t.
double update(QLearning& learner, const Minibatch& batch);

std::vector<Part> parts(QLearning& learner);
/// The scaling changes; what the networks compute stays.
void rescale(QLearning& learner, const Scaling& from, const Scaling& to);

class QLearner : public Learner {
 public:
  explicit QLearner(QLearning l) : q(std::move(l)) {}
  void update(int n, const Experience& from, UpdateSum& sum) override;
  void policy(PolicySnapshot& policy, bool online) const override;
  std::vector<Part> parts() override { return flash::parts(q); }
  void rescale(const Scaling& from, const Scaling& to) override { flash::rescale(q, from, to); }
  OfflinePhase offline_phase() const override { return OfflinePhase::HandOver; }
  void fit_values(const at::Tensor& s_t, const at::Tensor& values, Adam& adam) override;

  QLearning q;
};
/// The row "q-learning".
Result<std::unique_ptr<Learner>> q_learner(const AgentSpaces& spaces, const AgentOptions& options,
                                           Random& random);

}  // namespace flash
