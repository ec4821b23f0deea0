#!/usr/bin/env bash
# check_layers must refuse a made tree in which core includes policy, and one in which policy includes sd-bus.
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/cmake" "$tmp/core" "$tmp/policy"
cp "$here/cmake/layers.txt" "$tmp/cmake/"
printf '#include "core/b.h"\n' > "$tmp/core/a.h"
"$here/scripts/check_layers" "$tmp" || { echo "a clean tree was refused"; exit 1; }
printf '#include "policy/x.h"\n' > "$tmp/core/a.h"
"$here/scripts/check_layers" "$tmp" && { echo "core -> policy was not caught"; exit 1; }
printf '#include <vector>\n' > "$tmp/core/a.h"
printf '#include <systemd/sd-bus.h>\n' > "$tmp/policy/a.cc"
"$here/scripts/check_layers" "$tmp" && { echo "policy -> sd-bus was not caught"; exit 1; }
exit 0
