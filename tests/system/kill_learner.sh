#!/usr/bin/env bash
# The real flash-learner, killed with -9 at random moments of 6 rounds (or $2) while the real flashd controls a cgroup of
# our own, then stopped (SIGSTOP) for 12 s (or $3): its policy decides until it expires, then the fallback, and says so;
# after it came back every step is stored, none was dropped, the policy decides again, and no tick was late.
#   kill_learner.sh BIN_DIR [ROUNDS [SECONDS]]
set -u
bin=$1 rounds=${2:-6} stopped=${3:-12}
# shellcheck source=tests/support/system_test.sh
source "$(dirname "$0")/../support/system_test.sh" kill_learner
status() { "$bin/flashctl" --json status 2> /dev/null; }
connected() { status | jq -e '.learner | startswith("connected")' > /dev/null; }
absent() { status | jq -e '.learner | startswith("connected") | not' > /dev/null; }
counter() { status | jq ".learner_counters.$1"; }
agent() { "$bin/flashctl" --json show "/$name" 2> /dev/null; }
decides() { [ "$(agent | jq -r .controller)" = "$1" ]; }
stored() { [ "$(counter acknowledged_steps)" -ge "$1" ]; }

for r in "${roots[@]}"; do mkdir -p "$r/$name"; done
in_cgroup "$name" sh -c "while :; do :; done" &
pids+=($!)

start_bus

cat > "$tmp/flashd.json" << EOF
{"period_s": 0.1, "overhead": {"budget_pct": 0}, "mode": "control", "episode_steps": 20, "state_directory": "$tmp/state", "statsd": {"socket": ""},
 "journal": {"enabled": false},
 "learner": {"socket": "$tmp/learner.sock", "user": "root", "learning_starts": 50, "publish_interval_s": 1,
             "offline_updates": 50, "snapshot_lifetime_s": 8},
 "rules": {"learn": {"profile": {"bootstrap": false, "worse_than_fallback": 1}, "contention": {"throttled": 1, "cpu_pressure": 1}, "exploration": {"online_share": 0.1}, "select": {"cgroup": "/$name"}, "cpu": {"min_cores": 0.2, "max_cores": 1.5}}}}
EOF
touch "$tmp/learner.log"
nice -n -5 "$bin/flashd" --lock "$tmp/lock" --config "$tmp/flashd.json" 2> "$tmp/flashd.log" &
flashd=$!
pids+=("$flashd")
until_true 30 status > /dev/null || fail "flashd did not come up"

for round in $(seq "$rounds"); do
  nice -n 19 "$bin/flash-learner" --socket "$tmp/learner.sock" --state-directory "$tmp/learner" 2>> "$tmp/learner.log" &
  victim=$!
  until_true 120 connected || fail "round $round: the learner did not connect"
  sleep "$(awk -v r=$RANDOM 'BEGIN { printf "%.3f", r / 32768 * 2 }')"
  kill -9 "$victim" 2> /dev/null || fail "round $round: the learner ended by itself"
  wait "$victim" 2> /dev/null
  until_true 30 absent || fail "round $round: flashd did not notice"
done

nice -n 19 "$bin/flash-learner" --socket "$tmp/learner.sock" --state-directory "$tmp/learner" 2>> "$tmp/learner.log" &
learner=$!
pids+=("$learner")
until_true 120 connected || fail "the last learner did not connect"
until_true 60 decides learned || fail "no policy came: $(agent)"
# A new one has just come, of the eight seconds that each may stay.
fresh() { agent | jq -e '.controller == "learned" and (.model.expires | fromdate) - now >= 6' > /dev/null; }
until_true 60 fresh || fail "no new policy came: $(agent)"

kill -STOP "$learner"
began=$SECONDS
sleep 2
decides learned || fail "the policy did not stay in the seat while it was valid: $(agent)"
until_true 20 decides fallback || fail "the policy outlived its expiry"
reason=$(agent | jq -r .controller_reason)
[[ $reason == *"snapshot expired"* ]] || fail "the fallback decides for another reason: $reason"
sleep $((stopped > SECONDS - began ? stopped - SECONDS + began : 0))
decides fallback || fail "an expired policy came back"
kill -CONT "$learner"
until_true 60 decides learned || fail "learning did not resume: $(agent)"

ticks=$(status | jq .ticks)
# One agent, one step per tick: all that were decided until now.
until_true 120 stored "$ticks" || fail "only $(counter acknowledged_steps) of $ticks steps were stored"
status | jq -c '.learner_counters'
[ "$(counter dropped_steps)" -eq 0 ] || fail "steps were dropped"
[ "$(counter protocol_errors)" -eq 0 ] || fail "the protocol was broken: $(status | jq .learner_error)"

kill -TERM "$flashd"
wait "$flashd" || fail "flashd ended with an error"
late=$(sed -n 's/.*ended after \([0-9]*\) ticks, \([0-9]*\) late.*/\2/p' "$tmp/flashd.log")
# A neighbour that takes the processor away makes a tick late too: a hundredth of them at most.
[ "${late:-$ticks}" -le $((ticks / 100)) ] || fail "$late of $ticks ticks were late"
# One run of flashd: steps 1 to N without a gap or a double, and so are its episodes.
kill -TERM "$learner"
wait "$learner" || fail "flash-learner ended with an error"
query() { sqlite3 "$tmp/learner/trajectories.sqlite" "$1" 2>> "$tmp/learner.log"; }
[ "$(query 'SELECT count(*) = max(seq) AND min(seq) = 1 AND count(DISTINCT run) = 1 FROM steps')" = 1 ] ||
  fail "steps are lost or doubled: $(query 'SELECT run, count(*), min(seq), max(seq) FROM steps GROUP BY run')"
[ "$(query 'SELECT count(*) = max(number) - min(number) + 1 AND count(DISTINCT run) = 1 FROM episodes')" = 1 ] ||
  fail "episodes are lost or doubled: $(query 'SELECT run, count(*), min(number), max(number) FROM episodes GROUP BY run')"
[ "$(query 'SELECT count(*) FROM steps')" -ge "$ticks" ] || fail "only $(query 'SELECT count(*) FROM steps') of $ticks steps"
episodes=$(query 'SELECT count(*) FROM episodes')
echo "$rounds kills, stopped for $stopped s, $ticks steps in $episodes episodes, each stored once; $late ticks late"
