#!/usr/bin/env bash
# Three clustered servers hold the stream; the one that leads it is killed (-9), twice, while a node tells 100 episodes per
# second. Every episode is stored exactly once, counted at both ends.
#   coordinator_leader_killed.sh BIN_DIR
set -u
# shellcheck source=tests/support/cluster.sh
source "$(dirname "$0")/../support/cluster.sh" coordinator_leader_killed "$@"
nats_ports=(4222 4223 4224)
set_up
for i in 0 1 2; do write_nats_conf "$i"; done
for i in 0 1 2; do start_nats "$i"; done

# The server whose log says last that it leads the stream's group.
leader() {
  grep -H "JetStream cluster new stream leader for '[A-Z0-9]* > FLASH_UP'" "$tmp"/nats[012].log | sort -t' ' -k3,4 | tail -n 1 |
    sed 's/.*nats\([0-9]\)\.log.*/\1/'
}
start_coordinator --replicas 3
start_sync n1
start_feeder 100
until_true 90 at_least 100 || fail "no records: $(fleet)"
until_true 10 test -n "$(leader)" || fail "no server leads the stream"

for _ in 1 2; do
  victim=$(leader) before=$(stored)
  kill_nats "$victim"
  until_true 90 at_least $((before + 1000)) || fail "nothing more came after server $victim was killed: $(fleet | jq -c 'del(.nodes)')"
  echo "server $victim led and was killed; $(leader) leads"
  start_nats "$victim"
done
expect_exactly_once
