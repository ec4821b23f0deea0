#include "meta/shared_policy.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/json.h"
#include "meta/embedding_network.h"

namespace flash {
namespace {

constexpr int kSharedFormat = 1;

Error bad(std::string message) {
  return Error(std::errc::invalid_argument, "shared policy: " + std::move(message));
}

at::Tensor tensor_of(std::span<const float> values, std::int64_t columns) {
  at::Tensor t = at::empty({columns > 0 ? static_cast<std::int64_t>(values.size()) / columns : 0, columns});
  std::copy(values.begin(), values.end(), t.data_ptr<float>());
  return t;
}

}  // namespace

std::string_view to_string(Conditioning c) {
  switch (c) {
    case Conditioning::None:
      return "none";
    case Conditioning::Embedding:
      return "embedding";
    case Conditioning::Privileged:
      return "privileged";
  }
  return "?";
}

struct SharedPolicy::Impl {
  SharedPolicyOptions options;
  Network policy;
  Adam adam;
  std::optional<EmbeddingNetwork> encoder;
  std::vector<float> mean, scale;  // of states

  int context_dim() const {
    switch (options.conditioning) {
      case Conditioning::None:
        return 0;
      case Conditioning::Embedding:
        return options.encoder.embedding;
      case Conditioning::Privileged:
        return options.given;
    }
    return 0;
  }

  std::vector<Part> parts() {
    std::vector<Part> all{{"policy", &policy, &adam}};
    if (encoder)
      for (Part& p : encoder->parts()) all.push_back({"encoder/" + p.name, p.network, p.adam});
    return all;
  }

  at::Tensor normalised(std::span<const float> states) const {
    at::Tensor x = tensor_of(states, options.state_dim);
    float* p = x.data_ptr<float>();
    const auto n = static_cast<std::size_t>(options.state_dim);
    for (std::size_t i = 0; i < states.size(); ++i) p[i] = (p[i] - mean[i % n]) / scale[i % n];
    return x;
  }

