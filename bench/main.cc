// flash-bench: what flashd costs on this host, and the way to what is measured by other programs: the learner, the cluster,
// the laboratory's experiments. flash-bench --help.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "bench/commands.h"
#include "bench/daemon_bench.h"
#include "bench/interrupt.h"
#include "bench/probe_bench.h"
#include "bench/program.h"
#include "bench/siege.h"
#include "bench/tick_bench.h"
#include "core/json.h"

namespace flash::bench {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

struct Arguments {
  std::vector<int> targets = {1, 10, 100, 1000};
  TickOptions tick;
  DaemonOptions daemon;
  ProbeOptions probe;
  SiegeOptions siege;
  bool soak = false;
  bool json = false;
  std::uint64_t ticks = 0;  // 0: as many as the kind of run asks for
};

/// "1,10,100".
std::function<Applied(std::string_view)> numbers_into(std::vector<int>& out) {
  return [&out](std::string_view text) -> Applied {
    out.clear();
    while (true) {
      const auto comma = text.find(',');
      int n = 0;
      if (auto error = integer_into(n, 1, 100000)(text.substr(0, comma))) return error;
      out.push_back(n);
      if (comma == std::string_view::npos) return std::nullopt;
      text.remove_prefix(comma + 1);
    }
  };
}

std::function<Applied(std::string_view)> real_cgroups_into(TreeKind& tree) {
  return [&tree](std::string_view) -> Applied {
    tree = TreeKind::Real;
    return std::nullopt;
  };
}

OptionRow real_row(TreeKind& tree) {
  return {"--real", "", "on real cgroups of this host, flashd-test-bench-PID (root)",
          real_cgroups_into(tree)};
}
OptionRow mode_row(std::string& mode) {
  return {"--mode", "MODE", "observe, recommend or control (default control)",
          choice_into(mode, {"observe", "recommend", "control"})};
}

std::vector<OptionRow> tick_rows(Arguments& a) {
  return {
      {"--targets", "N[,N...]", "how many cgroups (default 1,10,100,1000)", numbers_into(a.targets)},
      {"--ticks", "N", "measured ticks (default 300; with --soak 100000)",
       integer_into(a.ticks, 1, 100000000)},
      {"--tree", "v2|v1", "the fake machine's cgroup version (default v2)",
       [&a](std::string_view v) -> Applied {
         if (v != "v1" && v != "v2") return UsageError{"'" + std::string(v) + "' is none of v2, v1"};
         a.tick.tree = v == "v1" ? TreeKind::FakeV1 : TreeKind::FakeV2;
         return std::nullopt;
       }},
      real_row(a.tick.tree),
      mode_row(a.tick.mode),
      {"--soak", "", "100000 ticks; exits 1 if the heap has grown", flag_into(a.soak)},
      {"--no-syscalls", "", "do not count system calls", flag_into(a.tick.syscalls, false)},
      {"--json", "", "print JSON: an object for one N, else a list of them as \"runs\"", flag_into(a.json)}};
}

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
  a.tick.ticks = a.ticks != 0 ? a.ticks : a.soak ? kSoak : 300;
  stop_at_signals();
  json runs = json::array();
  int status = 0;
  if (!a.json)
    std::printf("%7s %8s %10s %10s %10s %12s %8s %10s\n", "targets", "us/target", "us/tick", "p99 wall",
                "sysc/target", "allocs/tick", "RSS MiB", "writes");
  for (const int n : a.targets) {
    a.tick.targets = n;
    auto measured = measure_tick(a.tick, stopped);
    if (!measured) return failed(measured.error());
    if (!a.json) print(*measured);
    if (a.soak && measured->value("heap_growth_bytes", std::int64_t{0}) > kSoakGrowthPerTarget * n) {
      std::fprintf(stderr, "flash-bench: the heap grew by %lld bytes in %llu ticks of %d targets\n",
                   measured->value("heap_growth_bytes", 0LL), static_cast<unsigned long long>(a.tick.ticks),
                   n);
      status = kExitFailure;
    }
    runs.push_back(*std::move(measured));
  }
  if (a.json) std::puts(with_provenance(runs.size() == 1 ? runs[0] : json{{"runs", runs}}).dump(2).c_str());
  return status;
}

