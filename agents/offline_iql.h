// Purpose: offline learning for cpu-frequency, Implicit Q-Learning (Kostrikov, Nair, Levine 2021): values of
// logged actions alone, and a policy by advantage-weighted regression.
// Private to this room: includes torch.
// Ownership: Iql owns its networks.
// Thread rule: one thread.
#pragma once

#include <vector>

#include "agents/ddpg.h"
#include "agents/q_learning.h"
#include "agents/registry.h"

namespace flash {

struct IqlOptions {
  int batch = 64;
  double rate = 1e-3;
  double tau = 5e-3;
  double discount = 0.9;  // as Td3BcOptions
  double expectile = 0.7;
  double temperature = 3;   // beta: of advantages in deviations of the reward
  double most_weight = 20;  // of one transition: exp(beta A) is cut here
  std::vector<int> hidden = {64, 64};
};

struct Iql {
  IqlOptions options;
  Network q1, q2, target_q1, target_q2;  // one value per level
  Network v;
  Network scores;  // the policy's logits, one per level
  Adam q1_adam, q2_adam, v_adam, scores_adam;
};

Iql make_iql(int state_dim, int levels, const IqlOptions& options, Random& random);

/// mean |tau - 1(u < 0)| u^2, u = min Q'(s_t, a_t) - V(s_t)                    (IQL, eq. 5).
at::Tensor iql_value_loss(const Iql& iql, const Minibatch& batch);
/// mean (r_t+1 + gamma V(s_t+1) - Q(s_t, a_t))^2                                (IQL, eq. 6).
at::Tensor iql_q_loss(const Iql& iql, const Network& q, const Minibatch& batch);
/// -mean exp(beta (min Q'(s_t, a_t) - V(s_t))) log pi(a_t | s_t)                (IQL, eq. 7).
at::Tensor iql_policy_loss(const Iql& iql, const Minibatch& batch);

/// One update of all. REQUIRES: batch has level_t.
Losses update(Iql& iql, const Minibatch& batch);

/// What goes over to Q-learning, which decides by its highest value: the offline critic's where the policy is
/// at least `support` times as likely to choose the level as its favourite, and below all of those elsewhere.
/// Levels that were never tried have no value worth the name, and the highest of them would decide. [B,
/// levels].
at::Tensor supported_values(const Network& q, const Network& scores, double support, const at::Tensor& s_t);

/// The row "iql".
OfflinePair offline_iql(const OfflineSite& site);

}  // namespace flash
