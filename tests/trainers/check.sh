#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Trainers of PyPI under the plan, in a real Slurm whose ranks are not its task
# ids: what each says of its ranks and groups, as a table. `make check-trainers`
# makes the Python that they are in (TRAINERS_VENV). ONLY="jax submitit" tries
# some, of those ROWS the forms that it fits, and KEEP=FILE keeps the table.
trainers=$top_srcdir/tests/trainers
venv=${TRAINERS_VENV:?}
. "$top_srcdir/tests/cluster/own_networks.sh"
. "$top_srcdir/tests/cluster/tap.sh" --netns yes

python=$venv/bin/python
mkdir bin
# What a job's "python" is, also where its environment is empty.
python_is() # [DIR]: with the packages there before the others
{
    cat >bin/python <<END
#!/bin/sh
export PYTHONPATH=${1:+$1:}$top_srcdir/python:$trainers
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 TORCH_CPP_LOG_LEVEL=ERROR
export DS_ACCELERATOR=cpu CUDA_DEVICE_MAX_CONNECTIONS=1 HF_HUB_OFFLINE=1
export PATH=$venv/bin:\$PATH TOKENIZERS_PARALLELISM=false
export TORCH_EXTENSIONS_DIR=$venv/extensions
exec $python "\$@"
END
    chmod 755 bin/python
}
python_is
export PATH=$work/bin:$top_builddir:$PATH PLAIT_QUIET=1
export UCX_NET_DEVICES=eth0 # which the nodes have; tap.sh means one machine
version()
{
    "$python" -c 'import importlib.metadata as m, sys
print(m.version(sys.argv[1]))' "$1" 2>/dev/null
}

# wanted NAME: is it to be tried, and is it there?
wanted()
{
    [ -z "${ONLY:-}" ] || [[ " $ONLY " = *" $1 "* ]] || return
    [ -n "$(version "$2")" ] || { skip "$1" "no $2 in $venv"; return 1; }
}

# framework NAME FORM PROGRAM COMMAND...: COMMAND runs in a folder that has
# PROGRAM as train.py; what its tasks recorded is a row of the table.
framework()
{
    local name=$1 form=$2 program=$3 row
    shift 3
    rm -rf job
    mkdir job
    cp "$trainers/$program" job/train.py
    cp "$trainers/$program" job/pretrain_gpt.py
    echo '{"train_micro_batch_size_per_gpu": 2, "zero_optimization":
        {"stage": 1}, "zero_allow_untested_optimizer": true, "optimizer":
        {"type": "SGD", "params": {"lr": 0.01}}}' >job/ds.json
    (cd job && "$@") >out 2>&1 || { tail -n 40 out; return 1; }
    row=$("$python" "$trainers/table.py" "$name" "$form" job) || {
        echo "$row" >>"$work/table"
        echo "$row"
        tail -n 40 out
        return 1
    }
    echo "$row" >>"$work/table"
}
try() { [[ $2 =~ ${ROWS:-} ]] || return 0; check "$1, $2" framework "$@"; }

