#!/usr/bin/env bash
# The whole way of an episode: the real flashd, flash-sync, nats-server and flash-coordinator. The agents of a node appear in
# the fleet view; the server is killed (-9) twice and the coordinator and flash-sync once each meanwhile; every episode that
# flashd told is stored exactly once, counted at both ends. All of it over TLS; credentials of one node may not speak for another.
#   coordinator.sh BIN_DIR
set -u
# shellcheck source=tests/support/cluster.sh
source "$(dirname "$0")/../support/cluster.sh" coordinator "$@"
ask() { "$bin/flashctl" --json status 2> /dev/null; }
flashd_says() { ask | jq -r ".sync_counters.$1 // 0"; }

set_up
write_nats_conf
start_nats
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
"$bin/flashd" --lock "$tmp/lock" --config "$tmp/flashd.json" 2> "$tmp/flashd.log" &
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

# What an operator on the node sees of it.
cluster() { "$bin/flashctl" --json cluster "$@" 2> /dev/null; }
[ "$(cluster | jq -r '[.connected, .node, .pool] | join(" ")')" = "true n1 default" ] || fail "flashctl cluster: $(cluster)"
[ "$(cluster agents | jq -r '[.[] | .node + .application] | unique | join(" ")')" = n1shop ] || fail "not the fleet's agents: $(cluster agents)"
[ "$(cluster nodes | jq -r '.[] | .node + " " + (.agents | tostring)')" = "n1 3" ] || fail "not the fleet's nodes: $(cluster nodes)"

for who in nats coordinator nats sync; do
  before=$(stored)
  case $who in
    nats) kill_nats; sleep 3; start_nats ;;
    coordinator) kill_now "$coordinator"; sleep 2; start_coordinator ;;
    sync) kill_now "$sync"; sleep 2; start_sync n1 ;;
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
expect_no_row_twice
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
