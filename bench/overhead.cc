#include "bench/overhead.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <time.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agents/agent.h"
#include "core/network_kernels.h"
#include "core/policy_snapshot.h"
#include "core/random.h"
#include "meta/embedding_network.h"

namespace flash::bench {
namespace {

using nlohmann::json;

// As the resource-limits task: FLASH Table 7; trajectories as AWARE's and FLASH's episodes.
constexpr int kState = 7, kActions = 2, kHidden = 40;
constexpr int kTrajectories = 20, kSteps = 100;
constexpr int kRounds = 9;  // of what takes milliseconds
constexpr int kFeatures = kState + kActions + 1;

/// CPU time: what else runs on the host is not our cost.
double now_us() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

/// Several things that are compared: each in turn, round by round, so that a host that grows busy is so for
/// all.
struct Contest {
  struct Entry {
    std::string name;
    std::function<void()> work;
    std::vector<double> us;
  };
  std::vector<Entry> entries;

  json medians(int rounds, int inner, double unit) {
    for (int r = -2; r < rounds; ++r)
      for (Entry& e : entries) {
        const double begun = now_us();
        for (int i = 0; i < inner; ++i) e.work();
        if (r >= 0) e.us.push_back((now_us() - begun) / inner);
      }
    json out;
    for (Entry& e : entries) {
      std::sort(e.us.begin(), e.us.end());
      out[e.name] = e.us[e.us.size() / 2] / unit;
    }
    return out;
  }
};

at::Tensor uniform(Random& random, at::IntArrayRef sizes, double bound) {
  at::Tensor t = at::empty(sizes);
  for (std::int64_t i = 0; i < t.numel(); ++i)
    t.data_ptr<float>()[i] = static_cast<float>(random.uniform(-bound, bound));
  return t;
}

// --- a decision -----------------------------------------------------------------------------------------

std::vector<DenseLayer> actor(int embedding, Random& random) {
  std::vector<DenseLayer> layers;
  int inputs = kState + embedding;
  for (int outputs : {kHidden, kHidden, kActions}) {
    DenseLayer layer{inputs, outputs, {}, {}, Activation::Tanh, false};
    for (int i = 0; i < inputs * outputs; ++i)
      layer.weights.push_back(static_cast<float>(random.uniform(-0.3, 0.3)));
    layer.bias.assign(static_cast<std::size_t>(outputs), 0.1F);
    layers.push_back(std::move(layer));
    inputs = outputs;
  }
  return layers;
}

struct Decision {
  CompiledNetwork network;
  EvaluatorScratch scratch;
  std::vector<float> state = std::vector<float>(kState, 0.3F);

  Decision(int embedding, Random& random)
      : network(actor(embedding, random), std::vector<float>(kState, 0), std::vector<float>(kState, 1),
                std::vector<float>(static_cast<std::size_t>(embedding), 0.2F)) {
    network.prepare(scratch);
  }
  void operator()() { state[0] = network.evaluate(state, scratch)[0]; }
};

/// The same in plain tensor operations, the embedding appended to the state (FLASH 3.2).
struct TorchDecision {
  std::vector<at::Tensor> w, b;
  at::Tensor state = at::full({1, kState}, 0.3), embedding;

