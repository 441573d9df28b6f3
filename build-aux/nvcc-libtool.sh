#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# libtool hands the compiler -fPIC -DPIC; nvcc passes host flags on only
# behind -Xcompiler. Header dependencies go to DIR/.deps beside the object.
nvcc=$1; shift
args= out= prev=
for arg in "$@"; do
    case $arg in
    -fPIC | -fpic) arg="-Xcompiler $arg" ;;
    esac
    [ "$prev" = -o ] && out=$arg
    prev=$arg
    args="$args $arg"
done
exec $nvcc $args -MMD -MF "${out%.*}.d"
