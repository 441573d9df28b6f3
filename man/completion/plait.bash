# SPDX-License-Identifier: Apache-2.0
# Of plait, and of the programs it runs as `plait NAME`. File names complete
# where no word is known.
_plait()
{
    local cur=${COMP_WORDS[COMP_CWORD]} at=$((COMP_CWORD - 1))
    local command=${1##*/} words first=0 option key=

    case $command in
    plait) command=${COMP_WORDS[1]} first=1 ;;
    plait-*) command=${command#plait-} ;;
    esac
    # --option=value and --set key=value arrive as three words.
    if [ "$cur" = = ]; then
        cur=
        at=$((at + 1))
    fi
    option=${COMP_WORDS[at]}
    if [ "$option" = = ] && [ "$at" -ge 2 ]; then
        option=${COMP_WORDS[at - 1]}
        case $option in
        --*) ;;
        *) key=$option ;;
        esac
    fi
    if [ "$COMP_CWORD" = "$first" ]; then
        words=$_plait_commands
    elif [ -n "$key" ]; then
        words=$(_plait_values "$key")
    elif [ "$option" = --set ]; then
        words=$_plait_keys
        compopt -o nospace 2>/dev/null
    elif [ "${cur#-}" != "$cur" ]; then
        words=$(_plait_options "$command")
    else
        words=$(_plait_words "$command" "$option")
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}

complete -o default -F _plait plait plait-train plait-prep plait-probe \
    plait-convert plait-generate plait-eval plait-report plait-watch plait-stuck \
    plait-drill
