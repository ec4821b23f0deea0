#!/usr/bin/env bash
# The node's network is cut without a word while it tells 100 episodes per second: its end of a cable goes down for so long
# (default 60 s). Every episode is stored exactly once, counted at both ends.
#   coordinator_network_cut.sh BIN_DIR [SECONDS]
set -u
# shellcheck source=tests/support/cluster.sh
source "$(dirname "$0")/../support/cluster.sh" coordinator_network_cut "$@"
cut_s=${3:-60}
nats_host=10.77.0.1
set_up
write_nats_conf
start_nats

# A network for the node, a cable between: hub <-> node.
unshare --net sleep infinity &
node=$!
pids+=("$node")
other_network() { [ "$(readlink "/proc/$node/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }
until_true 10 other_network || fail "no network for the node"
in_node() { nsenter --net --target "$node" "$@"; }
ip link add hub type veth peer name cable netns "$node" || fail "no cable"
ip addr add 10.77.0.1/24 dev hub && ip link set hub up
in_node ip link set lo up && in_node ip addr add 10.77.0.2/24 dev cable && in_node ip link set cable up || fail "no cable"
sync_page() { in_node bash -c 'exec 3<> /dev/tcp/127.0.0.1/9942 && printf "GET /metrics HTTP/1.1\r\nHost: l\r\nConnection: close\r\n\r\n" >&3 && tr -d "\r" <&3'; }

start_coordinator
start_sync n1 nsenter --net --target "$node"
start_feeder 100
until_true 30 at_least 200 || fail "no records: $(fleet)"

ip link set hub down
sleep 2  # what was on its way has come
before=$(stored) told=$(fed)
sleep "$((cut_s - 2))"
[ "$(stored)" = "$before" ] || fail "records came through a network that was cut"
[ "$(fed)" -ge $((told + 50 * (cut_s - 2))) ] || fail "flash-sync did not take what was told meanwhile: $told, then $(fed)"
ip link set hub up
until_true 120 at_least $(($(fed) + 100)) || fail "nothing more came: $(fleet | jq -c 'del(.nodes)')"
expect_exactly_once
