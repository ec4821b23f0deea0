// flash-bench-cluster: what the way to the coordinator carries. Run as flash-bench cluster.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "bench/cluster_bench.h"
#include "bench/commands.h"
#include "core/json.h"

namespace flash::bench {
namespace {

using nlohmann::ordered_json;

struct Arguments {
  ClusterOptions cluster;
  bool json = false;
};

std::vector<OptionRow> option_rows(Arguments& a) {
  ClusterOptions& o = a.cluster;
  return {{"--agents", "N", "in the fleet (default 10000)", integer_into(o.agents, 1, 1000000)},
          {"--agents-per-node", "N", "(default 10)", integer_into(o.agents_per_node, 1, 1000)},
          {"--servers", "N", "nats-servers: 1, or a cluster of 3 with three replicas (default 1)",
           [&o](std::string_view text) -> Applied {
             if (text != "1" && text != "3") return UsageError{"'" + std::string(text) + "' is none of 1, 3"};
             o.servers = text == "1" ? 1 : 3;
             return std::nullopt;
           }},
          {"--rate", "N", "records per second that are offered (default 3000)", real_into(o.per_s, 1, 1e6)},
          {"--seconds", "N", "at that rate (default 30)", integer_into(o.seconds, 1, 100000)},
          {"--max-seconds", "N", "at the highest rate that is taken; 0: not (default 15)",
           integer_into(o.max_seconds, 0, 100000)},
          {"--connections", "N", "that the nodes share, a thread each (default 2)",
           integer_into(o.connections, 1, 64)},
          {"--json", "", "print JSON", flag_into(a.json)}};
}

void print(const ordered_json& r) {
  for (const auto& [key, value] : r.items()) std::printf("%-20s %s\n", key.c_str(), value.dump().c_str());
}

int run(const std::vector<std::string_view>& words) {
  Arguments a;
  const Command commands[] = {
      {"cluster", "what the way to the coordinator's store carries, and what it costs", option_rows(a),
       [&a] { return print_measured(measure_cluster(a.cluster), a.json, print); }}};
  if (words.empty()) return wrong_usage("no command given", "flash-bench --help");
  return run_command(commands, words, "flash-bench cluster --help");
}

}  // namespace
}  // namespace flash::bench

int main(int argc, char** argv) {
  return flash::bench::run({argv + (argc > 0 ? 1 : 0), argv + argc});
}
