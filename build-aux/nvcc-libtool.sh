#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# libtool hands the compiler -fPIC -DPIC; nvcc passes host flags on only
# behind --compiler-options (-Xcompiler is libtool's own word).
case ${1-} in
'' | -*)
    echo "nvcc-libtool.sh: this folder was configured without CUDA, so there" \
        "is no nvcc to call" >&2
    exit 1
    ;;
esac
for arg; do
    shift
    case $arg in
    -fPIC | -fpic) set -- "$@" "--compiler-options=$arg" ;;
    *) set -- "$@" "$arg" ;;
    esac
done
exec "$@"
