#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The package plait with torch, in tasks of srun: init(), the mesh's groups
# against the plan in several rank orders, the example of docs/python.md.
# TRAINERS_PYTHON=PYTHON names a Python with a newer torch than the system's.
. "$top_srcdir/tests/cluster/tap.sh"

export PYTHONPATH=$top_srcdir/python PYTHONDONTWRITEBYTECODE=1
export GLOO_SOCKET_IFNAME=lo OMP_NUM_THREADS=1
export TORCHINDUCTOR_CACHE_DIR=$work/torch
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE

# python_with STATEMENT: a Python that can execute it
python_with()
{
    local p
    for p in ${TRAINERS_PYTHON:+"$TRAINERS_PYTHON"} python3 /usr/bin/python3; do
        command -v "$p" >/dev/null && "$p" -c "$1" 2>/dev/null || continue
        command -v "$p"
        return
    done
    return 1
}
old=$(python_with 'import torch.distributed')
new=$(python_with 'import torch.distributed.device_mesh, torch
assert torch.__version__ >= "2."')

# groups PYTHON WHAT TASKS FLAG...: on four nodes; TASKS are Slurm's task ids in
# the order of their ranks
moved="0 1 4 5 2 3 6 7" same="0 1 2 3 4 5 6 7"
groups()
{
    local python=$1 what=$2 tasks=$3
    shift 3
    rm -f result
    timeout 240 srun -Q -N4 --ntasks-per-node=2 "$@" "$python" \
        "$here/python_job.py" "$what" result && is "8 4 $tasks" \
        "$(cat result)"
}
one="init() and groups are the plan's"
if [ -n "$old" ]; then
    if all_tier; then
        check "$one" groups "$old" init "$moved" --tp=2 --pp=2
        check "$one with --rank-order=tp-cp-ep-pp-dp" \
            groups "$old" init "$same" --tp=2 --pp=2 \
            --rank-order=tp-cp-ep-pp-dp
    fi
    # Eight tasks that load torch take a processor for ten seconds: these two at
    # once.
    printf '#!/bin/sh\nRANK=0 WORLD_SIZE=1 exec %s "$@"\n' "$old" >others
    chmod 755 others
    check "$one although another launcher has set RANK, with --export=NONE" \
        groups ./others init "$moved" --tp=2 --pp=2 \
        --export="PYTHONPATH=$PYTHONPATH,GLOO_SOCKET_IFNAME=lo,PATH=$PATH"
else
    skip "$one" "no python3-torch"
fi
mesh="the mesh's groups are the plan's"
if [ -n "$new" ]; then
    if all_tier; then
        check "$mesh" groups "$new" mesh "$moved" --tp=2 --pp=2
        check "$mesh with --rank-order=tp-cp-ep-pp-dp" \
            groups "$new" mesh "$same" --tp=2 --pp=2 \
            --rank-order=tp-cp-ep-pp-dp
    fi
    check "$mesh with cp and ep" \
        groups "$new" mesh "$moved" --tp=2 --cp=2 --ep=2
    check "$mesh with cp in another place of the order" \
        groups "$new" mesh "$same" --cp=2 --pp=2 \
        --rank-order=tp-cp-pp-ep-dp
else
    skip "$mesh" "no torch 2.3 or later; TRAINERS_PYTHON names a Python"
fi

# The example as it stands, and what it trains: the losses of all ranks are
# those of one process.
example()
{
    awk '/^```python$/ { on = !done; next } /^```$/ { done = on || done; on = 0 }
        on' "$top_srcdir/docs/python.md" >train.py
    grep -q 'fully_shard(model' train.py || return 1
    {
        cat train.py
        cat <<'END'
    shares = [torch.zeros(()) for _ in range(contract.world_size)]
    torch.distributed.all_gather(shares, loss.detach())
    if contract.rank == 0:
        mean = float(sum(shares) / contract.world_size)
        print(f"{mean:.5f}", file=open("losses", "a"))
torch.distributed.barrier()
torch.distributed.destroy_process_group()
END
    } >whole.py
    rm -f losses
    timeout 240 srun -Q "$@" "$new" whole.py >out 2>&1 || { cat out; return 1; }
}
trains()
{
    example -n1 --dp=1 && mv losses one || return
    example -N4 --ntasks-per-node=2 --tp=2 && is 5 "$(wc -l <losses)" || return
    is "$(awk '{ printf "%.4f ", $1 }' one)" \
        "$(awk '{ printf "%.4f ", $1 }' losses)"
}
if [ -n "$new" ]; then
    check "FSDP2 x TP of docs/python.md has the losses of one process" trains
else
    skip "FSDP2 x TP of docs/python.md" "no torch 2.3 or later"
fi

# ends WORDS COMMAND...: the tasks end with an Error that has the words
ends()
{
    local words=$1
    shift
    timeout 240 "$@" >out 2>&1
    [ $? != 124 ] || return
    like "$(grep 'plait.errors.Error' out)" "$words"
}
wrong="what init() cannot do is said"
if [ -n "$old" ]; then
    code='import plait; plait.init()'
    check "$wrong: no plan" ends 'not started under a plan' \
        srun -Q -n1 "$old" -c "$code"
    check "$wrong: no rendezvous" ends 'without --rendezvous=none' \
        srun -Q -n2 --tp=2 --rendezvous=none "$old" -c "$code"
    check "$wrong: another rank" ends 'and the plan says rank' \
        srun -Q -n2 --tp=2 "$old" -c "import os, torch.distributed as d
os.environ['RANK'] = str(1 - int(os.environ['RANK']))
d.init_process_group('gloo')
$code"
    check "$wrong: a step that nothing has planned" \
        ends 'this step has no plan' \
        env SLURM_PLAIT_FLAGS=tp srun -Q -n1 --export=ALL,SLURM_PLAIT_FLAGS=tp \
        "$old" -c "$code"
fi
done_testing
