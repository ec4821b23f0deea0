#!/usr/bin/env bash
# The server is away and episodes are spooled; flash-sync is killed (-9) meanwhile, then flashd and flash-sync, as when the
# node loses its power. Everything that flash-sync has said to be stored is in the coordinator's store in the end, exactly
# once, counted at both ends; what a killed flashd had not handed over yet died with it.
#   coordinator_node_restarted.sh BIN_DIR
set -u
# shellcheck source=tests/support/cluster.sh
source "$(dirname "$0")/../support/cluster.sh" coordinator_node_restarted "$@"
ask() { "$bin/flashctl" --json status 2> /dev/null; }
flashd_says() { ask | jq -r ".sync_counters.$1 // 0"; }
set_up
write_nats_conf
start_nats

agents=({a..h})
for r in "${roots[@]}"; do
  for a in "${agents[@]}"; do mkdir -p "$r/$name/$a"; done
done
for a in "${agents[@]}"; do
  in_cgroup "$name/$a" sleep 600 &
  pids+=($!)
done
start_bus
cat > "$tmp/flashd.json" << EOF
{"mode": "recommend", "period_s": 0.1, "episode_steps": 10, "state_directory": "$tmp/state", "statsd": {"socket": ""},
 "journal": {"enabled": false}, "learner": {"enabled": false}, "sync": {"socket": "$tmp/sync.sock", "user": "root"},
 "rules": {"all": {"select": {"cgroup": "/$name/*"}, "application": "shop"}}}
EOF
start_flashd() {
  "$bin/flashd" --lock "$tmp/lock" --config "$tmp/flashd.json" 2>> "$tmp/flashd.log" &
  flashd=$!
  pids+=("$flashd")
}
start_flashd
start_coordinator
start_sync n1
until_true 60 at_least 24 || fail "no records: $(fleet)"

kill_nats
waiting() { [ "$(outbox_says "(SELECT count(*) FROM records)" 2> /dev/null)" -ge "$1" ] 2> /dev/null; }
until_true 60 waiting 40 || fail "nothing is spooled"
kill_now "$sync"
sleep 2  # flashd keeps what ends meanwhile
start_sync n1
until_true 60 waiting 80 || fail "nothing more is spooled after flash-sync was killed"
handed_over=$(flashd_says episodes)
dropped=$(flashd_says episodes_dropped)
kill_now "$flashd"
kill_now "$sync"
[ "$(outbox_says taken)" -ge "$handed_over" ] ||
  fail "flashd was told that $handed_over are stored, the outbox has taken $(outbox_says taken)"
before=$(outbox_says taken)
start_flashd
start_sync n1
until_true 60 waiting 120 || fail "nothing more is spooled after the node was restarted"
start_nats
until_true 90 at_least $((before + 40)) || fail "nothing more came: $(fleet | jq -c 'del(.nodes)')"

kill "$flashd"
wait "$flashd" || fail "flashd ended with an error"
all_there() { [ "$(stored)" = "$(outbox_says taken)" ] && [ "$(outbox_says confirmed)" = "$(outbox_says taken)" ]; }
until_true 60 all_there || fail "taken $(outbox_says taken), confirmed $(outbox_says confirmed), stored $(stored)"
[ "$dropped" = 0 ] || fail "flashd dropped $dropped"
expect_no_row_twice
[ "$(sqlite3 "$store" 'SELECT count(*) FROM runs')" = 1 ] || fail "the outbox did not survive"
echo "$test_name: $(stored) episodes taken, confirmed and stored once; $handed_over of the flashd that was killed; $(of_fleet .duplicates) came more than once"
