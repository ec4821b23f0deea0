// flash-bench: what flashd costs on this host. flash-bench --help.
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/calibrate_bench.h"
#include "bench/daemon_bench.h"
#include "bench/program.h"
#include "bench/sim_bench.h"
#include "bench/tick_bench.h"

namespace {

using flash::bench::DaemonOptions;
using flash::bench::TickOptions;
using flash::bench::TreeKind;
using nlohmann::json;

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

struct Arguments {
  std::vector<int> targets = {1, 10, 100, 1000};
  TickOptions tick;
  DaemonOptions daemon;
  flash::bench::SimOptions sim;
  flash::bench::CalibrateSimOptions calibrate;
  bool soak = false;
  bool json = false;
  std::optional<std::uint64_t> ticks;
};

struct Option {
  std::string_view name;
  std::string_view value;  // placeholder; empty: takes none
  std::string_view help;
  bool (*set)(Arguments& a, std::string_view value);  // false: not a value of it
};

bool number(std::string_view text, std::uint64_t max, std::uint64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && out >= 1 && out <= max;
}

constexpr Option kTickOptions[] = {
    {"targets", "N[,N...]", "how many cgroups (default 1,10,100,1000)",
     [](Arguments& a, std::string_view v) {
       a.targets.clear();
       while (true) {
         const auto comma = v.find(',');
         std::uint64_t n = 0;
         if (!number(v.substr(0, comma), 100000, n)) return false;
         a.targets.push_back(static_cast<int>(n));
         if (comma == std::string_view::npos) return true;
         v.remove_prefix(comma + 1);
       }
     }},
    {"ticks", "N", "measured ticks (default 300; with --soak 100000)",
     [](Arguments& a, std::string_view v) {
       std::uint64_t n = 0;
       if (!number(v, 100000000, n)) return false;
       a.ticks = n;
       return true;
     }},
    {"tree", "v2|v1", "the fake machine's cgroup version (default v2)",
     [](Arguments& a, std::string_view v) {
       a.tick.tree = v == "v1" ? TreeKind::FakeV1 : TreeKind::FakeV2;
       return v == "v1" || v == "v2";
     }},
    {"real", "", "on real cgroups of this host, flashd-test-bench-PID (root)",
     [](Arguments& a, std::string_view) {
       a.tick.tree = TreeKind::Real;
       return true;
     }},
    {"mode", "MODE", "observe, recommend or control (default control)",
     [](Arguments& a, std::string_view v) {
       a.tick.mode = v;
       return v == "observe" || v == "recommend" || v == "control";
     }},
    {"soak", "", "100000 ticks; exits 1 if the heap has grown",
     [](Arguments& a, std::string_view) {
       a.soak = true;
       return true;
     }},
    {"no-syscalls", "", "do not count system calls",
     [](Arguments& a, std::string_view) {
       a.tick.syscalls = false;
       return true;
     }},
    {"json", "", "print JSON: an object for one N, else a list of them as \"runs\"",
     [](Arguments& a, std::string_view) {
       a.json = true;
       return true;
     }},
};

void print(const json& r) {
  const auto value = [&r](const char* key) {
    return r.value(key, json()).is_number() ? r[key].get<double>() : -1;
  };
  std::printf("%7d %8.2f %10.1f %10.1f %10.2f %12.1f %8.2f %10.1f\n", r["targets"].get<int>(),
              value("us_per_target"), value("us_per_tick"), r["wall_us_per_tick"]["p99"].get<double>(),
              value("syscalls_per_target"), value("allocations_per_tick"), value("rss_mib"),
              value("writes_per_tick"));
}

int tick(Arguments& a) {
  constexpr std::uint64_t kSoak = 100000;
  constexpr std::uint64_t kSoakWarmUp = 5000;
  // An agent's rings hold short texts of varying length; beyond this something piles up.
  constexpr std::int64_t kSoakGrowthPerTarget = 4096;
  if (a.soak) a.tick.warm_up = kSoakWarmUp;
  a.tick.ticks = a.ticks.value_or(a.soak ? kSoak : 300);
  json runs = json::array();
  int status = 0;
  if (!a.json)
    std::printf("%7s %8s %10s %10s %10s %12s %8s %10s\n", "targets", "us/target", "us/tick", "p99 wall",
                "sysc/target", "allocs/tick", "RSS MiB", "writes");
  for (const int n : a.targets) {
    a.tick.targets = n;
    auto measured = flash::bench::measure_tick(a.tick);
    if (!measured) {
      std::fprintf(stderr, "flash-bench: %s\n", measured.error().message().c_str());
      return kExitFailure;
    }
    if (!a.json) print(*measured);
    if (a.soak && measured->value("heap_growth_bytes", std::int64_t{0}) > kSoakGrowthPerTarget * n) {
      std::fprintf(stderr, "flash-bench: the heap grew by %lld bytes in %llu ticks of %d targets\n",
                   measured->value("heap_growth_bytes", 0LL), static_cast<unsigned long long>(a.tick.ticks),
                   n);
      status = kExitFailure;
    }
    runs.push_back(*std::move(measured));
  }
  if (a.json) std::puts((runs.size() == 1 ? runs[0] : json{{"runs", runs}}).dump(2).c_str());
  return status;
}

constexpr Option kDaemonOptions[] = {
    {"targets", "N", "how many cgroups (default 100)",
     [](Arguments& a, std::string_view v) {
       std::uint64_t n = 0;
       if (!number(v, 100000, n)) return false;
       a.daemon.targets = static_cast<int>(n);
       return true;
     }},
    {"seconds", "N", "how long to measure, after 5 s to settle (default 20)",
     [](Arguments& a, std::string_view v) {
       std::uint64_t n = 0;
       if (!number(v, 1000000, n)) return false;
       a.daemon.seconds = static_cast<int>(n);
       return true;
     }},
    {"real", "", "on real cgroups of this host, flashd-test-bench-PID (root)",
     [](Arguments& a, std::string_view) {
       a.daemon.tree = TreeKind::Real;
       return true;
     }},
    {"mode", "MODE", "observe, recommend or control (default control)",
     [](Arguments& a, std::string_view v) {
       a.daemon.mode = v;
       return v == "observe" || v == "recommend" || v == "control";
     }},
    {"flashd", "PROGRAM", "the daemon (default: beside flash-bench, else /usr/sbin/flashd)",
     [](Arguments& a, std::string_view v) {
       a.daemon.program = v;
       return v.starts_with('/');
     }},
    {"json", "", "print JSON",
     [](Arguments& a, std::string_view) {
       a.json = true;
       return true;
     }},
};

int daemon(Arguments& a) {
  if (a.daemon.program.empty()) a.daemon.program = flash::bench::beside_or("flashd", "/usr/sbin/flashd");
  const auto measured = flash::bench::measure_daemon(a.daemon);
  if (!measured) {
    std::fprintf(stderr, "flash-bench: %s\n", measured.error().message().c_str());
    return kExitFailure;
  }
  if (a.json) {
    std::puts(measured->dump(2).c_str());
  } else {
    for (const auto& [key, value] : measured->items())
      std::printf("%-16s %s\n", key.c_str(), value.dump().c_str());
  }
  return 0;
}

constexpr Option kSimOptions[] = {
    {"task", "TASK", "resource-limits or cpu-frequency (default both)",
     [](Arguments& a, std::string_view v) {
       for (const flash::Task task : {flash::Task::ResourceLimits, flash::Task::CpuFrequency})
         if (v == to_string(task)) a.sim.tasks = {task};
       return a.sim.tasks.size() == 1;
     }},
    {"pairs", "N", "applications, each on an environment (default 50)",
     [](Arguments& a, std::string_view v) {
       std::uint64_t n = 0;
       if (!number(v, 100000, n)) return false;
       a.sim.pairs = n;
       return true;
     }},
    {"seed", "S", "of pools and chance (default 1)",
     [](Arguments& a, std::string_view v) { return number(v, ~0ULL, a.sim.seed); }},
    {"apps", "FILE", "a pool of applications (default: generated by the seed)",
     [](Arguments& a, std::string_view v) {
       a.sim.apps = v;
       return !v.empty();
     }},
    {"envs", "FILE", "a pool of environments (default: generated by the seed)",
     [](Arguments& a, std::string_view v) {
       a.sim.envs = v;
       return !v.empty();
     }},
    {"threads", "N", "worker threads (default 2)",
     [](Arguments& a, std::string_view v) {
       std::uint64_t n = 0;
       if (!number(v, 1024, n)) return false;
       a.sim.threads = static_cast<int>(n);
       return true;
     }},
    {"speed", "", "only the speed, no headroom",
     [](Arguments& a, std::string_view) {
       a.sim.headroom = false;
       return true;
     }},
    {"json", "", "print JSON",
     [](Arguments& a, std::string_view) {
       a.json = true;
       return true;
     }},
};

constexpr Option kCalibrateOptions[] = {
    {"apps", "N", "how many applications of the generator (default 3)",
     [](Arguments& a, std::string_view v) {
       std::uint64_t n = 0;
       if (!number(v, 20, n)) return false;
       a.calibrate.applications = n;
       return true;
     }},
    {"seed", "S", "of the generator (default 1)",
     [](Arguments& a, std::string_view v) { return number(v, ~0ULL, a.calibrate.seed); }},
    {"seconds", "N", "per point of the grid, 4 or more (default 8)",
     [](Arguments& a, std::string_view v) {
       std::uint64_t n = 0;
       if (!number(v, 600, n) || n < 4) return false;
       a.calibrate.seconds = static_cast<int>(n);
       return true;
     }},
    {"json", "", "print JSON",
     [](Arguments& a, std::string_view) {
       a.json = true;
       return true;
     }},
};

int print_measured(const flash::Result<nlohmann::ordered_json>& measured, bool as_json) {
  if (!measured) {
    std::fprintf(stderr, "flash-bench: %s\n", measured.error().message().c_str());
    return kExitFailure;
  }
  if (as_json) {
    std::puts(measured->dump(2).c_str());
  } else {
    for (const auto& [key, value] : measured->items())
      std::printf("%-16s %s\n", key.c_str(), value.dump(value.is_object() ? 2 : -1).c_str());
  }
  return 0;
}

int sim(Arguments& a) {
  return print_measured(flash::bench::measure_sim(a.sim), a.json);
}

int calibrate(Arguments& a) {
  return print_measured(flash::bench::calibrate_sim(a.calibrate), a.json);
}

/// These link libtorch, this program does not: so that it can be installed without.
struct Delegated {
  std::string_view name, help;
  const char* program;
  bool with_name;  // the program has several commands
};
constexpr Delegated kDelegated[] = {
    {"learner", "policies, updates and flash-learner", "flash-bench-learner", false},
    {"adapt", "what each way to control earns on unseen pairs, and how fast", "flash-bench-meta", true},
    {"rcs", "the supervised agent with and without FLASH on public measurements", "flash-bench-meta", true},
    {"overhead", "what FLASH adds to a decision and to training (its Table 3)", "flash-bench-meta", true},
};

/// argv[0] is the command's name.
int delegate(const Delegated& to, char** argv) {
  const std::string program = flash::bench::beside_or(to.program, "");
  if (program.empty()) {
    std::fprintf(stderr, "flash-bench: %s is not beside flash-bench: it comes with package flash-learner\n",
                 to.program);
    return kExitFailure;
  }
  if (to.with_name) --argv;  // argv[-1], flash-bench itself, becomes the program's name
  argv[0] = const_cast<char*>(program.c_str());
  execv(program.c_str(), argv);
  std::fprintf(stderr, "flash-bench: %s: %s\n", program.c_str(), std::strerror(errno));
  return kExitFailure;
}

struct Command {
  std::string_view name;
  std::string_view help;
  std::span<const Option> options;
  int (*run)(Arguments& a);
};

constexpr Command kCommands[] = {
    {"tick", "cost of one tick: CPU, system calls, allocations, memory", kTickOptions, tick},
    {"daemon", "the running flashd: memory, CPU time, wake-ups", kDaemonOptions, daemon},
    {"sim", "the simulator: steps per second, and what a pool leaves to learn", kSimOptions, sim},
    {"calibrate", "the simulator against real runs of flash-workload under CPU limits (root)",
     kCalibrateOptions, calibrate},
};

void help() {
  std::puts("flash-bench COMMAND [OPTION]...");
  for (const auto& command : kCommands) {
    std::printf("\n%s: %s\n", std::string(command.name).c_str(), std::string(command.help).c_str());
    for (const auto& o : command.options) {
      const std::string left =
          "--" + std::string(o.name) + (o.value.empty() ? "" : " " + std::string(o.value));
      std::printf("  %-22s %s\n", left.c_str(), std::string(o.help).c_str());
    }
  }
  std::puts("");
  for (const Delegated& d : kDelegated)
    std::printf("%s: %s; flash-bench %s --help\n", std::string(d.name).c_str(), std::string(d.help).c_str(),
                std::string(d.name).c_str());
}

int usage(const std::string& what) {
  std::fprintf(stderr, "flash-bench: %s\nTry 'flash-bench --help'.\n", what.c_str());
  return kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  if (words.empty()) return usage("no command given");
  if (words[0] == "--help" || words[0] == "-h") {
    help();
    return 0;
  }
  for (const Delegated& d : kDelegated)
    if (words[0] == d.name) return delegate(d, argv + 1);
  for (const auto& command : kCommands) {
    if (command.name != words[0]) continue;
    Arguments arguments;
    for (std::size_t i = 1; i < words.size(); ++i) {
      auto name = words[i];
      if (name == "--help" || name == "-h") {
        help();
        return 0;
      }
      if (!name.starts_with("--")) return usage("unexpected '" + std::string(name) + "'");
      name.remove_prefix(2);
      std::optional<std::string_view> value;
      if (const auto equals = name.find('='); equals != std::string_view::npos) {
        value = name.substr(equals + 1);
        name = name.substr(0, equals);
      }
      const Option* option = nullptr;
      for (const auto& o : command.options)
        if (o.name == name) option = &o;
      if (!option) return usage("unknown option '" + std::string(words[i]) + "'");
      if (!option->value.empty() && !value) {
        if (++i == words.size()) return usage("--" + std::string(name) + " needs a value");
        value = words[i];
      }
      if ((option->value.empty() && value) || !option->set(arguments, value.value_or("")))
        return usage("'" + std::string(value.value_or("")) + "' is not a value of --" + std::string(name));
    }
    return command.run(arguments);
  }
  return usage("unknown command '" + std::string(words[0]) + "'");
}
