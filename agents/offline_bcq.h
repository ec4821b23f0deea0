// Purpose: offline learning by Batch-Constrained Q-learning: BCQ for resource-limits (Fujimoto, Meger, Precup
// 2019: the state-conditioned generative model of AWARE 3.4), discrete BCQ for cpu-frequency (Fujimoto et al.
// 2019b). Both policies are procedures (sample, perturb, take the best); a snapshot is a network, so an actor
// is distilled from them. Private to this room: includes torch.
// Ownership: the structs own their networks.
// Thread rule: one thread.
#pragma once

#include <vector>

#include "agents/ddpg.h"
#include "agents/registry.h"
#include "core/random.h"

namespace flash {

struct BcqOptions {
  int batch = 64;
  double rate = 1e-3;
  double tau = 5e-3;
  double discount = 0.9;  // as Td3BcOptions
  /// The paper's VAE: {750, 750}, for 17 dimensions of state and 6 of action and 10^6 transitions. Two
  /// actions and a thousand transitions: a twentieth of the width says the same and costs 1/200.
  std::vector<int> vae_hidden = {40, 40};
  std::vector<int> hidden = {40, 40};
  double latent_clip = 0.5;
  double perturbation = 0.05;  // Phi
  double lambda = 0.75;        // weight of the smaller of the twin critics
  int target_actions = 10;     // samples per next state
  int policy_actions = 20;     // samples of which the best is distilled
};

struct Bcq {
  BcqOptions options;
  int latent = 0;                             // 2 |A|
  Network encoder, decoder;                   // (s, a) -> mean, log sigma of z;  (s, z) -> a
  Network perturbation, target_perturbation;  // xi(s, a)
  Network q1, q2, target_q1, target_q2;
  Network actor;  // distilled
  Adam encoder_adam, decoder_adam, perturbation_adam, q1_adam, q2_adam, actor_adam;
  std::vector<float> action_mean, action_scale;  // of the logged actions
  double distillation_error = 0;                 // root mean square of the last batches, in units of [-1,1]
};

Bcq make_bcq(const Ddpg& shape, const Replay& replay, const BcqOptions& options, Random& random);

/// n actions per state, decoded from z ~ clip(N(0,1)) and perturbed by at most Phi: [B n, A]; the state
/// repeated.
at::Tensor bcq_actions(const Bcq& bcq, const Network& perturbation, const at::Tensor& s_repeated,
                       Random& random);
/// One update of all parts and of the distilled actor.
Losses update(Bcq& bcq, const Minibatch& batch, Random& random);

struct DiscreteBcqOptions {
  int batch = 64;
  double rate = 1e-3;
  double tau = 5e-3;
  double discount = 0.9;
  double threshold = 0.3;  // a level counts if the behaviour chooses it this often, relative to its favourite
  std::vector<int> hidden = {64, 64};
};

struct DiscreteBcq {
  DiscreteBcqOptions options;
  Network q, target_q, behaviour, scores;  // scores: distilled from the constrained argmax
  Adam q_adam, behaviour_adam, scores_adam;
};

DiscreteBcq make_discrete_bcq(int state_dim, int levels, const DiscreteBcqOptions& options, Random& random);
/// argmax over the levels that the behaviour would choose, [B,1] i64.
at::Tensor constrained_argmax(const DiscreteBcq& bcq, const Network& q, const at::Tensor& s);
/// One update of all. REQUIRES: batch has level_t.
Losses update(DiscreteBcq& bcq, const Minibatch& batch);

/// The row "bcq".
OfflinePair offline_bcq(const OfflineSite& site);

}  // namespace flash
