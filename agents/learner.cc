#include "agents/learner.h"

#include <ATen/ATen.h>

#include <cassert>

#include "agents/net.h"

namespace flash {

void put_numbers(TensorFile& file, const std::string& name, const std::vector<float>& values) {
  file.tensors.push_back({name, {static_cast<std::int64_t>(values.size())}, values});
}

Result<void> get_numbers(const TensorFile& file, const std::string& name, float least,
                         std::vector<float>& values) {
  const auto wrong = [&](const std::string& what) {
    return Error(std::errc::invalid_argument, "checkpoint: array '" + name + "' " + what);
  };
  const Tensor* from = file.find(name);
  if (from == nullptr || from->values.size() != values.size())
    return wrong("is missing or does not have " + std::to_string(values.size()) + " numbers");
  for (float x : from->values)
    if (!(x >= least && x <= 1e6F)) return wrong("has an impossible number");
  values = from->values;
  return {};
}

Learner::~Learner() = default;
void Learner::add(const Transition& /*transition*/) {}
std::vector<Part> Learner::parts() {
  return {};
}
void Learner::checkpoint(TensorFile& /*file*/) const {}
Result<void> Learner::resume(const TensorFile& /*file*/) {
  return {};
}
OfflinePhase Learner::offline_phase() const {
  return OfflinePhase::None;
}
Ddpg* Learner::actor_critic() {
  return nullptr;
}
void Learner::fit_values(const at::Tensor& /*s_t*/, const at::Tensor& /*values*/, Adam& /*adam*/) {
  assert(false);
}

OfflineMethod::~OfflineMethod() = default;
std::optional<Losses> OfflineMethod::hold(Ddpg& /*ddpg*/, const Experience& /*from*/,
                                          std::uint64_t /*online_updates*/) {
  return std::nullopt;
}
void OfflineMethod::rescale(const Scaling& /*from*/, const Scaling& /*to*/) {}
std::vector<DenseLayer> OfflineMethod::scores() const {
  return {};
}

}  // namespace flash