std::vector<OptionRow> daemon_rows(Arguments& a) {
  return {{"--targets", "N", "how many cgroups (default 100)", integer_into(a.daemon.targets, 1, 100000)},
          {"--seconds", "N", "how long to measure, after 5 s to settle (default 20)",
           integer_into(a.daemon.seconds, 1, 1000000)},
          real_row(a.daemon.tree),
          mode_row(a.daemon.mode),
          {"--flashd", "PROGRAM", "the daemon (default: beside flash-bench, else /usr/sbin/flashd)",
           absolute_path_into(a.daemon.program)},
          json_row(a.json)};
}

int daemon(Arguments& a) {
  if (a.daemon.program.empty()) a.daemon.program = beside_or("flashd", "/usr/sbin/flashd");
  stop_at_signals();
  return print_measured(measure_daemon(a.daemon, stopped), a.json, print_keys<json>);
}

std::vector<OptionRow> probe_rows(Arguments& a) {
  return {
      {"--cgroups", "N", "how many cgroups for the share of a core (default 1000)",
       integer_into(a.probe.cgroups, 1, 10000)},
      {"--seconds", "N", "how long each part measures (default 5)", integer_into(a.probe.seconds, 1, 600)},
      json_row(a.json)};
}

int probe(const Arguments& a) {
  stop_at_signals();
  return print_measured(measure_probe(a.probe, stopped), a.json, print_keys<ordered_json>);
}

std::vector<OptionRow> siege_rows(Arguments& a) {
  return {{"--seconds", "N", "of each flood, and of none (default 20; with --quick 2)",
           integer_into(a.siege.seconds, 1, 3600)},
          {"--quick", "", "a short form, for a look", flag_into(a.siege.quick)},
          {"--flashd", "PROGRAM", "the daemon (default: beside flash-bench, else /usr/sbin/flashd)",
           absolute_path_into(a.siege.program)},
          json_row(a.json)};
}

void print_siege(const ordered_json& r) {
  std::printf("%-8s %10s %13s %13s %8s %15s %8s\n", "flood", "late ticks", "lines lost", "root p99 ms",
              "peak MiB", "descriptors", "CPU %");
  const auto line = [](const std::string& name, const ordered_json& row) {
    if (row.contains("trouble")) {
      print_line(stdout, name + "  " + row["trouble"].get<std::string>());
      return;
    }
    const auto n = [&row](const char* key) { return row[key].is_number() ? row[key].get<double>() : -1; };
    std::printf("%-8s %3.0f of %3.0f %5.0f of %4.0f %13.1f %8.1f %6.0f -> %5.0f %8.1f\n", name.c_str(),
                n("late_ticks"), n("ticks"), n("victim_lines_lost"), n("victim_lines_sent"),
                n("root_hold_ms_p99"), n("rss_peak_mib"), n("fds_before"), n("fds_after"), n("cpu_pct"));
  };
  line("quiet", r["quiet"]);
  for (const auto& [name, row] : r["floods"].items()) line(name, row);
}

int siege(Arguments& a) {
  if (a.siege.program.empty()) a.siege.program = beside_or("flashd", "/usr/sbin/flashd");
  if (a.siege.seconds == 0) a.siege.seconds = a.siege.quick ? 2 : 20;
  stop_at_signals();
  return print_measured(measure_siege(a.siege, stopped), a.json, print_siege);
}