as_batch() { batch out.batch "$@"; }
as_step() { timeout 240 srun -Q "$@"; }
as_joined() { JOIN=$1 as_step "${@:2}"; }
as_meshed() { MESH=$mesh as_step "$@"; }
# formatted FLAG COMMAND...: in the environment that the planned flag makes
formatted()
{
    local words
    words=$(plait plan $1 --nodes 'node[1-4]' --tasks-per-node 2 \
        --format accelerate) || return
    # shellcheck disable=SC2163,SC2086 # words are meant
    (export $words && "${@:2}")
}
# as_written WORDS OTHERS: the line of docs/migrate.md that has WORDS, with OTHERS
# in their place and the sizes of this cluster
as_written()
{
    local line
    line=$(grep -F "$1" "$top_srcdir/docs/migrate.md" | sed "s/^    //
        s/'n\[1-4]'/'node[1-4]'/; s/tasks-per-node 8/tasks-per-node 2/")
    [ -n "$line" ] && eval "${line/"$1"/$2}"
}
even="-N4 --ntasks-per-node=2 --gpus-per-node=2"
uneven="-N4 -n6" # 2, 2, 1 and 1 tasks
example=$top_srcdir/examples
other=--rank-order=tp-cp-ep-pp-dp

# shellcheck disable=SC2086 # words are meant
{
if wanted torch torch; then
    try PyTorch "torch-ddp.sbatch" torch_job.py \
        as_batch $even --tp=2 --pp=2 "$example/torch-ddp.sbatch"
    mesh=$(awk '/^    plait.init\(\)/, /^$/' "$top_srcdir/docs/migrate.md" |
        sed 's/^    //')
    try PyTorch "mesh of migrate.md, $other, cyclic" torch_job.py as_meshed \
        $even --tp=2 --pp=2 $other --distribution=cyclic python train.py
    try PyTorch "srun, 2+2+1+1 tasks" torch_job.py as_step $uneven --pp=2 \
        python train.py
    try PyTorch "--export=NONE, plait run" torch_job.py as_step $even \
        --export=NONE "$top_builddir/plait" run --tp=2 --pp=2 \
        "$work/bin/python" train.py
fi
megatron()
{
    try Megatron-core "megatron-lm.sbatch" megatron_job.py \
        as_batch $even --tp=2 --pp=2 "$example/megatron-lm.sbatch"
    try Megatron-core "megatron-lm.sbatch, $other, cyclic" megatron_job.py \
        as_batch $even --tp=2 --pp=2 $other --distribution=cyclic \
        "$example/megatron-lm.sbatch"
}
if wanted megatron megatron-core; then
    megatron
    try Megatron-core "megatron-lm.sbatch, cp and ep" megatron_job.py \
        as_batch $even --tp=2 --pp=1 --cp=2 --ep=2 "$example/megatron-lm.sbatch"
    try Megatron-core "--hand-over, 2+2+1+1 tasks" megatron_job.py as_step \
        $uneven plait run --pp=2 --hand-over=megatron python train.py
    python_is "$venv/older/megatron-core"
    megatron
    python_is
fi
# DeepSpeed compiles its sums in shared memory when it first runs, for minutes, and
# each process waits for a lock that a killed one leaves behind: before the steps,
# so that no limit of theirs ends it.
compile_sums()
{
    rm -f "$venv"/extensions/*/lock
    bin/python -c 'from deepspeed.comm.torch import build_shm_op
build_shm_op()'
}
# The launcher of DeepSpeed by srun: the tasks are Slurm's, and the plan theirs.
as_launched() # FLAGS
{
    printf '#!/bin/bash\n#SBATCH %s\n' "$*" >launched.sbatch
    # shellcheck disable=SC2016 # the job expands them
    echo 'scontrol show hostnames | sed "s/$/ slots=2/" >hostfile
        python -m deepspeed.launcher.runner --hostfile=hostfile \
            --launcher=slurm --no_ssh_check --master_addr="$HOSTNAME" \
            train.py --deepspeed --deepspeed_config ds.json' >>launched.sbatch
    batch out.batch launched.sbatch
}
# One launcher in each node's task: what it starts has ranks by the host file, and
# the task's plan beside them, which plait.init() does not take for its own.
launches()
{
    rm -f own.[0-7]
    cat >own.py <<'END'
import os
import deepspeed
import plait
deepspeed.init_distributed("gloo", verbose=False)
try:
    plait.init()
    taken = "takes"
except plait.Error:
    taken = "refuses"
# A file for each: with python -u words of several processes mix on one pipe.
with open(f"own.{deepspeed.comm.get_rank()}", "w") as out:
    print(deepspeed.comm.get_rank(), "of", deepspeed.comm.get_world_size(),
          taken, "the plan of task", os.environ["PLAIT_RANK"], file=out)
END
    printf 'node%d slots=2\n' 1 2 3 4 >hostfile
    # shellcheck disable=SC2016 # the task expands them
    as_step -N4 --ntasks-per-node=1 --pp=4 bash -c '
        exec python -m deepspeed.launcher.runner --hostfile=hostfile --no_ssh \
            --node_rank=$SLURM_NODEID --master_addr=$MASTER_ADDR \
            --master_port=$MASTER_PORT --no_local_rank own.py' >out 2>&1
    is "0 0 1 0 2 2 3 2 4 1 5 1 6 3 7 3" "$(sed -n \
        's/^\(.*\) of 8 refuses the plan of task \(.*\)/\1 \2/p' own.[0-7] |
        xargs)" || { tail -n 40 out; return 1; }
    echo "| DeepSpeed | $(version deepspeed) | deepspeed --no_ssh | - | its own" \
        "| its own | its own | - | - | - | - |" >>table
}
# configured LAYOUT: with what --format deepspeed prints among the keys of ds.json
configured()
{
    local keys
    keys=$(plait plan $1 --nodes 'node[1-4]' --tasks-per-node 2 \
        --format deepspeed) &&
        sed -i "s/^{/{${keys:1:-1},/" ds.json &&
        as_step $even $1 python train.py --deepspeed --deepspeed_config ds.json
}
if wanted deepspeed deepspeed; then
    compile_sums >out 2>&1 || cat out
    try DeepSpeed "--format deepspeed" deepspeed_job.py configured --tp=2
    try DeepSpeed "--format deepspeed, cp" deepspeed_job.py configured --cp=2
    try DeepSpeed "--format deepspeed, cp and ep" deepspeed_job.py configured \
        "--cp=2 --ep=4"
    try DeepSpeed "deepspeed --launcher=slurm" deepspeed_job.py \
        as_launched $even --tp=2 --pp=2
    check "deepspeed --no_ssh keeps its own ranks" launches
    try DeepSpeed "deepspeed.sbatch" deepspeed_job.py \
        as_batch $even --tp=2 --pp=2 "$example/deepspeed.sbatch"
    try DeepSpeed "srun, 2+2+1+1 tasks" deepspeed_job.py as_step $uneven \
        --pp=2 python train.py --deepspeed --deepspeed_config ds.json
fi
if wanted accelerate accelerate; then
    try Accelerate "accelerate.sbatch" accelerate_job.py \
        as_batch $even --dp=auto "$example/accelerate.sbatch"
    try Accelerate "--format accelerate" accelerate_job.py \
        formatted "--tp=2 --cp=2" as_step $even --tp=2 --cp=2 \
        python train.py
    try Accelerate "--format accelerate, migrate.md" accelerate_job.py \
        as_written 'srun --tp=2 python' "srun -Q $even --tp=2 python"
    try Accelerate "accelerate.sbatch, --format accelerate" accelerate_job.py \
        formatted --tp=2 batch out.batch $even --tp=2 \
        "$example/accelerate.sbatch"
    try Accelerate "srun, 2+2+1+1 tasks" accelerate_job.py as_step $uneven \
        --dp=6 python train.py
fi
if wanted trainer transformers; then
    try "HF Trainer" "accelerate.sbatch" hf_trainer_job.py \
        as_batch $even --dp=auto "$example/accelerate.sbatch"
    try "HF Trainer" "srun, 2+2+1+1 tasks" hf_trainer_job.py \
        as_step $uneven --dp=6 python train.py
fi

# The lines of docs/migrate.md that make a host file, and srun with more FLAGS;
# its tasks run COMMAND.
host_file() # FLAGS COMMAND
{
    local lines
    lines=$(awk '/^    scontrol show topology/, /--placement=linear/' \
        "$top_srcdir/docs/migrate.md" | sed 's/^    //')
    lines=${lines//--tp=2 --pp=2/$layout}
    lines=${lines/srun/srun $1}
    echo "${lines/python train.py/$2}"
}
# script FLAGS COMMAND: a batch script of those
script()
{
    printf '#!/bin/bash\n#SBATCH -N4 --ntasks-per-node=2 %s\n' "$layout"
    host_file "$@"
}
# contexts NAME PROGRAM COMMAND: COMMAND in tasks of each kind of step
contexts()
{
    local name=$1 program=$2 command=$3 free="-N4 --ntasks-per-node=2"
    script "" "$command" >script.sbatch
    try "$name" "host file, sbatch" $program as_batch "$work/script.sbatch"
    try "$name" "host file, salloc" $program \
        timeout 240 salloc -Q --job-name=train $free $layout bash "$work/script.sbatch"
    script "--export=NONE" "$work/bin/$command" >script.none
    try "$name" "host file, --export=NONE" $program \
        as_batch "$work/script.none"
    { script "--overlap" "$command" | sed '3i srun --overlap sleep 30 &'
        echo 'scancel $SLURM_JOB_ID.0; exit 0'; } >script.overlap
    try "$name" "host file, --overlap" $program \
        as_batch "$work/script.overlap"
    script "" "plait run $layout --placement=linear $command" | sed '
        /^#SBATCH/s/--tp.*//; s/arbitrary --placement=linear/arbitrary/' \
        >script.run # the step has no plan of the plugin's
    try "$name" "host file, plait run" $program as_batch "$work/script.run"
}
if wanted lightning lightning; then
    try Lightning "lightning.sbatch" lightning_job.py \
        as_batch $even "$example/lightning.sbatch"
    layout="--tp=2 --dp=4"
    mesh=$(plait plan $layout --nodes 'node[1-4]' --tasks-per-node 2 \
        --format lightning)
    command="python train.py --trainer.num_nodes=4 --trainer.devices=2 $mesh"
    try Lightning "lightning.sbatch, --format lightning" lightning_job.py \
        as_written 'sbatch lightning.sbatch' \
        "batch out.batch $even --tp=2 $example/lightning.sbatch"
    contexts Lightning lightning_job.py "$command"
    layout="$layout $other"
    script "" "$command" >script.sbatch
    try Lightning "host file, $other" lightning_job.py \
        as_batch "$work/script.sbatch"
    layout="--tp=2 --dp=4"
    python_is "$venv/older/lightning"
    try Lightning "lightning.sbatch" lightning_job.py \
        as_batch $even "$example/lightning.sbatch"
    script "" "$command" >script.sbatch
    try Lightning "host file, sbatch" lightning_job.py \
        as_batch "$work/script.sbatch"
    python_is
fi
jax_layout()
{
    plait plan "$@" --nodes 'node[1-4]' --tasks-per-node 2 --format jax |
        tr -d ' '
}
# called FLAGS: jax.sbatch, whose head has the call for the program
called()
{
    JOIN=$(sed -n '/jax.distributed.initialize($/, /LOCAL_RANK/s/^# *//p' \
        "$example/jax.sbatch") LAYOUT=$(jax_layout $layout) \
        as_batch "$@" "$example/jax.sbatch"
}
if wanted jax jax; then
    join=$(awk '/^    jax.distributed.initialize\(/, /^$/' \
        "$top_srcdir/docs/migrate.md" | sed 's/^    //')
    layout="--tp=2 --pp=2"
    try JAX "jax.sbatch" jax_job.py called $even $layout
    for order in tp-cp-ep-dp-pp tp-cp-ep-pp-dp; do
        layout="--tp=2 --pp=2 --rank-order=$order"
        try JAX "contract, $order, cyclic" jax_job.py as_joined "$join" \
            $even $layout --distribution=cyclic python train.py \
            "$(jax_layout $layout)"
    done
    try JAX "contract, 2+2+1+1 tasks" jax_job.py as_joined "$join" \
        $uneven --pp=2 python train.py \
        '{"mesh_shape":[2,3],"axis_names":["pp","dp"]}'
    for order in tp-cp-ep-dp-pp tp-cp-ep-pp-dp; do
        layout="--tp=2 --pp=2 --rank-order=$order"
        command="python train.py '$(jax_layout $layout)'"
        if [ $order = tp-cp-ep-dp-pp ]; then
            contexts JAX jax_job.py "$command"
        else
            script "" "$command" >script.sbatch
            try JAX "host file, $order" jax_job.py \
                as_batch "$work/script.sbatch"
            try JAX "host file, $order, salloc" jax_job.py timeout 240 \
                salloc -Q -N4 --ntasks-per-node=2 $layout \
                bash "$work/script.sbatch"
        fi
    done
fi
if wanted mpi4py mpi4py && srun --mpi=list 2>&1 | grep -qw pmix; then
    try mpi4py "mpi4py.sbatch" mpi4py_job.py \
        as_batch -N4 --ntasks-per-node=2 --tp=2 --pp=2 "$example/mpi4py.sbatch"
    try mpi4py "srun, 2+2+1+1 tasks" mpi4py_job.py \
        as_step --mpi=pmix $uneven --pp=2 python train.py
fi
}

if wanted torchtitan torchtitan; then
    layout="--tp=2 --pp=2"
    # shellcheck disable=SC2046,SC2086 # words are meant
    try torchtitan "--format torchtitan" torchtitan_job.py as_step $even \
        $layout python train.py $(plait plan $layout --nodes 'node[1-4]' \
            --tasks-per-node 2 --format torchtitan)
    layout="--cp=2 --ep=4"
    # shellcheck disable=SC2046,SC2086
    try torchtitan "--format torchtitan, cp and ep" torchtitan_job.py as_step \
        $even $layout python train.py $(plait plan $layout \
            --nodes 'node[1-4]' --tasks-per-node 2 --format torchtitan)
    echo 'model: {family: llama, layers: 32, hidden: 4096, heads: 32,
        ffn: 14336, vocab: 128256, seq_len: 8192}
