#include "lab/experiments/experiment.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <thread>
#include <utility>

#include "bench/program.h"
#include "core/json.h"
#include "core/printable.h"
#include "lab/pretrain/adaptation.h"
#include "lab/pretrain/imitation.h"
#include "lab/pretrain/model_of_policy.h"
#include "meta/policy_model.h"
#include "policy/action_space.h"
#include "policy/observation_space.h"

namespace flash::lab {

using nlohmann::ordered_json;

namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Result<Pool> experiment_pool(const ExperimentOptions& o, std::size_t pairs, Purpose purpose) {
  PoolOptions p;
  p.task = o.task;
  p.pairs = pairs;
  p.kind = o.kind;
  p.seed = o.seed ^ static_cast<std::uint64_t>(purpose);
  if (purpose == Purpose::Judged) {
    p.apps = o.apps;
    p.envs = o.envs;
    p.traces = o.traces;
  }
  FLASH_TRY(Pool pool, make_pool(p));
  warn_of_copies(pool);
  return pool;
}

void warn_of_copies(const Pool& pool) {
  const std::string words = words_of_copies(pool);
  if (!words.empty()) print_line(stderr, "flash-bench: " + words);
}

SharedPolicy Pretrained::policy() const {
  return std::move(*SharedPolicy::restore(file));  // tried when it was read or made
}

std::shared_ptr<const PretrainedModel> Pretrained::model() const {
  return *model_of_policy(whole, task, {});  // tried when it was read or made
}

Result<Pretrained> pretrain_here(const ExperimentOptions& o, std::size_t pairs, int rounds, int updates,
                                 Conditioning conditioning) {
  FLASH_TRY(const Pool pool, experiment_pool(o, pairs, Purpose::Pretraining));
  ImitationOptions i;
  i.conditioning = conditioning;
  i.rounds = rounds;
  i.updates = updates;
  i.seed = o.seed;
  i.threads = o.threads;
  const double begun = now_s();
  const bool tell = isatty(STDERR_FILENO) != 0;
  FLASH_TRY(const SharedPolicy policy, imitate_oracle(pool, i, [&](const ImitationProgress& p) {
              if (tell) std::fprintf(stderr, "\rpretraining: round %d of %d ", p.round, p.rounds);
            }));
  if (tell) std::fputs("\n", stderr);
  Pretrained out;
  out.file = out.whole = policy.checkpoint();
  out.task = o.task;
  out.seconds = now_s() - begun;
  out.pairs = pairs;
  out.origin = "pretrained here on " + std::to_string(pairs) + " pairs, " + std::to_string(rounds) + " x " +
               std::to_string(updates) + " updates";
  return out;
}

Result<TensorFile> read_policy(const std::string& path, Task task, TensorFile* whole) {
  FLASH_TRY(TensorFile file, read_tensor_file(path));
  if (whole != nullptr) *whole = file;
  if (file.kind == "shared-policy") return file;
  auto model = to_policy_model(file, std::string(to_string(task)));
  if (!model) return Error(std::errc::invalid_argument, path + ": " + model.error().message());
  return std::move(model->policy);
}

Result<Pretrained> pretrained(const ExperimentOptions& o, Conditioning conditioning) {
  const std::string path = (o.models.empty() ? bench::default_models() : o.models) + "/" +
                           std::string(to_string(o.task)) +
                           (conditioning == Conditioning::None ? ".shared.model" : ".model");
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    return o.quick ? pretrain_here(o, 24, 2, 120, conditioning) : pretrain_here(o, 120, 5, 400, conditioning);
  Pretrained out;
  out.task = o.task;
  FLASH_TRY(out.file, read_policy(path, o.task, &out.whole));
  FLASH_TRY(const SharedPolicy policy, SharedPolicy::restore(out.file));
  if (policy.options().task != o.task || policy.options().conditioning != conditioning ||
      policy.options().state_dim != state_dim(o.task) || policy.options().outputs != action_dim(o.task))
    return Error(std::errc::invalid_argument, path + ": a model of another task, or not " +
                                                  (conditioning == Conditioning::None ? "without" : "with") +
                                                  " an embedding");
  if (auto begun = model_of_policy(out.whole, o.task, {}); !begun)
    return Error(std::errc::invalid_argument, path + ": " + begun.error().message());
  out.origin = path;
  return out;
}

std::unique_ptr<Agent> new_agent(Task task, std::uint64_t seed) {
  AgentOptions a;
  a.seed = seed;
  return std::move(*Agent::create(agent_spaces(task), a));
}

void in_parallel(std::size_t n, int threads, const std::string& what,
                 const std::function<void(std::size_t)>& f) {
  const bool tell = isatty(STDERR_FILENO) != 0;
  std::atomic<std::size_t> next{0}, done{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < n; i = next++) {
      f(i);
      if (const std::size_t d = ++done; tell) std::fprintf(stderr, "\r%s: %zu of %zu ", what.c_str(), d, n);
    }
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(work);
  work();
  for (std::thread& t : others) t.join();
  if (tell) std::fputs("\n", stderr);
}

ordered_json mean_of(std::span<const double> values) {
  return interval_of(values);
}

ordered_json difference_of(std::span<const double> one, std::span<const double> other) {
  std::vector<double> d;
  for (std::size_t i = 0; i < one.size(); ++i) d.push_back(one[i] - other[i]);
  return interval_of(d);
}

std::vector<EpisodeKey> episode_keys(Task task) {
  std::vector<EpisodeKey> keys = {
      {"reward", [](const EpisodeStats& e) { return e.reward; }},
      {"violations_pct", [](const EpisodeStats& e) { return 100 * e.violations; }},
      {"cpu_utilization", [](const EpisodeStats& e) { return e.cpu; }}};
  if (action_form(task) == ActionForm::Continuous)
    keys.push_back({"memory_utilization", [](const EpisodeStats& e) { return e.memory; }});
  else
    keys.push_back({"frequency", [](const EpisodeStats& e) { return e.place; }});
  return keys;
}

double mean_over(const Lived& lived, std::size_t from, std::size_t to, const EpisodeKey& key) {
  double sum = 0;
  for (std::size_t e = from; e < to; ++e) sum += key.of(lived[e]);
  return sum / static_cast<double>(to - from);
}

std::vector<double> per_pair(const std::vector<Lived>& lives, std::size_t from, std::size_t to,
                             const EpisodeKey& key) {
  std::vector<double> out;
  for (const Lived& l : lives) out.push_back(mean_over(l, from, to, key));
  return out;
}

std::span<const char* const> update_names() {
  static constexpr const char* kNames[kUpdateScenarios] = {
      "file_size", "table_size", "operations", "image_dimension", "text_size", "matrix_dimension", "load"};
  return kNames;
}

bool concerns(const Application& application, int scenario) {
  const Application after = updated(application, scenario);
  const auto same = [](const SegmentUse& a, const SegmentUse& b) { return a.payload == b.payload; };
  return after.trace != application.trace ||
         !std::equal(after.segments.begin(), after.segments.end(), application.segments.begin(), same);
}

EpisodeStats mean_lived(const Pair& pair, int episodes, std::uint64_t seed,
                        const std::function<void(World& world)>& step) {
  constexpr int kWarmUp = 60;
  constexpr double kOffset = 30000, kApart = 1000;  // s; as lab/pretrain/scoring.cc
  EpisodeSum sum;
  World world;
  for (int e = 0; e < episodes; ++e) {
    world.reset(pair, kOffset + kApart * e, episode_random(pair, seed, e).fork(0).state(), true);
    for (int t = 0; t < kWarmUp + kEpisodeSteps; ++t) {
      step(world);
      if (t >= kWarmUp) sum.add(step_stats(world.core()));
    }
  }
  return sum.take();
}

EpisodeStats tried(const PolicySnapshot& snapshot, const Pair& pair, int episodes, std::uint64_t seed) {
  const CompiledPolicy policy(snapshot);
  EvaluatorScratch scratch;
  policy.actor.prepare(scratch);
  return mean_lived(pair, episodes, seed, [&](World& w) {
    std::array<float, kMostKnobs> action{};
    greedy_action(policy, scratch, w, action);
    w.step({action.data(), w.executed().size()});
  });
}

std::vector<PolicySnapshot> one_shot_snapshots(const SharedPolicy& policy, std::span<const Pair* const> pairs,
                                               std::uint64_t seed, int threads) {
  EpisodeOptions first;
  first.seed = seed;
  first.threads = threads;
  first.offset_s = 15000;
  const std::vector<Recorded> episodes = fallback_episodes(pairs, first);
  std::vector<PolicySnapshot> out;
  for (const Recorded& r : episodes) {
    const Recorded* one = &r;
    const Sequences s = sequences_of({&one, 1}, step_features(policy.options().task));
    const Sequences* sequences = &s;
    out.push_back(policy.snapshot(policy.embed({&sequences, 1})));
  }
  return out;
}

ordered_json heading(const ExperimentOptions& o, const char* name, std::size_t pairs) {
  return {{"experiment", name}, {"task", to_string(o.task)}, {"seed", o.seed},  {"pool", to_string(o.kind)},
          {"pairs", pairs},     {"threads", o.threads},      {"quick", o.quick}};
}

}  // namespace flash::lab
