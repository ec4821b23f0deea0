// flash-bench-learner: what learned policies and flash-learner cost on this host. Run as flash-bench learner.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "agents/agent.h"
#include "bench/commands.h"
#include "bench/learner_bench.h"
#include "bench/learner_process.h"
#include "bench/program.h"
#include "core/json.h"
#include "core/network_kernels.h"
#include "policy/observation_space.h"
#include "policy/tasks/cpu_frequency.h"

namespace flash::bench {
namespace {

using nlohmann::json;

struct Arguments {
  LearnerProcessOptions process;
  std::string python = "/usr/bin/python3";  // Debian's, which python3-torch belongs to
  std::string script;
  bool json = false;
};

std::vector<OptionRow> option_rows(Arguments& a) {
  return {
      {"--agents", "N", "of the flash-learner that is watched (default 100)",
       integer_into(a.process.agents, 1, 10000)},
      {"--seconds", "N", "how long it is watched (default 20)", integer_into(a.process.seconds, 1, 100000)},
      {"--learner", "PROGRAM", "flash-learner (default: beside this program, else /usr/sbin/flash-learner)",
       absolute_path_into(a.process.program)},
      {"--python", "PROGRAM", "runs the PyTorch side (default /usr/bin/python3)",
       absolute_path_into(a.python)},
      {"--json", "", "print JSON", flag_into(a.json)}};
}

/// What `words` prints, and its exit status (127: could not be run).
std::string output_of(const std::vector<std::string>& words, int& status) {
  int ends[2];
  status = 127;
  if (pipe(ends) != 0) return {};
  const pid_t pid = fork();
  if (pid == 0) {
    std::vector<char*> argv;
    for (const auto& w : words) argv.push_back(const_cast<char*>(w.c_str()));
    argv.push_back(nullptr);
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    // One thread, as flash-learner; these are read before Python could set them.
    for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"})
      setenv(name, "1", 1);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; pid > 0 && (n = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  int waited = 0;
  if (pid > 0 && waitpid(pid, &waited, 0) == pid && WIFEXITED(waited)) status = WEXITSTATUS(waited);
  return text;
}

/// {"version", "decision_us", "decision_batched_us", "update_us": {"ddpg", "q"}}, or a text: why not.
json pytorch(const Arguments& a) {
  if (access(a.python.c_str(), X_OK) != 0) return a.python + " is not there";
  const json shapes = {{"agents", 1000},
                       {"state", state_dim(Task::ResourceLimits)},
                       {"actions", action_dim(Task::ResourceLimits)},
                       {"frequency_state", state_dim(Task::CpuFrequency)},
                       {"levels", action_dim(Task::CpuFrequency)}};
  int status = 0;
  const std::string text = output_of({a.python, a.script, shapes.dump()}, status);
  json measured = json::parse(text, nullptr, false);
  if (status == 0 && measured.is_object()) return measured;
  const auto end = text.find_last_not_of('\n');
  const auto line = end == std::string::npos ? 0 : text.rfind('\n', end);
  const std::string last = end == std::string::npos
                               ? "it printed nothing"
                               : text.substr(line == std::string::npos ? 0 : line + 1, 300);
  return a.script + " ended with status " + std::to_string(status) + ": " + last.substr(0, last.find('\n'));
}

json ratio(const json& theirs, const json& ours) {
  if (!theirs.is_number() || !ours.is_number() || ours.get<double>() <= 0) return nullptr;
  return theirs.get<double>() / ours.get<double>();
}

Result<json> measure(const Arguments& a) {
  constexpr int kUpdates = 1000;
  std::string warning;
  const std::string blas = prepare_libtorch(warning);
  json out = {{"kernel", network_kernels().front().name}, {"blas", blas}};
  if (!warning.empty()) out["warning"] = warning;

  FLASH_TRY(out["decision_us"], measure_decisions());
  FLASH_TRY(out["snapshot_swap_us"], measure_swap());

  // PyTorch's turn comes between two of ours: a host that grows busy or quiet is so for both.
  FLASH_TRY(UpdateBench updates, UpdateBench::make());
  updates.measure(kUpdates / 2);
  const json theirs = pytorch(a);
  updates.measure(kUpdates / 2);
  for (const Algorithm& algorithm : algorithms()) {
    const json times = percentiles(updates.times(algorithm.name));
    out["update_us"][algorithm.name] = times["p50"];
    out["update_p99_us"][algorithm.name] = times["p99"];
  }
  const bool known = theirs.is_object();
  const auto their = [&](const char* key) { return known ? theirs.value(key, json()) : json(); };
  const json their_update = known ? theirs.value("update_us", json::object()) : json::object();
  out["pytorch"] = theirs;
  out["vs_pytorch"] = {
      {"decision", ratio(their("decision_us"), out["decision_us"]["1000"]["p50"])},
      {"decision_batched", ratio(their("decision_batched_us"), out["decision_us"]["1000"]["p50"])},
      {"update", ratio(their_update.value("ddpg", json()), out["update_us"]["ddpg"])},
      {"update_q", ratio(their_update.value("q", json()), out["update_us"]["q"])}};

  const auto process = measure_learner_process(a.process);
  if (process) {
    out["learner"] = *process;
    out["rss_mib"] = (*process)["rss_mib"];
    out["cpu_share"] = (*process)["cpu_share"];
  } else {
    out["learner"] = process.error().message();
    out["rss_mib"] = out["cpu_share"] = nullptr;
  }
  return out;
}

void print(const json& r) {
  const auto text = [](const json& value) {
    if (!value.is_number()) return std::string("-");
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.2f", value.get<double>());
    return std::string(digits);
  };
  std::printf("kernel %s; %s\n\n%-14s %10s %10s %10s %10s\n", r["kernel"].get<std::string>().c_str(),
              r["blas"].get<std::string>().c_str(), "us", "p50", "p99", "cold p50", "cold p99");
  for (const char* agents : {"1", "10", "100", "1000"}) {
    const json& row = r["decision_us"][agents];
    std::printf("decide %-7s %10s %10s %10s %10s\n", agents, text(row["p50"]).c_str(),
                text(row["p99"]).c_str(), text(row["cold_p50"]).c_str(), text(row["cold_p99"]).c_str());
  }
  std::printf("%-14s %10s %10s\n", "swap", text(r["snapshot_swap_us"]["p50"]).c_str(),
              text(r["snapshot_swap_us"]["p99"]).c_str());
  for (const Algorithm& a : algorithms())
    std::printf("%-14s %10s %10s\n", a.name.c_str(), text(r["update_us"][a.name]).c_str(),
                text(r["update_p99_us"][a.name]).c_str());
  std::printf(
      "\nPyTorch takes %s times as long to decide (%s in one batch), %s for an update of DDPG, %s of Q\n",
      text(r["vs_pytorch"]["decision"]).c_str(), text(r["vs_pytorch"]["decision_batched"]).c_str(),
      text(r["vs_pytorch"]["update"]).c_str(), text(r["vs_pytorch"]["update_q"]).c_str());
  if (r["pytorch"].is_string()) std::printf("PyTorch: %s\n", r["pytorch"].get<std::string>().c_str());
  std::printf("flash-learner: %s MiB resident, %s of a CPU\n", text(r["rss_mib"]).c_str(),
              text(r["cpu_share"]).c_str());
  if (r["learner"].is_string()) std::printf("flash-learner: %s\n", r["learner"].get<std::string>().c_str());
}

int run(const std::vector<std::string_view>& words) {
  static const std::string kHint = "flash-bench learner --help";
  Arguments a;
  const Command commands[] = {{"learner", "policies, updates and flash-learner", option_rows(a), [&a] {
                                 if (a.process.program.empty())
                                   a.process.program = beside_or("flash-learner", "/usr/sbin/flash-learner");
                                 a.script = beside_or("pytorch_baseline.py",
                                                      "/usr/share/flashd/pytorch_baseline.py");
                                 return print_measured(measure(a), a.json, print);
                               }}};
  if (words.empty()) return wrong_usage("no command given", kHint);
  return run_command(commands, words, kHint);
}

}  // namespace
}  // namespace flash::bench

int main(int argc, char** argv) {
  return flash::bench::run({argv + (argc > 0 ? 1 : 0), argv + argc});
}
