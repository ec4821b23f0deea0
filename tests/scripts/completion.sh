#!/usr/bin/env bash
# What bash offers for flash-bench and its kin.   completion.sh COMPLETION FOLDER_OF_PROGRAMS
set -u
source "$1"
bin=$2
failed=0
# expect 'WORD...' OFFER...: each must be among what is offered after the words (the last may be empty).
expect() {
  IFS=' ' read -ra COMP_WORDS <<< "$1"
  [[ $1 == *' ' ]] && COMP_WORDS+=('')
  COMP_WORDS[0]=$bin/${COMP_WORDS[0]}
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _flash_programs
  local offer
  for offer in "${@:2}"; do
    printf '%s\n' "${COMPREPLY[@]}" | grep -qxe "$offer" || { echo "'$1' offers: ${COMPREPLY[*]}; not $offer"; failed=1; }
  done
  [ $# -gt 1 ] || [ ${#COMPREPLY[@]} -eq 0 ] || { echo "'$1' offers ${COMPREPLY[*]}"; failed=1; }
}
expect 'flash-bench ' tick daemon sim calibrate live learner adapt bootstrap serve characterize predict amortize rcs overhead --help
expect 'flash-bench ad' adapt
expect 'flash-bench rcs --' --dataset --test --repeats --json --help
expect 'flash-bench adapt --task ' resource-limits cpu-frequency
expect 'flash-bench sim --pairs '
expect 'flash-pretrain --s' --seed --steps
expect 'flash-pretrain --task cpu' cpu-frequency
expect 'flash-coordinator --s' --store
expect 'flash-sync --l' --listen --log-level
expect 'flash-sync --log-level d' debug
expect 'flash-workload ' serve load generate
exit $failed
