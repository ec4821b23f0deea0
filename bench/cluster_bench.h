// Purpose: what the way to the coordinator's store carries, and what it costs: real nats-servers and a real
// flash-coordinator on this host, nodes as bench/cluster_nodes.h has them.
// Ownership: leaves nothing behind.
// Thread rule: one thread, which waits.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "core/result.h"

namespace flash::bench {

struct ClusterOptions {
  int agents = 10000;
  int agents_per_node = 10;
  int servers = 1;       // 1 or 3; with 3 each holds the stream
  int seconds = 30;      // of the sustained rate
  int max_seconds = 15;  // of the highest one; 0: it is not measured
  double per_s = 3000;   // records per second that are offered
  int connections = 2;   // that the nodes share
};

Result<nlohmann::ordered_json> measure_cluster(const ClusterOptions& options);

}  // namespace flash::bench
