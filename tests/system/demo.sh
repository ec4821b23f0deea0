#!/usr/bin/env bash
# A newcomer's first minute: scripts/demo on this machine, for real. The rules begin, the pretrained policy is in charge for
# most of it, and the report compares both.
#   demo.sh BIN_DIR
set -eu
bin=$1
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
out=$(mktemp)
trap 'rm -f "$out"' EXIT
# Without a learner the rules are in charge all the time.
seconds=60 learner=true options=()
[ -x "$bin/flash-learner" ] || { seconds=25 learner=false options=(--no-learner); }
"$source_dir/scripts/demo" --no-build --seconds "$seconds" --json "$out" "${options[@]}"
jq -e --argjson learner "$learner" '
  def check($what; $holds): if $holds then empty else $what end;
  .targets[0] as $t
  | [check("restored"; .restored),
     check("every step is somebody'"'"'s"; ([$t.steps_by[]] | add) == $t.steps),
     check("the rules reserve cores"; $t.cores_reserved.fallback > 0),
     check("the rules'"'"' requests have a p99"; $t.p99_ms.fallback > 0 and $t.kept.fallback <= 1),
     if $learner then
       check("learned is above 40 % of the steps"; $t.steps_by.learned > 0.4 * $t.steps),
       check("the policy reserves cores"; $t.cores_reserved.learned > 0),
       check("the policy'"'"'s requests have a p99"; $t.p99_ms.learned > 0 and $t.kept.learned <= 1),
       check("both over whole periods"; $t.seconds_compared.fallback > 0 and $t.seconds_compared.learned > $t.seconds_compared.fallback)
     else
       check("nothing is learned"; $t.steps_by.learned == 0 and $t.cores_reserved.learned == null)
     end]
  | if . == [] then true else ("does not hold: " + join("; ")) | halt_error(1) end' "$out" > /dev/null
