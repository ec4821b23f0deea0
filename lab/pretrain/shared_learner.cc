#include "lab/pretrain/shared_learner.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "agents/ddpg.h"
#include "agents/q_learning.h"
#include "core/json.h"
#include "core/space.h"

namespace flash {
namespace {

constexpr int kLearnerFormat = 1;

Error not_possible(std::string message) {
  return Error(std::errc::invalid_argument, "shared learner: " + std::move(message));
}

/// An update with a batch whose states are leaves [s, e]; the gradient with respect to them.
SharedLearner::Report learn(Ddpg& d, const Minibatch& b, at::Tensor& gradient) {
  SharedLearner::Report r;
  r.critic_loss =
      descend(d.critic, d.critic_adam, ddpg_critic_loss(d, b, ddpg_target(d, b)), b.s_t, gradient);
  const at::Tensor value = mlp_frozen(d.critic, b.s_t.detach(), mlp(d.actor, b.s_t));
  r.actor_loss = descend(d.actor, d.actor_adam, -value.mean(), b.s_t, gradient);
  soft_update(d.target_critic, d.critic, d.options.tau);
  soft_update(d.target_actor, d.actor, d.options.tau);
  return r;
}

SharedLearner::Report learn(QLearning& q, const Minibatch& b, at::Tensor& gradient) {
  SharedLearner::Report r;
  r.critic_loss = descend(q.q, q.adam, q_loss(q, b, q_target(q, b)), b.s_t, gradient);
  soft_update(q.target_q, q.q, q.options.tau);
  return r;
}

/// An algorithm, and its update that tells the gradient of its inputs.
struct BaseLearner {
  std::unique_ptr<Learner> learner;
  std::function<SharedLearner::Report(const Minibatch& batch, at::Tensor& gradient)> learn;
};

template <class L>
BaseLearner base_of(std::unique_ptr<L> learner, auto& algorithm) {
  return {std::move(learner),
          [&algorithm](const Minibatch& b, at::Tensor& gradient) { return learn(algorithm, b, gradient); }};
}

BaseLearner ddpg_base(int inputs, const SharedLearnerOptions& o, Random& random) {
  DdpgOptions d;
  d.discount = o.discount;
  auto learner = std::make_unique<DdpgLearner>(make_ddpg(inputs, o.actions, d, random));
  Ddpg& ddpg = learner->ddpg;
  return base_of(std::move(learner), ddpg);
}

BaseLearner q_base(int inputs, const SharedLearnerOptions& o, Random& random) {
  QLearningOptions q;
  q.discount = o.discount;
  auto learner = std::make_unique<QLearner>(make_q_learning(inputs, o.actions, q, random));
  QLearning& algorithm = learner->q;
  return base_of(std::move(learner), algorithm);
}

/// FLASH's base learner of a form of actions.
struct BaseRow {
  ActionForm form;
  BaseLearner (*make)(int inputs, const SharedLearnerOptions& options, Random& random);
};
constexpr BaseRow kBases[] = {{ActionForm::Continuous, ddpg_base}, {ActionForm::Discrete, q_base}};

}  // namespace

struct SharedLearner::Impl {
  SharedLearnerOptions options;
  Scaling scaling;
  BaseLearner base;
  std::vector<double> rates;  // of the parts' optimisers, as the tables have them
  std::vector<at::Tensor> last_finite;

