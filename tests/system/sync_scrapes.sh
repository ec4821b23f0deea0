#!/usr/bin/env bash
# The real flash-sync between a real HTTP service with a metrics page and the real flashd: latency and rate reach flashd's
# signals, agree with what the load generator saw, and are named when the page or flash-sync is gone; flashd's own metrics
# are served and written.
#   sync_scrapes.sh BIN_DIR
set -u
bin=$1
# shellcheck source=tests/support/system_test.sh
source "$(dirname "$0")/../support/system_test.sh" sync_scrapes
# What flash-sync serves: through the shell's own TCP, so that nothing of ours reads what ours wrote.
page() {
  exec 3<> "/dev/tcp/127.0.0.1/$port" || return 1
  printf 'GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
  cat <&3
  exec 3>&-
}
# value NAME TEXT: the first sample whose line has both.
value() { page 2> /dev/null | grep "^$1[{ ]" | grep -F "${2:-}" | head -n 1 | sed 's/.* //; s/\r//'; }
signal() { value flashd_agent_signal "signal=\"$1\""; }
positive() { awk -v v="$(signal "$1")" 'BEGIN { exit !(v + 0 > 0) }'; }
trusted() { [ "$(value flashd_agent_signal_trusted 'signal="requests.rate"')" = 1 ]; }
# As an operator sees it; empty while flashd is not on the bus.
ask() { "$bin/flashctl" --json "$1" 2> /dev/null; }
degraded_says() { ask status | jq -r '.degraded[].reason' 2> /dev/null | grep -qF "$1"; }
from_prometheus() { [ "$(ask doctor | jq -r --arg s "$1" '.sources[] | select(.signal == $s and .source == "prometheus").targets')" = 1 ]; }

touch "$tmp"/{serve,flashd,sync,load}.log
for r in "${roots[@]}"; do mkdir -p "$r/$name"; done
in_cgroup "$name" "$bin/flash-workload" serve --listen 127.0.0.1:0 --work 20 --app shop > "$tmp/serve.log" 2>&1 &
service=$!
pids+=("$service")
until_true 30 grep -q "listening on" "$tmp/serve.log" || fail "the service did not start"
address=$(sed -n 's/^listening on \([0-9.:]*\),.*/\1/p' "$tmp/serve.log")

start_bus

cat > "$tmp/flashd.json" << EOF
{"mode": "observe", "state_directory": "$tmp/state", "statsd": {"socket": ""}, "journal": {"enabled": false},
 "learner": {"enabled": false}, "sync": {"socket": "$tmp/sync.sock", "user": "root"},
 "rules": {"shop": {"select": {"cgroup": "/$name"}, "application": "shop",
   "slo": {"latency_p99_ms": 50, "source": "prometheus", "prometheus": {"url": "http://$address/metrics",
     "latency": "http_request_duration_seconds{app=\"shop\"}", "errors": "http_requests_over_objective_total"}}}}}
EOF
"$bin/flashd" --lock "$tmp/lock" --config "$tmp/flashd.json" 2> "$tmp/flashd.log" &
flashd=$!
pids+=("$flashd")
until_true 30 degraded_says "metrics pages are not read: flash-sync is not connected" ||
  fail "flashd does not say that flash-sync is missing"

start_sync() {
  : > "$tmp/sync.log"  # the last one's would be read for its port
  "$bin/flash-sync" --socket "$tmp/sync.sock" --listen 127.0.0.1:0 --textfile "$tmp/flashd.prom" --metrics-interval 1 \
    2> "$tmp/sync.log" &
  sync=$!
  pids+=("$sync")
  until_true 30 grep -q "serving http" "$tmp/sync.log" || fail "flash-sync did not start"
  port=$(sed -n 's/.*serving http:\/\/127.0.0.1:\([0-9]*\)\/metrics.*/\1/p' "$tmp/sync.log")
}
start_sync
"$bin/flash-workload" load --target "$address" --rate 60 --seconds 40 --json "$tmp/load.json" > "$tmp/load.log" 2>&1 &
load=$!
pids+=("$load")

until_true 30 trusted || fail "no rate that may be learned from: $(page | grep flashd_agent_signal)"
until_true 20 positive latency.p99 || fail "no latency: $(page | grep flashd_agent_signal)"
# Of one pair of readings: a second in which the host kept the load generator waiting has fewer requests.
as_loaded() {
  rate=$(signal requests.rate) p50=$(signal latency.p50) p99=$(signal latency.p99)
  awk -v r="$rate" 'BEGIN { exit !(r > 40 && r < 80) }'
}
until_true 20 as_loaded || fail "60 requests per second are read as $rate"
awk -v a="$p50" -v b="$p99" 'BEGIN { exit !(a > 0 && a <= b) }' || fail "p50 $p50, p99 $p99"
for s in latency.p50 latency.p99 requests.rate; do
  from_prometheus "$s" || fail "doctor does not say that $s is the page's: $(ask doctor | jq -c .sources)"
  [ "$(value flashd_signal_targets "signal=\"$s\",source=\"prometheus\"")" = 1 ] || fail "nor do flashd's metrics say so of $s"
done
[ "$(value flash_sync_connected)" = 1 ] || fail "flash-sync does not say that it is connected"
grep -q '^flashd_ticks_total [0-9]' "$tmp/flashd.prom" || fail "the textfile has no flashd_ticks_total"
[ "$(stat -c %a "$tmp/flashd.prom")" = 644 ] || fail "node_exporter could not read the textfile"

kill -9 "$sync"
wait "$sync" 2> /dev/null
until_true 20 degraded_says "metrics pages are not read: flash-sync is absent" || fail "flashd does not notice that flash-sync is gone"
start_sync
until_true 30 trusted || fail "the rate did not come back with flash-sync"

kill "$service"
until_true 20 degraded_says "the metrics page of rule shop is unreachable: Connection refused" ||
  fail "an unreachable page is not named: $(ask status | jq -c .degraded)"
unsaid() { [ -z "$(signal latency.p99)" ]; }
until_true 20 unsaid || fail "the latency of an unreachable page is still $(signal latency.p99)"

kill "$sync"
wait "$sync" || fail "flash-sync ended with an error"
[ ! -e "$tmp/flashd.prom" ] || fail "the textfile outlives flash-sync"
kill "$flashd"
wait "$flashd" || fail "flashd ended with an error"
echo "rate $rate of 60 per second, p50 $p50 ms, p99 $p99 ms; gone pages and a gone flash-sync were named"
