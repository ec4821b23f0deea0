// Purpose: what the experiments with simulated lives share: their options, pools, the pretrained policy,
// intervals, work on several threads.
// Ownership: values.
// Thread rule: in_parallel() as documented, all else on one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "agents/agent.h"
#include "core/interval.h"
#include "core/json.h"
#include "core/result.h"
#include "core/tensor_file.h"
#include "lab/pretrain/learning_run.h"
#include "lab/pretrain/scoring.h"
#include "lab/sim/pool.h"

namespace flash::lab {

struct ExperimentOptions {
  Task task = Task::ResourceLimits;
  std::size_t pairs = 0;  // that all are judged on; 0: the experiment's own default
  std::uint64_t seed = 1;
  int threads = 2;
  bool quick = false;              // a small form, for a look
  std::string apps, envs, traces;  // pools of others; empty: drawn by seed
  PoolKind kind = PoolKind::Drawn;
  // TASK.model (imitation) and TASK.shared.model (without embedding) in it, else small ones are pretrained
  // here; empty: default_models()
  std::string models;
};

/// Pools of different `purpose` share no application but by chance.
enum class Purpose : std::uint64_t { Judged = 0x1d9edULL, Known = 0x6b6eULL, Pretraining = 0x9e7aULL };
/// Judged: apps and envs of the options; the others are always drawn. EINVAL as make_pool().
Result<Pool> experiment_pool(const ExperimentOptions& options, std::size_t pairs, Purpose purpose);

/// To standard error, where pairs of the pool are copies.
void warn_of_copies(const Pool& pool);

struct Pretrained {
  TensorFile file;   // SharedPolicy::restore(); one per thread
  TensorFile whole;  // of which `file` is a part, or the same
  Task task = Task::ResourceLimits;
  std::string origin;     // the model's path, or what was pretrained
  double seconds = 0;     // of pretraining here; 0: read
  std::size_t pairs = 0;  // pretrained on here
  SharedPolicy policy() const;
  /// What a life begins with; one per life.
  std::shared_ptr<const PretrainedModel> model() const;
};
/// The shared policy of a file of flash-pretrain: alone, or with what flash-learner needs beside it. EINVAL
/// names the file.
Result<TensorFile> read_policy(const std::string& path, Task task, TensorFile* whole = nullptr);
/// `conditioning` None: the network without its embedding, which says what the embedding buys. EINVAL: a
/// model that is there and cannot be used, named.
Result<Pretrained> pretrained(const ExperimentOptions& options,
                              Conditioning conditioning = Conditioning::Embedding);
/// A new one, whatever models there are. `updates` per round.
Result<Pretrained> pretrain_here(const ExperimentOptions& options, std::size_t pairs, int rounds, int updates,
                                 Conditioning conditioning = Conditioning::Embedding);

/// Never nullptr: options and spaces are the task's own.
std::unique_ptr<Agent> new_agent(Task task, std::uint64_t seed);

/// f(i) once for each i of [0, n), in any order, on `threads` threads. `what`: progress to a terminal.
void in_parallel(std::size_t n, int threads, const std::string& what,
                 const std::function<void(std::size_t)>& f);

/// The mean over pairs with its interval.
nlohmann::ordered_json mean_of(std::span<const double> values);
/// One pair's differences, with the interval over pairs. REQUIRES: one size.
nlohmann::ordered_json difference_of(std::span<const double> one, std::span<const double> other);

using Lived = std::vector<EpisodeStats>;
/// What an episode is judged by, under its name in JSON.
struct EpisodeKey {
  const char* name;
  double (*of)(const EpisodeStats& e);
};
/// "reward", "violations_pct", "cpu_utilization", and "memory_utilization" or "frequency".
std::vector<EpisodeKey> episode_keys(Task task);
/// Of the episodes [from, to); one number per life.
double mean_over(const Lived& lived, std::size_t from, std::size_t to, const EpisodeKey& key);
std::vector<double> per_pair(const std::vector<Lived>& lives, std::size_t from, std::size_t to,
                             const EpisodeKey& key);

/// AWARE 2.3's seven updates by number, as in JSON.
std::span<const char* const> update_names();
/// Does update `scenario` change the application?
bool concerns(const Application& application, int scenario);

/// Means over `episodes` episodes at different places of the trace; the same starts and chance for each
/// `step`, which makes one step of the world (its fallback is there).
EpisodeStats mean_lived(const Pair& pair, int episodes, std::uint64_t seed,
                        const std::function<void(World& world)>& step);

/// The same under a policy that is greedy.
EpisodeStats tried(const PolicySnapshot& policy, const Pair& pair, int episodes, std::uint64_t seed);

/// What the shared policy is on each pair after one episode under the rules.
std::vector<PolicySnapshot> one_shot_snapshots(const SharedPolicy& policy, std::span<const Pair* const> pairs,
                                               std::uint64_t seed, int threads);

/// "task", "seed", "pairs", "threads", "quick": what every result begins with.
nlohmann::ordered_json heading(const ExperimentOptions& options, const char* name, std::size_t pairs);

}  // namespace flash::lab
