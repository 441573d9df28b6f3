#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Trainers that do not know Plait run unchanged, with the job files in examples/
# and ranks in planned order. TIMES=20 repeats them. TRAINERS_PYTHON=PYTHON names
# a Python that has trainers which the system's has not.
. "$top_srcdir/tests/cluster/tap.sh"
times=${TIMES:-1}

# The job files run "python": make that a Python that has MODULE.
python_with()
{
    local p
    for p in python3 /usr/bin/python3 ${TRAINERS_PYTHON:+"$TRAINERS_PYTHON"}; do
        command -v $p >/dev/null && $p -c "import $1" 2>/dev/null || continue
        printf '#!/bin/sh\nexec %s "$@"\n' "$(command -v $p)" >bin/python
        chmod 755 bin/python
        return
    done
    return 1
}

# trainer JOB PROGRAM WANTED FLAGS...: check what the first rank of examples/JOB
# writes to the file "result", if the job succeeds
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
    horovod="Horovod over MPI from horovod.sbatch"
    if ! python_with horovod.torch; then
        skip "$horovod" "no python3 with Horovod"
    elif ! srun --mpi=list 2>&1 | grep -qw pmix; then
        skip "$horovod" "this Slurm has no PMIx"
    else
        check "$horovod" trainer horovod.sbatch horovod_job.py "8 28" \
            -N4 --ntasks-per-node=2 --gpus-per-node=2
    fi
done

lightning="Lightning over gloo from lightning.sbatch"
if python_with lightning; then
    check "$lightning" trainer lightning.sbatch lightning_job.py "8 28 3" \
        -N4 --ntasks-per-node=2 --gpus-per-node=2
else
    skip "$lightning" "no python3 with Lightning; TRAINERS_PYTHON names one"
fi
# Results of submitit_job.py: those of tasks, in the order of SLURM_PROCID.
submits()
{
    timeout 240 bin/python "$top_srcdir/examples/submitit_job.py" 4 2 >out 2>&1
    is "0 1 4 5 2 3 6 7" "$(sed -n "s/.*'RANK': \([0-9]*\).*/\1/p" out | xargs)" ||
        { cat out; return 1; }
}
submitit="submitit_job.py has the planned ranks"
if python_with submitit; then
    check "$submitit" submits
else
    skip "$submitit" "no python3 with submitit; TRAINERS_PYTHON names one"
fi

# nemo_run_job.py submits a job and ends; its tasks' output is in one file.
nemo_run()
{
    HOME=$work timeout 240 bin/python "$top_srcdir/examples/nemo_run_job.py" \
        4 2 sh -c 'echo "rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME"' \
        >out 2>&1 && until_true eval '[ -z "$(squeue -h)" ]' &&
        is "0 1 2 3 4 5 6 7 of 8" "$(cat $(find .nemo_run -name "log-*") |
            sed -n "s/^rank \([0-7]\) of 8 on node[1-4]$/\1/p" | sort |
            xargs) of 8" || { cat out $(find .nemo_run -name "*.out"); false; }
}
nemo="nemo_run_job.py has the planned ranks"
if python_with nemo_run; then
    check "$nemo" nemo_run
else
    skip "$nemo" "no python3 with nemo_run; TRAINERS_PYTHON names one"
fi

# megatron-lm.sbatch's program is given the plan's order.
printf '#!/bin/sh\n[ "$SLURM_PROCID" != 0 ] || echo "$@" >arguments\n' >echoes
chmod 755 echoes
mkdir -p echo && cp echoes echo/python
ordered()
{
    rm -f arguments
    PATH=$work/echo:$PATH batch out -N4 --ntasks-per-node=2 --gpus-per-node=2 \
        --tp=2 --pp=2 --rank-order="$1" "${@:3}" \
        "$top_srcdir/examples/megatron-lm.sbatch" --more &&
        is "pretrain_gpt.py $2--tensor-model-parallel-size 2 \
--pipeline-model-parallel-size 2 --context-parallel-size 1 \
--expert-model-parallel-size 1 --distributed-backend nccl --more" \
            "$(cat arguments)"
}
check "megatron-lm.sbatch in its default order" ordered tp-cp-ep-dp-pp ""
check "megatron-lm.sbatch in its other order" ordered tp-cp-ep-pp-dp \
    "--use-tp-pp-dp-mapping "
check "... with axes of size 1 in other places" ordered tp-pp-cp-ep-dp \
    "--use-tp-pp-dp-mapping "
check "megatron-lm.sbatch refuses other orders" eval \
    '! ordered tp-pp-cp-ep-dp "" --cp=2 >/dev/null 2>&1 && [ ! -e arguments ] &&
    grep -q "has no rank order" out'

