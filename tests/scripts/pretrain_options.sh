#!/usr/bin/env bash
# What flash-pretrain --json says of its options is of the recipe that was run, and of no other.
#   pretrain_options.sh FLASH_PRETRAIN
set -u
all='"(rounds|steps|updates|as_drawn|conditioning|episodes|worlds)"'
said() {  # said PROGRAM RECIPE
  "$1" --task cpu-frequency --recipe "$2" --pairs 2 --rounds 1 --steps 100 --updates 2 --episodes 16 --unseen 0 \
    --threads 1 --json - 2> /dev/null | grep -oE "$all" | tr -d '"' | sort | paste -sd ' '
}
failed=0
expect() {  # expect RECIPE KEYS
  local got
  got=$(said "$program" "$1")
  [ "$got" = "$2" ] || { echo "recipe $1 says '$got', not '$2'"; failed=1; }
}
program=$1
expect imitation 'as_drawn conditioning rounds steps updates'
expect flash 'episodes worlds'
exit $failed
