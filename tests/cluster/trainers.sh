#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Trainers that know nothing of Plait run unchanged, from the job files in
# examples/, in planned order. TIMES=20 repeats them.
. "$top_srcdir/tests/cluster/tap.sh"
times=${TIMES:-1}

# The job files say "python"; this is the one that has MODULE.
python_with()
{
    local p
    for p in python3 /usr/bin/python3; do
        command -v $p >/dev/null && $p -c "import $1" 2>/dev/null || continue
        printf '#!/bin/sh\nexec %s "$@"\n' "$(command -v $p)" >bin/python
        chmod 755 bin/python
        return
    done
    return 1
}

# trainer JOB PROGRAM WANTED FLAGS...: what examples/JOB's first rank writes to
# the file "result", if all ends well
trainer()
{
    local job=$1 wanted=$3
    cp "$here/$2" train.py
    rm -f result
    shift 3
    batch out "$@" "$top_srcdir/examples/$job" && is "$wanted" "$(cat result)"
}

mkdir bin
export PATH=$work/bin:$PATH GLOO_SOCKET_IFNAME=lo OMP_NUM_THREADS=1
nodes="node1 node1 node3 node3 node2 node2 node4 node4"
for ((i = 1; i <= times; i++)); do
    torch="torch.distributed over gloo from torch-ddp.sbatch"
    if python_with torch; then
        check "$torch" trainer torch-ddp.sbatch torch_job.py "8 28 $nodes" \
            -N4 --ntasks-per-node=2 --gpus-per-node=2
    else
        skip "$torch" "no python3-torch"
    fi
    mpi="mpi4py over PMIx from mpi4py.sbatch"
    if ! python_with mpi4py; then
        skip "$mpi" "no python3-mpi4py"
    elif ! srun --mpi=list 2>&1 | grep -qw pmix; then
        skip "$mpi" "this Slurm has no PMIx"
    else
        check "$mpi" trainer mpi4py.sbatch mpi4py_job.py "8 2 28" \
            -N4 --ntasks-per-node=2 --tp=2
    fi
done

# What each example asks for is accepted, where its nodes exist.
for script in "$top_srcdir"/examples/*.sbatch; do
    check "$(basename "$script") asks for what fits" \
        sbatch --test-only -N4 --ntasks-per-node=1 --gpus-per-node=1 \
        --tp=1 --pp=1 "$script"
done
# The opt-out that submitit needs, as its example asks for it.
check "submitit's variables are not set by --rendezvous=none" \
    timeout 240 srun -n2 --tp=2 --rendezvous=none bash -c \
    '[ -z "${MASTER_ADDR-}${RANK-}${WORLD_SIZE-}" ] && [ -n "$PLAIT_RANK" ]'
done_testing
