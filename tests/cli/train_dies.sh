#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# If a rank of plait-train dies, the others end, and the reason is printed once.
set -u
. "$top_srcdir/tests/lib/train.sh"

start
kill -KILL $(ranks_of "$pid" | tail -n 1)
ok "a rank that dies ends the others" ended
ok "and the run has failed" test "$status" != 0

# Here mpirun lets the other ranks go on, which notice the loss by themselves.
OMPI_MCA_orte_enable_recovery=1
export OMPI_MCA_orte_enable_recovery
start
dead=$(ranks_of "$pid" | sed -n 2p)
kill -KILL "$dead"
ok "ranks that are left alone end" ended
ok "and one of them says why, once" test 1 = \
    "$(grep -c "rank [0-3] (process $dead of this node) has ended" "$dir/out")"
unset OMPI_MCA_orte_enable_recovery
echo "1..$n"
