#!/usr/bin/env bash
# The real flash-learner, killed with -9 at random moments of 6 rounds (or $2) while the real flashd controls a cgroup of
# our own: after the last one came back every step is stored, none was dropped, and flashd ticked on.
#   kill_learner.sh BIN_DIR [ROUNDS]
set -u
bin=$1 rounds=${2:-6}
name=flashd-test-learner-$$
tmp=$(mktemp -d)
pids=()
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  roots=(/sys/fs/cgroup)
  echo "+cpu +memory" > /sys/fs/cgroup/cgroup.subtree_control
else
  roots=(/sys/fs/cgroup/cpu /sys/fs/cgroup/cpuacct /sys/fs/cgroup/memory)
fi

cleanup() {
  for p in "${pids[@]}"; do kill -9 "$p" 2>/dev/null; done
  wait 2>/dev/null
  for r in "${roots[@]}"; do
    for _ in 1 2 3 4 5; do
      rmdir "$r/$name" 2>/dev/null
      [ -d "$r/$name" ] || break
      sleep 0.2
    done
  done
  rm -rf "$tmp"
}
trap cleanup EXIT
fail() {
  echo "kill_learner: $*" >&2
  cat "$tmp/flashd.log" "$tmp/learner.log" >&2
  exit 1
}
# until SECONDS COMMAND...
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.1
  done
}
status() { "$bin/flashctl" --json status 2> /dev/null; }
connected() { status | jq -e '.learner | startswith("connected")' > /dev/null; }
absent() { status | jq -e '.learner | startswith("connected") | not' > /dev/null; }
counter() { status | jq ".learner_counters.$1"; }
stored() { [ "$(counter acknowledged_steps)" -ge "$1" ]; }

for r in "${roots[@]}"; do mkdir -p "$r/$name"; done
sh -c 'for r in '"${roots[*]}"'; do echo $$ > $r/'"$name"'/cgroup.procs || exit 1; done; exec sh -c "while :; do :; done"' &
pids+=($!)

cat > "$tmp/bus.conf" << EOF
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path=$tmp/bus</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="root"/>
    <allow own="org.flashd"/>
    <allow send_destination="*" eavesdrop="false"/>
    <allow receive_sender="*"/>
  </policy>
</busconfig>
EOF
dbus-daemon --config-file="$tmp/bus.conf" --nofork 2> /dev/null &
pids+=($!)
until_true 10 test -S "$tmp/bus" || fail "the private bus did not start"
export DBUS_SYSTEM_BUS_ADDRESS=unix:path=$tmp/bus

cat > "$tmp/flashd.json" << EOF
{"period_s": 0.1, "mode": "control", "episode_steps": 20, "state_directory": "$tmp/state", "statsd": {"socket": ""},
 "journal": {"enabled": false},
 "learner": {"socket": "$tmp/learner.sock", "user": "root", "learning_starts": 50, "publish_interval_s": 1,
             "offline_updates": 50},
 "rules": {"learn": {"select": {"cgroup": "/$name"}, "cpu": {"min_cores": 0.2, "max_cores": 1.5}}}}
EOF
touch "$tmp/learner.log"
"$bin/flashd" --config "$tmp/flashd.json" 2> "$tmp/flashd.log" &
pids+=($!)
until_true 30 status > /dev/null || fail "flashd did not come up"

for round in $(seq "$rounds"); do
  "$bin/flash-learner" --socket "$tmp/learner.sock" --state-directory "$tmp/learner" 2>> "$tmp/learner.log" &
  victim=$!
  until_true 120 connected || fail "round $round: the learner did not connect"
  sleep "$(awk -v r=$RANDOM 'BEGIN { printf "%.3f", r / 32768 * 2 }')"
  kill -9 "$victim" 2> /dev/null || fail "round $round: the learner ended by itself"
  wait "$victim" 2> /dev/null
  until_true 30 absent || fail "round $round: flashd did not notice"
done

"$bin/flash-learner" --socket "$tmp/learner.sock" --state-directory "$tmp/learner" 2>> "$tmp/learner.log" &
pids+=($!)
until_true 120 connected || fail "the last learner did not connect"
ticks=$(status | jq .ticks)
# One agent, one step per tick: all that were decided until now.
until_true 120 stored "$ticks" || fail "only $(counter acknowledged_steps) of $ticks steps were stored"
status | jq -c '.learner_counters'
[ "$(counter dropped_steps)" -eq 0 ] || fail "steps were dropped"
[ "$(counter protocol_errors)" -eq 0 ] || fail "the protocol was broken: $(status | jq .learner_error)"
[ "$(counter connections)" -eq $((rounds + 1)) ] || fail "$(counter connections) connections"
echo "$rounds kills, $ticks steps, each of them stored"
