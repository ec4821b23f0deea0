#!/usr/bin/env bash
# How a node comes to belong to a fleet, with a real nats-server: setup makes everything once; a token enrols one node,
# once, in its time; credentials are for one node and are renewed before they end; a revoked node is cut off. What is
# refused is logged and counted.
#   coordinator_enrol.sh BIN_DIR
set -u
# shellcheck source=tests/support/cluster.sh
source "$(dirname "$0")/../support/cluster.sh" coordinator_enrol "$@"
nats_port=4222
touch "$tmp/nats0.log" "$tmp/coordinator.log"

# The server and the coordinator as setup leaves them.
set_up() {
  "$bin/flash-coordinator" setup --no-start --identity "$tmp/identity" --nats-state "$tmp/nats" --server localhost > "$tmp/setup.log" 2>&1 ||
    fail "setup"
  sed "s|^include |include identity/|" "$tmp/identity/nats.conf" > "$tmp/nats0.conf"
}
start_coordinator() {
  "$bin/flash-coordinator" --identity "$tmp/identity" --store "$store" "$@" 2>> "$tmp/coordinator.log" &
  coordinator=$!
  pids+=("$coordinator")
}
identities() { "$bin/flash-coordinator" --store "$store" --json identities 2> /dev/null; }
of_identities() { identities | jq -r "$1"; }
refused() { of_identities .refused; }
# enroll_with DIRECTORY TOKEN
enroll_with() { printf '%s\n' "$2" | "$bin/flash-sync" --identity "$tmp/$1" enroll - > "$tmp/answer" 2>&1; }
# start_sync NODE [OPTION...]: against no flashd; it only has its connection.
start_sync() {
  "$bin/flash-sync" --socket "$tmp/none.sock" --listen none --textfile none --identity "$tmp/$1" --outbox "$tmp/$1.db" "${@:2}" \
    2> "$tmp/$1.log" &
  sync=$!
  pids+=("$sync")
}

# --- setup ---------------------------------------------------------------------------------------------
"$bin/flash-coordinator" setup --dry-run --identity "$tmp/identity" > "$tmp/dry.log" 2>&1 || fail "--dry-run fails"
[ ! -e "$tmp/identity" ] || fail "--dry-run made something"
set_up
grep -q "^made .*operator.seed" "$tmp/setup.log" || fail "setup does not say what it made: $(cat "$tmp/setup.log")"
for secret in operator.seed account.seed system.seed enroll.seed ca.key system.creds; do
  [ "$(stat -c %a "$tmp/identity/$secret")" = 600 ] || fail "$secret is not root's alone"
done
for secret in node.seed coordinator.creds server.key; do
  [ "$(stat -c %a "$tmp/identity/$secret")" = 640 ] || fail "$secret is everybody's"
