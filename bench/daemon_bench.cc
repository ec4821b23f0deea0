#include "bench/daemon_bench.h"

#include <chrono>
#include <fstream>
#include <string>
#include <vector>

#include "bench/interrupt.h"
#include "bench/program.h"
#include "core/json.h"

namespace flash::bench {

using nlohmann::json;

Result<json> measure_daemon(const DaemonOptions& options, const std::atomic<bool>& stop) {
  constexpr int kSettle = 5;  // seconds until rings and caches have their size
  FLASH_TRY(auto tree, BenchTree::make(options.tree, options.targets));
  const std::string config = tree->state_directory() + "/flashd.json";
  const std::string log = tree->state_directory() + "/log";
  std::ofstream(config) << json{{"period_s", options.period_s},
                                {"mode", options.mode},
                                {"state_directory", tree->state_directory()},
                                {"statsd", {{"socket", ""}}},
                                {"learner", {{"enabled", false}}},
                                {"rules", {{"bench", {{"select", {{"cgroup", tree->glob()}}}}}}}};
  std::vector<std::string> words = {options.program, "--bus", "none"};
  if (options.tree != TreeKind::Real) words.insert(words.end(), {"--root", tree->root().path("")});
  words.insert(words.end(), {"--lock", tree->state_directory() + "/lock", "--config", config});
  FLASH_TRY(auto flashd, Program::start(words, log));

  std::uint64_t step = 0;
  const auto run = [&](int seconds) -> Result<void> {
    for (int i = 0; i < seconds && flashd.running(); ++i) {
      tree->advance(++step);
      FLASH_CHECK(wait(std::chrono::seconds(1), stop));
    }
    return {};
  };
  FLASH_CHECK(run(kSettle));
  const Usage before = usage_of(flashd.pid());
  const auto start = std::chrono::steady_clock::now();
  FLASH_CHECK(run(options.seconds));
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!flashd.running()) {
    return Error(std::errc::io_error, options.program + " ended: " + last_words(log));
  }
  const Usage after = usage_of(flashd.pid());
  const int status = flashd.stop();
  const double cpu_ns = after.cpu_ns - before.cpu_ns;
  return json{{"targets", options.targets},
              {"tree", std::string(to_string(options.tree))},
              {"mode", options.mode},
              {"period_s", options.period_s},
              {"seconds", elapsed},
              {"rss_mib", after.rss_kib / 1024},
              {"rss_growth_kib", after.rss_kib - before.rss_kib},
              {"threads", after.threads},
              {"wakeups_per_s", (after.wakeups - before.wakeups) / elapsed},
              {"cpu_percent", cpu_ns / elapsed / 1e7},
              {"us_per_target", cpu_ns / 1e3 / (elapsed / options.period_s) / options.targets},
              {"exit_status", WIFEXITED(status) ? WEXITSTATUS(status) : -1}};
}

}  // namespace flash::bench
