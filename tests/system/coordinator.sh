#!/usr/bin/env bash
# The whole way of an episode: the real flashd, flash-sync, nats-server and flash-coordinator. The agents of a node appear in
# the fleet view; the server is killed (-9) twice and the coordinator and flash-sync once each meanwhile; every episode that
# flashd told is stored exactly once, counted at both ends. All of it over TLS; a user of the server that is not this node may not speak for it.
#   coordinator.sh BIN_DIR
set -u
bin=$1
# shellcheck source=tests/support/system_test.sh
source "$(dirname "$0")/../support/system_test.sh" coordinator
nats_server=$(command -v nats-server || echo /usr/sbin/nats-server)
[ -x "$nats_server" ] || fail "nats-server is not installed"

ask() { "$bin/flashctl" --json status 2> /dev/null; }
flashd_says() { ask | jq -r ".sync_counters.$1 // 0"; }
fleet() { "$bin/flash-coordinator" --store "$tmp/store.db" --json fleet 2> /dev/null; }
of_fleet() { fleet | jq -r "$1"; }
stored() { of_fleet '.records // 0'; }
at_least() { [ "$(stored)" -ge "$1" ] 2> /dev/null; }
# What flash-sync counts: through the shell's own TCP.
sync_says() {
  exec 3<> "/dev/tcp/127.0.0.1/$port" || return 1
  printf 'GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
  grep "^flash_sync_outbox_events_total{event=\"$1\"}" <&3 | sed 's/.* //; s/\r//'
  exec 3>&-
}

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$tmp/key.pem" -out "$tmp/ca.pem" -days 2 \
  -subj /CN=localhost -addext "subjectAltName=DNS:localhost" 2> /dev/null || fail "no certificate"
cat > "$tmp/nats.conf" << EOF
listen: "127.0.0.1:-1"
tls { cert_file: "$tmp/ca.pem", key_file: "$tmp/key.pem" }
jetstream { store_dir: "$tmp/jetstream", max_file_store: 8GB, max_memory_store: 8MB }
authorization {
  users = [
    { user: coordinator, password: "hub" }
    { user: n1, password: "one", permissions: { publish: "flash.v1.up.*.n1.ep", subscribe: "flash.v1.dn.n1.wm" } }
  ]
}
EOF
echo coordinator:hub > "$tmp/hub.credentials"
echo n1:one > "$tmp/n1.credentials"

start_nats() {
  "$nats_server" -c "$tmp/nats.conf" >> "$tmp/nats.log" 2>&1 &
  nats=$!
  pids+=("$nats")
  until_true 30 grep -q "Server is ready" "$tmp/nats.log" || fail "nats-server did not start"
}
# The first start takes a free port, the next ones the same.
start_nats
nats_port=$(sed -n 's/.*Listening for client connections on 127.0.0.1:\([0-9]*\)$/\1/p' "$tmp/nats.log" | head -n 1)
[ -n "$nats_port" ] || fail "nats-server does not say its port"
sed -i "s/127.0.0.1:-1/127.0.0.1:$nats_port/" "$tmp/nats.conf"
kill_nats() {
  kill -9 "$nats"
  wait "$nats" 2> /dev/null
  : > "$tmp/nats.log"
}
start_coordinator() {
  "$bin/flash-coordinator" --nats "tls://localhost:$nats_port" --nats-ca "$tmp/ca.pem" \
    --nats-credentials "$tmp/hub.credentials" --store "$tmp/store.db" 2>> "$tmp/coordinator.log" &
  coordinator=$!
  pids+=("$coordinator")
}
# start_sync NODE
start_sync() {
  : > "$tmp/sync.log"  # the last one's would be read for its port
  "$bin/flash-sync" --socket "$tmp/sync.sock" --listen 127.0.0.1:0 --textfile none --nats "tls://localhost:$nats_port" \
    --nats-ca "$tmp/ca.pem" --nats-credentials "$tmp/n1.credentials" --node "$1" --outbox "$tmp/outbox.db" 2> "$tmp/sync.log" &
  sync=$!
  pids+=("$sync")
  until_true 30 grep -q "serving http" "$tmp/sync.log" || fail "flash-sync did not start"
  port=$(sed -n 's/.*serving http:\/\/127.0.0.1:\([0-9]*\)\/metrics.*/\1/p' "$tmp/sync.log")
}

