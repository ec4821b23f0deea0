// Purpose: DDPG for resource-limits: FLASH A.3 and Table 8, Alg. 3.3 of the dissertation (FIRM).
// docs/agents/ddpg.md says what differs and why. TD3+BC shares this actor and critic.
// Private to this room: includes torch.
// Ownership: Ddpg owns its networks.
// Thread rule: one thread.
#pragma once

#include <memory>

#include "agents/learner.h"
#include "agents/minibatch.h"
#include "agents/net.h"

namespace flash {

struct DdpgOptions {
  int batch = 64;                      // Table 8
  double actor_rate = 3e-4;            // Table 8
  double critic_rate = 3e-3;           // Table 8
  double tau = 3e-3;                   // Table 8: soft update coefficient
  std::vector<int> hidden = {40, 40};  // dissertation Fig. 3.4
  /// Of the actor's hidden layers. The dissertation: ReLU. Tanh learns smoother policies from few
  /// transitions, docs/adr/0004-offline-learning.md.
  Activation actor_hidden = Activation::Tanh;
  bool critic_layer_norm = true;  // instead of the released code's BatchNorm
  double discount = 0.99;         // Table 8
};

struct Ddpg {
  DdpgOptions options;
  Network actor, critic, target_actor, target_critic;
  Adam actor_adam, critic_adam;
};

/// S inputs, A outputs; target networks are copies (Alg. 3.3 lines 1-2).
Ddpg make_ddpg(int state_dim, int action_dim, const DdpgOptions& options, Random& random);

/// y_t = r_t+1 + gamma Q'(s_t+1, pi'(s_t+1)), eq. (3.2), held constant. [B,1].
at::Tensor ddpg_target(const Ddpg& ddpg, const Minibatch& batch);
/// L(w) = 1/N sum (y_t - Q_w(s_t, a_t))^2, eq. (3.2).
at::Tensor ddpg_critic_loss(const Ddpg& ddpg, const Minibatch& batch, const at::Tensor& target_t);
/// -1/N sum Q_w(s_t, pi(s_t)); its gradient is eq. (3.3), with the critic's parameters held constant.
at::Tensor ddpg_actor_loss(const Ddpg& ddpg, const Minibatch& batch);

/// One update of critic, actor and both target networks (Alg. 3.3 lines 12-15).
Losses update(Ddpg& ddpg, const Minibatch& batch);

std::vector<Part> parts(Ddpg& ddpg);
/// The scaling changes; what the networks compute stays.
void rescale(Ddpg& ddpg, const Scaling& from, const Scaling& to);

class DdpgLearner : public Learner {
 public:
  explicit DdpgLearner(Ddpg d) : ddpg(std::move(d)) {}
  void update(int n, const Experience& from, UpdateSum& sum) override;
  void policy(PolicySnapshot& policy, bool online) const override;
  std::vector<Part> parts() override { return flash::parts(ddpg); }
  void rescale(const Scaling& from, const Scaling& to) override { flash::rescale(ddpg, from, to); }
  OfflinePhase offline_phase() const override { return OfflinePhase::HandOver; }
  Ddpg* actor_critic() override { return &ddpg; }

  Ddpg ddpg;
};
/// The row "ddpg".
Result<std::unique_ptr<Learner>> ddpg_learner(const AgentSpaces& spaces, const AgentOptions& options,
                                              Random& random);

}  // namespace flash