  TorchDecision(int dim, Random& random) : embedding(at::full({1, dim}, 0.2)) {
    for (const DenseLayer& layer : actor(dim, random)) {
      at::Tensor t = at::empty({layer.outputs, layer.inputs});
      std::copy(layer.weights.begin(), layer.weights.end(), t.data_ptr<float>());
      w.push_back(t);
      b.push_back(at::full({layer.outputs}, 0.1));
    }
  }
  void operator()() {
    const c10::AutoGradMode inference(false);
    at::Tensor y = embedding.size(1) > 0 ? at::cat({state, embedding}, 1) : state;
    for (std::size_t l = 0; l < w.size(); ++l) y = at::tanh(at::linear(y, w[l], b[l]));
    state.data_ptr<float>()[0] = y.data_ptr<float>()[0];
  }
};

json decisions() {
  Random random(1);
  Decision none(0, random), with32(32, random), with64(64, random);
  TorchDecision torch_none(0, random), torch32(32, random);
  Contest contest{{{"without", std::ref(none), {}},
                   {"with_32", std::ref(with32), {}},
                   {"with_64", std::ref(with64), {}}}};
  json out = contest.medians(301, 2000, 1);
  Contest plain{
      {{"libtorch_without", std::ref(torch_none), {}}, {"libtorch_with_32", std::ref(torch32), {}}}};
  out.update(plain.medians(101, 50, 1));
  const auto added = [&](const char* with, const char* without) {
    return 100 * (out[with].get<double>() / out[without].get<double>() - 1);
  };
  out["added_pct"] = {{"32", added("with_32", "without")},
                      {"64", added("with_64", "without")},
                      {"libtorch_32", added("libtorch_with_32", "libtorch_without")}};
  return out;
}

// --- the embedding ----------------------------------------------------------------------------------------

Sequences trajectories(Random& random, int count) {
  Sequences s;
  s.steps = kSteps;
  s.count = count;
  s.features = kFeatures;
  s.lengths.assign(static_cast<std::size_t>(count), kSteps);
  for (int i = 0; i < kSteps * count * kFeatures; ++i)
    s.x.push_back(static_cast<float>(random.uniform(-1, 1)));
  for (int n = 0; n < count; ++n) s.ids.push_back(static_cast<std::uint64_t>(n));
  return s;
}

/// FLASH's meta learner in torch's own GRU and linear layers, as its prototype has it.
struct TorchMeta {
  std::vector<at::Tensor> gru, fc;
  std::vector<at::Tensor> m, v;
  std::int64_t steps = 0;

