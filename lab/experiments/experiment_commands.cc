#include "lab/experiments/experiment_commands.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string>
#include <utility>

#include "agents/agent.h"
#include "core/json.h"
#include "core/printable.h"

namespace flash::lab {
namespace {

using nlohmann::ordered_json;

/// What all of them take; `pairs_help` is the experiment's own.
std::vector<OptionRow> common_rows(ExperimentOptions& o, bool& json, std::string_view pairs_help) {
  return {{"--task", "TASK", "resource-limits (default) or cpu-frequency", bench::task_into(o.task)},
          {"--pairs", "N", pairs_help, integer_into(o.pairs, 2, 100000)},
          {"--apps", "FILE", "applications to judge on instead of drawn ones", text_into(o.apps)},
          {"--envs", "FILE", "environments to judge on instead of drawn ones", text_into(o.envs)},
          {"--traces", "PATH", "recorded loads in place of the applications' own: a file or a folder",
           text_into(o.traces)},
          {"--pool", "KIND", "of what is drawn: drawn (default) or hidden",
           parsed_into<PoolKind>(o.kind, parse_pool_kind)},
          {"--models", "DIR",
           "has TASK.model and TASK.shared.model of flash-pretrain (default: beside flash-bench, else "
           "/usr/share/flashd/models); else small ones are pretrained here",
           text_into(o.models)},
          {"--seed", "N", "of pools, training and chance (default 1)", integer_into(o.seed, 0, 1ULL << 40)},
          {"--threads", "N", "(default 2)", integer_into(o.threads, 1, 64)},
          {"--quick", "", "a small form, for a look", flag_into(o.quick)},
          {"--json", "", "print JSON", flag_into(json)}};
}

std::vector<OptionRow> with(std::vector<OptionRow> own, std::vector<OptionRow> common) {
  for (OptionRow& row : common) own.push_back(std::move(row));
  return own;
}

std::function<Applied(std::string_view)> names_into(std::set<std::string>& out,
                                                    std::span<const char* const> known) {
  return [&out, known](std::string_view text) -> Applied {
    while (!text.empty()) {
      const auto comma = std::min(text.find(','), text.size());
      const std::string name(text.substr(0, comma));
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        std::string all;
        for (const char* k : known) all += (all.empty() ? "" : ", ") + std::string(k);
        return UsageError{"has '" + name + "', which is none of " + all};
      }
      out.insert(name);
      text.remove_prefix(std::min(comma + 1, text.size()));
    }
    return std::nullopt;
  };
}

std::function<Applied(std::string_view)> sizes_into(std::vector<std::size_t>& out) {
  return [&out](std::string_view text) -> Applied {
    while (!text.empty()) {
      std::size_t n = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
      text.remove_prefix(static_cast<std::size_t>(end - text.data()));
      const bool comma = text.starts_with(',');
      if (error != std::errc() || n < 8 || n > 100000 || (!comma && !text.empty()))
        return UsageError{"is no list of numbers from 8 to 100000"};
      out.push_back(n);
      if (comma) text.remove_prefix(1);
    }
    return std::nullopt;
  };
}

/// {NAME: {KEY: interval}} as a table.
void print_table(const ordered_json& rows) {
  for (const auto& [name, keys] : rows.items()) {
    std::printf("%-16s", name.c_str());
    for (const auto& [key, m] : keys.items())
      if (m.is_object() && m.contains("mean"))
        std::printf("  %s %.3f [%.3f, %.3f]", key.c_str(), m["mean"].get<double>(), m["lo"].get<double>(),
                    m["hi"].get<double>());
    std::puts("");
  }
}

void print_methods(const ordered_json& r) {
  for (const char* part : {"methods", "against_rule", "stages"}) {
    if (!r.contains(part)) continue;
    std::printf("\n%s\n", part);
    print_table(r[part]);
  }
  for (const char* part : {"by_pool", "tl", "pools"})
    if (r.contains(part)) std::printf("\n%s\n%s\n", part, r[part].dump(1).c_str());
  if (r.contains("worst")) {
    std::puts("\nworst pair, points of violations over the rules'");
    for (const auto& [name, w] : r["worst"].items())
      std::printf("%-16s  %+.2f  pairs above by more than 1: %d\n", name.c_str(),
                  w["violations_pct"].get<double>(), w["pairs_above_by_1"].get<int>());
  }
  if (r.contains("changes"))
    for (const auto& [change, rows] : r["changes"].items()) {
      std::printf("\n%s\n", change.c_str());
      print_table(rows);
    }
  if (r.contains("must_show")) std::printf("\n%s\n", r["must_show"].dump().c_str());
}

template <class Options, class Measure>
int measured(const Options& o, bool json, Measure measure) {
  std::string warning;
  prepare_libtorch(warning);
  if (!warning.empty()) print_line(stderr, "flash-bench: " + warning);
  return bench::print_measured(measure(o), json, print_methods);
}

}  // namespace

