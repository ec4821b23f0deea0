#!/usr/bin/env bash
# The real flashd beyond its overhead budget: a storm of context switches makes its schedule probe expensive, which is taken
# out and named, with perf in its place, and comes back with a reload; a budget that its process alone exceeds makes the
# period longer.
#   overhead_guard.sh BIN_DIR
set -u
bin=$1
# shellcheck source=tests/support/system_test.sh
source "$(dirname "$0")/../support/system_test.sh" overhead_guard
status() { "$bin/flashctl" --json status 2> /dev/null; }
says() { status | jq -r '.degraded[] | select(.part == "overhead").reason' 2> /dev/null | grep -q "$1"; }
says_nothing() { status > /dev/null && ! says .; }
source_of() { "$bin/flashctl" --json doctor 2> /dev/null | jq -r --arg s "$1" '.sources[] | select(.signal == $s and .targets > 0).source'; }
on_ebpf() { [ "$(source_of perf.context_switches)" = ebpf ]; }
costs() { status | jq -e ".overhead_pct.$1 > $2" > /dev/null; }

# configure BUDGET_PCT PERIOD_S
configure() {
  cat > "$tmp/flashd.json" << EOF
{"period_s": $2, "mode": "observe", "state_directory": "$tmp/state", "statsd": {"socket": ""}, "journal": {"enabled": false},
 "learner": {"enabled": false}, "sync": {"enabled": false}, "overhead": {"budget_pct": $1, "window_s": 1},
 "rules": {"storm": {"select": {"cgroup": "/$name"}}}}
EOF
}

for r in "${roots[@]}"; do mkdir -p "$r/$name"; done
start_bus
configure 0 1
"$bin/flashd" --lock "$tmp/lock" --config "$tmp/flashd.json" 2> "$tmp/flashd.log" &
flashd=$!
pids+=("$flashd")
until_true 30 on_ebpf || fail "context switches are not counted by the probe: $(source_of perf.context_switches)"
reload() {
  kill -HUP "$flashd"
  sleep 0.2
}

# Two that hand one byte to and fro: each waits for the other.
mkfifo "$tmp/to" "$tmp/back"
exec 5<> "$tmp/to" 6<> "$tmp/back"
in_cgroup "$name" dd bs=1 status=none <&5 >&6 2> /dev/null &
pids+=($!)
in_cgroup "$name" dd bs=1 status=none <&6 >&5 2> /dev/null &
pids+=($!)
printf x >&5

until_true 20 costs schedule 0.1 || fail "a storm costs the probe nothing: $(status | jq -c .overhead_pct)"
sleep 2  # on a busy host the storm is a small one: what it costs is measured, not asked for
says_nothing || fail "without a budget something was lowered: $(status | jq -c .degraded)"
stormy=$(status | jq -c .overhead_pct)
cost=$(status | jq .overhead_pct.schedule)

# Half of what the probe costs.
configure "$(awk -v c="$cost" 'BEGIN { print c / 2 }')" 1
reload
until_true 20 says "the schedule probe took" || fail "the probe was not taken out: $(status | jq -c '.overhead_pct, .degraded')"
on_ebpf && fail "the probe is said to be out, and still counts"
until_true 10 costs process 0 || fail "the process costs nothing: $(status | jq -c .overhead_pct)"
costs_nothing() { status | jq -e '.overhead_pct.schedule == 0' > /dev/null; }
until_true 10 costs_nothing || fail "a probe that is out still costs: $(status | jq -c .overhead_pct)"

configure 0 1
reload
until_true 10 on_ebpf || fail "the probe did not come back with another budget"
says_nothing || fail "without a budget something is still lowered: $(status | jq -c .degraded)"

kill "${pids[-1]}" "${pids[-2]}"
configure 0.01 0.1
reload
until_true 20 says "it samples every 0.8 s, not every 0.1 s" || fail "the period is not longer: $(status | jq -c '.overhead_pct, .period_s, .degraded')"
[ "$(status | jq .period_s)" = 0.8 ] || fail "D-Bus says another period: $(status | jq .period_s)"
began=$(status | jq .ticks)
sleep 4
ticks=$(($(status | jq .ticks) - began))
[ "$ticks" -le 8 ] || fail "$ticks ticks in 4 s at a period of 0.8 s"

kill "$flashd"
wait "$flashd" || fail "flashd ended with an error"
echo "a storm cost $stormy % of a core; the probe was taken out and came back, the period became longer"