  bool levels() const { return action_form(options.task) == ActionForm::Discrete; }
  std::vector<Part> parts() { return base.learner->parts(); }
};

SharedLearner::SharedLearner(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SharedLearner::SharedLearner(SharedLearner&&) noexcept = default;
SharedLearner& SharedLearner::operator=(SharedLearner&&) noexcept = default;
SharedLearner::~SharedLearner() = default;

const SharedLearnerOptions& SharedLearner::options() const {
  return impl_->options;
}

Result<SharedLearner> SharedLearner::create(const SharedLearnerOptions& o) {
  if (o.state_dim < 1 || o.state_dim > 256) return not_possible("state_dim must be 1 to 256");
  if (o.actions < 1 || o.actions > 256) return not_possible("actions must be 1 to 256");
  if (o.embedding < 1 || o.embedding > 256) return not_possible("embedding must be 1 to 256");
  if (!(o.discount >= 0 && o.discount < 1)) return not_possible("discount is not within [0, 1)");
  auto impl = std::make_unique<Impl>();
  impl->options = o;
  impl->scaling = unscaled(o.state_dim, o.discount);
  Random random(o.seed);
  const int inputs = o.state_dim + o.embedding;
  for (const BaseRow& row : kBases)
    if (row.form == action_form(o.task)) impl->base = row.make(inputs, o, random);
  for (const Part& part : impl->parts()) impl->rates.push_back(part.adam != nullptr ? part.adam->rate : 0);
  impl->last_finite = copy_parts(impl->parts());
  return SharedLearner(std::move(impl));
}

void SharedLearner::set_scaling(const Scaling& scaling) {
  impl_->scaling = scaling;
}

const Scaling& SharedLearner::scaling() const {
  return impl_->scaling;
}

void SharedLearner::set_rate(double share) {
  const std::vector<Part> parts = impl_->parts();
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (parts[i].adam != nullptr) parts[i].adam->rate = impl_->rates[i] * share;
}

SharedLearner::Report SharedLearner::update(std::span<const Share> shares, Random& random,
                                            std::span<float> gradient) {
  Impl& m = *impl_;
  std::vector<Minibatch> all;
  std::int64_t rows = 0;
  Scaling scaling = m.scaling;
  for (const Share& share : shares) {
    scaling.reward_mean = share.reward_mean;
    all.push_back(sample(*share.replay, scaling, random, share.rows, m.levels()));
    rows += share.rows;
  }
  const std::int64_t s = m.options.state_dim, e = m.options.embedding;
  Minibatch b;
  b.s_t = at::empty({rows, s + e});
  b.s_tp1 = at::empty({rows, s + e});
  std::vector<at::Tensor> a_t, r_tp1, level_t;
  std::int64_t row = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    for (std::int64_t k = 0; k < shares[i].rows; ++k, ++row)
      for (auto [from, to] : {std::pair{&all[i].s_t, &b.s_t}, std::pair{&all[i].s_tp1, &b.s_tp1}})
        std::copy_n(shares[i].embedding.begin(), e,
                    std::copy_n(from->data_ptr<float>() + k * s, s, to->data_ptr<float>() + row * (s + e)));
    a_t.push_back(all[i].a_t);
    r_tp1.push_back(all[i].r_tp1);
    if (m.levels()) level_t.push_back(all[i].level_t);
  }
  b.s_t.requires_grad_(true);
  b.a_t = at::cat(a_t);
  b.r_tp1 = at::cat(r_tp1);
  if (m.levels()) b.level_t = at::cat(level_t);
  at::Tensor g = at::zeros({rows, s + e});
  Report r = m.base.learn(b, g);
  r.finite = std::isfinite(r.critic_loss) && std::isfinite(r.actor_loss);
  if (!gradient.empty()) {
    std::fill(gradient.begin(), gradient.end(), 0.0F);
    const float* p = g.data_ptr<float>();
    for (std::int64_t k = 0; k < shares.front().rows; ++k)
      for (std::int64_t j = 0; j < e; ++j) gradient[static_cast<std::size_t>(j)] += p[k * (s + e) + s + j];
  }
  return r;
}

void SharedLearner::act(std::span<const float> states, std::span<const float> embedding,
                        std::span<float> outputs) const {
  const at::NoGradGuard no_gradients;
  Impl& m = *impl_;
  const auto n = static_cast<std::size_t>(m.options.state_dim), width = embedding.size();
  const std::size_t rows = states.size() / n;
  at::Tensor x = at::empty({static_cast<std::int64_t>(rows), static_cast<std::int64_t>(n + width)});
  float* p = x.data_ptr<float>();
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t k = 0; k < n; ++k) *p++ = (states[i * n + k] - m.scaling.mean[k]) / m.scaling.scale[k];
    p = std::copy(embedding.begin(), embedding.end(), p);
  }
  const at::Tensor y = mlp(*m.parts().front().network, x);
  std::copy_n(y.data_ptr<float>(), y.numel(), outputs.begin());
}

PolicySnapshot SharedLearner::snapshot(std::span<const float> embedding) const {
  PolicySnapshot s;
  s.task = impl_->options.task;
  s.algorithm = "flash";
  s.mean = impl_->scaling.mean;
  s.scale = impl_->scaling.scale;
  s.value_offset = static_cast<float>(impl_->scaling.value_offset());
  s.value_scale = static_cast<float>(impl_->scaling.value_scale());
  s.embedding.assign(embedding.begin(), embedding.end());
  impl_->base.learner->policy(s, true);
  return s;
}

