#include "meta/embedding_network.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace flash {

std::string_view to_string(EncoderKind kind) {
  return kind == EncoderKind::Gru ? "gru" : "set";
}
namespace {

constexpr float kLargestInput = 10;

}  // namespace

Result<EmbeddingNetwork> EmbeddingNetwork::create(const EncoderOptions& o, int features, int state,
                                                  Random& random) {
  const auto within = [](int value, int least, int most, const char* name) -> Result<void> {
    if (value >= least && value <= most) return {};
    return Error(std::errc::invalid_argument, std::string(name) + " is not within " + std::to_string(least) +
                                                  " to " + std::to_string(most));
  };
  for (const auto& checked : {within(features, 1, 4096, "features"), within(state, 0, features, "state"),
                              within(o.embedding, 1, 256, "embedding"), within(o.hidden, 1, 1024, "hidden"),
                              within(o.layers, 1, 4, "layers"), within(o.fc, 1, 1024, "fc")})
    if (!checked) return checked.error();
  EmbeddingNetwork n;
  n.options_ = o;
  n.features_ = features;
  n.state_ = state;
  n.input_ = {std::vector<float>(static_cast<std::size_t>(features), 0),
              std::vector<float>(static_cast<std::size_t>(features), 1)};
  if (o.kind == EncoderKind::Gru) {
    n.gru_spec_ = {features, o.hidden, o.layers};
    n.gru_.parameters = make_gru_parameters(n.gru_spec_, random);
    n.fc_ = make_network(relu_mlp(2 * o.hidden, {o.fc}, o.embedding, Activation::Linear), random);
  } else {
    n.step_ = make_network(
        relu_mlp(features + state, std::vector<int>(static_cast<std::size_t>(o.layers), o.hidden), o.hidden,
                 Activation::Linear),
        random);
    n.attention_ = make_network({o.hidden, {{1, Activation::Linear, false}}}, random);
    n.fc_ = make_network(relu_mlp(2 * o.hidden, {o.fc}, o.embedding, Activation::Tanh), random);
  }
  n.set_learning_rate(o.learning_rate);
  return n;
}

void EmbeddingNetwork::set_learning_rate(double rate) {
  for (Adam* adam : {&gru_adam_, &step_adam_, &attention_adam_, &fc_adam_}) adam->rate = rate;
}

std::vector<Part> EmbeddingNetwork::parts() {
  if (options_.kind == EncoderKind::Gru) return {{"gru", &gru_, &gru_adam_}, {"fc", &fc_, &fc_adam_}};
  return {
      {"step", &step_, &step_adam_}, {"attention", &attention_, &attention_adam_}, {"fc", &fc_, &fc_adam_}};
}

EmbeddingNetwork EmbeddingNetwork::copy() const {
  EmbeddingNetwork n = *this;
  for (const Part& part : n.parts()) {
    part.network->parameters = part.network->parameters.detach().clone();
    part.network->parameters.set_requires_grad(true);
    if (!part.adam->m.defined()) continue;
    part.adam->m = part.adam->m.clone();
    part.adam->v = part.adam->v.clone();
  }
  return n;
}

void EmbeddingNetwork::normalise(const float* from, float* to, int n) const {
  for (int i = 0; i < n; ++i) {
    const auto f = static_cast<std::size_t>(i);
    to[i] = std::clamp((from[i] - input_.mean[f]) / input_.scale[f], -kLargestInput, kLargestInput);
  }
}

at::Tensor EmbeddingNetwork::embed(std::span<const Sequences* const> pairs) const {
  for (const Sequences* s : pairs)
    TORCH_CHECK(s->count == 0 || s->features == features_, "sequences of ", s->features, " features, not ",
                features_);
  return options_.kind == EncoderKind::Gru ? embed_gru(pairs) : embed_set(pairs);
}

/// Sequences of one length are one batch: padding never enters the recurrence, in neither direction.
at::Tensor EmbeddingNetwork::embed_gru(std::span<const Sequences* const> pairs) const {
  struct One {
    std::size_t pair;
    int sequence;
  };
  std::map<int, std::vector<One>> by_length;
  for (std::size_t p = 0; p < pairs.size(); ++p)
    for (int n = 0; n < pairs[p]->count; ++n)
      if (const int length = pairs[p]->lengths[static_cast<std::size_t>(n)]; length > 0)
        by_length[length].push_back({p, n});
  at::Tensor mean = at::zeros({static_cast<std::int64_t>(pairs.size()), gru_spec_.outputs()});
  at::Tensor known = at::zeros({static_cast<std::int64_t>(pairs.size()), 1});
  for (const auto& [length, members] : by_length) {
    const auto count = static_cast<std::int64_t>(members.size());
    at::Tensor x = at::empty({length, count, features_});
    at::Tensor weight = at::zeros({static_cast<std::int64_t>(pairs.size()), count});
    float* to = x.data_ptr<float>();
    for (std::size_t m = 0; m < members.size(); ++m) {
      const Sequences& s = *pairs[members[m].pair];
      for (int t = 0; t < length; ++t)
        normalise(s.x.data() + std::int64_t{t * s.count + members[m].sequence} * features_,
                  to + (t * count + static_cast<std::int64_t>(m)) * features_, features_);
      const auto p = static_cast<std::int64_t>(members[m].pair);
      const auto all = std::count_if(s.lengths.begin(), s.lengths.end(), [](int l) { return l > 0; });
      weight[p][static_cast<std::int64_t>(m)] = 1.0F / static_cast<float>(all);
      known[p][0] = 1;
    }
    mean = mean + at::mm(weight, gru_last_output(gru_spec_, gru_.parameters, x));  // O_T = 1/M sum_m H^m
  }
  return mlp(fc_, mean.contiguous()) * known;
}

