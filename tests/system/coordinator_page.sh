#!/usr/bin/env bash
# The coordinator's web page in headless Chromium: the real flash-coordinator over a store of 1,000 agents shows nodes, agents,
# curves and the map; names that are HTML are shown as text; what a person chose outlives refreshes; the console has no error.
#   coordinator_page.sh BIN_DIR SCREENSHOT_DIR
set -u
bin=$1
screenshots=$2
# shellcheck source=tests/support/system_test.sh
source "$(dirname "$0")/../support/system_test.sh" coordinator_page
nats_server=$(command -v nats-server || echo /usr/sbin/nats-server)
for needed in "$nats_server" /usr/bin/chromium /usr/bin/chromedriver; do
  [ -x "$needed" ] || fail "$needed is not installed"
done

"$bin/fill_coordinator_store" "$tmp/store.db" 40 25 24 || fail "no store"
printf 'listen: "127.0.0.1:-1"\njetstream { store_dir: "%s", max_file_store: 8GB, max_memory_store: 8MB }\n' "$tmp/jetstream" > "$tmp/nats.conf"
"$nats_server" -c "$tmp/nats.conf" > "$tmp/nats.log" 2>&1 &
pids+=($!)
until_true 60 grep -q "Server is ready" "$tmp/nats.log" || fail "nats-server did not start"
nats_port=$(sed -n 's/.*Listening for client connections on 127.0.0.1:\([0-9]*\)$/\1/p' "$tmp/nats.log" | head -n 1)
"$bin/flash-coordinator" --nats "nats://127.0.0.1:$nats_port" --store "$tmp/store.db" --listen 127.0.0.1:0 2> "$tmp/coordinator.log" &
coordinator=$!
pids+=("$coordinator")
until_true 60 grep -q "serving http" "$tmp/coordinator.log" || fail "flash-coordinator did not start"
port=$(sed -n 's/.*serving http:\/\/127.0.0.1:\([0-9]*\)\/.*/\1/p' "$tmp/coordinator.log")
# Beside the test in its own process group, so that the browsers that it starts end with it.
setsid /usr/bin/chromedriver --port=0 > "$tmp/chromedriver.log" 2>&1 &
driver=$!
pids+=("$driver")
trap 'kill -9 -- "-$driver" 2> /dev/null; cleanup' EXIT
until_true 60 grep -q "started successfully on port" "$tmp/chromedriver.log" || fail "chromedriver did not start"
driver_port=$(sed -n 's/.*started successfully on port \([0-9]*\).*/\1/p' "$tmp/chromedriver.log")

mkdir -p "$screenshots"
python3 "$(dirname "$0")/coordinator_page.py" "$driver_port" "http://127.0.0.1:$port" "$tmp/profile" "$screenshots" "$coordinator" ||
  fail "the page is not what it should be"
