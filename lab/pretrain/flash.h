// Purpose: FLASH's programming interface (Listing 1) for supervised and for reinforcement learning agents: a
// base learner registers, inserts samples or trajectories, gets the embedding of the pair it is dealing with,
// and switches the meta model's update on and off. Torch stays behind it.
// Ownership: a model owns its meta learner, buffer and optimiser.
// Thread rule: one thread.
//
//   RlModel model = RlModel::create({});
//   model.register_base_learner("resource-limits", state_dim, action_dim);
//   model.toggle_meta_model_update(true);                          // pretraining
//   for each episode: e = model.get_embedding();                   // computed once, cached
//                     every base update: dL/de of the base learner's own loss -> model.add_gradient(...)
//                     model.insert_traj_samples({trajectory}); model.end_episode();   // one backward pass
//   model.switch_pair();                              // at a switch of (application, environment)
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/tensor_file.h"
#include "meta/encoder.h"
#include "meta/trajectory_buffer.h"

namespace flash {

struct MetaOptions {
  EncoderOptions encoder;
  int trajectories = 20;         // M
  int steps = 300;               // Table 4: time steps per trajectory; SL: samples
  int initial_trajectories = 5;  // in training, the first ones of each pair count as its initial stage
  std::uint64_t seed = 1;
};

struct MetaUpdate {
  bool updated = false;  // false: toggled off, or nobody gave a gradient
  double gradient = 0;   // Euclidean norm of the mean dL/de
};

/// What SlModel and RlModel share.
class MetaModel {
 public:
  MetaModel(MetaModel&&) noexcept;
  MetaModel& operator=(MetaModel&&) noexcept;
  ~MetaModel();

  /// The embedding of the present pair: from the buffer's selection, computed at the first call after the
  /// buffer or the parameters changed in a new episode, else cached. Zeros before there is data.
  /// EINVAL: no base learner is registered.
  Result<std::vector<float>> get_embedding();
  /// Off (as after create()): parameters are fixed, gradients are ignored.
  void toggle_meta_model_update(bool on);

  /// dL/d(embedding) of one update of the base learner with its own loss. Accumulates until end_episode().
  /// EINVAL: another size, or not finite; ignored then.
  Result<void> add_gradient(std::span<const float> gradient);
  /// The end of an episode: one backward pass with the mean of the gradients, one step of Adam. The next
  /// get_embedding() sees what was inserted since.
  Result<MetaUpdate> end_episode();
  /// Another pair: the buffer is cleared, the hidden state starts over.
  void switch_pair();

  const std::string& task() const;
  int embedding_dim() const;
  /// Everything of the meta learner but its buffer. REQUIRES: registered.
  TensorFile checkpoint() const;
  /// EINVAL with the reason (another task, encoder or shape; a number that is not finite); unchanged then.
  Result<void> restore(const TensorFile& checkpoint);

 protected:
  struct Impl;
  explicit MetaModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Listing 1, SLModel<F, P>.
class SlModel : public MetaModel {
 public:
  /// EINVAL: an option that is not possible, named.
  static Result<SlModel> create(const MetaOptions& options);
  /// One meta learner per task; a second registration starts over.
  Result<void> register_base_learner(const std::string& task, int feature_dim, int label_dim);
  Result<void> insert_data_samples(std::span<const LabelledSample> samples);

 private:
  using MetaModel::MetaModel;
};

/// Listing 1, RLModel<S, A, R>.
class RlModel : public MetaModel {
 public:
  static Result<RlModel> create(const MetaOptions& options);
  Result<void> register_base_learner(const std::string& task, int state_dim, int action_dim);
  Result<void> insert_traj_samples(std::span<const Trajectory> trajectories);
  /// The embedding of another pair's trajectories by the encoder as it is now; buffer, cached embedding and
  /// gradients stay as they are. EINVAL: no base learner is registered, a trajectory that does not fit.
  Result<std::vector<float>> embedding_of(std::span<const Trajectory> trajectories) const;

 private:
  using MetaModel::MetaModel;
};

}  // namespace flash
