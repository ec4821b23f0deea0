#!/usr/bin/env bash
# A newcomer's first minute: scripts/demo on this machine, for real. The rules begin, the pretrained policy is in charge for
# most of it, and the report compares both. On a machine that is busy with other things flash-learner, which takes what nobody
# else wants, comes to its turn later: there a longer run has to show the same.
#   demo.sh BIN_DIR
set -eu
bin=$1
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# holds NAME: what of these claims does not hold, "" if all do.
holds() {
  jq -r --arg which "$1" '
    def check($what; $holds): if $holds then empty else $what end;
    .targets[0] as $t
    | {always: [
         check("restored"; .restored),
         check("every step is somebody'"'"'s"; ([$t.steps_by[]] | add) == $t.steps),
         check("the rules reserve cores"; $t.cores_reserved.fallback > 0),
         check("the rules'"'"' requests have a p99"; $t.p99_ms.fallback > 0 and $t.kept.fallback <= 1)],
       policy: [
         check("learned is above 40 % of the steps"; $t.steps_by.learned > 0.4 * $t.steps),
         check("the policy reserves cores"; $t.cores_reserved.learned > 0),
         check("the policy'"'"'s requests have a p99"; $t.p99_ms.learned > 0 and $t.kept.learned <= 1),
         check("both over whole periods"; $t.seconds_compared.fallback > 0 and $t.seconds_compared.learned > $t.seconds_compared.fallback)],
       rules: [
         check("nothing is learned"; $t.steps_by.learned == 0 and $t.cores_reserved.learned == null)]}
    | .[$which] | join("; ")' "$out"
}
# Did more want to run than there are processors, beside the demo itself?
busy() { awk -v cores="$(getconf _NPROCESSORS_ONLN)" '{exit !($1 > cores + 1)}' /proc/loadavg; }
# demo SECONDS [OPTION...]
demo() {
  local wrong
  "$source_dir/scripts/demo" --no-build --seconds "$1" --json "$out" "${@:2}"
  wrong=$(holds always)
  [ -z "$wrong" ] || { echo "demo.sh: does not hold: $wrong" >&2; exit 1; }
}

# Without a learner the rules are in charge all the time.
if [ ! -x "$bin/flash-learner" ]; then
  demo 25 --no-learner
  wrong=$(holds rules)
  [ -z "$wrong" ] || { echo "demo.sh: does not hold: $wrong" >&2; exit 1; }
  exit 0
fi
for seconds in 60 120 230; do
  demo "$seconds"
  wrong=$(holds policy)
  [ -n "$wrong" ] || exit 0
  echo "demo.sh: in $seconds s it does not hold: $wrong" >&2
  busy || exit 1
done
exit 1
