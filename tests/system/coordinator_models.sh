#!/usr/bin/env bash
# A pretrained model's whole way: signed with a release key, published, fetched by the real flash-sync from the real
# nats-server, and what agents of the real flash-learner begin with. What somebody who has the server in his hands can do
# instead (another key, a flipped chunk, no signature, an old model under a new name, too many bytes, too few, rubbish in
# place of each message) is refused, logged and counted, and the model before it stays. A withdrawn one goes back.
#   coordinator_models.sh BIN_DIR
set -u
bin=$1
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/support/system_test.sh
source "$here/../support/system_test.sh" coordinator_models
nats_server=$(command -v nats-server || echo /usr/sbin/nats-server)
[ -x "$nats_server" ] || fail "nats-server is not installed"
packaged=$here/../../models
task=resource-limits

cat > "$tmp/nats.conf" << EOF2
listen: "127.0.0.1:-1"
jetstream { store_dir: "$tmp/jetstream", max_file_store: 2GB, max_memory_store: 8MB }
EOF2
"$nats_server" -c "$tmp/nats.conf" > "$tmp/nats.log" 2>&1 &
pids+=($!)
until_true 30 grep -q "Server is ready" "$tmp/nats.log" || fail "nats-server did not start"
nats_port=$(sed -n 's/.*Listening for client connections on 127.0.0.1:\([0-9]*\)$/\1/p' "$tmp/nats.log" | head -n 1)

# Who hands the models out.
"$bin/flash-coordinator" --nats "nats://127.0.0.1:$nats_port" --store "$tmp/store.db" --listen 127.0.0.1:0 2> "$tmp/coordinator.log" &
pids+=($!)
until_true 30 grep -q "collecting\|serving" "$tmp/coordinator.log" || fail "flash-coordinator did not start"

