// flash-bench-meta: the meta learner's experiments. Run as flash-bench rcs, flash-bench overhead.
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "agents/agent.h"
#include "bench/adapt.h"
#include "bench/overhead.h"
#include "bench/rcs.h"

namespace flash::bench {
namespace {

using nlohmann::json;

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

struct Arguments {
  RcsOptions rcs;
  AdaptOptions adapt;
  bool json = false;
};

struct Option {
  std::string_view name;
  std::string_view value;  // placeholder; empty: takes none
  std::string_view help;
  bool (*set)(Arguments& a, std::string_view value);  // false: not a value of it
};

template <class T>
bool number(std::string_view text, T least, T most, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && out >= least && out <= most;
}

constexpr Option kRcs[] = {
    {"dataset", "DIR",
     "measurements to learn from: a folder of chunk-func, CloudBandit or Sizeless CSV files",
     [](Arguments& a, std::string_view v) {
       a.rcs.dataset = v;
       return !v.empty();
     }},
    {"test", "DIR", "to test on (default: half of the applications of --dataset, drawn anew each time)",
     [](Arguments& a, std::string_view v) {
       a.rcs.test = v;
       return !v.empty();
     }},
    {"repeats", "N", "repetitions (default 10)",
     [](Arguments& a, std::string_view v) { return number(v, 1, 1000, a.rcs.repeats); }},
    {"seed", "N", "of splits, networks and draws (default 1)",
     [](Arguments& a, std::string_view v) { return number<std::uint64_t>(v, 0, 1ULL << 40, a.rcs.seed); }},
    {"threads", "N", "repetitions at a time (default 2)",
     [](Arguments& a, std::string_view v) { return number(v, 1, 64, a.rcs.threads); }},
    {"epochs", "N", "of the networks (default 200)",
     [](Arguments& a, std::string_view v) { return number(v, 1, 100000, a.rcs.epochs); }},
    {"ours-only", "", "train no network: seconds instead of minutes",
     [](Arguments& a, std::string_view) { return a.rcs.ours_only = true; }},
    {"json", "", "print JSON", [](Arguments& a, std::string_view) { return a.json = true; }},
};

int usage(const std::string& what) {
  std::fprintf(stderr, "flash-bench: %s\nTry 'flash-bench rcs --help'.\n", what.c_str());
  return kExitUsage;
}

int rcs(const Arguments& a) {
  if (a.rcs.dataset.empty()) return usage("rcs needs --dataset DIR");
  const auto measured = measure_rcs(a.rcs);
  if (!measured) {
    std::fprintf(stderr, "flash-bench: %s\n", measured.error().message().c_str());
    return kExitFailure;
  }
  if (a.json) {
    std::puts(measured->dump(2).c_str());
    return 0;
  }
  std::printf("%-14s %22s %22s %22s\n", "MAPE", "1 known run", "2", "3");
  for (const auto& [method, by_known] : (*measured)["mape"].items()) {
    std::printf("%-14s", method.c_str());
    for (const char* known : {"1", "2", "3"}) {
      const json& r = by_known[known];
      std::printf("  %6.3f [%5.3f, %5.3f]", r["mean"].get<double>(), r["lo"].get<double>(),
                  r["hi"].get<double>());
    }
    std::puts("");
  }
  return 0;
}

constexpr Option kAdapt[] = {
    {"task", "TASK", "resource-limits (default) or cpu-frequency",
     [](Arguments& a, std::string_view v) {
       const auto task = task_from_name(v);
       if (task) a.adapt.task = *task;
       return task.has_value();
     }},
    {"pairs", "N", "that shared policies learn from (default 200)",
     [](Arguments& a, std::string_view v) { return number<std::size_t>(v, 1, 100000, a.adapt.pairs); }},
    {"unseen", "N", "that all are judged on (default 50)",
     [](Arguments& a, std::string_view v) { return number<std::size_t>(v, 2, 100000, a.adapt.unseen); }},
    {"budget", "N", "episodes of adaptation (default 60)",
     [](Arguments& a, std::string_view v) { return number(v, 1, 100000, a.adapt.budget); }},
    {"converged", "N", "episodes of the agent that counts as converged (default 200)",
     [](Arguments& a, std::string_view v) { return number(v, 1, 100000, a.adapt.converged); }},
    {"rounds", "N", "of pretraining (default 6)",
     [](Arguments& a, std::string_view v) { return number(v, 1, 1000, a.adapt.rounds); }},
    {"updates", "N", "per round of pretraining (default 600)",
     [](Arguments& a, std::string_view v) { return number(v, 1, 1000000, a.adapt.updates); }},
    {"apps", "FILE", "applications to judge on instead of drawn ones",
     [](Arguments& a, std::string_view v) {
       a.adapt.apps = v;
       return !v.empty();
     }},
    {"envs", "FILE", "environments to judge on instead of drawn ones",
     [](Arguments& a, std::string_view v) {
       a.adapt.envs = v;
       return !v.empty();
     }},
    {"model", "FILE", "of flash-pretrain, instead of pretraining ours here",
     [](Arguments& a, std::string_view v) {
       a.adapt.model = v;
       return !v.empty();
     }},
    {"seed", "N", "of pools, training and chance (default 1)",
     [](Arguments& a, std::string_view v) { return number<std::uint64_t>(v, 0, 1ULL << 40, a.adapt.seed); }},
    {"threads", "N", "(default 2)",
     [](Arguments& a, std::string_view v) { return number(v, 1, 64, a.adapt.threads); }},
    {"json", "", "print JSON", [](Arguments& a, std::string_view) { return a.json = true; }},
};

int adapt(const Arguments& a) {
  std::string warning;
  prepare_libtorch(warning);
  if (!warning.empty()) std::fprintf(stderr, "flash-bench: %s\n", warning.c_str());
  const auto measured = measure_adapt(a.adapt);
  if (!measured) {
    std::fprintf(stderr, "flash-bench: %s\n", measured.error().message().c_str());
    return kExitFailure;
  }
  if (a.json) {
    std::puts(measured->dump(2).c_str());
    return 0;
  }
  std::printf("%-12s %26s %26s %26s\n", "", "score at the end", "reward drop %, before",
              "episodes to converge");
  for (const auto& [name, m] : (*measured)["methods"].items()) {
    std::printf("%-12s", name.c_str());
    for (const char* key : {"score", "reward_drop_pct", "episodes_to_converge"}) {
      if (!m.contains(key)) continue;
      std::printf("  %8.3f [%6.2f, %6.2f]", m[key]["mean"].get<double>(), m[key]["lo"].get<double>(),
                  m[key]["hi"].get<double>());
    }
    std::puts("");
  }
  return 0;
}

constexpr Option kOverhead[] = {
    {"json", "", "print JSON", [](Arguments& a, std::string_view) { return a.json = true; }},
};

int overhead(const Arguments& a) {
  const auto measured = measure_overhead();
  if (!measured) {
    std::fprintf(stderr, "flash-bench: %s\n", measured.error().message().c_str());
    return kExitFailure;
  }
  if (a.json) {
    std::puts(measured->dump(2).c_str());
    return 0;
  }
  const json& r = *measured;
  std::printf("%s; kernel %s\n", r["blas"].get<std::string>().c_str(),
              r["kernel"].get<std::string>().c_str());
  for (const char* part : {"decision_us", "embedding_ms", "update_ms"}) {
    std::printf("\n%s\n", part);
    for (const auto& [name, value] : r[part].items())
      if (value.is_number() && name != "checksum")
        std::printf("  %-20s %10.3f\n", name.c_str(), value.get<double>());
  }
  std::printf("\nan embedding of 32 adds %.1f %% to a decision, libtorch's %.1f %%\n",
              r["decision_us"]["added_pct"]["32"].get<double>(),
              r["decision_us"]["added_pct"]["libtorch_32"].get<double>());
  return 0;
}

struct Command {
  std::string_view name;
  std::span<const Option> options;
  int (*run)(const Arguments& a);
};
constexpr Command kCommands[] = {
    {"adapt", kAdapt, adapt}, {"rcs", kRcs, rcs}, {"overhead", kOverhead, overhead}};

void help(const Command& command) {
  std::printf("flash-bench %s [OPTION]...\n", std::string(command.name).c_str());
  for (const Option& o : command.options) {
    const std::string left = "--" + std::string(o.name) + (o.value.empty() ? "" : " " + std::string(o.value));
    std::printf("  %-18s %s\n", left.c_str(), std::string(o.help).c_str());
  }
}

int run(const std::vector<std::string_view>& words) {
  const Command* command = nullptr;
  for (const Command& c : kCommands)
    if (!words.empty() && c.name == words[0]) command = &c;
  if (command == nullptr) return usage("no such experiment");
  Arguments a;
  for (std::size_t i = 1; i < words.size(); ++i) {
    std::string_view name = words[i];
    if (name == "--help" || name == "-h") {
      help(*command);
      return 0;
    }
    if (!name.starts_with("--")) return usage("unexpected '" + std::string(name) + "'");
    name.remove_prefix(2);
    std::string_view value;
    bool given = false;
    if (const auto equals = name.find('='); equals != std::string_view::npos) {
      value = name.substr(equals + 1);
      name = name.substr(0, equals);
      given = true;
    }
    const Option* option = nullptr;
    for (const Option& o : command->options)
      if (o.name == name) option = &o;
    if (option == nullptr) return usage("unknown option '" + std::string(words[i]) + "'");
    if (!option->value.empty() && !given) {
      if (++i == words.size()) return usage("--" + std::string(name) + " needs a value");
      value = words[i];
    }
    if ((option->value.empty() && given) || !option->set(a, value))
      return usage("'" + std::string(value) + "' is not a value of --" + std::string(name));
  }
  return command->run(a);
}

}  // namespace
}  // namespace flash::bench

int main(int argc, char** argv) {
  return flash::bench::run(std::vector<std::string_view>(argv + (argc > 0 ? 1 : 0), argv + argc));
}
