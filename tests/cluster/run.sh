#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait run in Slurm: without the plugin each task finds what it finds with it.
. "$top_srcdir/tests/cluster/tap.sh"
cached

# What a task sees of the plan and of its binding; what is the step's own, its
# number, its port and its secret, left out.
cat >task <<'END'
#!/bin/bash
{ env | grep -E "^(PLAIT_|RANK=|WORLD_SIZE=|LOCAL_|NODE_RANK=|GROUP_RANK=|\
MASTER_ADDR=|CUDA_(VISIBLE|DEVICE)|SLURM_PLAIT_PLAN=|NCCL_IB|UCX_NET)" |
    grep -v "^PLAIT_\(JOBID\|SECRET\)=" | sort
sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status; } >$1/$SLURM_PROCID
[ -z "$MASTER_ADDR" ] || echo "$MASTER_PORT" >>$1.ports
END
chmod 755 task

# alike FLAGS... -- PLAIT_FLAGS...: both ways give each task the same
alike()
{
    local flags=()
    while [ "$1" != -- ]; do
        flags+=("$1")
        shift
    done
    shift
    rm -rf with without ./*.ports
    mkdir with without
    timeout 240 srun -Q "${flags[@]}" "$@" ./task with || return 1
    mv slurm/plugstack.conf plugstack
    : >slurm/plugstack.conf
    timeout 240 srun -Q "${flags[@]}" "$plait" run "$@" -- ./task without
    rc=$?
    mv plugstack slurm/plugstack.conf
    [ $rc = 0 ] && [ -s with/0 ] && diff -r with without &&
        is 1 "$(sort -u without.ports | wc -l)"
}
four=(-N4 --ntasks-per-node=2)
check "the same contract and binding" \
    alike "${four[@]}" --gpus-per-node=2 -- --tp=2 --pp=2
check "... without GPUs" alike "${four[@]}" -- --tp=2
check "... in another rank order" \
    alike "${four[@]}" -- --tp=2 --pp=2 --rank-order=tp-cp-ep-pp-dp
check "... linear" alike "${four[@]}" -- --tp=2 --pp=2 --placement=linear
check "... cyclic" alike "${four[@]}" --distribution=cyclic -- --tp=2
check "... on nodes with different numbers of tasks" \
    alike -N4 -n6 -- --tp=1 --pp=2
check "... unbound" alike "${four[@]}" --gpus-per-node=2 -- --tp=2 --pin=none
printf 'node%d\n' 4 3 2 1 >hostfile
export SLURM_HOSTFILE=$work/hostfile
check "... with a host file" alike -n4 --distribution=arbitrary -- --tp=1
unset SLURM_HOSTFILE

: >slurm/plugstack.conf
show=$(srun -Q "${four[@]}" "$plait" run --tp=2 --pp=2 --show-plan true 2>&1)
check "--show-plan prints the plan once" like "$show" '2-3 +node3 +leaf0 +0-1'
check "... once" is 1 "$(grep -c node3 <<<"$show")"
for bad in --tp=3 '--tp=2 --pp=2 --rank-order=pp-dp-cp-ep-tp'; do
    # shellcheck disable=SC2086
    check "one line for $bad" is 1 "$(srun -Q "${four[@]}" "$plait" run $bad \
        true 2>&1 | grep -c plait:)"
done
done_testing