train: {global_batch: 128, precision: bf16}' >model.yaml
    # shellcheck disable=SC2046
    try torchtitan "plan --auto --framework torchtitan" torchtitan_job.py \
        as_step $even --tp=2 --pp=2 python train.py $(plait plan --auto \
            --model model.yaml --gpus 8 --gpu-type h100 --tp 2 --pp 2 \
            --framework torchtitan | sed -n '/^--parallelism/,$p' | tr -d '\\\n')
fi
rays()
{
    as_step -N1 -n1 --dp=1 python "$trainers/ray_job.py" "$work" >out 2>&1 ||
        { tail -n 40 out; return 1; }
    echo "| Ray Train | $(version ray) | 3 workers in a planned task | - | its" \
        "own | its own | its own | - | - | yes | - |" >>table
}
if wanted ray ray; then
    check "Ray Train keeps its own ranks in a planned task" rays
fi

# submitit pickles its function and starts its own program.
submits()
{
    timeout 240 bin/python "$example/submitit_job.py" 4 2 >out 2>&1
    local ranks
    ranks=$(sed -n "s/.*'RANK': \([0-9]*\).*/\1/p" out | xargs)
    is "0 1 4 5 2 3 6 7" "$ranks" || { cat out; return 1; }
    echo "| submitit | $(version submitit) | submitit_job.py | 4 of 8 | yes |" \
        "yes | yes | - | - | - | - |" >>table
}
if wanted submitit submitit; then
    check "submitit, submitit_job.py" submits
fi

follows()
{
    printf '{"step":%s,"loss":%s}\n' 1 2.5 2 2.25 2 2.125 3 2 >run.jsonl
    echo '{"step":4,"loss":1.5,"measured_s":{"step":0.5}}' >>run.jsonl
    timeout 240 bin/python "$trainers/follow_job.py" "$PWD/run.jsonl"
}
if wanted follow wandb && wanted follow mlflow-skinny; then
    check "follow_metrics.py: wandb and MLflow have each step" follows
fi

{ "$python" "$trainers/table.py" head; cat table 2>/dev/null; } |
    tee ${KEEP:+"$KEEP"} | sed 's/^/# /'
done_testing
