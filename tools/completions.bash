# What bash completes an id with: its lines are an id, a tab, and what it stands for. Whatever the
# daemon says is read as text and never as words of the shell.
_fleetctl_ids() {
    COLUMNS="${COLUMNS:-80}" "$(_fleetctl_program)" completions --ids "$1" "$2" 2>/dev/null
}

# The command that is completed, where it was typed as a whole path; else the one on PATH.
_fleetctl_program() {
    local typed="${COMP_WORDS[0]}"
    if [[ $typed == "~/"* ]]; then typed="$HOME/${typed:2}"; fi
    if [[ $typed == /* && -x $typed && ${typed##*/} == fleet?(ctl) ]]; then
        printf '%s' "$typed"
    else
        printf 'fleetctl'
    fi
}

# bash takes claude:1 and --option=value apart where there is no space; here they are words again.
_fleetctl_words() {
    local rest="$COMP_LINE" part before number
    words=()
    for ((number = 0; number <= COMP_CWORD; number++)); do
        part="${COMP_WORDS[number]}"
        before="${rest%%"$part"*}"
        rest="${rest#*"$part"}"
        if ((number == 0)) || [[ -z $part || -n $before ]]; then
            words+=("$part")
        elif [[ $part == [:=]* || ${words[${#words[@]} - 1]} == *[:=] ]]; then
            words[${#words[@]} - 1]+="$part"
        else
            words+=("$part")
        fi
    done
}

# $1: the function that shtab made
_fleetctl_complete() {
    local IFS=$' \t\n' line whole="" begun="" word
    local -a words lines=() apart=()
    _fleetctl_words
    for word in "${words[@]}"; do
        if [[ $word == --*=* ]]; then
            apart+=("${word%%=*}" "${word#*=}")
        else
            apart+=("$word")
        fi
    done
    local -a COMP_WORDS=("${apart[@]}")
    local COMP_CWORD=$((${#apart[@]} - 1))
    "$1"
    if [[ ${COMPREPLY[0]-} == $'\t'* ]]; then # a path: readline knows best how to write one
        compopt -o "${COMPREPLY[0]:1}" 2>/dev/null
        COMPREPLY=()
        return
    fi
    # What bash will not replace is not part of an answer either.
    word="${words[${#words[@]} - 1]}"
    if [[ $word == --*=* && $COMP_WORDBREAKS != *=* ]]; then whole="${word%%=*}="; fi
    word="${COMP_WORDS[COMP_CWORD]}"
    if [[ $word == *:* && $COMP_WORDBREAKS == *:* ]]; then begun="${word%:*}:"; fi
    lines=("${COMPREPLY[@]}")
    COMPREPLY=()
    for line in "${lines[@]}"; do
        COMPREPLY+=("$whole$(_fleetctl_shown "${#lines[@]}" "${line#"$begun"}")")
    done
}

# Where bash only lists, what an id stands for is shown with it.
# $1: how many there are; $2: an id, a tab, what it stands for
_fleetctl_shown() {
    local id="${2%%$'\t'*}" text=""
    if [[ $2 == *$'\t'* ]]; then text="${2#*$'\t'}"; fi
    if (($1 < 2)) || [[ -z $text || ${COMP_TYPE-9} != 63 ]]; then
        printf '%s' "$id"
        return
    fi
    local room=$((${COLUMNS:-80} - ${#id} - 3))
    if ((room < 8)); then
        printf '%s' "$id"
    else
        printf '%s  %s' "$id" "${text:0:room}"
    fi
}
