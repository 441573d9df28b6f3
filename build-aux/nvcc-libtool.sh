#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# libtool passes -fPIC -DPIC; nvcc passes flags to the host compiler only after
# --compiler-options (libtool itself uses -Xcompiler). ptxas' report on each
# kernel is kept in OBJECT.ptxas, which tests/gpu/ptxas.sh reads.
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
