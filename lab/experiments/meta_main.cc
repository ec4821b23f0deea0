// flash-bench-meta: the experiments that need libtorch. Run as flash-bench adapt, rcs, overhead.
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agents/agent.h"
#include "bench/commands.h"
#include "core/json.h"
#include "core/printable.h"
#include "lab/experiments/adapt.h"
#include "lab/experiments/experiment_commands.h"
#include "lab/experiments/overhead.h"
#include "lab/experiments/rcs.h"

namespace flash::lab {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::uint64_t kMostSeed = 1ULL << 40;

struct Arguments {
  RcsOptions rcs;
  AdaptOptions adapt;
  bool quick_overhead = false;
  ExperimentArguments experiments;
  bool json = false;
};

std::vector<OptionRow> rcs_rows(Arguments& a) {
  return {
      {"--dataset", "DIR",
       "measurements to learn from: a folder of chunk-func, CloudBandit or Sizeless CSV files",
       text_into(a.rcs.dataset)},
      {"--test", "DIR", "to test on (default: half of the applications of --dataset, drawn afresh each time)",
       text_into(a.rcs.test)},
      {"--repeats", "N", "repetitions (default 10)", integer_into(a.rcs.repeats, 1, 1000)},
      {"--seed", "N", "of splits, networks and draws (default 1)", integer_into(a.rcs.seed, 0, kMostSeed)},
      {"--threads", "N", "repetitions at a time (default 2)", integer_into(a.rcs.threads, 1, 64)},
      {"--epochs", "N", "of the networks (default 200)", integer_into(a.rcs.epochs, 1, 100000)},
      {"--curves-only", "", "train no network: seconds instead of minutes", flag_into(a.rcs.curves_only)},
      bench::json_row(a.json)};
}

void print_mape(const json& mape, const char* title) {
  std::printf("%-14s %22s %22s %22s\n", title, "1 known run", "2", "3");
  for (const auto& [method, by_known] : mape.items()) {
    std::printf("%-14s", method.c_str());
    for (const char* known : {"1", "2", "3"}) {
      if (!by_known.contains(known)) {  // no instance has more runs
        std::printf("  %22s", "-");
        continue;
      }
      const json& m = by_known[known];
      std::printf("  %6.3f [%5.3f, %5.3f]", m["mean"].get<double>(), m["lo"].get<double>(),
                  m["hi"].get<double>());
    }
    std::puts("");
  }
}

void print_rcs(const json& r) {
  if (r.contains("test") && r["test"]["instances_learned_from"].get<int>() > 0)
    std::fprintf(stderr, "flash-bench rcs: %d of the %d instances to test on were learned from\n",
                 r["test"]["instances_learned_from"].get<int>(), r["test"]["instances"].get<int>());
  print_mape(r["mape"], "drawn runs");
  print_mape(r["mape_chosen"], "chosen runs");
}

int rcs(const Arguments& a) {
  if (a.rcs.dataset.empty()) return bench::wrong_usage("rcs needs --dataset DIR", "flash-bench rcs --help");
  return bench::print_measured(measure_rcs(a.rcs), a.json, print_rcs);
}

std::vector<OptionRow> adapt_rows(Arguments& a) {
  AdaptOptions& o = a.adapt;
  return {{"--task", "TASK", "resource-limits (default) or cpu-frequency", bench::task_into(o.task)},
          {"--pairs", "N", "that shared policies learn from (default 200)", integer_into(o.pairs, 1, 100000)},
          {"--unseen", "N", "that all are judged on (default 50)", integer_into(o.unseen, 2, 100000)},
          {"--budget", "N", "episodes of adaptation (default 60)", integer_into(o.budget, 1, 100000)},
          {"--converged", "N", "episodes of the agent that counts as converged (default 200)",
           integer_into(o.converged, 1, 100000)},
          {"--sources", "N", "known pairs that transfer learning begins from (default 4)",
           [&o](std::string_view v) -> Applied {
             std::uint64_t n = 0;
             if (auto wrong = integer_into(n, 1, 1000)(v)) return wrong;
             o.sources = n;
             return std::nullopt;
           }},
          {"--rounds", "N", "of pretraining (default 6)", integer_into(o.rounds, 1, 1000)},
          {"--updates", "N", "per round of pretraining (default 600)", integer_into(o.updates, 1, 1000000)},
          {"--episodes", "N", "of pretraining by FLASH's recipe, per pair (default 320)",
           integer_into(o.episodes, 1, 1000000)},
          {"--pool", "KIND", "of what is drawn: drawn (default), or hidden, see flash-pretrain",
           parsed_into<PoolKind>(o.pool, parse_pool_kind)},
          {"--apps", "FILE", "applications to judge on instead of drawn ones", text_into(o.apps)},
          {"--envs", "FILE", "environments to judge on instead of drawn ones", text_into(o.envs)},
          {"--traces", "PATH", "recorded loads in place of the applications' own: a file or a folder",
           text_into(o.traces)},
          {"--models", "DIR",
           "of flash-pretrain (default: beside flash-bench, else /usr/share/flashd/models); others are made "
           "here",
           text_into(o.models)},
          {"--quick", "", "a smaller experiment, ten minutes; options after it still count",
           [&o](std::string_view) -> Applied {
             o.make_quick();
             return std::nullopt;
           }},
          {"--seed", "N", "of pools, training and chance (default 1)", integer_into(o.seed, 0, kMostSeed)},
          {"--threads", "N", "(default 2)", integer_into(o.threads, 1, 64)},
          bench::json_row(a.json)};
}

void print_adapt(const ordered_json& r) {
  std::printf("%-12s %26s %26s %26s\n", "", "score at the end", "reward drop %, before",
              "episodes to converge");
  for (const auto& [name, score] : r["score"].items()) {
    std::printf("%-12s", name.c_str());
    for (const char* key : {"score", "reward_drop_pct", "episodes_to_converge"}) {
      const auto& m = r[key][name];
      std::printf("  %8.3f [%6.2f, %6.2f]", m["mean"].get<double>(), m["lo"].get<double>(),
                  m["hi"].get<double>());
    }
    std::puts("");
  }
  for (const char* part : {"gain", "speed_up_over_tl", "speed_up_over_tl_to_converged_agent"}) {
    if (!r.contains(part)) continue;
    std::printf("\n%s\n", part);
    for (const auto& [name, m] : r[part].items())
      std::printf("  %-24s %8.4f [%7.4f, %7.4f]\n", name.c_str(), m["mean"].get<double>(),
                  m["lo"].get<double>(), m["hi"].get<double>());
  }
}

int adapt(const Arguments& a) {
  std::string warning;
  prepare_libtorch(warning);
  if (!warning.empty()) print_line(stderr, "flash-bench: " + warning);
  return bench::print_measured(measure_adapt(a.adapt), a.json, print_adapt);
}

void print_overhead(const json& r) {
  std::printf("%s; kernels: decision %s, GRU %s\n", r["blas"].get<std::string>().c_str(),
              r["kernel"].get<std::string>().c_str(), r["gru_kernel"].get<std::string>().c_str());
  for (const char* part : {"decision_us", "embedding_ms", "update_ms", "baseline"}) {
    std::printf("\n%s\n", part);
    for (const auto& [name, value] : r[part].items())
      if (value.is_number()) std::printf("  %-20s %10.3f\n", name.c_str(), value.get<double>());
  }
  std::printf("\nan embedding of 32 adds %.1f %% to a decision, libtorch's %.1f %%\n",
              r["decision_us"]["added_pct"]["32"].get<double>(),
              r["decision_us"]["added_pct"]["libtorch_32"].get<double>());
}

int run(const std::vector<std::string_view>& words) {
  Arguments a;
  std::vector<bench::Command> commands = {
      {"adapt", "what each way to control earns on unseen pairs, and how fast", adapt_rows(a),
       [&a] { return adapt(a); }},
      {"rcs", "the supervised agent with and without FLASH on public measurements", rcs_rows(a),
       [&a] { return rcs(a); }},
      {"overhead",
       "what FLASH adds to a decision and to training (its Table 3)",
       {{"--quick", "", "a third of the rounds", flag_into(a.quick_overhead)}, bench::json_row(a.json)},
       [&a] { return bench::print_measured(measure_overhead(a.quick_overhead), a.json, print_overhead); }},
  };
  for (bench::Command& c : experiment_commands(a.experiments)) commands.push_back(std::move(c));
  if (words.empty()) return bench::wrong_usage("no command given", "flash-bench --help");
  return bench::run_command(commands, words, "flash-bench " + std::string(words[0]) + " --help");
}

}  // namespace
}  // namespace flash::lab

int main(int argc, char** argv) {
  return flash::lab::run({argv + (argc > 0 ? 1 : 0), argv + argc});
}
