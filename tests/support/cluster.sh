# What the tests of the way to the coordinator share: nats-server, flash-coordinator and flash-sync, over TLS, in a network
# of the test's own, so that ports are free and nothing of it is the machine's. Sourced after `set -u`, with the test's name and
# the script's arguments, of which the first is the folder of programs. Needs root.
#   $store              the coordinator's; identities lie beside it
#   $bin, $nats_ports   programs, and where servers listen; ${nats[I]}, $coordinator, $sync, $feeder: processes
if [ -z "${FLASH_TEST_NETWORK-}" ]; then FLASH_TEST_NETWORK=own exec unshare --net "$0" "${@:2}"; fi
bin=$2
# shellcheck source=tests/support/system_test.sh
source "$(dirname "${BASH_SOURCE[0]}")/system_test.sh" "$1"
ip link set lo up
nats_server=$(command -v nats-server || echo /usr/sbin/nats-server)
[ -x "$nats_server" ] || fail "nats-server is not installed"
nats_ports=(4222)
nats_host=localhost
store=$tmp/store.db
nats=()
metrics_port=9942

fleet() { "$bin/flash-coordinator" --store "$store" --json fleet 2> /dev/null; }
of_fleet() { fleet | jq -r "$1"; }
stored() { of_fleet '.records // 0'; }
at_least() { [ "$(stored)" -ge "$1" ] 2> /dev/null; }
# What flash-sync counts: through the shell's own TCP.
sync_page() {
  exec 3<> "/dev/tcp/127.0.0.1/$metrics_port" || return 1
  printf 'GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
  tr -d '\r' <&3
  exec 3>&-
}
sync_says() { sync_page 2> /dev/null | sed -n "s/^flash_sync_outbox_events_total{event=\"$1\"} //p"; }

# Keys, certificates, credentials, as an operator makes them, in $tmp/identity; nodes then reach the servers at localhost.
set_up() {
  local p
  "$bin/flash-coordinator" setup --no-start --identity "$tmp/identity" --nats-state "$tmp/nats" --server localhost --server 10.77.0.1 \
    --nats-listen 127.0.0.1:4222 > "$tmp/setup.log" 2>&1 || fail "setup"
  for p in "${nats_ports[@]}"; do echo "tls://localhost:$p"; done > "$tmp/identity/servers"
}
token_for() { "$bin/flash-coordinator" --identity "$tmp/identity" --store "$store" enroll "$@" 2>> "$tmp/tokens.log"; }
# enroll_node NODE: its identity is $tmp/NODE. The coordinator runs, or is about to.
enroll_node() {
  local token
  token=$(token_for "$1") || fail "no token for $1"
  enrolled() { "$bin/flash-sync" --identity "$tmp/$1" enroll "$token" >> "$tmp/enroll.log" 2>&1; }
  until_true 60 enrolled "$1" || fail "$1 is not enrolled"
}