  explicit TorchMeta(Random& random) {
    const EncoderOptions o;
    const int h = o.hidden;
    const double bound = 1 / std::sqrt(h);
    for (int l = 0; l < o.layers; ++l)
      for (int direction = 0; direction < 2; ++direction)
        for (const auto& sizes : std::vector<std::vector<std::int64_t>>{
                 {3L * h, l == 0 ? kFeatures : 2L * h}, {3L * h, h}, {3L * h}, {3L * h}})
          gru.push_back(uniform(random, sizes, bound));
    for (const auto& sizes :
         std::vector<std::vector<std::int64_t>>{{o.fc, 2L * h}, {o.fc}, {o.embedding, o.fc}, {o.embedding}})
      fc.push_back(uniform(random, sizes, bound));
    for (auto* list : {&gru, &fc})
      for (at::Tensor& p : *list) {
        p.set_requires_grad(true);
        m.push_back(at::zeros_like(p.detach()));
        v.push_back(at::zeros_like(p.detach()));
      }
  }
  at::Tensor embed(const Sequences& s) const {
    at::Tensor x = at::empty({s.steps, s.count, s.features});
    std::copy(s.x.begin(), s.x.end(), x.data_ptr<float>());
    const EncoderOptions o;
    const at::Tensor h0 = at::zeros({2L * o.layers, s.count, o.hidden});
    const at::Tensor y = std::get<0>(at::gru(x, h0, gru, true, o.layers, 0, false, true, false));
    const at::Tensor mean = y.select(0, s.steps - 1).mean(0, true);
    return at::linear(at::relu(at::linear(mean, fc[0], fc[1])), fc[2], fc[3]);
  }
  void update(const Sequences& s) {
    std::vector<at::Tensor> parameters = gru;
    parameters.insert(parameters.end(), fc.begin(), fc.end());
    const auto g = torch::autograd::grad({embed(s).square().sum()}, parameters);
    const c10::AutoGradMode off(false);
    ++steps;
    const auto t = static_cast<double>(steps);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      m[i].mul_(0.9).add_(g[i], 0.1);
      v[i].mul_(0.999).addcmul_(g[i], g[i], 0.001);
      const at::Tensor denominator = (v[i].sqrt() / std::sqrt(1 - std::pow(0.999, t))).add_(1e-8);
      parameters[i].addcdiv_(m[i], denominator, -3e-4 / (1 - std::pow(0.9, t)));
    }
  }
};

Result<json> embeddings(json& updates) {
  Random random(2);
  EncoderOptions paper, small, set;
  small.hidden = 64;
  small.layers = 1;
  small.fc = 64;
  set.kind = EncoderKind::Set;
  set.hidden = 64;
  set.fc = 64;
  FLASH_TRY(EmbeddingNetwork gru, EmbeddingNetwork::create(paper, kFeatures, kState, random));
  FLASH_TRY(EmbeddingNetwork gru_small, EmbeddingNetwork::create(small, kFeatures, kState, random));
  FLASH_TRY(EmbeddingNetwork sets, EmbeddingNetwork::create(set, kFeatures, kState, random));
  TorchMeta plain(random);
  const Sequences all = trajectories(random, kTrajectories);
  double sink = 0;
  // One trajectory is new, the nineteen others are known: what a running agent does after each episode.
  EmbeddingNetwork::Kept kept, kept_small;
  Sequences fresh = all;
  std::uint64_t next = 1000;
  const auto one_new = [&](EmbeddingNetwork& network, EmbeddingNetwork::Kept& memory) {
    fresh.ids[0] = next++;
    sink += network.embed(fresh, memory).sum().item<double>();
  };
  const auto all_anew = [&](EmbeddingNetwork& network) {
    const c10::AutoGradMode inference(false);
    const Sequences* one = &all;
    sink += network.embed({&one, 1}).sum().item<double>();
  };
  const auto update = [&](EmbeddingNetwork& network) {
    const Sequences* one = &all;
    descend(network.parts(), network.embed({&one, 1}).square().sum());
  };
  Contest embedding{{{"one_new", [&] { one_new(gru, kept); }, {}},
                     {"one_new_small_gru", [&] { one_new(gru_small, kept_small); }, {}},
                     {"one_new_set", [&] { all_anew(sets); }, {}},
                     {"libtorch_one_new",
                      [&] {
                        const c10::AutoGradMode inference(false);
                        static const Sequences one = trajectories(random, 1);
                        sink += plain.embed(one).sum().item<double>();
                      },
                      {}},
                     {"all", [&] { all_anew(gru); }, {}},
                     {"libtorch_all",
                      [&] {
                        const c10::AutoGradMode inference(false);
                        sink += plain.embed(all).sum().item<double>();
                      },
                      {}}}};
  json out = embedding.medians(kRounds, 1, 1e3);
  Contest training{{{"gru", [&] { update(gru); }, {}},
                    {"small_gru", [&] { update(gru_small); }, {}},
                    {"set", [&] { update(sets); }, {}},
                    {"libtorch", [&] { plain.update(all); }, {}}}};
  updates = training.medians(kRounds, 1, 1e3);
  out["checksum"] = sink;  // so that nothing is optimised away
  return out;
}

}  // namespace

Result<json> measure_overhead() {
  std::string warning;
  json out = {{"kernel", network_kernels().front().name}, {"blas", prepare_libtorch(warning)}};
  if (!warning.empty()) out["warning"] = warning;
  out["shape"] = {{"state", kState},
                  {"actions", kActions},
                  {"trajectories", kTrajectories},
                  {"steps", kSteps},
                  {"gru", "2 x 256 bidirectional, FC 256, embedding 32"}};
  try {
    out["decision_us"] = decisions();
    json updates;
    FLASH_TRY(out["embedding_ms"], embeddings(updates));
    out["update_ms"] = updates;
  } catch (const std::exception& e) {
    return Error(std::errc::io_error, std::string("measuring: ") + e.what());
  }
  return out;
}

}  // namespace flash::bench
