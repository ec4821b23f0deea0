// flash-pretrain: makes the shared model of a task from a pool of simulated pairs, and says what it is worth
// on pairs that it never saw. flash-pretrain(1).

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "agents/agent.h"
#include "core/command_line.h"
#include "core/json.h"
#include "core/printable.h"
#include "core/process.h"
#include "core/tensor_file.h"
#include "lab/pretrain/flash_recipe.h"
#include "lab/pretrain/imitation.h"
#include "lab/pretrain/scoring.h"
#include "lab/sim/pool.h"
#include "meta/policy_model.h"
#include "policy/observation_space.h"
#include "policy/task.h"

namespace flash {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr std::uint64_t kUnseen = 0x0b5e55edULL;  // the unseen pool's seed beside the user's

enum class RecipeKind : std::uint8_t { Imitation, Flash };

struct Options {
  PoolOptions pool;
  RecipeKind recipe = RecipeKind::Imitation;
  ImitationOptions imitation{.rounds = 0};  // usual_rounds()
  FlashPretraining flash;
  std::size_t unseen = 50;
  std::string out, json, resume;
  bool help = false;
};

Parsed<Task> parse_task(std::string_view text) {
  if (const auto task = task_from_name(text)) return *task;
  return UsageError{"unknown task '" + std::string(text) + "' (resource-limits, cpu-frequency)"};
}

Parsed<Conditioning> parse_conditioning(std::string_view text) {
  for (Conditioning c : {Conditioning::None, Conditioning::Embedding, Conditioning::Privileged})
    if (text == to_string(c)) return c;
  return UsageError{"unknown conditioning '" + std::string(text) + "' (none, embedding, privileged)"};
}

Parsed<RecipeKind> parse_recipe(std::string_view text) {
  if (text == "imitation") return RecipeKind::Imitation;
  if (text == "flash") return RecipeKind::Flash;
  return UsageError{"unknown recipe '" + std::string(text) + "' (imitation, flash)"};
}

Applied int_into(int& out, std::string_view text, std::uint64_t low, std::uint64_t high) {
  std::uint64_t value = 0;
  if (auto error = integer_into(value, low, high)(text)) return error;
  out = static_cast<int>(value);
  return std::nullopt;
}

std::vector<OptionRow> option_rows(Options& o) {
  std::vector<OptionRow> rows;
  rows.push_back({"--task", "TASK", "resource-limits (default) or cpu-frequency",
                  parsed_into<Task>(o.pool.task, parse_task)});
  rows.push_back({"--recipe", "NAME", "imitation (default): learned from the oracle; flash: the paper's",
                  parsed_into<RecipeKind>(o.recipe, parse_recipe)});
  rows.push_back(
      {"--pairs", "N", "how many pairs to learn from (default 200)", [&o](std::string_view v) -> Applied {
         std::uint64_t n = 0;
         if (auto error = integer_into(n, 1, 100000)(v)) return error;
         o.pool.pairs = n;
         return std::nullopt;
       }});
  rows.push_back(
      {"--seed", "S", "of pool and training (default 1)", integer_into(o.pool.seed, 0, UINT64_MAX)});
  rows.push_back({"--apps", "FILE", "pool of applications instead of drawn ones", text_into(o.pool.apps)});
  rows.push_back({"--envs", "FILE", "pool of environments instead of drawn ones", text_into(o.pool.envs)});
  rows.push_back({"--pool", "KIND",
                  "of what is drawn: drawn (default), or hidden: pairs differ in what the state cannot tell",
                  parsed_into<PoolKind>(o.pool.kind, parse_pool_kind)});
  rows.push_back({"--episodes", "N", "flash: per pair (default 320)",
                  [&o](std::string_view v) { return int_into(o.flash.options.episodes, v, 1, 1000000); }});
  rows.push_back({"--worlds", "N", "flash: episodes of a pair at once (default 16)",
                  [&o](std::string_view v) { return int_into(o.flash.options.worlds, v, 1, 256); }});
  rows.push_back({"--conditioning", "KIND",
                  "imitation: embedding (default), none, or privileged: the true parameters",
                  parsed_into<Conditioning>(o.imitation.conditioning, parse_conditioning)});
  rows.push_back({"--rounds", "N",
                  "imitation: of acting and learning (default 40 on resource-limits, 10 on cpu-frequency)",
                  [&o](std::string_view v) { return int_into(o.imitation.rounds, v, 1, 1000); }});
  rows.push_back({"--steps", "N", "imitation: per round and pair (default 200)",
                  [&o](std::string_view v) { return int_into(o.imitation.steps, v, 100, 100000); }});
  rows.push_back({"--updates", "N", "imitation: per round (default 600)",
                  [&o](std::string_view v) { return int_into(o.imitation.updates, v, 1, 1000000); }});
  rows.push_back({"--as-drawn", "", "imitation, resource-limits: from these pairs alone, none of them varied",
                  flag_into(o.imitation.as_drawn)});
  rows.push_back({"--threads", "N", "for simulation (default 2)",
                  [&o](std::string_view v) { return int_into(o.imitation.threads, v, 1, 256); }});
  rows.push_back({"--unseen", "N", "pairs that the model is scored on; 0: none (default 50)",
                  [&o](std::string_view v) -> Applied {
                    std::uint64_t n = 0;
                    if (auto error = integer_into(n, 0, 100000)(v)) return error;
                    o.unseen = n;
                    return std::nullopt;
                  }});
  rows.push_back({"--resume", "FILE", "progress is kept there, and gone on from where it is there already",
                  text_into(o.resume)});
  rows.push_back({"--out", "FILE", "where the model goes, for flash-learner --models", text_into(o.out)});
  rows.push_back({"--json", "FILE", "where the figures go; - is standard output", text_into(o.json)});
  rows.push_back({"--help", "", "this text", flag_into(o.help)});
  return rows;
}

/// What was learned, by whichever recipe.
struct Learned {
  std::optional<SharedPolicy> imitation;
  std::optional<TaskModel> flash;
  TensorFile file() const { return imitation ? imitation->checkpoint() : to_tensor_file(*flash); }
};

Result<Learned> learn(const Options& o, const Pool& pool) {
  Learned learned;
  if (o.recipe == RecipeKind::Flash) {
    FlashPretraining how = o.flash;
    how.options.seed = o.pool.seed;
    how.options.threads = o.imitation.threads;
    how.progress = [](const FlashProgress& p) {
      std::fprintf(stderr,
                   "round %d of %d: reward %.3f (%+.3f to the rules), critic's loss %.4f, gradient of the "
                   "embedding %.2e, %.0f s, "
                   "about %.0f s to go\n",
                   p.round, p.rounds, p.reward, p.over_rules, p.critic_loss, p.gradient, p.seconds,
                   p.seconds / (p.round - p.begun_at) * (p.rounds - p.round));
    };
    how.checkpoint = o.resume;
    if (std::filesystem::exists(o.resume)) how.resume = o.resume;
    FLASH_TRY(learned.flash, pretrain_flash(pool, how));
    return learned;
  }
  ImitationOptions how = o.imitation;
  how.progress_file = o.resume;
  FLASH_TRY(learned.imitation, imitate_oracle(pool, how, [](const ImitationProgress& p) {
              std::fprintf(
                  stderr, "round %d of %d: reward %.3f, %.4f lost per decision, %.0f s, about %.0f s to go\n",
                  p.round, p.rounds, p.reward, p.loss, p.seconds, p.seconds / p.round * (p.rounds - p.round));
            }));
  return learned;
}

/// The options that the recipe has for its own.
nlohmann::ordered_json recipe_options(const Options& o) {
  if (o.recipe == RecipeKind::Flash)
    return {{"episodes", o.flash.options.episodes}, {"worlds", o.flash.options.worlds}};
  return {{"rounds", o.imitation.rounds},
          {"steps", o.imitation.steps},
          {"updates", o.imitation.updates},
          {"as_drawn", o.imitation.as_drawn},
          {"conditioning", to_string(o.imitation.conditioning)}};
}

/// What flash-learner begins with.
Result<PolicyModel> policy_model(const Options& o, const Pool& pool, const SharedPolicy& policy,
                                 const UnseenGain& gain) {
  std::vector<const Pair*> pairs;
  for (const Pair& p : pool.pairs) pairs.push_back(&p);
  Pool others;
  if (varies(o.imitation, o.pool.task)) {
    FLASH_TRY(others, varied(pool, o.pool.seed));
  }
  for (const Pair& p : others.pairs) pairs.push_back(&p);
  FLASH_TRY(SeenEmbeddings seen, SeenEmbeddings::create(Scoring::one_shot_embeddings(
                                     pairs, policy, {1, o.pool.seed + 2, o.imitation.threads})));
  return PolicyModel{"oracle imitation, " + std::to_string(pool.pairs.size()) + " pairs, seed " +
                         std::to_string(o.pool.seed),
                     space_layout(task_spec(o.pool.task), pool.pairs.front().rule()), policy.checkpoint(),
                     std::move(seen), gain};
}

/// That a file cannot be written is said before the minutes of learning, not after.
std::string not_writable(const std::string& path) {
  if (path.empty() || path == "-") return {};
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return path + ": is a folder";
  const auto folder = std::filesystem::path(path).parent_path();
  const std::string where = folder.empty() ? "." : folder.string();
  if (!std::filesystem::is_directory(where, error)) return path + ": " + where + " is no folder";
  if (access(where.c_str(), W_OK) != 0) return path + ": " + std::system_category().message(errno);
  return {};
}

int run(const Options& o) {
  for (const std::string* path : {&o.out, &o.json, &o.resume})
    if (const std::string wrong = not_writable(*path); !wrong.empty()) {
      std::cerr << "flash-pretrain: " << wrong << '\n';
      return kExitFailure;
    }
  std::string warning;
  const std::string computes = prepare_libtorch(warning);
  if (!warning.empty()) std::cerr << "flash-pretrain: " << warning << '\n';
  const auto pool = make_pool(o.pool);
  if (!pool) {
    std::cerr << "flash-pretrain: " << pool.error().message() << '\n';
    return kExitFailure;
  }
  std::cerr << "learning " << to_string(o.pool.task) << " from " << pool->pairs.size() << " pairs with "
            << computes << '\n';
  const auto start = std::chrono::steady_clock::now();
  const double cpu_before = flash::seconds(own_usage().cpu);
  auto learned = learn(o, *pool);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double cpu = flash::seconds(own_usage().cpu) - cpu_before;
  if (!learned) {
    std::cerr << "flash-pretrain: " << learned.error().message() << '\n';
    return kExitFailure;
  }
  std::fprintf(stderr, "learned in %.0f s, %.0f s of CPU time\n", seconds, cpu);
  // What flash-learner begins with also says what it is worth on unseen pairs.
  const bool scored =
      learned->imitation && o.imitation.conditioning == Conditioning::Embedding && o.unseen > 0;
  if (!o.out.empty() && !scored) {
    if (auto written = write_tensor_file(o.out, learned->file()); !written) {
      std::cerr << "flash-pretrain: " << written.error().message() << '\n';
      return kExitFailure;
    }
    std::cerr << "wrote " << o.out << '\n';
  }
  nlohmann::ordered_json out = {{"tool", "flash-pretrain"},
                                {"task", to_string(o.pool.task)},
                                {"pool", to_string(o.pool.kind)},
                                {"pairs", pool->pairs.size()},
                                {"seed", o.pool.seed},
                                {"recipe", o.recipe == RecipeKind::Flash ? "flash" : "imitation"},
                                {"threads", o.imitation.threads},
                                {"computes", computes},
                                {"seconds", seconds},
                                {"cpu_seconds", cpu}};
  out.update(recipe_options(o));
  if (o.unseen > 0) {
    PoolOptions unseen = o.pool;
    unseen.pairs = o.unseen;
    unseen.seed = o.pool.seed ^ kUnseen;
    if (!o.pool.apps.empty()) std::cerr << "scored on drawn pairs: the pool's own were learned from\n";
    unseen.apps.clear();
    unseen.envs.clear();
    const auto others = make_pool(unseen);
    if (!others) {
      std::cerr << "flash-pretrain: " << others.error().message() << '\n';
      return kExitFailure;
    }
    const ScoringOptions scoring_options{10, o.pool.seed + 1, o.imitation.threads};
    const Scoring scoring(*others, scoring_options);
    std::vector<Scored> all = scoring.baselines();
    if (learned->imitation) {
      all.push_back(scoring.zero_shot("zero_shot", *learned->imitation));
      all.push_back(scoring.one_shot("one_shot", *learned->imitation));
    } else {
      auto scored = scoring.one_shot("one_shot", *learned->flash);
      if (!scored) {
        std::cerr << "flash-pretrain: " << scored.error().message() << '\n';
        return kExitFailure;
      }
      all.push_back(*std::move(scored));
    }
    for (const Scored& s : all) {
      const Interval reward = interval_of(s.reward), score = interval_of(s.score);
      out["unseen"][s.name] = {{"reward", reward}, {"score", score}, {"rewards", s.reward}};
      std::fprintf(stderr, "%-18s reward %.3f [%.3f, %.3f]  score %.3f [%.3f, %.3f]\n", s.name.c_str(),
                   reward.mean, reward.lo, reward.hi, score.mean, score.lo, score.hi);
    }
    out["unseen"]["pairs"] = others->pairs.size();
    out["unseen"]["gain_over_rule"] = Scoring::gain(all.back(), all[1]);
    if (scored) {
      auto model = policy_model(o, *pool, *learned->imitation, spread_of(Scoring::gains(all.back(), all[1])));
      if (!model) {
        std::cerr << "flash-pretrain: " << model.error().message() << '\n';
        return kExitFailure;
      }
      std::vector<const Pair*> pairs;
      for (const Pair& p : others->pairs) pairs.push_back(&p);
      std::size_t unfamiliar = 0;
      for (const auto& e : Scoring::one_shot_embeddings(pairs, *learned->imitation, scoring_options))
        unfamiliar += model->seen.nearest(e).out_of_distribution ? 1 : 0;
      out["unseen"]["gain_of_a_pair"] = {
          {"mean", model->gain.mean}, {"lower", model->gain.lower}, {"upper", model->gain.upper}};
      out["unseen"]["out_of_distribution"] = unfamiliar;
      std::fprintf(stderr,
                   "gain over the rules %.3f, of 95 %% of the pairs within [%.3f, %.3f]; %zu of %zu out of "
                   "distribution\n",
                   model->gain.mean, model->gain.lower, model->gain.upper, unfamiliar, others->pairs.size());
      if (!o.out.empty()) {
        if (auto written = write_tensor_file(o.out, to_tensor_file(*model)); !written) {
          std::cerr << "flash-pretrain: " << written.error().message() << '\n';
          return kExitFailure;
        }
        std::cerr << "wrote " << o.out << '\n';
      }
    }
  }
  if (o.json == "-") {
    std::cout << printable_json(out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace)) << '\n';
  } else if (!o.json.empty()) {
    std::ofstream file(o.json);
    file << out.dump(2) << '\n';
    if (!file.flush()) {
      std::cerr << "flash-pretrain: " << o.json << ": cannot be written\n";
      return kExitFailure;
    }
  }
  return 0;
}

}  // namespace
}  // namespace flash

int main(int argc, char** argv) {
  using namespace flash;
  // Names and values from files go out with what is said of them.
  const PrintableStream out(std::cout), err(std::cerr);
  Options o;
  const std::vector<OptionRow> rows = option_rows(o);
  const std::vector<std::string_view> args = words_of(argc, argv);
  if (const auto error = apply_options(rows, args)) {
    std::cerr << "flash-pretrain: " << error->message << '\n';
    return kExitUsage;
  }
  if (o.help) {
    std::cout
        << "usage: flash-pretrain [OPTIONS]\n\nMakes the shared model of a task from simulated pairs.\n\n"
        << describe_options(rows);
    return 0;
  }
  o.imitation.seed = o.pool.seed;
  if (o.imitation.rounds == 0) o.imitation.rounds = usual_rounds(o.imitation, o.pool.task);
  return run(o);
}
