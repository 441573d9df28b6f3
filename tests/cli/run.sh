#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait run without Slurm: alone on this machine, and under mpirun; and with a
# layout in the terms of other trainers.
plait=$top_builddir/plait
top_srcdir=$(cd "$top_srcdir" && pwd)
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
unset "${!SLURM_@}" "${!PLAIT_@}" "${!OMPI_COMM_@}" "${!PMI_@}" MASTER_PORT \
    MASTER_ADDR CUDA_VISIBLE_DEVICES "${!FLUX_@}" PBS_NODEFILE 2>/dev/null
export PLAIT_SITE=
. "$top_srcdir/tests/lib/check.sh"
. "$top_srcdir/tests/lib/until.sh"

is() { # name want got
    [ "$2" = "$3" ]
    check "$1" $?
    [ "$2" = "$3" ] || printf 'want: %s\ngot:  %s\n' "$2" "$3" | sed 's/^/# /'
}

refused() { # code text arguments...
    local code=$1 text=$2 got
    shift 2
    timeout 240 "$plait" run "$@" >"$tmp/out" 2>&1
    got=$?
    is "refused: $text" "$code plait: $text" "$got $(cat "$tmp/out")"
}

alone()
{
    timeout 240 "$plait" run --np "$@"
}

ranks='echo "$RANK $LOCAL_RANK $WORLD_SIZE $PLAIT_TP_RANK $PLAIT_PP_RANK $NODE_RANK"'
eight=$(for r in 0 1 2 3 4 5 6 7; do echo "$r $r 8 $((r % 2)) $((r / 4)) 0"; done)
is 'eight tasks of a plan' "$eight" \
    "$(alone 8 --tp=2 --pp=2 -- sh -c "$ranks" | sort)"
is '... know one address and one secret' "1 64" \
    "$(alone 4 --tp=2 sh -c 'echo $MASTER_ADDR:$MASTER_PORT $PLAIT_SECRET' |
        sort -u | awk '{ n++; s = length($2) } END { print n, s }')"
is '... of which torch is told nothing where it is not wanted' "none 3" \
    "$(alone 1 --tp=1 --rendezvous=none sh -c 'echo ${RANK-none} 3')"
mkdir "$tmp/cpus"
alone 2 --tp=2 sh -c 'sed -n "s/^Cpus_allowed_list:.//p" /proc/self/status \
    >"$0/$RANK"; echo "$PLAIT_CPUS" >"$0/$RANK.told"' "$tmp/cpus"
is 'each is bound to the cores that it is told' "same same" "$(for r in 0 1; do
    cmp "$tmp/cpus/$r" "$tmp/cpus/$r.told" && echo same; done | xargs)"
timeout 240 env --ignore-signal=CHLD "$plait" run --np 2 --tp=2 \
    sh -c 'echo $RANK' >"$tmp/out"
is 'whoever starts it may ignore SIGCHLD' "0 0 1" "$? $(sort "$tmp/out" | xargs)"
is '--show-plan' 1 "$(alone 2 --tp=2 --show-plan true 2>&1 |
    grep -c '2 tasks on 1 node: tp=2 dp=1')"
is '--label' '[0] out [1] out' \
    "$(alone 2 --tp=2 --label sh -c 'printf out' | sort | xargs)"
is '... of both outputs' '[0] err [1] err' \
    "$(alone 2 --tp=2 --label sh -c 'echo err >&2' 2>&1 >/dev/null |
        sort | xargs)"

# The words of mpirun and torchrun.
for np in '-np 2' '-n 2' -n2 '--nproc_per_node=2' '--standalone --nproc-per-node 2'; do
    is "$np" "0 1" "$(timeout 240 "$plait" run $np --tp=2 sh -c 'echo $RANK' |
        sort | xargs)"
done
refused 2 '--np=x: must be a whole number from 1 to 4096' -np x true
refused 2 "unrecognized option '--nnodes'; srun -N, or mpirun, starts plait run on several nodes" \
    --nnodes=2 --np 2 true