# Slurm accepts what each example asks for, if the nodes exist.
for script in "$top_srcdir"/examples/*.sbatch; do
    check "$(basename "$script") asks for what fits" \
        sbatch --test-only -N4 --ntasks-per-node=1 --gpus-per-node=1 \
        --tp=1 --pp=1 "$script"
done
# plait-train's examples, with models and data small enough for tests.
export PATH=$top_builddir:$PATH
python3 "$top_srcdir/tests/lib/tokens.py" tokens.bin 3000 1
cp "$top_srcdir"/examples/*.yaml .
small="--device cpu"
for set in model.layers=2 model.hidden=32 model.heads=2 model.vocab=257 \
    model.seq_len=32 data.train=tokens.bin train.steps=4 \
    train.global_batch=8 train.micro_batch=1 train.precision=fp32 \
    train.eval_every=0 checkpoint.dir=ck checkpoint.every=2; do
    small+=" --set $set"
done
llama="--set model.kv_heads=2 --set model.ffn=64"
trains()
{
    local script=$1 log=out.${1%.sbatch}
    shift
    rm -rf ck
    # shellcheck disable=SC2086 # words are meant
    batch "$log" -N2 --ntasks-per-node=2 --gpus-per-node=2 --tp=1 --pp=2 \
        "$top_srcdir/examples/$script" $small "$@" &&
        grep -q 'step 4/4' "$log"
}
# Fine-tunes a Hugging Face model that has its own tokenizer on the user's text.
tunes()
{
    local keys=()
    python3 - "$top_srcdir" <<'EOF' || return 1
import json, sys
sys.path.insert(0, sys.argv[1] + "/tests/lib")
import hf
fixture = sys.argv[1] + "/tests/fixtures/tokenizer/"
tokenizer = open(fixture + "smollm.json", encoding="utf-8").read()
vocab = 1 + max(json.loads(tokenizer)["model"]["vocab"].values())
hf.KINDS["smol"] = {**hf.LLAMA, "vocab_size": vocab, "rms_norm_eps": 1e-5,
                    "rope_theta": 100000.0, "tie_word_embeddings": True}
hf.make("own-model", "smol")
open("own-model/tokenizer.json", "w", encoding="utf-8").write(tokenizer)
open("vocab", "w").write(str(vocab))
with open("own.jsonl", "w", encoding="utf-8") as out:
    for line in open(sys.argv[1] + "/LICENSE", encoding="utf-8"):
        out.write(json.dumps({"text": line * 8}) + "\n")
EOF
    rm -rf ck
    for key in layers=2 hidden=24 heads=6 kv_heads=3 ffn=42 seq_len=32 \
        vocab="$(cat vocab)"; do
        keys+=(--set "model.$key")
    done
    batch out.tuned -N1 --ntasks-per-node=2 --gpus-per-node=2 \
        "$top_srcdir/examples/smollm2-finetune.sbatch" own-model own.jsonl \
        --device cpu "${keys[@]}" --set train.precision=fp32 \
        --set train.steps=4 --set train.global_batch=4 \
        --set train.micro_batch=2 --set lr.warmup=1 &&
        grep -q 'step 4/4' out.tuned && [ -s finetuned/model.safetensors ] &&
        cmp own-model/tokenizer.json finetuned/tokenizer.json &&
        ! cmp -s own-model/model.safetensors finetuned/model.safetensors
}
if srun --mpi=list 2>&1 | grep -qw pmix; then
    gpt2=gpt2-124m-64gpu llama3=llama3-70b-512gpu
    if all_tier; then
        gpt2=$(echo gpt2-124m-cpu gpt2-124m-{1,4,64}gpu)
        llama3="llama3-8b-64gpu llama3-70b-512gpu"
    fi
    for script in $gpt2; do
        check "$script.sbatch trains a small model" trains $script.sbatch \
            --set data.val=tokens.bin
    done
    for script in $llama3; do
        # shellcheck disable=SC2086
        check "$script.sbatch trains a small model" \
            trains $script.sbatch $llama
    done
    check "smollm2-finetune.sbatch ends with a Hugging Face model" tunes
    # train.sh tests a job that resumes after Slurm's signal
    check "requeue.sbatch ends when the run ends" trains requeue.sbatch \
        gpt2-124m.yaml --set data.val=tokens.bin
else
    skip "the job files of plait-train" "this Slurm has no PMIx"
fi
# For launchers that set these variables themselves.
check "no variable of torchrun is set with --rendezvous=none" \
    timeout 240 srun -n2 --tp=2 --rendezvous=none bash -c \
    '[ -z "${MASTER_ADDR-}${RANK-}${WORLD_SIZE-}" ] && [ -n "$PLAIT_RANK" ]'
done_testing
