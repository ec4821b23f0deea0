# bash completion for flash-bench(1), flash-coordinator(8), flash-pretrain(1), flash-sync(8) and flash-workload(1): what their --help says.

_flash_programs() {
  local program=${COMP_WORDS[0]} cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=''
  COMPREPLY=()
  [[ ${program##*/} =~ ^flash-(coordinator|pretrain|sync)$ ]] || command=${COMP_WORDS[1]}

  if [[ ! ${program##*/} =~ ^flash-(coordinator|pretrain|sync)$ && $COMP_CWORD == 1 ]]; then
    # "name: what it is" at a line's begin, or "  name   what it is".
    COMPREPLY=($(compgen -W "$("$program" --help 2>/dev/null | sed -nE 's/^([a-z]+): .*/\1/p; s/^  ([a-z]+) .*/\1/p') --help" -- "$cur"))
    return
  fi
  local help value=''
  help=$("$program" $command --help 2>/dev/null)
  [[ $prev != --* ]] || value=$(sed -nE "s/^  $prev ([^ ]+) .*/\\1/p" <<< "$help")
  case $value in
    TASK) COMPREPLY=($(compgen -W 'resource-limits cpu-frequency' -- "$cur")) ;;
    LEVEL) COMPREPLY=($(compgen -W 'error warning notice info debug' -- "$cur")) ;;
    DIR) COMPREPLY=($(compgen -d -- "$cur")) ;;
    FILE|PATH|PROGRAM) COMPREPLY=($(compgen -f -- "$cur")) ;;
    '') COMPREPLY=($(compgen -W "$(sed -nE 's/^  (--[a-z-]+).*/\1/p' <<< "$help") --help" -- "$cur")) ;;
  esac
}

complete -F _flash_programs flash-bench flash-coordinator flash-pretrain flash-sync flash-workload
