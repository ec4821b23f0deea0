#!/usr/bin/env bash
# Every option that a program (or its commands) prints is in its man page, and the page has no other.
#   man_page_options.sh PROGRAM PAGE [COMMAND...]
set -u
program=$1 page=$2
shift 2
[ $# -gt 0 ] || set -- ''
from_program=$(for c in "$@"; do "$program" ${c:+"$c"} --help; done | grep -oE '^  (-[a-z], )?--[a-z-]+' | grep -oE -- '--[a-z-]+' | sort -u)
from_page=$(sed 's/\\-/-/g' "$page" | sed -n '/^.SH OPTIONS/,/^.SH EXIT/p' | grep -oE -- '--[a-z-]+' | sort -u)
[ -n "$from_program" ] || { echo "the program printed no options"; exit 1; }
diff <(echo "$from_program") <(echo "$from_page")