model() { "$bin/flash-coordinator" --nats "nats://127.0.0.1:$nats_port" --model-keys "$tmp/keys" "$@" >> "$tmp/models.log" 2>&1; }
# inject SUBJECT FILE: a message past every check, as a server's owner may. It is stored when this returns: a PONG would
# only say that it was read.
inject() {
  exec 4<> "/dev/tcp/127.0.0.1/$nats_port" || fail "the server is away"
  printf 'CONNECT {"verbose":false}\r\nSUB _INBOX.inject 1\r\nPUB %s _INBOX.inject %d\r\n' "$1" "$(stat -c %s "$2")" >&4
  cat "$2" >&4
  printf '\r\n' >&4
  timeout 10 grep -q -m 1 '"seq":' <&4 || fail "the server did not store $1"
  exec 4>&-
}
byte() { printf '%b' "$(printf '\\x%02x' "$1")"; }
manifest_size() { od -An -tu4 -j8 -N4 "$1" | tr -d ' '; }
# manifest_message SIGNED [SIGNATURE_FILE]: as the registry keeps it.
manifest_message() {
  local n
  n=$(manifest_size "$1")
  printf '\xa4\x61v\x01\x61t\x6fsigned-manifest\x68manifest\x59'
  byte $((n / 256)) && byte $((n % 256))
  tail -c +13 "$1" | head -c "$n"
  printf '\x69signature\x58\x40'
  if [ $# -gt 1 ]; then cat "$2"; else tail -c +$((13 + n)) "$1" | head -c 64; fi
}
chunk() { tail -c +$((13 + $(manifest_size "$1") + 64 + $2 * 131072)) "$1" | head -c 131072; }
# sign VERSION KEY
sign() { model model sign "$tmp/m.model" --key "$tmp/$2" --model-version "$1" --out "$tmp/v$1" || fail "version $1 is not signed"; }

sync_page() {
  exec 3<> "/dev/tcp/127.0.0.1/$port" || return 1
  printf 'GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
  tr -d '\r' <&3
  exec 3>&-
}
metric() { sync_page | grep -F "$1 " | sed 's/.* //'; }
refused() { metric "flash_sync_models_refused_total{reason=\"$1\"}"; }
held() { metric "flash_sync_model_version{model=\"$task\"}"; }
holds() { [ "$(held)" = "$1" ]; }
said() { grep -q "refused $1: $2" "$tmp/sync.log"; }
declare -A counted
is_counted() { [ "$(refused "$1")" -ge "$2" ]; }
# refuses VERSION REASON: said, counted, and what was held before is held.
refuses() {
  until_true 30 said "model $task $1" "$2" || fail "version $1 was not refused as $2: $(sync_page | grep model)"
  counts=$((${counted[$2]:-0} + 1))
  until_true 5 is_counted "$2" "$counts" || fail "version $1 is not counted: $(refused "$2") are $2, not $counts"
  counted[$2]=$(refused "$2")
  holds 1 || fail "after version $1 the node holds $(held)"
}

# The packaged model, but that it knows pairs of all kinds: a busy loop is out of distribution else.
python3 - "$packaged/$task.model" "$tmp/m.model" << 'EOF2' || fail "the model could not be made"
import array, hashlib, json, random, sys
data = open(sys.argv[1], "rb").read()
start = 12 + int.from_bytes(data[8:12], "little")
at = start
for entry in json.loads(data[12:start])["arrays"]:
    count = 1
    for n in entry["shape"]:
        count *= n
    if entry["name"] == "seen":
        break
    at += 4 * count
random.seed(1)
wide = array.array("f", [random.uniform(-100, 100) for _ in range(count)]).tobytes()
body = data[:at] + wide + data[at + len(wide):-32]
open(sys.argv[2], "wb").write(body + hashlib.sha256(body).digest())
EOF2
mkdir "$tmp/keys"
model model keygen "$tmp/release" && model model keygen "$tmp/other" || fail "no keys"
cp "$tmp/release.pub" "$tmp/keys/"
: > "$tmp/sync.log"
"$bin/flash-sync" --socket "$tmp/none.sock" --listen 127.0.0.1:0 --textfile none --nats "nats://127.0.0.1:$nats_port" \
  --node n1 --outbox "$tmp/outbox.db" --models "$tmp/inbox" --model-keys "$tmp/keys" --models-interval 1 2> "$tmp/sync.log" &
sync=$!
pids+=("$sync")
until_true 30 grep -q "serving http" "$tmp/sync.log" || fail "flash-sync did not start"
port=$(sed -n 's/.*serving http:\/\/127.0.0.1:\([0-9]*\)\/metrics.*/\1/p' "$tmp/sync.log")

# A learner whose flashd has a container to manage.
for r in "${roots[@]}"; do mkdir -p "$r/$name/a"; done
in_cgroup "$name/a" sh -c "while :; do :; done" &
pids+=($!)
start_bus
cat > "$tmp/flashd.json" << EOF2
{"mode": "control", "period_s": 0.1, "episode_steps": 20, "overhead": {"budget_pct": 0}, "state_directory": "$tmp/state",
 "statsd": {"socket": ""}, "journal": {"enabled": false}, "sync": {"enabled": false},
 "learner": {"socket": "$tmp/learner.sock", "user": "root", "learning_starts": 1000},
 "rules": {"all": {"select": {"cgroup": "/$name/a"}, "cpu": {"min_cores": 0.2, "max_cores": 1.5}}}}
EOF2
"$bin/flashd" --lock "$tmp/lock" --config "$tmp/flashd.json" 2> "$tmp/flashd.log" &
flashd=$!
pids+=("$flashd")
"$bin/flash-learner" --socket "$tmp/learner.sock" --state-directory "$tmp/learner" --models "$tmp/nothing" \
  --model-inbox "$tmp/inbox" --model-keys "$tmp/keys" --log-level info 2> "$tmp/learner.log" &
learner=$!
pids+=("$learner")

sign 1 release
model model publish "$tmp/v1" --share 100 || fail "version 1 was not published"
until_true 30 holds 1 || fail "version 1 did not arrive: $(sync_page | grep model)"
until_true 60 grep -q "$task model .*version 1 is used from now on" "$tmp/learner.log" || fail "the learner does not use version 1"

# Another key. A coordinator with the right keys does not even publish it.
sign 2 other
model model publish "$tmp/v2" --share 100 && fail "a coordinator published what its keys do not sign"
model --model-keys "$tmp/other.pub" model publish "$tmp/v2" --share 100 || fail "the forger could not publish"
refuses 2 unsigned
# From here on each one is signed well and spoiled on the server before it is handed out.
spoiled() {
  sign "$1" release
  model model publish "$tmp/v$1" --share 0 || fail "version $1 was not published"
}
spoiled 3
sleep 1.5
holds 1 || fail "a node outside of the share took version $(held)"
chunk "$tmp/v3" 0 > "$tmp/chunk"
printf 'X' | dd of="$tmp/chunk" bs=1 seek=7000 conv=notrunc 2> /dev/null
inject flash.v1.ck.$task.3.0 "$tmp/chunk"
model model roll-out $task 3 100 || fail "no roll-out of version 3"
refuses 3 damaged
spoiled 4
head -c 64 /dev/zero > "$tmp/zeros"
manifest_message "$tmp/v4" "$tmp/zeros" > "$tmp/message"
inject flash.v1.ck.$task.4.manifest "$tmp/message"
model model roll-out $task 4 100 || fail "no roll-out of version 4"
refuses 4 unsigned
spoiled 5
manifest_message "$tmp/v1" > "$tmp/message"
inject flash.v1.ck.$task.5.manifest "$tmp/message"
model model roll-out $task 5 100 || fail "no roll-out of version 5"
refuses 5 old
spoiled 6
chunk "$tmp/v6" 1 > "$tmp/chunk"
printf 'more' >> "$tmp/chunk"
inject flash.v1.ck.$task.6.1 "$tmp/chunk"
model model roll-out $task 6 100 || fail "no roll-out of version 6"
refuses 6 too-large
spoiled 7
chunk "$tmp/v7" 1 | head -c 1000 > "$tmp/chunk"
inject flash.v1.ck.$task.7.1 "$tmp/chunk"
model model roll-out $task 7 100 || fail "no roll-out of version 7"
refuses 7 damaged
spoiled 8
echo rubbish > "$tmp/rubbish"
inject flash.v1.ck.$task.8.manifest "$tmp/rubbish"
model model roll-out $task 8 100 || fail "no roll-out of version 8"
refuses 8 malformed

# A good one still gets through, and can be taken back.
sign 9 release
model model publish "$tmp/v9" --share 100 || fail "version 9 was not published"
until_true 30 holds 9 || fail "version 9 did not arrive"
until_true 60 grep -q "version 9 is used from now on" "$tmp/learner.log" || fail "the learner does not use version 9"
# An agent that serves by now keeps version 1.
until_true 90 grep -q "begins with .*version" "$tmp/learner.log" || fail "no agent begins with a model of the fleet"
model model publish "$tmp/v3" --share 100 && fail "a coordinator published an old version"
model model withdraw $task 9 --reason "a test" || fail "not withdrawn"
until_true 30 holds 1 || fail "after the withdrawal the node holds $(held)"
used_again() { [ "$(grep -c "version 1 is used from now on" "$tmp/learner.log")" -ge 2 ]; }
until_true 60 used_again || fail "the learner did not go back"
model --json model list || fail "the registry cannot be listed"

# What the learner finds in its inbox is not believed because it lies there.
cp "$tmp/v2" "$tmp/inbox/$task.signed"
until_true 30 grep -q "$task.signed is not used: not signed by a trusted key" "$tmp/learner.log" ||
  fail "the learner believes what flash-sync's directory has"
# Nor an older one, that was signed well once and is not what version 9 goes back to.
cp "$tmp/v5" "$tmp/inbox/$task.signed"
until_true 30 grep -q "$task.signed is not used: version 5 is older than version 9, which was accepted here" "$tmp/learner.log" ||
  fail "the learner takes an older model"

inject flash.v1.bc.models "$tmp/rubbish"
until_true 30 said "the registry's state" malformed || fail "a state of rubbish is not refused"
sleep 1.5
holds 1 || fail "a state of rubbish changed what the node holds: $(held)"
: > "$tmp/models.log"
model model roll-out $task 8 0 || fail "rubbish blocks the model commands"
grep -q "flash.v1.bc.models: message [0-9]* is passed over: .*message [0-9]* counts" "$tmp/models.log" || fail "rubbish is not named"
: > "$tmp/models.log"
model --json model list || fail "the registry cannot be listed"
grep -q "passed over" "$tmp/models.log" && fail "the next change did not replace the rubbish"
jq -e '.withdrawn | length == 1' "$tmp/models.log" > /dev/null || fail "the state before the rubbish is lost: $(cat "$tmp/models.log")"

for p in "$sync" "$learner" "$flashd"; do
  kill "$p"
  wait "$p" || fail "a program ended with an error"
done
for reason in unsigned damaged old too-large malformed; do printf '%s ' "$reason"; done
echo "models: refused, logged and counted; the good one arrived and was taken back"