for r in "${roots[@]}"; do mkdir -p "$r/$name"/{a,b,c}; done
for a in a b c; do
  in_cgroup "$name/$a" sleep 600 &
  pids+=($!)
done
start_bus
# Episodes of 10 steps of 0.1 s: three agents, three episodes per second.
cat > "$tmp/flashd.json" << EOF
{"mode": "recommend", "period_s": 0.1, "episode_steps": 10, "state_directory": "$tmp/state", "statsd": {"socket": ""},
 "journal": {"enabled": false}, "learner": {"enabled": false}, "sync": {"socket": "$tmp/sync.sock", "user": "root"},
 "rules": {"all": {"select": {"cgroup": "/$name/*"}, "application": "shop"}}}
EOF
"$bin/flashd" --config "$tmp/flashd.json" 2> "$tmp/flashd.log" &
flashd=$!
pids+=("$flashd")
start_coordinator
start_sync n1

until_true 60 at_least 9 || fail "no records: $(fleet)"
[ "$(of_fleet '.nodes | length')" = 1 ] && [ "$(of_fleet '.nodes[0].node')" = n1 ] || fail "not the one node: $(fleet)"
[ "$(of_fleet '[.nodes[0].agents[].agent] | sort | join(" ")')" = \
  "resource-limits:/$name/a resource-limits:/$name/b resource-limits:/$name/c" ] || fail "not its agents: $(fleet)"
[ "$(of_fleet '[.nodes[0].agents[] | .application, .rule, .steps | tostring] | unique | join(" ")')" = "10 all shop" ] ||
  fail "not as flashd has them: $(fleet)"

for who in nats coordinator nats sync; do
  before=$(stored)
  case $who in
    nats) kill_nats; sleep 3; start_nats ;;
    coordinator) kill -9 "$coordinator"; wait "$coordinator" 2> /dev/null; sleep 2; start_coordinator ;;
    sync) kill -9 "$sync"; wait "$sync" 2> /dev/null; sleep 2; start_sync n1 ;;
  esac
  until_true 60 at_least $((before + 12)) || fail "nothing more came after $who was killed: $(fleet | jq -c 'del(.nodes)')"
done

# No more episodes: what was told must be there, once.
for r in "${roots[@]}"; do
  for a in a b c; do
    while read -r p; do kill -9 "$p"; done < "$r/$name/$a/cgroup.procs"
  done
done
removed() {
  rmdir "$1/$name"/{a,b,c} 2> /dev/null
  [ -z "$(find "$1/$name" -mindepth 1 -type d)" ]
}
for r in "${roots[@]}"; do until_true 10 removed "$r" || fail "the cgroups in $r stay"; done
nobody() { [ "$(ask | jq .agents)" = 0 ]; }
until_true 20 nobody || fail "flashd still manages something: $(ask)"
all_there() { [ "$(flashd_says episodes)" = "$(stored)" ] && [ "$(sync_says taken)" = "$(stored)" ] && [ "$(sync_says confirmed)" = "$(stored)" ]; }
until_true 60 all_there ||
  fail "flashd told $(flashd_says episodes), flash-sync took $(sync_says taken) and saw $(sync_says confirmed) confirmed, stored are $(stored)"
[ "$(flashd_says episodes_dropped)" = 0 ] || fail "flashd dropped $(flashd_says episodes_dropped)"
rows=$(sqlite3 "$tmp/store.db" 'SELECT count(*), count(DISTINCT run || "/" || seq) FROM records')
[ "$rows" = "$(stored)|$(stored)" ] || fail "the store has $rows rows, counts $(stored)"
[ "$(of_fleet .refused)" = 0 ] || fail "messages were refused"
told=$(stored)

# Another node's name with these credentials.
kill "$sync"
wait "$sync" || fail "flash-sync ended with an error"
rm -f "$tmp"/outbox.db*
for r in "${roots[@]}"; do mkdir -p "$r/$name/a"; done
in_cgroup "$name/a" sleep 600 &
pids+=($!)
start_sync n2
until_true 30 grep -qi "permissions violation" "$tmp/sync.log" || fail "the server lets n1 speak as n2"
[ "$(of_fleet '.nodes | length')" = 1 ] || fail "n2 is in the fleet: $(fleet)"

for p in "$sync" "$coordinator" "$flashd"; do
  kill "$p"
  wait "$p" || fail "a program ended with an error"
done
echo "$told episodes told, taken, confirmed and stored once; $(of_fleet .duplicates) came more than once"
