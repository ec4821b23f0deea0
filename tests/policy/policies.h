// Purpose: small policies for tests, made by hand.
// Ownership: values.
// Thread rule: pure functions.
#pragma once

#include <utility>
#include <vector>

#include "core/policy_snapshot.h"
#include "policy/action_space.h"
#include "policy/observation_space.h"

namespace flash::policies {

/// outputs = bias + weights * state; `weights` per output per entry, row-major, missing ones are 0.
inline DenseLayer linear(int inputs, std::vector<float> bias, std::vector<float> weights = {}) {
  DenseLayer l;
  l.inputs = inputs;
  l.outputs = static_cast<int>(bias.size());
  weights.resize(bias.size() * static_cast<std::size_t>(inputs), 0);
  l.weights = std::move(weights);
  l.bias = std::move(bias);
  return l;
}

inline PolicySnapshot make(Task task, std::uint64_t version, DenseLayer actor) {
  PolicySnapshot p;
  const auto dim = static_cast<std::size_t>(state_dim(task));
  p.task = task;
  p.version = version;
  p.algorithm = task == Task::ResourceLimits ? "td3+bc" : "q-learning";
  p.expires = WallTime(std::chrono::seconds(1000));
  p.mean.assign(dim, 0);
  p.scale.assign(dim, 1);
  p.actor = {std::move(actor)};
  p.estimate.given = true;
  return p;
}

inline StateVector state(Task task, std::vector<float> values) {
  StateVector s;
  s.size = state_dim(task);
  values.resize(static_cast<std::size_t>(s.size), 0);
  std::copy(values.begin(), values.end(), s.values.begin());
  return s;
}

}  // namespace flash::policies