# write_nats_conf [I]: the server's configuration; with several $nats_ports it is one of a cluster.
write_nats_conf() {
  local i=${1:-0} p routes=''
  mkdir -p "$tmp/jetstream$i"
  cat > "$tmp/nats$i.conf" << EOF
server_name: nats$i
listen: "0.0.0.0:${nats_ports[i]}"
tls { cert_file: "$tmp/identity/server.pem", key_file: "$tmp/identity/server.key" }
jetstream { store_dir: "$tmp/jetstream$i", max_file_store: 8GB, max_memory_store: 8MB }
include identity/accounts.conf
resolver: { type: full, dir: "$tmp/accounts$i" }
EOF
  [ ${#nats_ports[@]} -gt 1 ] || return 0
  for p in "${nats_ports[@]}"; do routes+="\"nats://127.0.0.1:$((p + 2000))\", "; done
  echo "cluster { name: test, listen: \"127.0.0.1:$((nats_ports[i] + 2000))\", routes: [${routes%, }] }" >> "$tmp/nats$i.conf"
}
nats_urls() {
  local p urls=''
  for p in "${nats_ports[@]}"; do urls+=,tls://$nats_host:$p; done
  echo "${urls#,}"
}
# start_nats [I]
start_nats() {
  local i=${1:-0}
  : > "$tmp/nats$i.log"
  "$nats_server" -c "$tmp/nats$i.conf" >> "$tmp/nats$i.log" 2>&1 &
  nats[i]=$!
  pids+=("${nats[i]}")
  until_true 30 grep -q "Listening for client connections" "$tmp/nats$i.log" || fail "nats-server $i did not start"
}
# kill_now PID
kill_now() {
  kill -9 "$1"
  wait "$1" 2> /dev/null
}
kill_nats() { kill_now "${nats[${1:-0}]}"; }
# start_coordinator [OPTION...]
start_coordinator() {
  "$bin/flash-coordinator" --nats "$(nats_urls)" --nats-ca "$tmp/identity/ca.pem" --identity "$tmp/identity" \
    --nats-credentials "$tmp/identity/coordinator.creds" --store "$store" "$@" 2>> "$tmp/coordinator.log" &
  coordinator=$!
  pids+=("$coordinator")
}
# start_sync NODE [COMMAND...]: with the credentials of n1; through a command that runs it elsewhere
start_sync() {
  local node=$1
  shift
  [ -e "$tmp/n1" ] || enroll_node n1
  : > "$tmp/sync.log"
  "$@" "$bin/flash-sync" --socket "$tmp/sync.sock" --listen "127.0.0.1:$metrics_port" --textfile none --nats "$(nats_urls)" \
    --nats-ca "$tmp/n1/ca.pem" --nats-credentials "$tmp/n1/node.creds" --node "$node" --outbox "$tmp/outbox.db" 2>> "$tmp/sync.log" &
  sync=$!
  pids+=("$sync")
  until_true 30 grep -q "serving http" "$tmp/sync.log" || fail "flash-sync did not start"
}

# start_feeder PER_SECOND: made-up episodes of ten agents.
start_feeder() {
  "$bin/episode-feeder" "$tmp/sync.sock" "$tmp/fed" 10 "$1" 2>> "$tmp/feeder.log" &
  feeder=$!
  pids+=("$feeder")
}
fed() { local told=0; read -r told _ < "$tmp/fed" 2> /dev/null; echo "$told"; }
# The feeder tells no more and ends, since flash-sync has all.
end_feeder() {
  kill "$feeder"
  wait "$feeder" || fail "the feeder ended with an error"
}
outbox_says() { sqlite3 "$tmp/outbox.db" "SELECT $1 FROM state"; }
# Neither under its key nor by what it says.
expect_no_row_twice() {
  local rows n
  n=$(stored)
  rows=$(sqlite3 "$store" 'SELECT count(*), count(DISTINCT run || "/" || seq), count(DISTINCT agent || "/" || episode || "/" || time_us) FROM records')
  [ "$rows" = "$n|$n|$n" ] || fail "the store counts $n and has $rows rows: by key, by what they say"
}
# expect_exactly_once: what was told is stored, once; the books of the feeder, the node's outbox and the store agree.
expect_exactly_once() {
  local told dropped
  end_feeder
  read -r told _ dropped < "$tmp/fed"
  [ "$dropped" = 0 ] || fail "the feeder dropped $dropped"
  all_there() { [ "$(stored)" = "$told" ] && [ "$(outbox_says confirmed)" = "$told" ]; }
  until_true 90 all_there ||
    fail "told $told, taken $(outbox_says taken), confirmed $(outbox_says confirmed), stored $(stored)"
  [ "$(outbox_says taken)" = "$told" ] && [ "$(outbox_says thinned)" = 0 ] || fail "told $told, taken $(outbox_says taken), thinned $(outbox_says thinned)"
  expect_no_row_twice
  [ "$(of_fleet .refused)" = 0 ] || fail "messages were refused"
  echo "$test_name: $told episodes told, taken, confirmed and stored once; $(of_fleet .duplicates) came more than once"
}
