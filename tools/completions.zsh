# What zsh completes an id with: each line is an id, a tab, and what it stands for. Whatever the
# daemon says is shown as text and never read as words of the shell.
_fleetctl_ids() {
  local program=fleetctl line
  local -a ids shown expl
  # The command that is completed, where it was typed as a whole path; else the one on PATH.
  if [[ $_fleetctl_typed == /*/fleet(ctl|) && -x $_fleetctl_typed ]] program=$_fleetctl_typed
  for line in "${(@f)$(COLUMNS=$COLUMNS "$program" completions --ids "$1" "${(Q)PREFIX}" 2>/dev/null)}"; do
    [[ -n $line ]] || continue
    ids+=("${line%%$'\t'*}")
    shown+=("${${line/$'\t'/  }[1,COLUMNS - 1]}")
  done
  (( $#ids )) && _wanted -V "fleet-${1%%.*}s" expl "${1%%.*}" compadd -l -d shown -a ids
}
