#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every option that a command's --help shows is in its man page and in the
# bash completion. What a full disk swallows is no success.
source "$top_srcdir/man/completion/plait" || exit 1
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

# covered NAME MANPAGE COMMAND...: all options of COMMAND --help
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

"$top_builddir/plait" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' \
    >"$tmp"
while read -r command; do
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
    [ -f "$top_srcdir/man/completion/$name" ]
    check "$name has a completion" $?
done

types=$("$top_builddir/plait" estimate --help | sed -n '/--gpu-type/{n;p;}')
missing=
for type in $types; do
    for page in plait.1 plait-site.5; do
        grep -qw -- "$type" "$top_srcdir/man/$page" ||
            missing="$missing $type($page)"
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
echo "1..$n"
