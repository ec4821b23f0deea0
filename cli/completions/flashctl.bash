# bash completion for flashctl(1). A test compares it with flashctl's own tables.

_flashctl_targets() {
  flashctl --json agents 2>/dev/null | sed -n 's/^    "\(target\|name\)": "\(.*\)",\{0,1\}$/\2/p'
}

_flashctl() {
  local cur prev word command='' i
  local general='--json --system --address --help --version'
  local commands='status agents show rewards why watch mode hold release disable enable verify doctor cluster reload config'
  cur=${COMP_WORDS[COMP_CWORD]}
  prev=${COMP_WORDS[COMP_CWORD-1]}
  COMPREPLY=()

  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    case $word in
      --address|--lines|-n|--interval|--count|--for|--reason) ((i++)) ;;
      -*) ;;
      *) command=$word; break ;;
    esac
  done

  case $prev in
    --address|--lines|-n|--interval|--count|--reason) return ;;
    --for) COMPREPLY=($(compgen -W '90s 10m 1h 1d' -- "$cur")); return ;;
  esac

  if [[ $cur == -* ]]; then
    local options=$general
    case $command in
      rewards|why) options+=' --lines' ;;
      watch) options+=' --interval --count' ;;
      hold) options+=' --all --for --reason' ;;
      release) options+=' --all' ;;
      disable) options+=' --reason' ;;
    esac
    COMPREPLY=($(compgen -W "$options" -- "$cur"))
    return
  fi

  local IFS=$'\n'
  case $command in
    '') COMPREPLY=($(IFS=' '; compgen -W "$commands" -- "$cur")) ;;
    show|rewards|why|hold|release) COMPREPLY=($(compgen -W "$(_flashctl_targets)" -- "$cur")) ;;
    mode) COMPREPLY=($(compgen -W "$(printf '%s\n' observe recommend control default; _flashctl_targets)" -- "$cur")) ;;
    cluster) COMPREPLY=($(compgen -W 'status nodes agents' -- "$cur")) ;;
    config)
      if [[ $prev == check ]]; then
        COMPREPLY=($(compgen -f -- "$cur"))
      else
        COMPREPLY=($(compgen -W 'check' -- "$cur"))
      fi ;;
  esac
}

complete -F _flashctl flashctl
