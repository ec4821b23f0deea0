#!/usr/bin/env bash
# kill -9 of a controlling flashd at random moments, 200 rounds (or $2), on real cgroups of our own: after
# `flashd --restore` every knob equals its original, byte for byte, and the ledger is empty. At least a quarter of the
# rounds must have caught knobs away from their originals, else the test proved nothing.
#   crash_flashd.sh BIN_DIR [ROUNDS]
set -u
bin=$1 rounds=${2:-200}
# shellcheck source=tests/support/system_test.sh
source "$(dirname "$0")/../support/system_test.sh" crash_flashd
if [ "${#roots[@]}" -eq 1 ]; then knobs=(cpu.max memory.high); else knobs=(cpu.cfs_quota_us memory.limit_in_bytes); fi

for r in "${roots[@]}"; do
  mkdir -p "$r/$name"
  # v2: children have the controllers only if their parent hands them down.
  if [ -e "$r/$name/cgroup.subtree_control" ]; then
    echo +cpu +memory > "$r/$name/cgroup.subtree_control" || exit 1
  fi
  mkdir -p "$r/$name/a" "$r/$name/b"
done
# Two busy cgroups; b starts from a limit of its own, so that "original" is not always "none".
for g in a b; do
  in_cgroup "$name/$g" sh -c "while :; do :; done" &
  pids+=($!)
done
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  echo "150000 100000" > "/sys/fs/cgroup/$name/b/cpu.max"
else
  echo 150000 > "/sys/fs/cgroup/cpu/$name/b/cpu.cfs_quota_us"
fi

cat > "$tmp/flashd.json" <<EOF
{"period_s": 0.1, "overhead": {"budget_pct": 0}, "mode": "control", "state_directory": "$tmp/state", "statsd": {"socket": ""},
 "learner": {"enabled": false},
 "rules": {"crash": {"task": "resource-limits", "select": {"cgroup": "/$name/*"}, "mode": "control",
   "cpu": {"min_cores": 0.1, "max_cores": 1.5, "target_utilization": 0.5, "down_stabilization_s": 1},
   "memory": {"min_mib": 64},
   "guards": {"flap_budget": 1000, "throttled_floor": 1.0, "cpu_pressure_floor": 1.0}}}}
EOF
"$bin/flashd" --lock "$tmp/lock" --config "$tmp/flashd.json" --check-config > /dev/null || exit 1

snapshot() {
  local r k g
  for r in "${roots[@]}"; do for g in a b; do for k in "${knobs[@]}"; do
    [ -e "$r/$name/$g/$k" ] && echo "$g $k $(cat "$r/$name/$g/$k")"
  done; done; done
  return 0
}
originals=$(snapshot)
[ "$(echo "$originals" | wc -l)" -eq 4 ] || { echo "expected four knobs, found: $originals"; exit 1; }

# How long it takes on this machine, as busy as it is, until the first knob is written: rounds end before and after that.
"$bin/flashd" --lock "$tmp/lock" --config "$tmp/flashd.json" --bus none 2> "$tmp/log" &
victim=$! begun=$(date +%s%N)
while [ "$(snapshot)" = "$originals" ]; do
  [ $(($(date +%s%N) - begun)) -lt 20000000000 ] || { echo "no knob was written in 20 s:"; cat "$tmp/log"; exit 1; }
  sleep 0.01
done
written_s=$(awk -v ns=$(($(date +%s%N) - begun)) 'BEGIN { printf "%.3f", ns / 1e9 }')
kill -9 "$victim" && wait "$victim" 2>/dev/null || true
"$bin/flashd" --lock "$tmp/lock" --config "$tmp/flashd.json" --bus none --restore > "$tmp/restore" 2>&1 || { cat "$tmp/restore"; exit 1; }

caught=0
for round in $(seq "$rounds"); do
  "$bin/flashd" --lock "$tmp/lock" --config "$tmp/flashd.json" --bus none 2> "$tmp/log" &
  victim=$!
  sleep "$(awk -v r=$RANDOM -v t="$written_s" 'BEGIN { printf "%.3f", 0.02 + r / 32768 * 2 * t }')"
  kill -9 "$victim" 2>/dev/null || { echo "round $round: flashd ended by itself:"; cat "$tmp/log"; exit 1; }
  wait "$victim" 2>/dev/null
  [ "$(snapshot)" != "$originals" ] && caught=$((caught + 1))
  "$bin/flashd" --lock "$tmp/lock" --config "$tmp/flashd.json" --bus none --restore > "$tmp/restore" 2>&1 ||
    { echo "round $round: restore failed:"; cat "$tmp/restore"; exit 1; }
  now=$(snapshot)
  if [ "$now" != "$originals" ]; then
    echo "round $round: not at the originals after restore"
    diff <(echo "$originals") <(echo "$now")
    cat "$tmp/restore"
    exit 1
  fi
done
echo "first knob after $written_s s; $rounds rounds, $caught of them caught knobs away from their originals; all restored"
[ $((caught * 4)) -ge "$rounds" ] || { echo "too few rounds caught anything"; exit 1; }