refused 2 "unrecognized option '--master_port'; leave it out, or set MASTER_PORT: the ranks find each other" \
    --master_port=1234 --np 2 true
refused 2 "unrecognized option '--bind-to'; did you mean --pin?" \
    --bind-to core --np 2 true
refused 2 "option '--np' requires an argument" --np
refused 1 "4 tasks are not divisible by --tp=3; --tp=2 --dp=2 or --tp=4 would fit" \
    --np 4 --tp=3 true
refused 2 '--tp=0 must be a whole number from 1 to 1048576, or "auto"' \
    --np 4 --tp=0 true
refused 2 '--np=x: must be a whole number from 1 to 4096' --np x true
refused 2 "run: no srun or mpirun started this: give --np, the number of tasks \
on this machine" --tp=2 true
refused 2 "run: a command is missing; see 'plait run --help'" --np 2 --tp=2
refused 1 'cannot run /nonexistent: No such file or directory' \
    --np 1 /nonexistent
refused 1 'cannot run gpt.yaml: it is no program; did you mean plait-train gpt.yaml?' \
    --np 2 --tp=2 gpt.yaml
PATH=$top_builddir:$PATH refused 1 \
    'cannot run train: No such file or directory; did you mean plait-train?' \
    --np 2 --tp=2 train gpt.yaml
refused 1 'cannot run nosuchprogram: No such file or directory' \
    --np 16 --pin=none nosuchprogram
PLAIT_RANK=0 refused 2 'run: this task has a plan already (PLAIT_RANK is set): '\
'leave out plait run, or srun'"'"'s flags' --tp=1 true
SLURM_PLAIT_FLAGS=tp SLURM_STEP_ID=0 refused 2 "the job was submitted with the \
flags tp, but this step has no plan: the node of its srun lacks Slurm's plait \
plugin (see plait doctor); unset SLURM_PLAIT_FLAGS to start without a plan" \
    --tp=1 true

# A task that fails ends the others, and the processes that they started.
alone 3 sh -c '[ $RANK != 1 ] || exit 7
    sleep 50 & echo $! >"$0.$RANK"; wait' "$tmp/child"
is 'the status is that of the task that failed' 7 $?
gone()
{
    [ -z "$(living $(cat "$tmp"/child.* 2>/dev/null))" ]
}
until_true gone
check '... and nothing is left of the others' $?
alone 2 sh -c 'kill -KILL $$' 2>/dev/null
is '... or 128 and its signal' 137 $?

# told NAME WANT OPTION...: RANK 1 of three tasks is killed by signal $sig, and
# the others do $others. What is said, without "plait: run: "
told()
{
    local name=$1 want=$2
    shift 2
    rm -f "$tmp"/told.*
    is "$name" "$want" "$(alone 3 "$@" sh -c '
        [ $RANK = 1 ] || eval "$1"
        until [ -e "$2.0" ] && [ -e "$2.2" ]; do sleep 0.05; done
        kill -$0 $$' $sig "$others" "$tmp/told" 2>&1 |
        sed -n 's/^plait: run: //p; /gone/p')"
}
for sig in KILL SEGV TERM; do
    number=$(kill -l $sig)
    case $sig in
        KILL) text="$number (Killed)" ;;
        SEGV) text="$number (Segmentation fault)" ;;
        TERM) text="$number (Terminated)" ;;
    esac
    others=': >"$2.$RANK"; exec sleep 240'
    told "the rank that SIG$sig kills is named, no other" \
        "rank 1 was killed by signal $text"
    others='trap "echo it is gone; exit 1" TERM
        : >"$2.$RANK"; while :; do sleep 0.05; done'
    told '... also where others have said that it is gone' "it is gone
it is gone
rank 1 was killed by signal $text"
    others=': >"$2.$RANK"; sleep 0.5; kill -KILL $$'
    told '... with --elastic too' "rank 1 was killed by signal $text" --elastic
    others=': >"$2.$RANK"; sleep 0.5; exit 0'
    told '... unless others went on' "" --elastic
