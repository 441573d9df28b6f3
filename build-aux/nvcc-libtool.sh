#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# libtool hands the compiler -fPIC -DPIC; nvcc passes host flags on only
# behind --compiler-options (-Xcompiler is libtool's own word).
for arg; do
    shift
    case $arg in
    -fPIC | -fpic) set -- "$@" "--compiler-options=$arg" ;;
    *) set -- "$@" "$arg" ;;
    esac
done
exec "$@"
