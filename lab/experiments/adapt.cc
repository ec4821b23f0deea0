#include "lab/experiments/adapt.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "agents/agent.h"
#include "bench/program.h"
#include "core/json.h"
#include "core/tensor_file.h"
#include "lab/experiments/adapt_summary.h"
#include "lab/experiments/experiment.h"
#include "lab/pretrain/adaptation.h"
#include "lab/pretrain/flash_agent.h"
#include "lab/pretrain/flash_recipe.h"
#include "lab/pretrain/imitation.h"
#include "lab/pretrain/scoring.h"
#include "lab/sim/oracle.h"
#include "lab/sim/pool.h"
#include "policy/action_space.h"

namespace flash::lab {
namespace {

using nlohmann::ordered_json;

constexpr std::uint64_t kUnseen = 0xada97ULL, kKnown = 0x6b6eULL;
constexpr std::size_t kLast = 10;  // episodes that say what the converged agent is like

std::unique_ptr<Agent> new_agent(Task task, int state, std::uint64_t seed) {
  AgentOptions a;
  a.seed = seed;
  auto agent = Agent::create({task, state, action_dim(task)}, a);
  return agent ? std::move(*agent) : nullptr;
}

class Adapt {
 public:
  explicit Adapt(const AdaptOptions& o)
      : o_(o), judged_{o.evaluation, o.threads, o.seed}, start_(std::chrono::steady_clock::now()) {
    if (o_.models.empty()) o_.models = bench::default_models();
  }

  Result<ordered_json> run() {
    PoolOptions p;
    p.task = o_.task;
    p.kind = o_.pool;
    p.pairs = o_.pairs;
    p.seed = o_.seed;
    FLASH_TRY(known_, make_pool(p));
    p.pairs = o_.sources;
    p.seed = o_.seed ^ kKnown;
    FLASH_TRY(const Pool sources, make_pool(p));
    p.pairs = o_.unseen;
    p.seed = o_.seed ^ kUnseen;
    p.apps = o_.apps, p.envs = o_.envs, p.traces = o_.traces;
    FLASH_TRY(const Pool unseen, make_pool(p));
    warn_of_copies(unseen);
    std::vector<const Pair*> pairs;
    for (const Pair& pair : unseen.pairs) pairs.push_back(&pair);
    // A model that cannot be used is said before the long work begins.
    FLASH_TRY(const SharedPolicy shared, policy("shared", Conditioning::None));
    FLASH_TRY(const SharedPolicy imitation, policy("imitation", Conditioning::Embedding));
    FLASH_TRY(const SharedPolicy true_params, policy("true_params", Conditioning::Privileged));
    FLASH_TRY(const TaskModel flash, flash_model());
    say("baselines");
    const Scoring scoring(unseen, {o_.evaluation, o_.seed + 1, o_.threads});
    for (const Scored& s : scoring.baselines()) add(s, s.name == "rule");
    add(scoring.one_shot("shared", shared), true);
    add(scoring.one_shot("true_params", true_params), false);
    say("imitation, episode by episode");
    Way& w = record_.ways["imitation"];
    w.before = 1;
    w.curves = adapt_shared_policy(imitation, pairs, o_.budget, judged_, &w.lived);
    say("agents on known pairs");
    learn_sources(sources);
    say("agents on unseen pairs");
    FLASH_CHECK(adapt_agents(pairs, flash));
    record_.budget = o_.budget;
    record_.seed = o_.seed;
    ordered_json out = {{"tool", "flash-bench adapt"},
                        {"task", to_string(o_.task)},
                        {"pool", to_string(o_.pool)},
                        {"pairs", o_.pairs},
                        {"unseen", pairs.size()},
                        {"budget", o_.budget},
                        {"converged_episodes", o_.converged},
                        {"evaluation_episodes", o_.evaluation},
                        {"sources", o_.sources},
                        {"seed", o_.seed},
                        {"threads", o_.threads},
                        {"models", models_}};
    for (const auto& [key, path] :
         {std::pair{"apps", o_.apps}, std::pair{"envs", o_.envs}, std::pair{"traces", o_.traces}})
      if (!path.empty()) out[key] = path;
    out.update(summarise(record_));
    out["seconds"] = seconds();
    return out;
  }

