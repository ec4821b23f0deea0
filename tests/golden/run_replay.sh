#!/usr/bin/env bash
# What flashd --replay says of a journal that was recorded once must stay what it was: states, ranges, maps between networks'
# form and knobs, critic, attributions. Numbers to five digits, since instruction sets differ in the last bits.
#   run_replay.sh FLASHD NAME [--accept]     --accept writes what it says now; read the diff before committing it
# tests/golden/replay/demo is of `scripts/demo --seconds 60`: rules, then the pretrained policy, offline, online, serving.
set -euo pipefail
flashd=$1 recorded=$(cd "$(dirname "$0")/replay/$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gunzip -c "$recorded/decisions.jsonl.gz" > "$work/decisions.jsonl"
"$flashd" --replay "$work/decisions.jsonl" --model "$recorded/policy" --json |
  jq -S 'walk(if type == "number" and . != 0 then pow(10; (fabs | log10 | floor) - 4) as $digit | (. / $digit | round) * $digit
              else . end | if type == "number" then tostring | .[:12] else . end)' > "$work/got.json"
if [ "${3:-}" = --accept ]; then cp "$work/got.json" "$recorded/expected.json"; fi
diff -u "$recorded/expected.json" "$work/got.json"
