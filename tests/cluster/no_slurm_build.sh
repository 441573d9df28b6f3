#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A plait that was built without Slurm, on a machine that has Slurm: its doctor
# reports what the build lacks and no fault, unless another build's plugin is
# there.
so=$top_builddir/.libs/spank_plait.so
source=$(readlink -f "$top_srcdir")
cc=$(sed -n 's/^CC = //p' "$top_builddir/Makefile")
. "$top_srcdir/tests/cluster/tap.sh"
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL CONFIG_SITE

# build: plait alone, without what takes time
build()
{
    mkdir build && cd build &&
        "$source/configure" CC="$cc" CFLAGS=-O0 --without-slurm --without-mpi \
            --without-cuda --disable-openmp &&
        make -j2 plait
}

# says STATUS PATTERN NOT COMMAND...: its output has PATTERN, and not NOT
says()
{
    local status=$1 pattern=$2 not=$3 out rc
    shift 3
    out=$(timeout 240 "$@" 2>&1)
    rc=$?
    is "$status" "$rc" && like "$out" "$pattern" || return
    [[ ! $out =~ $not ]] || { echo "there is '$not' in: $out"; return 1; }
}

check "plait is built without Slurm" build
doctor=("$work/build/plait" doctor)
none='--  plugin .*this build of Plait has no Slurm parts .*--without-slurm'

check "Slurm is not set up here: no fault" says 0 "$none.*Nothing is wrong" \
    '!!|\?\?' env SLURM_CONF=/nowhere "${doctor[@]}"
check "... as JSON" says 0 '"good": ?true' '"bad"' \
    env SLURM_CONF=/nowhere "${doctor[@]}" --json
check "... and with --strict" says 0 "$none" '!!' \
    env SLURM_CONF=/nowhere "${doctor[@]}" --strict
check "a build with Slurm finds faults there" says 1 '!!  slurm' \
    'no Slurm parts' env SLURM_CONF=/nowhere "$plait" doctor

echo '# none' >slurm/plugstack.conf
check "no plugin in a Slurm that answers: no fault" says 0 \
    "ok  slurm .*$none.*Nothing is wrong" '!!|plugstack' "${doctor[@]}"
check "what the note advises: plait run under srun" says 0 '^01$' 'plait' \
    sh -c 'srun -n2 "$1" run --tp=2 -- sh -c "printf \$PLAIT_TP_RANK" |
        fold -w1 | sort | tr -d "\n"' sh "$work/build/plait"

# Another build's plugin is checked as ever.
echo "optional $so" >slurm/plugstack.conf
check "another build's plugin" says 0 "ok  plugin .*is for Slurm" \
    'no Slurm parts' "${doctor[@]}"
echo "optional /nowhere/spank_plait.so" >slurm/plugstack.conf
check "... that is gone" says 1 '!!  plugin .*does not exist' \
    'no Slurm parts' "${doctor[@]}"
done_testing
