#!/usr/bin/env bash
# flashd --once on a captured host (scripts/capture-host) must say what tests/golden/hosts/NAME/expected.json says.
#   run_golden.sh FLASHD NAME [--accept]     --accept writes what it says now; read the diff before committing it
set -euo pipefail
flashd=$1 host=$(cd "$(dirname "$0")/hosts/$2" && pwd)
got=$(mktemp) expected=$host/expected.json
trap 'rm -f "$got"' EXIT
# A target's identity is its directory's inode, which differs in every checkout.
"$flashd" --once --json --bus none --root "$host" --config "$host/flashd.json" |
  jq -S '.agents |= (map(.target.agent = "AGENT") | sort_by(.target.name))' > "$got"
if [ "${3:-}" = --accept ]; then cp "$got" "$expected"; fi
diff -u "$expected" "$got"
