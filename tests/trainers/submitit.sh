#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The part of check.sh that is small: submitit's Python API, of PyPI, without
# torch. Its tasks have the planned ranks, by the lines of examples/.
version=$(sed -n 's/^submitit==//p' "$top_srcdir/tests/trainers/versions.txt")
if [ -z "${PLAIT_IN_NETNS:-}" ]; then # before tap.sh takes the network away
    packages=$(mktemp -d) || exit 99
    export packages PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
    timeout 60 python3 -m pip install -q --no-deps --target "$packages" \
        "submitit==$version" cloudpickle typing_extensions 2>/dev/null || {
        rm -rf "$packages"
        echo "1..0 # SKIP no submitit from PyPI"
        exit 0
    }
fi
. "$top_srcdir/tests/cluster/tap.sh"
mv "$packages" packages
export PYTHONPATH=$work/packages PYTHONDONTWRITEBYTECODE=1

# submits RANKS ORDER: those of the tasks, in the order of SLURM_PROCID
submits()
{
    sed "s/{\"tp\": 2}/{\"tp\": 2, \"pp\": 2, \"rank-order\": \"$2\"}/" \
        "$top_srcdir/examples/submitit_job.py" >job.py
    timeout 240 python3 job.py 4 2 >out 2>&1
    is "$1" "$(sed -n "s/.*'RANK': \([0-9]*\).*/\1/p" out | xargs)" ||
        { cat out; return 1; }
}
check "submitit $version: ranks that are not SLURM_PROCID" \
    submits "0 1 4 5 2 3 6 7" tp-cp-ep-dp-pp
check "... in another order" submits "0 1 2 3 4 5 6 7" tp-cp-ep-pp-dp
as_it_stands()
{
    timeout 240 python3 "$top_srcdir/examples/submitit_job.py" 4 2 >out 2>&1 &&
        is "0 1 0 1 0 1 0 1" \
            "$(sed -n "s/.*'PLAIT_TP_RANK': \([0-9]*\).*/\1/p" out | xargs)"
}
check "submitit_job.py as it stands has tp inside nodes" as_it_stands
done_testing
