// Purpose: the port of the learning algorithms, the project's second seam beside core/ports.h. An algorithm is one
// file here and one row of agents/registry.cc; Agent, the trainer and the laboratory know none by name. What is the
// same for all of them (replay, scaling, counting, going back after a divergence, the file of a checkpoint) is done
// by Agent.
// Ownership: an Agent owns its Learner and its OfflineMethod; what they are lent is valid for the call.
// Thread rule: one thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agents/agent.h"
#include "agents/replay.h"
#include "agents/scaling.h"
#include "core/policy_snapshot.h"
#include "core/random.h"
#include "core/result.h"
#include "core/tensor_file.h"

namespace at {
class Tensor;
}

namespace flash {

struct Adam;
struct Ddpg;
struct Part;

struct Losses {
  double critic = 0, actor = 0;
};

/// The updates of one call, added up.
struct UpdateSum {
  std::uint64_t updates = 0;
  Losses losses;
  bool finite = true;  // false: a loss was not; no update is made after it

  void add(const Losses& l) {
    ++updates;
    losses.critic += l.critic;
    losses.actor += l.actor;
    finite = std::isfinite(l.critic) && std::isfinite(l.actor);
  }
  /// `n` times `one`, which returns Losses, unless a loss is not finite before.
  template <class One>
  void repeat(int n, One one) {
    for (int i = 0; i < n && finite; ++i) add(one());
  }
};

/// What an agent lends for updates.
struct Experience {
  const Replay& replay;
  const Scaling& scaling;
  Random& random;
  bool by_fallback_only = false;  // learn from the fallback's transitions alone
};

/// What a learner does before its policy may act.
enum class OfflinePhase : std::uint8_t {
  None,      // nothing; it learns online from the beginning
  Itself,    // update() with the fallback's transitions
  HandOver,  // an OfflineMethod learns beside it and hands over: actor_critic() or fit_values()
};

/// For Learner::checkpoint() and resume(): an array of numbers by name.
void put_numbers(TensorFile& file, const std::string& name, const std::vector<float>& values);
/// EINVAL: missing, of another size than `values` has, or a number below `least` or above 1e6.
Result<void> get_numbers(const TensorFile& file, const std::string& name, float least,
                         std::vector<float>& values);

class Learner {
 public:
  virtual ~Learner();

  /// A transition that the agent has taken; a row that is on_policy gets those alone that its policy drew
  /// (Transition::behaviour), for its Rollout. Who learns from the agent's replay ignores it.
  virtual void add(const Transition& transition);
  /// Up to n updates, fewer where the data bears no more.
  virtual void update(int n, const Experience& from, UpdateSum& sum) = 0;
  /// The policy, as far as the algorithm knows it: actor and critic. What is there already: name, normalisation,
  /// scale of values, exploration. `online`: it has learned online.
  virtual void policy(PolicySnapshot& policy, bool online) const = 0;

  /// Its networks, for checkpoints and for going back after a divergence; the first is the one that acts.
  /// None where it has no network.
  virtual std::vector<Part> parts();
  /// The scaling changes; what it has learned stays.
  virtual void rescale(const Scaling& from, const Scaling& to) = 0;
  /// What there is to keep beside the parts.
  virtual void checkpoint(TensorFile& file) const;
  /// EINVAL with the reason; the learner is then thrown away.
  virtual Result<void> resume(const TensorFile& file);

  virtual OfflinePhase offline_phase() const;
  /// HandOver of continuous actions: networks that an offline method trains or replaces. REQUIRES: HandOver.
  virtual Ddpg* actor_critic();
  /// HandOver of levels: one step of regression on `values` [B, levels] of the states. REQUIRES: HandOver.
  virtual void fit_values(const at::Tensor& s_t, const at::Tensor& values, Adam& adam);
};

/// Learns from the fallback's transitions beside a learner that goes on from it online.
class OfflineMethod {
 public:
  virtual ~OfflineMethod();

  /// One update, and what it hands over to the learner.
  virtual Losses update(Learner& learner, const Experience& from) = 0;
  /// Online, continuous: an update that holds the policy near the data; none: it does not do that.
  virtual std::optional<Losses> hold(Ddpg& ddpg, const Experience& from, std::uint64_t online_updates);
  virtual void rescale(const Scaling& from, const Scaling& to);
  /// Levels: the policy's scores; empty where the learner's values decide.
  virtual std::vector<DenseLayer> scores() const;
};

/// A learner that has learned nothing, and the method that will hand over to it.
struct OfflinePair {
  std::unique_ptr<Learner> learner;
  std::unique_ptr<OfflineMethod> method;
};

}  // namespace flash
