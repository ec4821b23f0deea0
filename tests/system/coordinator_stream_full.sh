#!/usr/bin/env bash
# The stream has room for a few seconds of episodes only: its oldest go, and nothing stands still, also after the coordinator
# was away. Every episode is stored exactly once, counted at both ends.
#   coordinator_stream_full.sh BIN_DIR
set -u
# shellcheck source=tests/support/cluster.sh
source "$(dirname "$0")/../support/cluster.sh" coordinator_stream_full "$@"
set_up
write_nats_conf
start_nats
start_coordinator --stream-mib 1
start_sync n1
start_feeder 400
# Some 700 bytes each: 1 MiB is 1,500 of them.
until_true 60 at_least 6000 || fail "a full stream stops: $(fleet | jq -c 'del(.nodes)')"
kill_now "$coordinator"
before=$(stored)
sleep 10
start_coordinator --stream-mib 1
until_true 90 at_least $((before + 4000)) || fail "nothing more came: $(fleet | jq -c 'del(.nodes)')"
expect_exactly_once
