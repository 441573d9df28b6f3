#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait plan --auto --submit on a cluster most of whose nodes are busy: a short
# run takes few GPUs now, a long one waits for all of them.
. "$top_srcdir/tests/cluster/tap.sh"
export PLAIT_SITE=
unset SLURM_TIME_FORMAT

cat >model.yaml <<END
model: {family: llama, layers: 32, hidden: 4096, heads: 32, kv_heads: 8,
        ffn: 14336, vocab: 128256, seq_len: 8192}
train: {global_batch: 128, micro_batch: 1, precision: bf16}
END
echo 'gpu_types: {b300: {per_node: 2}}' >site.yaml
ask=("$plait" plan --auto --submit --model model.yaml --gpu-type b300
    --site site.yaml --over gpus=2,8,16)

# field SHAPE NAME: a field of a shape in the JSON
field()
{
    python3 -c '
import json, sys
print(json.load(open("out.json"))["shapes"][int(sys.argv[1])].get(sys.argv[2]))
' "$@"
}

order()
{
    "${ask[@]}" --json "$@" >out.json 2>err || { cat err; return 1; }
    for i in 0 1 2; do
        field $i gpus
    done | xargs
}

sbatch -Q -w 'node[1-3]' --exclusive -t 30 --wrap 'sleep 600' >/dev/null
until_true eval '[ "$(squeue -h -t R | wc -l)" = 1 ]'

check "a short run takes the GPUs that are free" is "2 8 16" \
    "$(order --set train.steps=4)"
check "... at once" eval '[ "$(field 0 wait_s | cut -d. -f1)" -lt 120 ]'
wait_s=$(field 1 wait_s | cut -d. -f1)
check "... where all would come when the job has ended" eval \
    '[ "$wait_s" -gt 1200 ] && [ "$wait_s" -le 1860 ]'
check "... and more than there are never" like "$(field 2 reason)" \
    "node count|[Nn]ode configuration"
check "a long run waits for all of them" is "8 2 16" \
    "$(order --set train.steps=100000)"
check "what is done when" eval '[ "$(python3 -c "
import json
for s in json.load(open(\"out.json\"))[\"shapes\"][:2]:
    print(abs(s[\"wait_s\"] + s[\"run_s\"] - s[\"done_s\"]) < 1e-6,
          abs(s[\"run_s\"] / s[\"choice\"][\"step_s\"] / 100000 - 1) < 0.2)
" | xargs)" = "True True True True" ]'

SLURM_TIME_FORMAT=relative "${ask[@]}" --set train.steps=100000 >text 2>err
check "as a table, and the command for the first" eval \
    'like "$(sed -n 4p text)" "^ +8 +4 .* 30 min .* days .* days  tp " &&
    grep -q "^srun -N4 --ntasks-per-node=2 --gpus-per-node=2 --tp=" text'
check "what follows -- goes to sbatch" like \
    "$("${ask[@]}" -- --partition=nowhere 2>&1)" \
    "[Ii]nvalid partition"
"${ask[@]}" -- --partition=nowhere >/dev/null 2>&1
check "... and none that can start is a failure" is 1 $?
scancel --user="$(id -un)"
done_testing