  /// [N, state + context].
  at::Tensor inputs(std::span<const float> states, std::span<const int> pair,
                    const at::Tensor& context) const {
    const at::Tensor x = normalised(states);
    if (context_dim() == 0) return x;
    at::Tensor rows = at::empty({static_cast<std::int64_t>(pair.size())}, at::kLong);
    std::copy(pair.begin(), pair.end(), rows.data_ptr<std::int64_t>());
    return at::cat({x, context.index_select(0, rows)}, 1);
  }
};

SharedPolicy::SharedPolicy(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SharedPolicy::SharedPolicy(SharedPolicy&&) noexcept = default;
SharedPolicy& SharedPolicy::operator=(SharedPolicy&&) noexcept = default;
SharedPolicy::~SharedPolicy() = default;

const SharedPolicyOptions& SharedPolicy::options() const {
  return impl_->options;
}
int SharedPolicy::context_dim() const {
  return impl_->context_dim();
}

Result<SharedPolicy> SharedPolicy::create(const SharedPolicyOptions& o) {
  if (o.state_dim < 1 || o.state_dim > 256) return bad("state_dim must be 1 to 256");
  if (o.outputs < 1 || o.outputs > 256) return bad("outputs must be 1 to 256");
  if (o.action_width < 1 || o.action_width > 256) return bad("action_width must be 1 to 256");
  if (o.given < 0 || o.given > 256) return bad("given must be 0 to 256");
  if (o.hidden.empty() || o.hidden.size() > 4) return bad("1 to 4 hidden layers");
  for (int h : o.hidden)
    if (h < 1 || h > 1024) return bad("hidden layers must be 1 to 1024 wide");
  if (!(o.stay_margin >= 0 && o.stay_margin <= 1e6F)) return bad("stay_margin must be 0 to 1e6");
  auto impl = std::make_unique<Impl>();
  impl->options = o;
  Random random(o.seed);
  if (o.conditioning == Conditioning::Embedding) {
    FLASH_TRY(impl->encoder,
              EmbeddingNetwork::create(o.encoder, o.state_dim + o.action_width + 1, o.state_dim, random));
  }
  const Activation last =
      action_form(o.task) == ActionForm::Continuous ? Activation::Tanh : Activation::Linear;
  impl->policy =
      make_network(relu_mlp(o.state_dim + impl->context_dim(), o.hidden, o.outputs, last), random, 3e-3);
  impl->adam.rate = o.rate;
  impl->mean.assign(static_cast<std::size_t>(o.state_dim), 0);
  impl->scale.assign(static_cast<std::size_t>(o.state_dim), 1);
  return SharedPolicy(std::move(impl));
}

void SharedPolicy::set_scale(std::span<const float> state_mean, std::span<const float> state_scale,
                             std::span<const float> step_mean, std::span<const float> step_scale) {
  impl_->mean.assign(state_mean.begin(), state_mean.end());
  impl_->scale.assign(state_scale.begin(), state_scale.end());
  if (impl_->encoder)
    impl_->encoder->set_input_scale(
        {{step_mean.begin(), step_mean.end()}, {step_scale.begin(), step_scale.end()}});
}

void SharedPolicy::set_learning_rate(double rate) {
  impl_->adam.rate = rate;
  if (impl_->encoder) impl_->encoder->set_learning_rate(rate);
}

double SharedPolicy::train(std::span<const float> states, std::span<const int> pair,
                           std::span<const Sequences* const> contexts, std::span<const float> given,
                           const Loss& loss) {
  Impl& m = *impl_;
  at::Tensor context;
  if (m.options.conditioning == Conditioning::Embedding) context = m.encoder->embed(contexts);
  if (m.options.conditioning == Conditioning::Privileged) context = tensor_of(given, m.options.given);
  const at::Tensor y = mlp(m.policy, m.inputs(states, pair, context).contiguous());
  at::Tensor gradient = at::zeros_like(y, at::TensorOptions().requires_grad(false)).detach();
  const auto n = static_cast<std::size_t>(y.numel());
  const double value = loss({y.data_ptr<float>(), n}, {gradient.data_ptr<float>(), n});
  descend(m.parts(), (y * gradient).sum());
  return value;
}

std::vector<float> SharedPolicy::embed(std::span<const Sequences* const> contexts) const {
  const at::NoGradGuard no_gradients;
  std::vector<float> out(contexts.size() * static_cast<std::size_t>(context_dim()), 0.0F);
  if (!impl_->encoder || contexts.empty()) return out;
  const at::Tensor e = impl_->encoder->embed(contexts).contiguous();
  std::copy_n(e.data_ptr<float>(), e.numel(), out.begin());
  return out;
}

std::vector<float> SharedPolicy::embed(std::span<const TrajectoryBuffer> known) const {
  std::vector<Sequences> selected, initial;
  for (const TrajectoryBuffer& k : known) {
    selected.push_back(k.selection());
    initial.push_back(k.initial_stage());
  }
  const auto embedding_of = [&](const std::vector<Sequences>& sequences) {
    std::vector<const Sequences*> pointers;
    for (const Sequences& s : sequences) pointers.push_back(&s);
    return embed(std::span<const Sequences* const>(pointers));
  };
  std::vector<float> out = embedding_of(selected);
  const std::vector<float> begun = embedding_of(initial);
  const auto dim = static_cast<std::size_t>(context_dim());
  for (std::size_t i = 0; i < out.size(); ++i)
    if (initial[i / dim].count > 0) out[i] = (out[i] + begun[i]) / 2;
  return out;
}

void SharedPolicy::evaluate(std::span<const float> states, std::span<const int> pair,
                            std::span<const float> contexts, std::span<float> outputs) const {
  const at::NoGradGuard no_gradients;
  const at::Tensor context = context_dim() > 0 ? tensor_of(contexts, context_dim()) : at::Tensor();
  const at::Tensor y = mlp(impl_->policy, impl_->inputs(states, pair, context).contiguous());
  std::copy_n(y.data_ptr<float>(), y.numel(), outputs.begin());
}

PolicySnapshot SharedPolicy::snapshot(std::span<const float> context) const {
  PolicySnapshot s;
  s.task = impl_->options.task;
  s.algorithm = "flash";
  s.mean = impl_->mean;
  s.scale = impl_->scale;
  s.embedding.assign(context.begin(), context.end());
  s.actor = to_layers(impl_->policy);
  s.stay_margin = impl_->options.stay_margin;
  return s;
}

TensorFile SharedPolicy::checkpoint(bool training) const {
  const SharedPolicyOptions& o = impl_->options;
  TensorFile file;
  file.kind = "shared-policy";
  file.format = kSharedFormat;
  *file.meta = {{"task", to_string(o.task)},
                {"state_dim", o.state_dim},
                {"outputs", o.outputs},
                {"action_width", o.action_width},
                {"conditioning", to_string(o.conditioning)},
                {"given", o.given},
                {"hidden", o.hidden},
                {"encoder",
                 {{"kind", to_string(o.encoder.kind)},
                  {"embedding", o.encoder.embedding},
                  {"hidden", o.encoder.hidden},
                  {"layers", o.encoder.layers},
                  {"fc", o.encoder.fc}}}};
  if (o.stay_margin != 0) file.meta["stay_margin"] = o.stay_margin;
  const auto count = static_cast<std::int64_t>(o.state_dim);
  file.tensors.push_back({"state/mean", {count}, impl_->mean});
  file.tensors.push_back({"state/scale", {count}, impl_->scale});
  if (impl_->encoder) {
    const InputScale& in = impl_->encoder->input_scale();
    file.tensors.push_back({"step/mean", {static_cast<std::int64_t>(in.mean.size())}, in.mean});
    file.tensors.push_back({"step/scale", {static_cast<std::int64_t>(in.scale.size())}, in.scale});
  }
  for (const Part& part : impl_->parts()) {
    put(file, part.name, *part.network);
    if (!training) continue;
    put(file, part.name, *part.adam);
    file.meta["adam_steps"][part.name] = static_cast<std::uint64_t>(part.adam->steps);
  }
  return file;
}

namespace {

Result<int> count_of(const nlohmann::json& from, const char* key) {
  if (!from.is_object() || !from.contains(key) || !from[key].is_number_integer() || from[key] < 0 ||
      from[key] > 4096)
    return bad(std::string(key) + " is missing or not a count");
  return from[key].get<int>();
}

Result<std::vector<float>> scale_of(const TensorFile& file, const char* name, std::size_t size,
                                    bool positive) {
  const Tensor* t = file.find(name);
  if (t == nullptr || t->values.size() != size)
    return bad(std::string("array '") + name + "' is missing or has another size");
  for (float v : t->values)
    if (!std::isfinite(v) || (positive && !(v > 0)))
      return bad(std::string("array '") + name + "' has an impossible number");
  return t->values;
}

}  // namespace

Result<SharedPolicy> SharedPolicy::restore(const TensorFile& file) {
  if (file.kind != "shared-policy" || file.format != kSharedFormat || !file.meta->is_object())
    return bad("not one of format " + std::to_string(kSharedFormat));
  const nlohmann::json& j = *file.meta;
  const auto text = [](const nlohmann::json& from, const char* key) {
    return from.is_object() && from.contains(key) && from[key].is_string() ? from[key].get<std::string>()
                                                                           : std::string();
  };
  SharedPolicyOptions o;
  const auto task = task_from_name(text(j, "task"));
  if (!task) return bad("task is missing or not one");
  o.task = *task;
  FLASH_TRY(o.state_dim, count_of(j, "state_dim"));
  FLASH_TRY(o.outputs, count_of(j, "outputs"));
  FLASH_TRY(o.action_width, count_of(j, "action_width"));
  FLASH_TRY(o.given, count_of(j, "given"));
  const std::string conditioning = text(j, "conditioning");
  bool known = false;
  for (Conditioning c : {Conditioning::None, Conditioning::Embedding, Conditioning::Privileged})
    if (conditioning == to_string(c)) o.conditioning = c, known = true;
  if (!known) return bad("conditioning is missing or not one");
  o.hidden.clear();
  if (!j.contains("hidden") || !j["hidden"].is_array() || j["hidden"].size() > 4)
    return bad("hidden is missing");
  for (const auto& h : j["hidden"]) {
    if (!h.is_number_integer() || h < 1 || h > 1024) return bad("hidden has an impossible size");
    o.hidden.push_back(h.get<int>());
  }
  if (j.contains("stay_margin")) {
    if (!j["stay_margin"].is_number()) return bad("stay_margin is not a number");
    o.stay_margin = j["stay_margin"].get<float>();
  }
  const nlohmann::json encoder = j.contains("encoder") ? j["encoder"] : nlohmann::json();
  const std::string kind = text(encoder, "kind");
  if (kind != "gru" && kind != "set") return bad("encoder.kind is missing or not one");
  o.encoder.kind = kind == "gru" ? EncoderKind::Gru : EncoderKind::Set;
  FLASH_TRY(o.encoder.embedding, count_of(encoder, "embedding"));
  FLASH_TRY(o.encoder.hidden, count_of(encoder, "hidden"));
  FLASH_TRY(o.encoder.layers, count_of(encoder, "layers"));
  FLASH_TRY(o.encoder.fc, count_of(encoder, "fc"));
  FLASH_TRY(SharedPolicy policy, create(o));
  const auto n = static_cast<std::size_t>(o.state_dim);
  FLASH_TRY(const std::vector<float> mean, scale_of(file, "state/mean", n, false));
  FLASH_TRY(const std::vector<float> scale, scale_of(file, "state/scale", n, true));
  std::vector<float> step_mean, step_scale;
  if (policy.impl_->encoder) {
    const auto width = n + static_cast<std::size_t>(o.action_width) + 1;
    FLASH_TRY(step_mean, scale_of(file, "step/mean", width, false));
    FLASH_TRY(step_scale, scale_of(file, "step/scale", width, true));
  }
  policy.set_scale(mean, scale, step_mean, step_scale);
  const nlohmann::json steps = j.contains("adam_steps") ? j["adam_steps"] : nlohmann::json();
  for (const Part& part : policy.impl_->parts()) {
    if (auto got = get(file, part.name, *part.network); !got) return std::move(got).error();
    if (!steps.is_object() || !steps.contains(part.name)) continue;
    if (!steps[part.name].is_number_unsigned() || steps[part.name].get<std::uint64_t>() > 1ULL << 50)
      return bad("adam_steps of " + part.name + " is not a count");
    if (auto got = get(file, part.name, *part.network, *part.adam); !got) return std::move(got).error();
    part.adam->steps = steps[part.name].get<std::int64_t>();
  }
  return policy;
}

}  // namespace flash
