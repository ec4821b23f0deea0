// flash-simnode: a simulated node with a real learner and a real flash-sync; scripts/cluster-demo has many.
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <vector>

#include "bench/commands.h"
#include "lab/experiments/sim_node.h"

namespace flash::lab {
namespace {

std::atomic<bool> told_to_end = false;

std::vector<OptionRow> option_rows(SimNodeOptions& o, double& period_s, int& first, int& agents, int& update,
                                   bool& help) {
  return {{"--learner", "PATH", "socket for flash-learner", text_into(o.learner)},
          {"--sync", "PATH", "socket for flash-sync", text_into(o.sync)},
          {"--report", "FILE", "what the agents are at, as JSON", text_into(o.report)},
          {"--pool-seed", "N", "of the pairs that are drawn (default 1)",
           integer_into(o.pool.seed, 0, UINT64_MAX)},
          {"--first", "N", "the node's first pair (default 0)", integer_into(first, 0, 100000)},
          {"--agents", "N", "pairs from there on (default 1)", integer_into(agents, 1, 1000)},
          {"--update", "N", "its applications after AWARE 2.3's update N, 0 to 6 (default: as drawn)",
           integer_into(update, 0, kUpdateScenarios - 1)},
          {"--period", "SECONDS", "in which a simulated second passes (default 0.05)",
           real_into(period_s, 0.001, 60)},
          {"--episode-steps", "N", "(default 100)", integer_into(o.episode_steps, 10, 100000)},
          {"--seed", "N", "of chance (default 1)", integer_into(o.seed, 0, UINT64_MAX)},
          {"--help", "", "print this and end", flag_into(help)}};
}

int run(const std::vector<std::string_view>& words) {
  SimNodeOptions options;
  double period_s = 0.05;
  int first = 0, agents = 1, update = -1;
  bool help = false;
  const auto rows = option_rows(options, period_s, first, agents, update, help);
  if (const auto wrong = apply_options(rows, words))
    return bench::wrong_usage(wrong->message, "flash-simnode --help");
  if (help) {
    std::printf("flash-simnode [OPTION]...\n\n%s", describe_options(rows).c_str());
    return 0;
  }
  if (options.learner.empty() || options.sync.empty() || options.report.empty())
    return bench::wrong_usage("needs --learner, --sync and --report", "flash-simnode --help");
  options.period = from_seconds(period_s);
  options.first = static_cast<std::size_t>(first);
  options.agents = static_cast<std::size_t>(agents);
  if (update >= 0) options.update = update;
  for (const int signal : {SIGINT, SIGTERM}) ::signal(signal, [](int) { told_to_end = true; });
  auto node = SimNode::open(options);
  if (!node) return bench::failed(node.error());
  (*node)->run([] { return told_to_end.load(); });
  return 0;
}

}  // namespace
}  // namespace flash::lab

int main(int argc, char** argv) {
  return flash::lab::run({argv + (argc > 0 ? 1 : 0), argv + argc});
}
