#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# libtool hands the compiler -fPIC -DPIC; nvcc passes host flags on only
# behind --compiler-options (-Xcompiler is libtool's own word). What ptxas says
# of each kernel stays in OBJECT.ptxas, which tests/gpu/ptxas.sh reads.
object=
before=
for arg; do
    shift
    case $arg in
    -fPIC | -fpic) set -- "$@" "--compiler-options=$arg" ;;
    *) set -- "$@" "$arg" ;;
    esac
    [ "$before" != -o ] || object=$arg
    before=$arg
done
[ -n "$object" ] || exec "$@"
"$@" -Xptxas=-v 2>"$object.ptxas"
status=$?
grep -v '^ptxas info\|^ *[0-9]* bytes stack frame' "$object.ptxas" >&2
exit $status