/// These link libtorch or libnats, or are the laboratory's; this program is and does neither: so that it can be installed
/// without.
struct Delegated {
  std::string_view name, help;
  const char* program;
  const char* package = "flash-learner";
};
constexpr Delegated kDelegated[] = {
    {"sim", "the simulator: steps per second, and what a pool leaves to learn", "flash-bench-lab",
     "flashd-tools"},
    {"calibrate", "the simulator against real runs of flash-workload under CPU limits (root)",
     "flash-bench-lab", "flashd-tools"},
    {"live", "real applications under fixed limits, the rules, and flashd with pretrained models (root)",
     "flash-bench-lab", "flashd-tools"},
    {"report", "one HTML page of the experiments' results", "flash-bench-lab", "flashd-tools"},
    {"learner", "policies, updates and flash-learner", "flash-bench-learner"},
    {"adapt", "what each way to control earns on unseen pairs, and how fast", "flash-bench-meta"},
    {"bootstrap", "SLO violations and utilisation while agents learn (AWARE 5.4)", "flash-bench-meta"},
    {"serve", "what is lost while applications are updated under a serving policy (AWARE 5.3)",
     "flash-bench-meta"},
    {"characterize",
     "what unadapted models lose on other applications, updates, processors (FLASH Figs. 4, 13)",
     "flash-bench-meta"},
    {"predict", "what the similarity of embeddings says about a move to another pair (FLASH 5.5)",
     "flash-bench-meta"},
    {"amortize", "from how many pairs on pretraining pays (FLASH A.7)", "flash-bench-meta"},
    {"cluster", "what the way to the coordinator's store carries, and what it costs", "flash-bench-cluster",
     "flash-coordinator"},
    {"rcs", "the supervised agent with and without FLASH on public measurements", "flash-bench-meta"},
    {"overhead", "what FLASH adds to a decision and to training (its Table 3)", "flash-bench-meta"},
};

/// Becomes `to`'s program, with the words that flash-bench got. Nobody else runs it: it is no command.
int delegate(const Delegated& to, char** argv) {
  const std::string program =
      beside_or(to.program, beside_or(std::string("../libexec/flashd/") + to.program, ""));
  if (program.empty()) {
    std::fprintf(stderr, "flash-bench: %s is not installed: it comes with package %s\n", to.program,
                 to.package);
    return kExitFailure;
  }
  argv[0] = const_cast<char*>(program.c_str());
  execv(program.c_str(), argv);
  std::fprintf(stderr, "flash-bench: %s: %s\n", program.c_str(), std::strerror(errno));
  return kExitFailure;
}

void help(std::span<const Command> commands) {
  std::printf("flash-bench COMMAND [OPTION]...\n\n%s\n", describe_commands(commands).c_str());
  for (const Delegated& d : kDelegated)
    std::printf("%s: %s; flash-bench %s --help\n", std::string(d.name).c_str(), std::string(d.help).c_str(),
                std::string(d.name).c_str());
}

int run(char** argv, std::span<const std::string_view> words) {
  static const std::string kHint = "flash-bench --help";
  Arguments a;
  const Command commands[] = {
      {"tick", "cost of one tick: CPU, system calls, allocations, memory", tick_rows(a),
       [&a] { return tick(a); }},
      {"daemon", "the running flashd: memory, CPU time, wake-ups", daemon_rows(a),
       [&a] { return daemon(a); }},
      {"probe", "the eBPF probe: cost per context switch, share of a core, accuracy (root)", probe_rows(a),
       [&a] { return probe(a); }},
      {"siege", "what floods of a hostile neighbour cost flashd, its targets and root (root)", siege_rows(a),
       [&a] { return siege(a); }},
  };
  if (words.empty()) return wrong_usage("no command given", kHint);
  if (words[0] == "--help" || words[0] == "-h") {
    help(commands);
    return 0;
  }
  for (const Delegated& d : kDelegated)
    if (words[0] == d.name) return delegate(d, argv);
  return run_command(commands, words, kHint);
}

}  // namespace
}  // namespace flash::bench

int main(int argc, char** argv) {
  const std::vector<std::string_view> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  return flash::bench::run(argv, words);
}