done
state_of() { (cd "$tmp/identity" && sha256sum ./* | sha256sum); }
before=$(state_of)
set_up
[ "$before" = "$(state_of)" ] || fail "a second setup changed: $(cat "$tmp/setup.log")"
pem_before=$(sha256sum < "$tmp/identity/server.pem")
"$bin/flash-coordinator" setup --no-start --identity "$tmp/identity" --nats-state "$tmp/nats" --server hub.example > "$tmp/setup.log" ||
  fail "setup with another name"
grep -q "^renewed .*server.pem: names were added" "$tmp/setup.log" || fail "no new certificate: $(cat "$tmp/setup.log")"
[ "$pem_before" != "$(sha256sum < "$tmp/identity/server.pem")" ] || fail "the certificate is the old one"
rm "$tmp/identity/server.pem"
"$bin/flash-coordinator" setup --no-start --identity "$tmp/identity" --nats-state "$tmp/nats" > "$tmp/setup.log" ||
  fail "setup without a certificate"
grep -v -e ----- "$tmp/identity/server.pem" | base64 -d | grep -qa hub.example ||
  fail "a lost certificate is made anew without its names"
# Nothing in this test resolves it.
sed -i /hub.example/d "$tmp/identity/servers"
start_nats

# Nobody without credentials, over TLS or not.
probe() { "$bin/flash-sync" --socket "$tmp/none.sock" --listen none --textfile none --node x --identity "$tmp/nobody" --outbox "$tmp/probe.db" "$@" 2> "$tmp/probe.log" & probe=$!; pids+=("$probe"); }
probe --nats "tls://localhost:$nats_port" --nats-ca "$tmp/identity/ca.pem"
until_true 20 grep -qi "authorization\|authentication" "$tmp/probe.log" || fail "a stranger is let in"
kill "$probe"
probe --nats "tls://localhost:$nats_port"
until_true 20 grep -qi "coordinator: .*certificate\|coordinator: .*SSL" "$tmp/probe.log" || fail "a server that nobody signed is believed"
kill "$probe"

# --- enrolment -----------------------------------------------------------------------------------------
start_coordinator --credentials-for 20s
until_true 20 grep -q "connected to tls://localhost" "$tmp/coordinator.log" || fail "the coordinator does not connect"
version=$("$nats_server" --version | sed 's/.*v//')
if [ "$(printf '%s\n2.10.27\n' "$version" | sort -V | head -n 1)" != 2.10.27 ]; then
  until_true 10 grep -q "nats-server $version is older than 2.10.27: CVE-2025-30215" "$tmp/coordinator.log" || fail "the old server is not named"
fi
token=$(token_for n1)
[ "$(wc -l <<< "$token")" = 1 ] || fail "a token of several lines"
key=$(of_identities '.tokens[0].key')
until_true 20 enroll_with n1 "$token" || fail "not enrolled: $(cat "$tmp/answer")"
[ "$(stat -c %a "$tmp/n1/node.creds")" = 600 ] || fail "others may read the credentials"
[ ! -e "$tmp/n1/token.creds" ] || fail "the token lies about"
[ "$(of_identities '[.credentials[].node] | join(" ")')" = n1 ] || fail "not recorded: $(identities)"

before=$(refused)
enroll_with again "$token" && fail "a token enrolled twice"
grep -q "the token was used already" "$tmp/answer" || fail "another answer: $(cat "$tmp/answer")"
[ ! -e "$tmp/again/coordinator.json" ] || fail "something is left of what was refused"
[ "$(refused)" = $((before + 1)) ] || fail "a used token is not counted: $(identities)"
grep -q "refused credentials of n1 by a token: .* used already" "$tmp/coordinator.log" || fail "a used token is not logged"

grep -qF -e "$key" -e "${token:7:40}" "$tmp/answer" "$tmp/coordinator.log" && fail "a refusal repeats the token"

expired=$(token_for n3 --for 1s)
sleep 2.5
enroll_with n3 "$expired" && fail "an expired token enrolled"
grep -qi "authorization\|authentication\|expired" "$tmp/answer" || fail "another answer: $(cat "$tmp/answer")"
until_true 10 grep -q "flash-sync enroll.*authentication error" "$tmp/nats0.log" || fail "the server does not log an expired token"
# The middle of it, so that only a signature tells.
middle=$((${#token} / 2))
letter=${token:middle:1}
other=A; [ "$letter" = A ] && other=B
enroll_with forged "${token:0:middle}$other${token:middle+1}" && fail "a forged token enrolled"
enroll_with nonsense "flash1.nonsense" && fail "nonsense enrolled"
[ "$(of_identities '[.credentials[].node] | join(" ")')" = n1 ] || fail "somebody else is in: $(identities)"

# --- one node's credentials are no other's ---------------------------------------------------------------
start_sync n1
until_true 20 grep -q "connected to tls://localhost" "$tmp/n1.log" || fail "n1 does not connect"
n1=$sync
enroll_node n2
cp -r "$tmp/n2" "$tmp/false"
jq -c '.node = "n1"' "$tmp/n2/coordinator.json" > "$tmp/false/coordinator.json"
"$bin/flash-sync" --socket "$tmp/none.sock" --listen 127.0.0.1:0 --textfile none --identity "$tmp/false" --outbox "$tmp/false.db" 2> "$tmp/false.log" &
false_one=$!
pids+=("$false_one")
until_true 20 grep -qi "permissions violation.*flash.v1.*n1" "$tmp/false.log" || fail "flash-sync does not say that it is refused"
until_true 20 grep -qi "subscription violation.*flash.v1.dn.n1" "$tmp/nats0.log" || fail "n2 hears what is n1's"
until_true 20 grep -qi "publish violation.*flash.v1.hb.default.n1" "$tmp/nats0.log" || fail "n2 speaks as n1"
port=$(sed -n 's/.*serving http:\/\/127.0.0.1:\([0-9]*\)\/metrics.*/\1/p' "$tmp/false.log")
counted() {
  exec 3<> "/dev/tcp/127.0.0.1/$port" || return 1
  printf 'GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
  grep -q '^flash_sync_nats_refused_total [1-9]' <&3
}
until_true 10 counted || fail "flash-sync does not count it"
kill "$false_one"

# --- renewal -------------------------------------------------------------------------------------------
first=$(sha256sum < "$tmp/n1/node.creds")
renewed() { [ "$first" != "$(sha256sum < "$tmp/n1/node.creds")" ]; }
until_true 30 renewed || fail "credentials of 20 s were not renewed"
until_true 10 grep -q "credentials renewed" "$tmp/n1.log" || fail "flash-sync does not say so"
[ "$(of_identities .renewed)" -ge 1 ] || fail "not counted: $(identities)"
# The connection of the first ones ends; the next has the new ones.
again() { [ "$(grep -c "connected to tls://localhost" "$tmp/n1.log")" -ge 2 ]; }
until_true 30 again || fail "no connection with renewed credentials"

# --- revocation ----------------------------------------------------------------------------------------
kill "$n1"
kill "$coordinator"
wait "$coordinator" || fail "flash-coordinator ended with an error"
start_coordinator
enroll_node n4
start_sync n4
until_true 20 grep -q "connected to tls://localhost" "$tmp/n4.log" || fail "n4 does not connect"
unused=$(token_for n4)
"$bin/flash-coordinator" --identity "$tmp/identity" --store "$store" revoke n4 > "$tmp/revoke.log" 2>&1 || fail "revoke: $(cat "$tmp/revoke.log")"
# Its connection, whose credentials would have been good for 90 days, ends, and there is no other.
until_true 10 grep -qi "coordinator: .*authorization violation" "$tmp/n4.log" || fail "n4 is not cut off"
sleep 3
connections() { grep -c "connected to tls://localhost" "$tmp/n4.log"; }
[ "$(connections)" = 1 ] || fail "n4 is back"
enroll_with n4-again "$unused" && fail "a token from before the revocation enrolled"
grep -q "the token is void" "$tmp/answer" || fail "another answer: $(cat "$tmp/answer")"
# Also after the server's next start.
kill_nats
start_nats
until_true 70 grep -q "flash-sync .*authentication error" "$tmp/nats0.log" || fail "n4 does not even try"
[ "$(connections)" = 1 ] || fail "the server has forgotten the revocation"
kill "$sync"
# With a new token it belongs again.
enroll_node n4
start_sync n4
until_true 20 grep -q "connected to tls://localhost" "$tmp/n4.log" || fail "n4 cannot come back"

kill "$coordinator"
wait "$coordinator" || fail "flash-coordinator ended with an error"
echo "enrolled $(of_identities .enrolled), renewed $(of_identities .renewed), refused $(of_identities .refused)"