at::Tensor EmbeddingNetwork::embed(const Sequences& pair, Kept& kept) const {
  const at::NoGradGuard no_gradients;
  const Sequences* one = &pair;
  if (options_.kind != EncoderKind::Gru || pair.ids.size() != static_cast<std::size_t>(pair.count) ||
      pair.count == 0)
    return embed({&one, 1});
  TORCH_CHECK(pair.features == features_, "sequences of ", pair.features, " features, not ", features_);
  Kept now;
  std::map<int, std::vector<int>> fresh;  // by length: those of one length are one batch
  for (int n = 0; n < pair.count; ++n) {
    const auto i = static_cast<std::size_t>(n);
    if (auto found = kept.extract(pair.ids[i]); !found.empty()) {
      now.insert(std::move(found));
    } else {
      fresh[pair.lengths[i]].push_back(n);
    }
  }
  for (const auto& [length, members] : fresh) {
    const auto count = static_cast<std::int64_t>(members.size());
    at::Tensor x = at::empty({length, count, features_});
    for (std::size_t m = 0; m < members.size(); ++m)
      for (int t = 0; t < length; ++t)
        normalise(pair.x.data() + std::int64_t{t * pair.count + members[m]} * features_,
                  x.data_ptr<float>() + (t * count + static_cast<std::int64_t>(m)) * features_, features_);
    const at::Tensor h = gru_last_output(gru_spec_, gru_.parameters, x);
    for (std::size_t m = 0; m < members.size(); ++m) {
      const float* row = h.data_ptr<float>() + static_cast<std::int64_t>(m) * h.size(1);
      now.emplace(pair.ids[static_cast<std::size_t>(members[m])], std::vector<float>(row, row + h.size(1)));
    }
  }
  at::Tensor mean = at::zeros({1, gru_spec_.outputs()});
  for (const std::uint64_t id : pair.ids) {
    const std::vector<float>& h = now.at(id);
    for (std::size_t d = 0; d < h.size(); ++d)
      mean.data_ptr<float>()[d] += h[d] / static_cast<float>(pair.count);
  }
  kept = std::move(now);
  return mlp(fc_, mean);
}

/// All steps of all pairs are the rows of one batch.
at::Tensor EmbeddingNetwork::embed_set(std::span<const Sequences* const> pairs) const {
  const int width = features_ + state_;
  std::vector<std::int64_t> rows_of(pairs.size(), 0);
  std::vector<float> rows;
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    const Sequences& s = *pairs[p];
    const auto at = [&](int t, int n) { return s.x.data() + std::int64_t{t * s.count + n} * features_; };
    for (int n = 0; n < s.count; ++n) {
      // The last step has no next state; a sequence of one step stands for itself.
      const int length = s.lengths[static_cast<std::size_t>(n)];
      const int last = state_ > 0 && length > 1 ? length - 1 : length;
      for (int t = 0; t < last; ++t) {
        rows.resize(rows.size() + static_cast<std::size_t>(width));
        float* row = rows.data() + rows.size() - width;
        normalise(at(t, n), row, features_);
        if (state_ > 0) normalise(at(std::min(t + 1, length - 1), n), row + features_, state_);
        ++rows_of[p];
      }
    }
  }
  const auto count = static_cast<std::int64_t>(pairs.size());
  if (rows.empty()) return at::zeros({count, options_.embedding});
  const std::int64_t total = static_cast<std::int64_t>(rows.size()) / width;
  at::Tensor x = at::empty({total, width});
  std::copy(rows.begin(), rows.end(), x.data_ptr<float>());
  const at::Tensor h = mlp(step_, x);  // [rows, hidden]
  const at::Tensor score =
      10 * at::tanh(mlp(attention_, h) / 10);  // bounded: its exponential cannot overflow
  std::vector<at::Tensor> pooled;
  at::Tensor known = at::ones({count, 1});
  std::int64_t first = 0;
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    if (rows_of[p] == 0) {
      pooled.push_back(at::zeros({2L * options_.hidden}));
      known[static_cast<std::int64_t>(p)][0] = 0;
      continue;
    }
    const at::Tensor mine = h.narrow(0, first, rows_of[p]);
    const at::Tensor share = at::softmax(score.narrow(0, first, rows_of[p]), 0);
    pooled.push_back(at::cat({mine.mean(0), (mine * share).sum(0)}));
    first += rows_of[p];
  }
  return mlp(fc_, at::relu(at::stack(pooled)).contiguous()) * known;
}

}  // namespace flash
