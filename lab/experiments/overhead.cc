#include "lab/experiments/overhead.h"

#include <time.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "agents/agent.h"
#include "core/json.h"
#include "core/network_kernels.h"
#include "core/policy_snapshot.h"
#include "core/random.h"
#include "lab/experiments/plain_torch.h"
#include "lab/pretrain/flash.h"
#include "meta/gru_kernels.h"

namespace flash::lab {
namespace {

using nlohmann::json;

// As the resource-limits task: FLASH Table 7; trajectories as AWARE's and FLASH's episodes.
constexpr int kState = 7, kActions = 2, kHidden = 40;
constexpr int kTrajectories = 20, kSteps = 100;
constexpr int kRounds = 9, kQuickRounds = 3;  // of what takes milliseconds
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
    for (int r = -1; r < rounds; ++r)
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

json decisions() {
  Random random(1);
  Decision none(0, random), with32(32, random), with64(64, random);
  const std::vector<float> state(kState, 0.3F), embedding(32, 0.2F);
  plain_torch::Decision torch_none(actor(0, random), state, {}), torch32(actor(32, random), state, embedding);
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

/// Trajectories of random numbers, each earning a little more than the one before, so that the selection rule
/// (FLASH 3.2) takes the newest.
class Trajectories {
 public:
  Trajectory next() {
    Trajectory t(kSteps);
    earned_ += 1e-6;
    for (TrajectoryStep& s : t) {
      for (int i = 0; i < kState; ++i) s.state.push_back(number());
      for (int i = 0; i < kActions; ++i) s.action.push_back(number());
      s.reward = static_cast<float>(earned_);
    }
    return t;
  }
  std::vector<Trajectory> next(int count) {
    std::vector<Trajectory> all;
    for (int i = 0; i < count; ++i) all.push_back(next());
    return all;
  }
  /// What libtorch is given.
  Sequences sequences(int count) {
    Sequences s;
    s.steps = kSteps;
    s.count = count;
    s.features = kFeatures;
    s.lengths.assign(static_cast<std::size_t>(count), kSteps);
    for (int i = 0; i < kSteps * count * kFeatures; ++i) s.x.push_back(number());
    return s;
  }

 private:
  float number() { return static_cast<float>(random_.uniform(-1, 1)); }
  Random random_{2};
  double earned_ = 0;
};

/// A meta learner through its interface, as a base learner meets it.
class Meta {
 public:
  static Result<Meta> create(const EncoderOptions& encoder, bool training, Trajectories& from) {
    MetaOptions o;
    o.encoder = encoder;
    o.trajectories = kTrajectories;
    o.initial_trajectories = 0;
    FLASH_TRY(RlModel model, RlModel::create(o));
    if (auto ok = model.register_base_learner("resource-limits", kState, kActions); !ok)
      return std::move(ok).error();
    model.toggle_meta_model_update(training);
    if (auto ok = model.insert_traj_samples(from.next(kTrajectories)); !ok) return std::move(ok).error();
    return Meta(std::move(model), encoder.embedding, from);
  }
  /// One trajectory is new, the nineteen others are known: what a running agent does after each episode.
  void one_new() {
    const Trajectory fresh = from_->next();
    (void)model_.insert_traj_samples({&fresh, 1});
    (void)model_.get_embedding();
  }
  void all_new() {
    model_.switch_pair();
    (void)model_.insert_traj_samples(all_);
    (void)model_.get_embedding();
  }
  void update() {
    (void)model_.get_embedding();
    (void)model_.add_gradient(gradient_);
    (void)model_.end_episode();
  }

 private:
  Meta(RlModel model, int embedding, Trajectories& from)
      : model_(std::move(model)),
        gradient_(static_cast<std::size_t>(embedding), 0.01F),
        from_(&from),
        all_(from.next(kTrajectories)) {}
  RlModel model_;
  std::vector<float> gradient_;
  Trajectories* from_;
  std::vector<Trajectory> all_;
};

/// Floating point operations of an update of the paper's encoder, 10^9: forward, and twice as many back. Of
/// the last layer's reverse direction one step counts for nothing.
double update_gflop(const EncoderOptions& o) {
  const double h = o.hidden, gates = 3 * h;
  double per_step = 0;
  for (int layer = 0; layer < o.layers; ++layer)
    per_step += (layer + 1 < o.layers ? 2 : 1) * 2 * gates * ((layer > 0 ? 2 * h : kFeatures) + h);
  return 3 * per_step * kSteps * kTrajectories / 1e9;
}

/// What an update is work for, and what this core does at best.
json baseline(int rounds) {
  plain_torch::MatrixProduct product;
  Contest contest{{{"product", std::ref(product), {}}}};
  const double n = plain_torch::MatrixProduct::kSize, ms = contest.medians(rounds, 1, 1e3)["product"];
  return {{"update_gflop", update_gflop({})}, {"libtorch_gflop_per_s", 2 * n * n * n / ms / 1e6}};
}

Result<json> embeddings(json& updates, int rounds) {
  EncoderOptions paper, small, set;
  small.hidden = 64;
  small.layers = 1;
  small.fc = 64;
  set.kind = EncoderKind::Set;
  set.hidden = 64;
  set.fc = 64;
  Trajectories from;
  FLASH_TRY(Meta gru, Meta::create(paper, false, from));
  FLASH_TRY(Meta gru_small, Meta::create(small, false, from));
  FLASH_TRY(Meta sets, Meta::create(set, false, from));
  plain_torch::MetaLearner plain(paper, kFeatures, 2);
  const Sequences one = from.sequences(1), all = from.sequences(kTrajectories);
  Contest embedding{{{"one_new", [&] { gru.one_new(); }, {}},
                     {"one_new_small_gru", [&] { gru_small.one_new(); }, {}},
                     {"one_new_set", [&] { sets.one_new(); }, {}},
                     {"libtorch_one_new", [&] { plain.embed(one); }, {}},
                     {"all", [&] { gru.all_new(); }, {}},
                     {"libtorch_all", [&] { plain.embed(all); }, {}}}};
  json out = embedding.medians(rounds, 1, 1e3);
  FLASH_TRY(Meta training_gru, Meta::create(paper, true, from));
  FLASH_TRY(Meta training_small, Meta::create(small, true, from));
  FLASH_TRY(Meta training_set, Meta::create(set, true, from));
  Contest training{{{"gru", [&] { training_gru.update(); }, {}},
                    {"small_gru", [&] { training_small.update(); }, {}},
                    {"set", [&] { training_set.update(); }, {}},
                    {"libtorch", [&] { plain.update(all); }, {}}}};
  updates = training.medians(rounds, 1, 1e3);
  return out;
}

}  // namespace

Result<json> measure_overhead(bool quick) {
  std::string warning;
  json out = {{"kernel", network_kernels().front().name},
              {"gru_kernel", gru::best().name},
              {"blas", prepare_libtorch(warning)}};
  if (!warning.empty()) out["warning"] = warning;
  out["shape"] = {{"state", kState},
                  {"actions", kActions},
                  {"trajectories", kTrajectories},
                  {"steps", kSteps},
                  {"gru", "2 x 256 bidirectional, FC 256, embedding 32"}};
  try {
    out["decision_us"] = decisions();
    json updates;
    FLASH_TRY(out["embedding_ms"], embeddings(updates, quick ? kQuickRounds : kRounds));
    out["update_ms"] = updates;
    out["baseline"] = baseline(quick ? kQuickRounds : kRounds);
  } catch (const std::exception& e) {
    return Error(std::errc::io_error, std::string("measuring: ") + e.what());
  }
  return out;
}

}  // namespace flash::lab
