#!/usr/bin/env bash
# Three servers as docs/CLUSTER.md has them: setup's configuration on each, the page's own text for the cluster, routes with
# TLS that strangers are kept from. A node is enrolled, one server is killed, records go on; a node that is revoked at one server
# is refused by the others, also by the one that was away.
#   coordinator_cluster.sh BIN_DIR
set -u
# shellcheck source=tests/support/cluster.sh
source "$(dirname "$0")/../support/cluster.sh" coordinator_cluster "$@"
page=$(dirname "$0")/../../docs/CLUSTER.md
nats_ports=(4222 4223 4224)
set_up
# The page's cluster block, with this machine's ports and paths.
block() {
  sed -n '/^    cluster {$/,/^    }$/p' "$page" |
    sed "s|/etc/flash-coordinator|$tmp/identity|; s|0.0.0.0:6222|127.0.0.1:$((6222 + $1))|; s|hub1.example:6222|127.0.0.1:6222|; s|hub2.example:6222|127.0.0.1:6223|; s|hub3.example:6222|127.0.0.1:6224|"
}
for i in 0 1 2; do
  sed "s|^include |include identity/|; s|^server_name: .*|server_name: hub$i|; s|127.0.0.1:4222|127.0.0.1:${nats_ports[i]}|; s|$tmp/nats|$tmp/state$i|" \
    "$tmp/identity/nats.conf" > "$tmp/nats$i.conf"
  block "$i" >> "$tmp/nats$i.conf"
  grep -q "^ *verify: true" "$tmp/nats$i.conf" || fail "the page has no cluster block"
done
for i in 0 1 2; do start_nats "$i"; done
# What was made for one server is held by three once the coordinator says so: the models' stream, the lease, the records.
servers_with() { find "$tmp"/state?/ -type d -path "*/streams/$1" | wc -l; }
everywhere() { [ "$(servers_with "$1")" = 3 ]; }
start_coordinator --replicas 1
until_true 60 grep -q "speaks to the nodes" "$tmp/coordinator.log" || fail "the coordinator does not connect"
model() { "$bin/flash-coordinator" --identity "$tmp/identity" --model-keys "$tmp/release.pub" model "$@" >> "$tmp/models.log" 2>&1; }
model keygen "$tmp/release" || fail "no key"
model sign "$(dirname "$0")/../../models/resource-limits.model" --key "$tmp/release" --model-version 1 --out "$tmp/signed" || fail "not signed"
model publish "$tmp/signed" || fail "not published: $(cat "$tmp/models.log")"
[ "$(servers_with FLASH_MODELS) $(servers_with KV_FLASH_LEASE)" = "1 1" ] || fail "one server each was asked for"
kill "$coordinator"
wait "$coordinator" || fail "the coordinator ended with an error"
start_coordinator --replicas 3 --judge-interval 1
until_true 60 grep -q "connected to" "$tmp/coordinator.log" || fail "the coordinator does not connect"
for stream in KV_FLASH_LEASE FLASH_MODELS; do
  until_true 60 everywhere $stream || fail "$stream is on $(servers_with $stream) servers"
done
listed() { : > "$tmp/models.log" && model list && grep -q "resource-limits *1 *10 %" "$tmp/models.log"; }
until_true 60 listed || fail "the models are gone: $(cat "$tmp/models.log")"

# A server with a certificate of another authority is no member, though it knows ours.
"$bin/flash-coordinator" setup --no-start --identity "$tmp/stranger" --server localhost > "$tmp/stranger-setup.log" 2>&1 || fail "setup of the stranger"
cat > "$tmp/nats3.conf" << END
server_name: stranger
listen: "127.0.0.1:4225"
cluster {
  name: flash, listen: "127.0.0.1:6225", routes: [ "nats://127.0.0.1:6222" ]
  tls { cert_file: "$tmp/stranger/server.pem", key_file: "$tmp/stranger/server.key", ca_file: "$tmp/identity/ca.pem" }
}
END
"$nats_server" -c "$tmp/nats3.conf" > "$tmp/nats3.log" 2>&1 &
pids+=($!)
until_true 20 grep -q "TLS route handshake error: .*certificate" "$tmp/nats0.log" || fail "a stranger is let into the cluster"

start_sync n1
start_feeder 20
until_true 60 at_least 60 || fail "no records: $(fleet)"
kill_nats 2
before=$(stored)
until_true 60 at_least $((before + 60)) || fail "nothing more came after one of three was killed"
"$bin/flash-coordinator" --identity "$tmp/identity" --store "$store" revoke n1 > "$tmp/revoke.log" 2>&1 ||
  { sleep 1; "$bin/flash-coordinator" --identity "$tmp/identity" --store "$store" revoke n1 >> "$tmp/revoke.log" 2>&1; } || fail "revoke"
until_true 20 grep -qi "authorization violation" "$tmp/sync.log" || fail "n1 is not cut off"
sleep 3
at=$(stored)
# The one that was away learns it from the others.
start_nats 2
until_true 60 grep -q "flash-sync .*authentication error" "$tmp/nats2.log" || fail "the server that was away never saw n1"
sleep 3
[ "$(stored)" = "$at" ] || fail "records of a revoked node are stored"
echo "three servers, $at records; revoked at all of them"
