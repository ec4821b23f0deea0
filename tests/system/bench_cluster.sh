#!/usr/bin/env bash
# flash-bench cluster, short: one server, then three; what is offered arrives, nothing is lost or there twice.
#   bench_cluster.sh BIN_DIR
set -u
for servers in 1 3; do
  result=$("$1/flash-bench" cluster --agents 200 --rate 100 --seconds 4 --max-seconds 3 --servers "$servers" --json) || exit 1
  jq -e --argjson servers "$servers" '.lost == 0 and .duplicated == 0 and .records_per_s > 0 and .max_records_per_s > 0
    and .ack_ms.p99 >= .ack_ms.p50 and (.nats_servers | length) == $servers' <<< "$result" > /dev/null ||
    { echo "bench_cluster: $result" >&2; exit 1; }
done