 private:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  void say(const std::string& what) const {
    if (isatty(STDERR_FILENO)) std::fprintf(stderr, "adapt: %5.0f s  %s\n", seconds(), what.c_str());
  }

  void add(const Scored& s, bool runnable) {
    Way& w = record_.ways[s.name];
    w.runnable = runnable;
    for (double r : s.reward) w.curves.push_back({r});
  }

  std::string file(const std::string& name) const {
    const std::string stem = o_.models + "/" + std::string(to_string(o_.task));
    return stem + (name == "imitation" ? "" : "." + name) + ".model";
  }

  Result<SharedPolicy> policy(const std::string& name, Conditioning conditioning) {
    const std::string path = file(name);
    if (std::filesystem::exists(path)) {
      FLASH_TRY(const TensorFile file, read_policy(path, o_.task));
      auto restored = SharedPolicy::restore(file);
      if (!restored) return Error(std::errc::invalid_argument, path + ": " + restored.error().message());
      const SharedPolicyOptions& p = restored->options();
      if (p.task != o_.task || p.conditioning != conditioning || p.state_dim != state_dim(o_.task) ||
          p.outputs != action_dim(o_.task) ||
          (conditioning == Conditioning::Privileged && p.given != kTrueParameters))
        return Error(std::errc::invalid_argument,
                     path + ": a policy of another task or conditioning than " + name);
      models_[name] = path;
      return restored;
    }
    say("pretraining " + name);
    ImitationOptions i;
    i.conditioning = conditioning;
    i.rounds = o_.rounds;
    i.updates = o_.updates;
    i.seed = o_.seed;
    i.threads = o_.threads;
    models_[name] = "pretrained here: " + std::to_string(o_.pairs) + " pairs, " + std::to_string(o_.rounds) +
                    " rounds of " + std::to_string(o_.updates) + " updates";
    return imitate_oracle(known_, i, nullptr);
  }

  Result<TaskModel> flash_model() {
    const std::string path = file("flash");
    if (std::filesystem::exists(path)) {
      FLASH_TRY(const TensorFile from, read_tensor_file(path));
      auto model = to_task_model(from, std::string(to_string(o_.task)));
      if (!model) return Error(std::errc::invalid_argument, path + ": " + model.error().message());
      if (auto agent = FlashAgent::create(*model, o_.task, {}); !agent)
        return Error(std::errc::invalid_argument, path + ": " + agent.error().message());
      models_["flash"] = path;
      return model;
    }
    say("pretraining flash");
    FlashPretraining f;
    f.options.episodes = o_.episodes;
    f.options.seed = o_.seed;
    f.options.threads = o_.threads;
    models_["flash"] = "pretrained here: " + std::to_string(o_.pairs) + " pairs, " +
                       std::to_string(o_.episodes) + " episodes each";
    return pretrain_flash(known_, f);
  }

  /// Transfer learning begins with agents that converged on known pairs.
  void learn_sources(const Pool& sources) {
    tl_.resize(sources.pairs.size());
    tl_plus_.resize(sources.pairs.size());
    WorkerThreads workers(o_.threads);
    workers.run(2 * sources.pairs.size(), [&](std::size_t from, std::size_t to) {
      for (std::size_t k = from; k < to; ++k) {
        const std::size_t i = k / 2;
        const Pair& pair = sources.pairs[i];
        const std::uint64_t seed = Random(o_.seed + 4).fork(i).next();
        AugmentedState augmented(o_.task);
        AugmentedState* extra = k % 2 == 0 ? nullptr : &augmented;
        auto agent = new_agent(o_.task, extra ? AugmentedState::size(o_.task) : state_dim(o_.task), seed);
        for (int e = 0; e < o_.converged; ++e) live_one_episode(*agent, pair, e, seed, extra);
        (extra ? tl_plus_ : tl_)[i] = agent->checkpoint();
      }
    });
  }

