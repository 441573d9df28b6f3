#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every option that a command's --help shows is in its man page, in the
# program's table of options, and in the completion, which is made from --help.
# Output lost to a full disk is a failure.
source "$top_builddir/man/completion/plait" || exit 1
tmp=$(mktemp) || exit 1
trap 'rm -f "$tmp" "$tmp.full"' EXIT
. "$top_srcdir/tests/lib/check.sh"

# complete_line WORD...: what completing the last word offers
complete_line() {
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    COMPREPLY=()
    _plait "$1"
    printf '%s\n' "${COMPREPLY[@]}"
}

# covered NAME MANPAGE COMMAND...: check all options of COMMAND --help
covered() {
    local name=$1 page=$2 option missing=
    shift 2
    # roff writes a hyphen as \-, and may set one option in two fonts
    for option in $("$@" --help | grep -oE -- '--[a-z][a-z0-9-]*' | sort -u); do
        sed 's/\\f.//g; s/\\-/-/g' "$page" |
            grep -qE -- "(^|[^a-z-])$option([^a-z-]|\$)" ||
            missing="$missing $option(man)"
        complete_line "$(basename "$1")" "${@:2}" -- |
            grep -qxe "$option" || missing="$missing $option(completion)"
    done
    check "options of $name:${missing:- all there}" ${#missing}
    "$@" --help >/dev/full 2>"$tmp.full"
    [ $? = 1 ] && [ "$(grep -c 'standard output' "$tmp.full")" = 1 ]
    check "$name on a full disk" $?
}

# read_by COMMAND SOURCE...: the getopt_long() table of SOURCE has the options
# of --help, with or without an argument
read_by() {
    local command=$1 said table
    shift
    said=$(awk -F '\t' -v "of=$command" \
        '$1 == of { print substr($2, 3), $3 == "" ? "no" : "required" }' \
        "$top_builddir/man/completion/options" | sort -u)
    table=$(cd "$top_srcdir" &&
        cat "$@" | tr -d '\n\\ ' |
        grep -oE '\{"[a-z-]+",(no|required)_argument' | tr -d '{"' |
        tr , ' ' | sed 's/_argument//' | sort -u)
    for axis in tp cp ep dp pp; do
        case $* in *cmd_model.h) table="$table
$axis required" ;; esac
    done
    diff <(echo "$said") <(echo "$table" | sort -u) | sed 's/^/# /'
    [ "$said" = "$(echo "$table" | sort -u)" ] && [ -n "$said" ]
    check "$command reads the options that --help shows" $?
}
for command in topo init keys doctor site usage calibrate; do
    read_by $command topology/cli/cmd_$command.c
done
for command in plan estimate simulate; do
    read_by $command topology/cli/cmd_$command.c topology/cli/cmd_model.h
done
for command in generate eval; do
    read_by $command runtime/$command/main.c
done
read_by train runtime/train/main.c
read_by prep runtime/data/prep/prep.c
read_by convert runtime/convert/convert.c
read_by probe runtime/probe/probe.c
read_by report runtime/view/report.c
read_by watch runtime/view/watch.c
read_by stuck runtime/stuck/main.c

"$top_builddir/plait" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' \
    >"$tmp"
while read -r command; do
    [ -x "$top_builddir/plait-$command" ] && continue
    covered "plait $command" "$top_srcdir/man/plait.1" \
        "$top_builddir/plait" "$command"
    complete_line plait '' | grep -qx "$command"
    check "plait completes to $command" $?
done <"$tmp"
[ -s "$tmp" ]
check 'plait --help lists commands' $?

for program in "$top_builddir"/plait-*; do
    name=$(basename "$program")
    [ -f "$top_srcdir/man/$name.1" ] || continue
    covered "$name" "$top_srcdir/man/$name.1" "$program"
    "$top_builddir/plait" --help | grep -q "^  ${name#plait-} "
    check "$name stands in plait --help" $?
done

types=$("$top_builddir/plait" estimate --help | sed -n '/--gpu-type/{n;p;}')
missing=
for type in $types; do
    for page in plait.1 plait-site.5; do
        sed 's/\\-/-/g' "$top_srcdir/man/$page" | tr -s ' ,.|()' '\n' |
            grep -qxe "$type" || missing="$missing $type($page)"
    done
    complete_line plait estimate --gpu-type '' | grep -qxe "$type" ||
        missing="$missing $type(completion)"
done
[ -n "$types" ]
check 'plait estimate --help lists GPU types' $?
check "GPU types:${missing:- all there}" ${#missing}

complete_line plait plan --placement lin | grep -qx linear
check 'values complete' $?
complete_line plait plan --placement = t | grep -qx topology
check 'values complete after =' $?
[ -z "$(complete_line plait topo --hwloc-xml '')" ]
check 'file names are left to the shell' $?
complete_line plait train x.yaml --set parallel.sch |
    grep -qx parallel.schedule=
check 'keys complete after --set' $?
complete_line plait train x.yaml --set parallel.schedule = zb |
    grep -qx zb-h1
check 'and so do their words' $?
[ "$("$top_builddir/plait" help)" = "$("$top_builddir/plait" --help)" ]
check 'plait help' $?
for command in plan train; do
    [ "$("$top_builddir/plait" help $command)" = \
        "$("$top_builddir/plait" $command --help)" ]
    check "plait help $command" $?
done
"$top_builddir/plait" help pln >"$tmp" 2>&1
[ $? = 2 ] && grep -qx "plait: 'pln' is not a plait command; did you mean 'plan'?" "$tmp"
check 'plait help of a command that is none' $?
[ "$("$top_builddir/plait" version)" = "$("$top_builddir/plait" --version)" ]
check 'plait version' $?
[ "$(complete_line plait-eval --set '' | wc -l)" = \
    "$("$top_builddir/plait" keys | wc -l)" ]
check 'all keys are offered' $?
"$top_builddir/plait" keys train.graph |
    grep -qE '^train.graph +auto +auto.on.off$'
check 'plait keys shows default and words' $?
"$top_builddir/plait" keys train.loss_scale | grep -qE '^train.loss_scale +- '
check 'but no default that could not be given' $?
"$top_builddir/plait" keys >"$tmp" && grep -qE '^model.input +- ' "$tmp" &&
    ! grep -F '[]' "$tmp"
check '... nor an empty list' $?
"$top_builddir/plait" keys --json parallel. | python3 -c '
import json, sys
keys = json.load(sys.stdin)
assert {"key": "parallel.zero", "default": "0", "values": "0 to 3"} in keys
assert all(k["key"].startswith("parallel.") for k in keys)'
check 'and as JSON' $?
"$top_builddir/plait" keys nokey 2>"$tmp" >&2
[ $? = 2 ] && [ "$(wc -l <"$tmp")" = 1 ] && grep -q "'nokey'" "$tmp"
rc=$?
check "a key that is none: $(cat "$tmp")" $rc
echo "1..$n"