done
out=$(alone 2 sh -c 'trap "" TERM
    if [ $RANK = 0 ]; then
        echo $$ >"$0.new"; mv "$0.new" "$0"
        until [ -e "$0.1" ]; do sleep 0.05; done
        echo it is gone; exit 1
    fi
    : >"$0.1"
    until [ -e "$0" ]; do sleep 0.05; done
    while kill -0 $(cat "$0"); do sleep 0.05; done 2>/dev/null
    kill -KILL $$' "$tmp/first" 2>&1)
is '... also where another has ended before it' "137 it is gone
plait: run: rank 1 was killed by signal 9 (Killed)" "$? $out"
"$plait" run --np 2 --tp=2 sh -c \
    'trap "exit 5" USR1; touch "$0.$RANK"; while :; do sleep 0.05; done' \
    "$tmp/ready" &
pid=$!
until_true eval '[ -e "$tmp/ready.0" ] && [ -e "$tmp/ready.1" ]'
kill -USR1 $pid
wait $pid
is 'signals are passed on' 5 $?
timeout 1 "$plait" run --np 2 --tp=2 sleep 240 2>"$tmp/out"
is 'ranks that end as they are asked to are not told' "124 " \
    "$? $(cat "$tmp/out")"

# Tasks that do not end by themselves: one ignores signals, one is stopped.
rm -f "$tmp"/ready.*
deaf() # GRACE
{
    "$plait" run --np 2 --tp=2 --grace "$1" sh -c 'trap "" TERM
        echo $$ >"$0.$RANK.new"; mv "$0.$RANK.new" "$0.$RANK"
        [ $RANK = 0 ] || kill -STOP $$
        while :; do sleep 0.05; done' "$tmp/ready" 2>"$tmp/out" &
    pid=$!
    until_true eval '[ -e "$tmp/ready.0" ] && [ -e "$tmp/ready.1" ]'
    living $(cat "$tmp"/ready.*) | wc -l >"$tmp/lived"
    kill -TERM $pid
}
deaf 1
wait $pid
is 'after --grace seconds they are killed' 137 $?
until_true eval '[ -z "$(living $(cat "$tmp"/ready.*))" ]'
check '... all of them' $?
is '... which lived until then' 2 "$(cat "$tmp/lived")"
is '... with a line' 'plait: run: ranks 0, 1 are still there N s after the first signal: killed' \
    "$(sed 's/[0-9]* s after/N s after/' "$tmp/out")"
rm -f "$tmp"/ready.*
deaf 1000000
until_true eval 'kill -TERM $pid; sleep 0.5; ! kill -0 $pid'
wait $pid
is 'a second signal kills them' 137 $?
refused 2 "--grace=-1: must be a whole number of seconds from 0 to 1000000" \
    --np 2 --grace=-1 true

if command -v mpirun >/dev/null && mpirun --version | grep -q 'Open MPI'; then
    is "under Open MPI's mpirun" "$eight" "$(timeout 240 bash \
        "$top_srcdir/tests/lib/mpirun.sh" 8 \
        "$plait" run --tp=2 --pp=2 sh -c "$ranks" | sort)"
    is '... one line from task 0' 1 "$(timeout 240 bash \
        "$top_srcdir/tests/lib/mpirun.sh" 4 \
        "$plait" run --tp=3 true 2>&1 | grep -c '^plait: 4 tasks are not')"
else
    check "under Open MPI's mpirun # SKIP no mpirun of Open MPI" 0
fi
if command -v mpiexec.hydra >/dev/null; then
    is "under MPICH's mpirun" "$eight" "$(timeout 240 mpiexec.hydra -np 8 \
        "$plait" run --tp=2 --pp=2 sh -c "$ranks" | sort)"
else
    check "under MPICH's mpirun # SKIP no mpiexec.hydra" 0
fi

# The variables that Flux's shell and PBS set for a task, according to their
# manuals: neither runs here.
flux() { # rank nodes [OPTION...]
    local rank=$1 nodes=$2
    shift 2
    [ $# -gt 0 ] || set -- --secret=none
    FLUX_TASK_RANK=$rank FLUX_JOB_SIZE=4 FLUX_TASK_LOCAL_ID=$((rank % (4 / nodes))) \
        FLUX_JOB_NNODES=$nodes FLUX_JOB_ID=f23 PMI_RANK=$rank PMI_SIZE=4 PMI_FD=9 \
        timeout 240 "$plait" run --tp=2 "$@" sh -c \
        'echo "$RANK $LOCAL_RANK $PLAIT_TP_RANK $NODE_RANK $MASTER_ADDR"' 2>&1
}
is 'a task of Flux' '3 3 1 0 127.0.0.1' "$(flux 3 1)"
is '... whose daemon srun started' '3 3 1 0 127.0.0.1' "$(SLURM_PROCID=0 \
    SLURM_STEP_ID=0 SLURM_LOCALID=0 SLURM_GTIDS=0 SLURM_STEP_NUM_NODES=1 \
    flux 3 1)"
is '... on the second of two nodes' '3 1 1 1 here' "$(MASTER_ADDR=here flux 3 2)"
is '... that nobody has named' \
    'plait: Flux does not say where task 0 is: set MASTER_ADDR for all tasks' \
    "$(flux 0 2)"
# Nobody gives them a secret: on several nodes the user must say that they may
# start without.
is '... without a secret' "plait: run: the tasks of 2 nodes have no secret \
(neither munge nor Open MPI's mpirun gives one), so that any process that \
reaches MASTER_PORT could join as a rank: set PLAIT_SECRET to 32 hex digits or \
more, or give --secret=none" "$(MASTER_ADDR=here flux 0 2 --pin=none)"
is '... with one of the user' '0 0 0 0 here' "$(MASTER_ADDR=here \
    PLAIT_SECRET=$(printf '%032d' 7) flux 0 2 --pin=none)"
is '... that is none by name' none "$(MASTER_ADDR=here FLUX_TASK_RANK=0 \
    FLUX_JOB_SIZE=4 FLUX_TASK_LOCAL_ID=0 FLUX_JOB_NNODES=2 FLUX_JOB_ID=f23 \
    timeout 240 "$plait" run --tp=2 --secret=none sh -c 'echo $PLAIT_SECRET' 2>&1)"
refused 2 "--secret=some: must be none; a secret of your own goes into \
PLAIT_SECRET" --np 2 --secret=some true
self=$(hostname)
mpi() { # rank: on the second of two nodes, that of ranks 2 and 3
    OMPI_COMM_WORLD_RANK=$1 OMPI_COMM_WORLD_SIZE=4 \
        OMPI_COMM_WORLD_LOCAL_RANK=$(($1 % 2)) OMPI_COMM_WORLD_LOCAL_SIZE=2 \
        OMPI_MCA_orte_precondition_transports=0123456789abcdef-0123456789abcdef \
        timeout 240 "$plait" run --tp=2 sh -c \
        'echo "$RANK $NODE_RANK $MASTER_ADDR"' 2>&1
}
printf '%s\n' first.example first.example "$self.example" "$self.example" \
    >"$tmp/pbs"
is "mpirun in a job of PBS: its file names the nodes" '3 1 first.example' \
    "$(PBS_NODEFILE=$tmp/pbs mpi 3)"
is "... unless this one is another" "plait: Open MPI's mpirun does not say \
where task 0 is: set MASTER_ADDR for all tasks" "$(PBS_NODEFILE=$tmp/pbs mpi 0)"
is "... in a job of Slurm" '2 1 first' \
    "$(SLURM_JOB_NODELIST=first,$self mpi 2)"

is "... a rank beyond the last" "plait: Open MPI's mpirun does not say which \
task this is: set OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, \
OMPI_COMM_WORLD_LOCAL_RANK and OMPI_COMM_WORLD_LOCAL_SIZE" \
    "$(SLURM_JOB_NODELIST=first,$self mpi 4)"

# The job of the cluster tests; it reads its node's name from the environment.
if python3 -c 'import torch.distributed' 2>/dev/null; then
    (cd "$tmp" && SLURMD_NODENAME=here timeout 240 "$plait" run \
        --np 4 --tp=1 python3 "$top_srcdir/tests/cluster/torch_job.py" \
        >"$tmp/torch" 2>&1)
    is 'torch over gloo' '4 6 here here here here' \
        "$(cat "$tmp/result" 2>/dev/null || cat "$tmp/torch")"
else
    check 'torch over gloo # SKIP no torch' 0
fi

format()
{
    "$plait" plan --tp=2 --pp=2 --nodes='n[1-2]' --tasks-per-node=4 \
        --format "$@" 2>&1
}
megatron='--tensor-model-parallel-size 2 --context-parallel-size 1 '
megatron+='--expert-model-parallel-size 1 --pipeline-model-parallel-size 2'
is 'megatron' "$megatron" "$(format megatron)"
is '... with its other order' "$megatron --use-tp-pp-dp-mapping" \
    "$(format megatron --rank-order=tp-cp-ep-pp-dp)"
is '... and no other' "plait: megatron cannot keep to --rank-order=dp-cp-ep-tp-pp; \
it counts tp-cp-ep-dp-pp" "$(format megatron --rank-order=dp-cp-ep-tp-pp)"
experts()
{
    format "$1" --pp=1 --dp=4 --ep="$2" --rank-order="$3"
}
is '... and no ep after dp' "plait: megatron cannot keep to \
--rank-order=tp-cp-dp-ep-pp; it counts tp-cp-ep-dp-pp" \
    "$(experts megatron 2 tp-cp-dp-ep-pp)"
is '... which one replica of the experts allows' \
    "$(experts megatron 4 tp-cp-ep-dp-pp)" \
    "$(experts megatron 4 tp-cp-dp-ep-pp)"
is '... and no ep between pp and dp' "plait: megatron cannot keep to \
--rank-order=tp-cp-pp-ep-dp; it counts tp-cp-ep-dp-pp" \
    "$(format megatron --dp=2 --ep=2 --rank-order=tp-cp-pp-ep-dp)"
is '... and jax, which has no ep' "$(experts jax 2 tp-cp-ep-dp-pp)" \
    "$(experts jax 2 tp-cp-dp-ep-pp)"
is '... appended to a command' "train.py $megatron" \
    "$(alone 4 --tp=2 --pp=2 --hand-over=megatron -- echo train.py | sort -u)"
is 'jax' '{"mesh_shape": [2, 2, 1, 2], "axis_names": ["pp", "dp", "cp", "tp"]}' \
    "$(format jax)"
is 'torchtitan' '--parallelism.data_parallel_shard_degree=2' \
    "$(format torchtitan | tr ' ' '\n' | grep data_parallel_shard)"
is '... without CUDA graphs beside pp' '--training.disable_cuda_graphs 0' \
    "$(format torchtitan | grep -o -- '--training.*') $(
        format torchtitan --pp=1 | grep -c cuda_graphs)"
is '... without tp beside ep' "plait: torchtitan spreads experts over tp too: \
with --tp=2 and --ep=2 its groups are not the plan's" \
    "$(format torchtitan --ep=2)"
is 'lightning' '--trainer.strategy=ModelParallelStrategy '\
'--trainer.strategy.data_parallel_size=4 '\
'--trainer.strategy.tensor_parallel_size=2' "$(format lightning --pp=1)"
is '... without tp' '--trainer.strategy=ddp' \
    "$(format lightning --pp=1 --tp=1)"
is '... without pp' "plait: lightning's ModelParallelStrategy has no pp, \
and the plan has --pp=2" "$(format lightning)"
is '... without cp' "plait: lightning's ModelParallelStrategy has no cp, \
and the plan has --cp=2" "$(format lightning --pp=1 --cp=2)"
is '... and no other order' "plait: lightning cannot keep to \
--rank-order=dp-cp-ep-tp-pp; it counts tp-cp-ep-dp-pp" \
    "$(format lightning --pp=1 --nodes=n1 --rank-order=dp-cp-ep-tp-pp)"
accelerate='ACCELERATE_USE_PARALLELISM_CONFIG=true '
accelerate+='PARALLELISM_CONFIG_DP_REPLICATE_SIZE=1 '
is 'accelerate' "${accelerate}PARALLELISM_CONFIG_DP_SHARD_SIZE=2 \
PARALLELISM_CONFIG_CP_SIZE=2 PARALLELISM_CONFIG_TP_SIZE=2 \
ACCELERATE_USE_FSDP=true FSDP_VERSION=2" "$(format accelerate --pp=1 --cp=2)"
is '... with nothing to shard' "${accelerate}PARALLELISM_CONFIG_DP_SHARD_SIZE=1 \
PARALLELISM_CONFIG_CP_SIZE=1 PARALLELISM_CONFIG_TP_SIZE=4" \
    "$(format accelerate --pp=1 --tp=4 --dp=1 --nodes=n1)"
is '... without ep' "plait: accelerate's ParallelismConfig has no ep, \
and the plan has --ep=2" "$(format accelerate --pp=1 --ep=2)"
is 'deepspeed' '{"tensor_parallel": {"autotp_size": 2}}' \
    "$(format deepspeed --pp=1)"
is '... with cp and ep' '{"data_parallel_size": 4, "sequence_parallel_size": 2, '\
'"expert_parallel": {"enabled": true, "autoep_size": 4}}' \
    "$(format deepspeed --pp=1 --tp=1 --cp=2 --ep=4)"
is '... with dp alone' '{}' "$(format deepspeed --pp=1 --tp=1)"
is '... without pp' "plait: deepspeed's JSON has no pp, and the plan has \
--pp=2: its PipelineModule takes topology=PipeModelDataParallelTopology(2, 2, 2)" \
    "$(format deepspeed)"
is '... without cp beside tp' "plait: deepspeed has tp or cp beside dp, and \
the plan has --tp=2 and --cp=2" "$(format deepspeed --pp=1 --cp=2)"
is '... without ep beside tp' "plait: deepspeed spreads experts over tp too: \
with --tp=2 and --ep=2 its groups are not the plan's" \
    "$(format deepspeed --pp=1 --ep=2)"
if command -v python3 >/dev/null; then
    for trainer in nemo jax; do
        format $trainer | python3 -c 'import json, sys; json.load(sys.stdin)'
        check "$trainer is JSON" $?
    done
else
    check 'JSON # SKIP no python3' 0
fi
# Compares with Megatron's own ranks for the arguments that it gets.
if python3 -c 'import megatron.core' 2>/dev/null; then
    python3 - "$plait" <<'END'
import subprocess, sys
from megatron.core.parallel_state import RankGenerator
for order in "tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp":
    lines = subprocess.run(
        [sys.argv[1], "run", "--np", "16", "--tp=2", "--pp=2", "--cp=2",
         "--rank-order=" + order, "--hand-over=megatron", "sh", "-c",
         'echo $RANK $PLAIT_TP_RANK $PLAIT_CP_RANK $PLAIT_DP_RANK '
         '$PLAIT_PP_RANK "$@"', "sh"],
        capture_output=True, text=True, check=True).stdout.splitlines()
    swapped = "--use-tp-pp-dp-mapping" in lines[0]
    assert swapped == (order != "tp-cp-ep-dp-pp")
    ranks = RankGenerator(tp=2, ep=1, dp=2, pp=2, cp=2,
                          order="tp-cp-ep-pp-dp" if swapped
                          else "tp-cp-ep-dp-pp")
    at = {int(l.split()[0]): l.split()[1:5] for l in lines}
    for i, axis in enumerate(("tp", "cp", "dp", "pp")):
        for group in ranks.get_ranks(axis):
            assert [int(at[r][i]) for r in group] == list(range(len(group)))
END
    check "megatron-core's groups are the plan's" $?
else
    check "megatron-core's groups are the plan's # SKIP no megatron-core" 0
fi
echo "1..$n"
