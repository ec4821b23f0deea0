#!/usr/bin/env bash
# Every option that flash-workload's commands print is in its man page, and the page has no other.
#   workload_man_page.sh PROGRAM PAGE
set -u
from_program=$(for c in serve load spin calibrate generate update; do "$1" "$c" --help; done | grep -oE '^  --[a-z-]+' | tr -d ' ' | sort -u)
from_page=$(sed 's/\\-/-/g' "$2" | sed -n '/^.SH OPTIONS OF SERVE/,/^.SH EXIT/p' | grep -oE -- '--[a-z-]+' | sort -u)
[ -n "$from_program" ] || { echo "the program printed no options"; exit 1; }
diff <(echo "$from_program") <(echo "$from_page")