  Result<void> adapt_agents(std::span<const Pair* const> pairs, const TaskModel& flash) {
    // Made before the threads begin: a map does not like to grow under them.
    Way &scratch = record_.ways["scratch"], &tl = record_.ways["tl"], &tl_plus = record_.ways["tl_plus"],
        &recipe = record_.ways["flash"], &converged = record_.ways["converged"];
    for (Way* w : {&scratch, &tl, &tl_plus, &recipe, &converged}) {
      w->curves.resize(pairs.size());
      w->lived.resize(pairs.size());
    }
    recipe.before = 1;
    converged.runnable = false;
    EpisodeOptions e;
    e.seed = o_.seed + 2;
    e.threads = o_.threads;
    e.offset_s = 15000;
    const std::vector<Recorded> first = fallback_episodes(pairs, e);
    std::atomic<int> done{0};
    std::vector<std::optional<Error>> wrong(pairs.size());
    WorkerThreads workers(o_.threads);
    workers.run(pairs.size(), [&](std::size_t from, std::size_t to) {
      for (std::size_t i = from; i < to; ++i) {
        const Pair& pair = *pairs[i];
        const std::uint64_t seed = Random(o_.seed + 5).fork(i).next();
        from_scratch(pair, seed, scratch.curves[i], scratch.lived[i], converged.curves[i],
                     converged.lived[i]);
        auto transferred = new_agent(o_.task, state_dim(o_.task), seed + 1);
        static_cast<void>(transferred->restore(tl_[i % tl_.size()]));
        tl.curves[i] = adapt_agent(*transferred, pair, o_.budget, seed + 1, judged_, &tl.lived[i]);
        auto augmented_agent = new_agent(o_.task, AugmentedState::size(o_.task), seed + 2);
        static_cast<void>(augmented_agent->restore(tl_plus_[i % tl_plus_.size()]));
        AugmentedState augmented(o_.task);
        tl_plus.curves[i] =
            adapt_agent(*augmented_agent, pair, o_.budget, seed + 1, judged_, &tl_plus.lived[i], &augmented);
        if (auto adapted = adapt_by_recipe(flash, pair, first[i], seed, recipe.lived[i]); adapted)
          recipe.curves[i] = *std::move(adapted);
        else
          wrong[i] = std::move(adapted).error();
        say("pair " + std::to_string(++done) + " of " + std::to_string(pairs.size()));
      }
    });
    for (auto& error : wrong)
      if (error) return std::move(*error);
    return {};
  }

  void from_scratch(const Pair& pair, std::uint64_t seed, AdaptationCurve& curve,
                    std::vector<LivedEpisode>& lived, AdaptationCurve& last,
                    std::vector<LivedEpisode>& last_lived) const {
    auto agent = new_agent(o_.task, state_dim(o_.task), seed);
    curve = adapt_agent(*agent, pair, o_.budget, seed, judged_, &lived);
    for (int e = o_.budget; e < o_.converged; ++e)
      last_lived.push_back(live_one_episode(*agent, pair, e, seed));
    if (last_lived.size() > kLast) last_lived.erase(last_lived.begin(), last_lived.end() - kLast);
    last = {reward_of(agent->snapshot(), pair, judged_)};
  }

  Result<AdaptationCurve> adapt_by_recipe(const TaskModel& model, const Pair& pair, const Recorded& first,
                                          std::uint64_t seed, std::vector<LivedEpisode>& lived) const {
    FlashAgentOptions f;
    f.seed = seed + 3;
    FLASH_TRY(FlashAgent agent, FlashAgent::create(model, o_.task, f));
    return adapt_flash(agent, pair, first, o_.budget, seed + 1, judged_, &lived);
  }

  AdaptOptions o_;
  AdaptationOptions judged_;
  std::chrono::steady_clock::time_point start_;
  Pool known_;
  AdaptRecord record_;
  ordered_json models_;
  std::vector<TensorFile> tl_, tl_plus_;
};

}  // namespace

void AdaptOptions::make_quick() {
  pairs = 60;
  unseen = 20;
  budget = 60;  // with less, transfer learning's slowest pairs count as the budget's end, and little
  converged = 100;
  rounds = 3;
  updates = 300;
  episodes = 64;
  sources = 2;
}

Result<ordered_json> measure_adapt(const AdaptOptions& options) {
  return Adapt(options).run();
}

}  // namespace flash::lab
