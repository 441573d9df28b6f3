#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --node-preflight on nodes with GPUs, in a real Slurm, where plait-probe times
# emulated ones: a slow GPU, one that hangs, an NCCL that does not connect ranks.
# Nodes are processes of one machine, and what else that does may be named, too:
# so only what the report says of GPUs counts.
. "$top_srcdir/tests/lib/tier.sh"
all_tier || { echo "1..0 # SKIP tests/unit/test_preflight_judge has the rules"; exit 0; }
. "$top_srcdir/tests/gpu/emulated/emulated.sh"
modules=$PLAIT_MODULE_PATH
. "$top_srcdir/tests/cluster/tap.sh" --nodes 3 --gpus 4 --cpus 16
cached
machine=$top_srcdir/tests/fixtures/hwloc/one-of-everything.xml
. "$top_srcdir/tests/cluster/planted.sh"
export PLAIT_MODULE_PATH=$modules PLAIT_QUIET=1 OMP_NUM_THREADS=1
# So slow that what a busy machine adds to a product counts little.
export EMULATED_GPUS=4 EMULATED_GFLOPS=0.1 EMULATED_NCCL=slow

# task PATTERN WORD: plait-probe of tasks whose node and index there are like
# PATTERN has this variable, that of the others has not
task()
{
    rm -rf bin
    mkdir bin
    cat >bin/plait-probe <<END
#!/bin/sh
case \$SLURMD_NODENAME.\$PLAIT_LOCAL_RANK in $1) export $2 ;; esac
exec $emulated/plait-probe "\$@"
END
    chmod 755 bin/plait-probe
}

# fly: a step of two tasks on each of three nodes, as a tp of 2 and a dp of 3
fly()
{
    rm -f report
    PATH=$work/bin:$PATH timeout 240 srun -Q -N3 --ntasks-per-node=2 \
        --gpus-per-node=2 --tp=2 --node-preflight-report=report true >out 2>&1
    [ -s report ] || cat out
}

# said: for each node what was timed of GPUs, what is wrong with them, and notes
said()
{
    python3 -c 'import json, sys
for n in sorted(json.load(open("report"))["nodes"], key=lambda n: n["node"]):
    print(n["node"], "timed" if n.get("gpu_tflops", 0) > 0 else "untimed",
          *sorted(n.get("rings_gbs", {})), n["faults"],
          "(" + n["notes"] + ")" if "notes" in n else "", sep="|")'
}

check "a recorded machine takes this one's place" plant 1002:740f 10de:2235
task none A=
fly
check "sound GPUs and all rings are timed" is \
    "$(printf 'node%d|timed|dp|tp||\n' 1 2 3)" "$(said)"

task node2.1 EMULATED_GFLOPS=0.05
fly
check "a slow GPU is named" like "$(said)" \
    "node2\|timed\|dp\|tp\|GPU 0000:06:00.0: a product at 0\.[4-6][0-9] of the median"
check "... and no other" is 1 "$(said | grep -c GPU)"
check "... also to srun's user" like "$(cat out)" \
    "plait: preflight: .*node2: GPU 0000:06:00.0: a product at"

task node2.1 EMULATED_GFLOPS=0.02
fly
check "one that ends no product is a fault" like "$(said)" \
    "node2\|timed\|GPU 0000:06:00.0: it has not ended a product"
check "... of nobody else, whose NCCL has waited" is \
    "$(printf 'node%d|timed||(NCCL has not connected the ranks in 6 s)\n' 1 3)" \
    "$(said | grep -v node2)"
check "... nothing of it is left" eval '! pgrep -f "$emulated/plait-probe"'

task node2.1 EMULATED_GPU=broken
fly
check "one that CUDA cannot use, too" like "$(said)" \
    "node2\|timed\|GPU 0000:06:00.0: CUDA cannot use it: "
check "... which the others hear soon" eval \
    '! said | grep "NCCL has not connected"'

task '*' EMULATED_NCCL=never-connect
fly
check "an NCCL that connects nobody is a note of each node" eval \
    'is 3 "$(said | grep -c "(.* in 6 s)$")" && ! said | grep "|GPU " &&
        said | grep "NCCL has not connected the ranks"'
check "... in one line for the user" is 1 "$(grep -c \
    'warning: preflight: node[123]: .* in 6 s; and of 2 more nodes' out)"

# As another user, who may run nothing as root.
mkdir -m 777 theirs
sed -i "2i id -u >>$work/theirs/ids" bin/plait-probe
(cd theirs && PATH=$work/bin:$PATH timeout 240 setpriv --reuid=nobody \
    --regid=nogroup --clear-groups srun -Q -N2 --ntasks-per-node=2 \
    --gpus-per-node=2 --tp=2 --node-preflight true >../out 2>&1)
check "another user's GPUs are timed by a program of his" is \
    "4 $(id -u nobody)" "$(sort theirs/ids | uniq -c | xargs)"

# Without a module for CUDA nothing of it happens.
task none A=
PLAIT_MODULE_PATH=/nowhere fly
check "where CUDA cannot be loaded, that is said of no node" eval \
    'said && ! said | grep "|GPU "'
rm bin/plait-probe
fly
check "where there is no plait-probe, nothing is" is \
    "$(printf 'node%d|untimed||\n' 1 2 3)" "$(said)"
done_testing