bool SharedLearner::keep_finite() {
  const std::vector<Part> all = impl_->parts();
  if (all_finite(all)) {
    impl_->last_finite = copy_parts(all);
    return true;
  }
  put_back(impl_->last_finite, all);
  return false;
}

TensorFile SharedLearner::checkpoint() const {
  Impl& m = *impl_;
  TensorFile file;
  file.kind = "shared-learner";
  file.format = kLearnerFormat;
  *file.meta = {{"task", to_string(m.options.task)},      {"state_dim", m.options.state_dim},
                {"actions", m.options.actions},           {"embedding", m.options.embedding},
                {"discount", m.options.discount},         {"reward_mean", m.scaling.reward_mean},
                {"reward_scale", m.scaling.reward_scale}, {"spread", m.scaling.spread}};
  const auto count = static_cast<std::int64_t>(m.options.state_dim);
  file.tensors.push_back({"state/mean", {count}, m.scaling.mean});
  file.tensors.push_back({"state/scale", {count}, m.scaling.scale});
  for (const Part& part : m.parts()) {
    put(file, part.name, *part.network);
    if (part.adam == nullptr || !part.adam->m.defined()) continue;
    put(file, part.name, *part.adam);
    file.meta["adam_steps"][part.name] = static_cast<std::uint64_t>(part.adam->steps);
  }
  return file;
}

Result<SharedLearner> SharedLearner::restore(const TensorFile& file) {
  if (file.kind != "shared-learner" || file.format != kLearnerFormat || !file.meta->is_object())
    return not_possible("not one of format " + std::to_string(kLearnerFormat));
  std::string wrong;
  const auto number = [&](const char* key, double least, double most) {
    const auto it = file.meta->find(key);
    if (it != file.meta->end() && it->is_number())
      if (const auto x = it->get<double>(); x >= least && x <= most) return x;
    if (wrong.empty()) wrong = key;
    return least;
  };
  SharedLearnerOptions o;
  const auto name = file.meta->find("task");
  const auto task =
      name != file.meta->end() && name->is_string() ? task_from_name(name->get<std::string>()) : std::nullopt;
  if (!task) return not_possible("task is missing or not one");
  o.task = *task;
  o.state_dim = static_cast<int>(number("state_dim", 1, 256));
  o.actions = static_cast<int>(number("actions", 1, 256));
  o.embedding = static_cast<int>(number("embedding", 1, 256));
  o.discount = number("discount", 0, 0.999999);
  Scaling scaling;
  scaling.discount = o.discount;
  scaling.reward_mean = number("reward_mean", -1e6, 1e6);
  scaling.reward_scale = number("reward_scale", 1e-6, 1e6);
  scaling.spread = number("spread", 1e-6, 1e6);
  if (!wrong.empty()) return not_possible(wrong + " is missing or impossible");
  for (auto [array, to, least] :
       {std::tuple{"state/mean", &scaling.mean, -1e6F}, std::tuple{"state/scale", &scaling.scale, 1e-6F}}) {
    const Tensor* t = file.find(array);
    if (t == nullptr || t->values.size() != static_cast<std::size_t>(o.state_dim))
      return not_possible(std::string("array '") + array + "' is missing or has another size");
    for (float v : t->values)
      if (!(v >= least && v <= 1e6F))
        return not_possible(std::string("array '") + array + "' has an impossible number");
    *to = t->values;
  }
  FLASH_TRY(SharedLearner learner, create(o));
  learner.set_scaling(scaling);
  const nlohmann::json steps = file.meta->value("adam_steps", nlohmann::json::object());
  for (const Part& part : learner.impl_->parts()) {
    if (auto got = get(file, part.name, *part.network); !got) return std::move(got).error();
    if (part.adam == nullptr || !steps.is_object() || !steps.contains(part.name)) continue;
    if (!steps[part.name].is_number_unsigned() || steps[part.name].get<std::uint64_t>() > 1ULL << 50)
      return not_possible("adam_steps of " + part.name + " is not a count");
    if (auto got = get(file, part.name, *part.network, *part.adam); !got) return std::move(got).error();
    part.adam->steps = steps[part.name].get<std::int64_t>();
  }
  learner.impl_->last_finite = copy_parts(learner.impl_->parts());
  return learner;
}

}  // namespace flash
