#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The models in examples/ have as many parameters as the released weights, and
# the job that each file proposes fits into its GPUs.
#
# Sources of the counts: for Llama and Mixtral, the bytes given by the released
# model.safetensors.index.json, over 2; for GPT-2, what transformers counts in
# the released weights.
plait=$top_builddir/plait
. "$top_srcdir/tests/lib/check.sh"
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
LC_ALL=C PLAIT_SITE=
export LC_ALL PLAIT_SITE

# The sizes in the srun line of a file's comment, and its number of GPUs.
job() {
    sed -n 's/^#   srun -N\([0-9]*\) .*--gpus-per-node=\([0-9]*\) /\1 \2 /p' \
        "$1" | sed 's/ plait-train.*//; s/ \\$//'
}

model() { # name parameters
    file=$top_srcdir/examples/$1.yaml
    # shellcheck disable=SC2046 # words are meant
    set -- "$@" $(job "$file")
    name=$1 parameters=$2 gpus=$(($3 * $4))
    shift 4
    "$plait" estimate --model "$file" --gpu-type h100 --gpus "$gpus" \
        --json "$@" >"$tmp/out" 2>&1
    grep -q "^ \"parameters\": $parameters," "$tmp/out"
    check "$name has $parameters parameters" $?
    grep -q '^ "fits": true' "$tmp/out"
    check "$name fits $gpus H100 with $*" $?
    grep -q '^ "fits": true' "$tmp/out" || sed 's/^/# /' "$tmp/out"
}

model gpt2-124m 124439808
model gpt2-355m 354823168
model gpt2-774m 774030080
model gpt2-1.5b 1557611200
model llama2-7b 6738415616
model llama2-13b 13015864320
model llama2-70b 68976648192
model llama3-8b 8030261248
model llama3-70b 70553706496
model llama3-405b 405853388800
model mixtral-8x7b 46702792704
model smollm2-135m 134515008

# No model is left out; those in examples/lessons are not published models.
[ $n = $((2 * $(find "$top_srcdir/examples" -maxdepth 1 -name '*.yaml' \
    ! -name quickstart.yaml | wc -l))) ]
check "every model was looked at" $?

# Job files of plait-train: what #SBATCH asks for gives a plan that fits.
asked() { # FILE NAME: the number
    sed -n "s/^#SBATCH.* *--$2=\([0-9]*\).*/\1/p" "$1"
}
# Job files of other trainers: the sizes that they ask for give a plan.
foreign() { # FILE
    bash -n "$1" && flags=$(grep '^#SBATCH' "$1" |
        grep -oE -- '--(tp|cp|ep|dp|pp|placement)=[a-z0-9]+') || return 1
    # shellcheck disable=SC2086 # words are meant
    "$plait" plan $flags --nodes "n[1-$(asked "$1" nodes)]" \
        --tasks-per-node "$(asked "$1" ntasks-per-node)" --json >"$tmp/out" &&
        grep -q "^ \"world\": $(($(asked "$1" nodes) *
            $(asked "$1" ntasks-per-node)))," "$tmp/out"
}
jobs=0 others=0
for file in "$top_srcdir"/examples/*.sbatch; do
    yaml=$(sed -n 's/^srun .*plait-train \([a-z0-9.-]*\.yaml\).*/\1/p' "$file")
    if [ -z "$yaml" ]; then
        others=$((others + 1))
        foreign "$file"
        check "${file##*/} is a plan of what it asks for" $?
        continue
    fi
    jobs=$((jobs + 1))
    nodes=$(asked "$file" nodes) tasks=$(asked "$file" ntasks-per-node)
    flags=$(grep '^#SBATCH' "$file" | grep -oE -- '--(tp|cp|ep|pp)=[0-9]+')
    sets=$(grep -oE -- '--set train[^ ]+' "$file")
    type=h100
    grep -q -- '--device cpu' "$file" && type=cpu
    # shellcheck disable=SC2086 # words are meant
    set -- --model "$top_srcdir/examples/$yaml" $flags $sets
    "$plait" plan "$@" --nodes "n[1-$nodes]" --tasks-per-node "$tasks" \
        --gpu-type $type --json >"$tmp/out" 2>&1 &&
        "$plait" estimate "$@" --dp=auto --gpus $((nodes * tasks)) \
            --gpu-type $type --json >"$tmp/out" 2>&1 &&
        grep -q '^ "fits": true' "$tmp/out"
    status=$?
    [ $status = 0 ] || sed 's/^/# /' "$tmp/out" | head -n 5
    check "${file##*/} is a plan that fits $((nodes * tasks)) x $type" $status
done
[ $jobs = 7 ] && [ $others -ge 9 ]
check "all job files were planned" $?

# The job file of Megatron-LM as it stands; plait run is its srun, and the
# trainer shows what it got.
mkdir "$tmp/bin"
cat >"$tmp/bin/srun" <<'END'
#!/bin/sh
shift
exec "$plait" run --np 8 $flags -- "$@"
END
printf '#!/bin/sh\necho "$*"\n' >"$tmp/bin/python"
chmod 755 "$tmp/bin/srun" "$tmp/bin/python"
megatron() { # FLAGS: what each task says
    plait=$plait flags=$1 PATH=$tmp/bin:$PATH \
        bash "$top_srcdir/examples/megatron-lm.sbatch" 2>&1 | sort -u
}
orders=0
for order in tp-cp-ep-dp-pp tp-pp-dp-cp-ep pp-dp-tp cp-ep-tp-dp-pp \
    tp-dp-ep-pp; do
    case $order in
    tp-cp-ep-dp-pp) sizes='--tp=2 --cp=2 --ep=2 --pp=2' want=plain ;;
    tp-pp-dp-cp-ep) sizes='--tp=2 --pp=2' want=swapped ;;
    pp-dp-tp) sizes='--tp=2 --pp=2' want=none ;;
    cp-ep-tp-dp-pp) sizes=--tp=2 want=plain ;;
    tp-dp-ep-pp) sizes='--tp=2 --ep=2' want=none ;;
    esac
    got=$(megatron "$sizes --rank-order=$order")
    case $got in
    *'no rank order'*) is=none ;;
    'pretrain_gpt.py --use-tp-pp-dp-mapping --tensor'*) is=swapped ;;
    'pretrain_gpt.py --tensor'*) is=plain ;;
    *) is="$got" ;;
    esac
    [ "$is" = $want ] && orders=$((orders + 1)) || echo "# $order: $is"
done
[ $orders = 5 ]
check "megatron-lm.sbatch takes the orders that Megatron-LM has" $?
echo "1..$n"
