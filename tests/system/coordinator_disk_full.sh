#!/usr/bin/env bash
# The disk of the server, where both the stream and the coordinator's store live, is full for half a minute while a node
# tells 100 episodes per second. nats-server 2.9.10 wedges then: its stream answers nobody, and it does not even end when asked
# to (SIGTERM), so that it has to be killed and started again once there is room. Every episode is stored exactly once, counted at both ends.
#   coordinator_disk_full.sh BIN_DIR [SECONDS]
set -u
# A mount of the test's own.
if [ -z "${FLASH_TEST_MOUNT-}" ]; then FLASH_TEST_MOUNT=own exec unshare --mount "$0" "$@"; fi
# shellcheck source=tests/support/cluster.sh
source "$(dirname "$0")/../support/cluster.sh" coordinator_disk_full "$@"
full_s=${3:-30}
mkdir "$tmp/disk"
trap 'umount --lazy "$tmp/disk"; cleanup' EXIT
mount -t tmpfs -o size=64m tmpfs "$tmp/disk" || fail "no disk of its own"
set_up
write_nats_conf
sed -i "s|$tmp/jetstream0|$tmp/disk/jetstream|" "$tmp/nats0.conf"
mkdir "$tmp/disk/jetstream"
store=$tmp/disk/store.db
start_nats
start_coordinator
start_sync n1
start_feeder 100
until_true 30 at_least 300 || fail "no records: $(fleet)"

dd if=/dev/zero of="$tmp/disk/filler" bs=64k 2> /dev/null
[ "$(df --output=avail "$tmp/disk" | tail -n 1)" -lt 16 ] || fail "the disk is not full"
stands_still() { local n; n=$(stored); sleep 3; [ "$(stored)" = "$n" ]; }
until_true 60 stands_still || fail "records are stored on a full disk: $(fleet | jq -c 'del(.nodes)')"
before=$(stored) told=$(fed)
sleep "$full_s"
[ "$(stored)" = "$before" ] || fail "records are stored on a full disk"
[ "$(fed)" -gt $((told + 20 * full_s)) ] || fail "the node stopped taking episodes: $told, then $(fed)"
grep -qi "no space left\|disk full\|database or disk is full" "$tmp/coordinator.log" "$tmp/nats0.log" || fail "nobody says that the disk is full"

rm "$tmp/disk/filler"
kill_nats
start_nats
until_true 120 at_least $(($(fed) + 100)) || fail "nothing more came: $(fleet | jq -c 'del(.nodes)')"
expect_exactly_once
