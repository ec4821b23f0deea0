// Purpose: offline learning for resource-limits, TD3+BC (Fujimoto, Gu 2021): DDPG's actor and critic, trained
// on the fallback's transitions so that the actor stays near what was done. Online DDPG goes on from it.
// docs/adr/0004-offline-learning.md has the measurements behind the defaults.
// Private to this room: includes torch.
// Ownership: Td3Bc owns what it needs beside the Ddpg it trains.
// Thread rule: one thread.
#pragma once

#include <span>
#include <vector>

#include "agents/ddpg.h"
#include "agents/registry.h"
#include "core/random.h"

namespace flash {

struct Td3BcOptions {
  int batch = 64;
  /// The paper: 2.5. Few transitions of a narrow controller: the critic's slope is trusted less (ADR 4).
  double alpha = 0.5;
  /// What an action does shows in the next step; a long horizon adds noise and no knowledge (ADR 4). Values
  /// are centred, so online learning with its own discount goes on from this critic.
  double discount = 0.9;
  double actor_rate = 3e-4;   // FLASH Table 8
  double critic_rate = 1e-3;  // Table 8: 3e-3
  double tau = 5e-3;
  int policy_delay = 2;       // TD3: the actor and the targets move every second update
  double policy_noise = 0.2;  // TD3: target policy smoothing, in deviations of the logged action
  double noise_clip = 0.5;
  int anneal_updates = 2000;  // online updates until nothing holds the actor near the data
};

struct Td3Bc {
  Td3BcOptions options;
  Network critic2, target_critic2;  // the second of TD3's twins; the first is the Ddpg's
  Adam critic2_adam, actor_adam, critic_adam;
  std::vector<float> action_mean, action_scale;  // of the logged actions
  std::uint64_t updates = 0;
};

/// Mean and deviation of what the fallback did, per action in [-1,1]; deviations of at least 0.02. `levels` >
/// 0: the replay holds levels, 2 k / (levels - 1) - 1 is the action.
void measure_actions(const Replay& replay, int levels, std::vector<float>& mean, std::vector<float>& scale);

/// A second critic for `ddpg` and what else the method needs. The ddpg must be untrained; it is prepared for
/// the log: widen_actions(), forget_inputs(), and the actor begins at the mean action. REQUIRES: the replay
/// holds a transition of the fallback.
Td3Bc make_td3_bc(Ddpg& ddpg, const Replay& replay, int levels, const Td3BcOptions& options, Random& random);

/// The same for a ddpg that goes on learning: both critics begin as its critic.
Td3Bc resume_td3_bc(const Ddpg& ddpg, const Replay& replay, const Td3BcOptions& options);

/// The critic's first layer, made for actions of mean 0 and deviation 1, is rewritten for actions as they are
/// logged. A narrow controller moves its actions by some hundredths: a fresh network would not see them.
void widen_actions(Network& critic, std::span<const float> mean, std::span<const float> scale);
/// The weights of state entries that never varied become 0: what was never seen must not decide.
void forget_inputs(Network& network, const std::vector<bool>& constant);

/// The actor's output layer: pi(s) is near `action` while its last weights are small.
void begin_at(Network& actor, std::span<const float> action);
/// Small tensors: [1, n] of these values; independent N(0,1) in the shape of another.
at::Tensor row(std::span<const float> values);
at::Tensor normal_like(const at::Tensor& shape, Random& random);

/// y_t = r_t+1 + gamma mean_i Q'_i(s_t+1, clip(pi'(s_t+1) + clip(noise)))     (TD3, eq. 14). [B,1].
/// TD3 takes the smaller of the twins (eq. 10) against overestimation over a long horizon. With gamma 0.8
/// there is little, while the noise of one small critic is the larger trouble: the mean of both earns more
/// (ADR 4).
at::Tensor td3_target(const Td3Bc& td3, const Ddpg& ddpg, const Minibatch& batch, Random& random);
/// lambda * -mean Q(s_t, pi(s_t)) + weight * mean ((pi(s_t) - a_t) / action_scale)^2, with
/// lambda = alpha / mean |Q(s_t, pi(s_t))| held constant, Q the twins' mean    (TD3+BC, eq. 5).
at::Tensor td3_bc_actor_loss(const Td3Bc& td3, const Ddpg& ddpg, const Minibatch& batch, double weight);

/// One update of both critics, and every policy_delay-th of the actor and all targets. `weight` of behaviour
/// cloning: 1 offline; online bc_weight().
Losses update(Td3Bc& td3, Ddpg& ddpg, const Minibatch& batch, double weight, Random& random);

/// 1 at the first online update, falling to 0 after anneal_updates.
double bc_weight(const Td3BcOptions& options, std::uint64_t online_updates);

/// cpu-frequency by the same method: levels are ordered, so the level is one action, its place in the range.
/// What is learned of one level then says something of its neighbours, which a network with an output per
/// level does not know; with a thousand steps of a narrow controller that decides (ADR 4).
struct LevelsTd3Bc {
  int levels = 0;
  Ddpg ddpg;
  Td3Bc td3;
};
LevelsTd3Bc make_levels_td3_bc(int levels, const Replay& replay, const DdpgOptions& shape,
                               const Td3BcOptions& options, Random& random);
/// REQUIRES: the batch's actions are levels.
Losses update(LevelsTd3Bc& levels, Minibatch batch, Random& random);
/// The policy as a network with a score per level, the nearest level's the highest: exact, the actor with one
/// linear layer more (score_k = 2 x_k y - x_k^2, which is y^2 - (y - x_k)^2).
std::vector<DenseLayer> level_scores(const LevelsTd3Bc& levels);
/// Q(s, x_k) of every level as Q-learning is to take it over: beyond a level and a half from the policy's
/// choice, where the critic extrapolates, less than the policy's choice and falling. [B, levels].
at::Tensor level_values(const LevelsTd3Bc& levels, const at::Tensor& s_t);

/// The scaling changes; what the networks compute stays.
void rescale(Td3Bc& td3, const Scaling& from, const Scaling& to);

/// The row "td3+bc".
OfflinePair offline_td3_bc(const OfflineSite& site);
/// The method for a ddpg that goes on learning: whatever it was that trained it offline, TD3+BC holds it near the
/// data.
std::unique_ptr<OfflineMethod> hold_by_td3_bc(const Ddpg& ddpg, const Replay& replay);

}  // namespace flash