std::vector<bench::Command> experiment_commands(ExperimentArguments& a) {
  std::vector<bench::Command> out;
  out.push_back(
      {"bootstrap", "SLO violations and utilisation while agents learn (AWARE 5.4)",
       with({{"--episodes", "N", "of training (default 100)", integer_into(a.bootstrap.episodes, 1, 100000)},
             {"--methods", "NAME,...", "only these beside the rule (default all)",
              names_into(a.bootstrap.methods, bootstrap_methods())}},
            common_rows(a.bootstrap, a.json, "that all are judged on (default 40)")),
       [&a] { return measured(a.bootstrap, a.json, measure_bootstrap); }});
  out.push_back(
      {"serve", "what is lost while applications are updated under a serving policy (AWARE 5.3)",
       with({{"--episodes", "N", "after each update (default 15)", integer_into(a.serve.episodes, 1, 100000)},
             {"--converged", "N", "episodes of learning before serving (default 80)",
              integer_into(a.serve.converged, 1, 100000)}},
            common_rows(a.serve, a.json, "that all are judged on (default 24)")),
       [&a] { return measured(a.serve, a.json, measure_serve); }});
  out.push_back({"characterize",
                 "what unadapted models lose on other applications, updates, processors (FLASH Figs. 4, 13)",
                 with({{"--converged", "N", "episodes after which an agent counts as converged (default 80)",
                        integer_into(a.characterize.converged, 1, 100000)}},
                      common_rows(a.characterize, a.json, "that agents are trained on (default 24)")),
                 [&a] { return measured(a.characterize, a.json, measure_characterize); }});
  out.push_back({"predict", "what the similarity of embeddings says about a move to another pair (FLASH 5.5)",
                 with({{"--converged", "N", "episodes after which an agent counts as converged (default 60)",
                        integer_into(a.predict.converged, 1, 100000)},
                       {"--budget", "N", "episodes of retraining (default 20)",
                        integer_into(a.predict.budget, 1, 100000)},
                       {"--moves", "N", "of each agent to other pairs (default 4)",
                        integer_into(a.predict.moves, 1, 1000)},
                       {"--pools", "N,...", "sizes of pretraining pools (default 25,50,100,200)",
                        sizes_into(a.predict.pools)}},
                      common_rows(a.predict, a.json, "that agents move between (default 24)")),
                 [&a] { return measured(a.predict, a.json, measure_predict); }});
  out.push_back({"amortize", "from how many pairs on pretraining pays (FLASH A.7)",
                 with({{"--converged", "N", "episodes after which an agent counts as converged (default 60)",
                        integer_into(a.amortize.converged, 1, 100000)},
                       {"--budget", "N", "episodes of retraining per pair (default 40)",
                        integer_into(a.amortize.budget, 1, 100000)},
                       {"--pools", "N,...", "sizes of pretraining pools (default 50,100,150,200)",
                        sizes_into(a.amortize.pools)}},
                      common_rows(a.amortize, a.json, "that are adapted to (default 24)")),
                 [&a] { return measured(a.amortize, a.json, measure_amortize); }});
  return out;
}

}  // namespace flash::lab
