#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait calibrate finds the constants by which step times were made, from a
# table and from metrics in plait-train's format.
plait=$top_builddir/plait
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export LC_ALL=C PLAIT_SITE=
. "$top_srcdir/tests/lib/check.sh"
top_builddir=$(cd "$top_builddir" && pwd)
plait=$top_builddir/plait
cd "$tmp" || exit 1

cat >model.yaml <<'END'
model: {family: llama, layers: 8, hidden: 1024, heads: 16, ffn: 4096,
        vocab: 32000, seq_len: 1024}
train: {global_batch: 32, micro_batch: 2, precision: bf16}
END
# The constants to be found: products at half of the table's rate.
cat >truth.yaml <<'END'
gpu_type: a100-80g
gpu_types: {a100-80g: {matmul: 0.3825, matmul_fp8: 0.3825, attention: 0.209,
                       layer_us: 90, stream: 0.5}}
END
step_of() { # OPTION...: of plait estimate
    "$plait" estimate --model model.yaml --site truth.yaml --json "$@" |
        sed -n 's/^ *"step_s": \([0-9.e-]*\),/\1/p'
}
echo model,gpus,parallel.tp,parallel.pp,train.micro_batch,model.hidden,step_s \
    >table.csv
for row in 1,1,1,1,1024 2,2,1,2,1024 4,2,2,1,2048 8,1,1,4,2048 8,4,2,2,4096; do
    IFS=, read -r gpus tp pp batch hidden <<<"$row"
    echo "model.yaml,$row,$(step_of --gpus "$gpus" --tp "$tp" --pp "$pp" \
        --micro-batch "$batch" --set "model.hidden=$hidden")"
done >>table.csv
"$plait" calibrate table.csv --gpu-type a100-80g --out site.yaml
check 'a table of five runs' $?
near() { # KEY VALUE: within 3 %
    awk -v key="$1:" -v value="$2" '$1 == key { found = $2 / value - 1 }
        END { exit !(found != "" && found * found < 9e-4) }' site.yaml
    local status=$?
    check "$1 of the runs is $2: $(grep "^ *$1:" site.yaml)" $status
}
near matmul 0.3825
near attention 0.209
near layer_us 90
near stream 0.5
sed -n '1s/.*before, \([0-9.]*\) % after/\1/p' site.yaml |
    awk '{ exit !($1 < 1) }'
rc=$?
check "$(head -n 1 site.yaml)" $rc
grep -q 'matmul: .* with one run left out' site.yaml
check 'and how far each spreads' $?
"$plait" estimate --model model.yaml --gpus 8 --site site.yaml >out &&
    grep -q 'on 8 a100-80g GPUs' out
check 'what it writes is a site file' $?

cat >mine.yaml <<'END'
gpu_types: {mine: {like: a100-80g, nic_gbytes_s: 12.5, units: 100}}
END
"$plait" calibrate table.csv --gpu-type Mine --site mine.yaml --out site.yaml &&
    [ "$(grep -cE '^gpu_type: mine$|^    (nic_gbytes_s: 12.5|units: 100)$' \
        site.yaml)" = 3 ] &&
    "$plait" estimate --model model.yaml --gpus 8 --site site.yaml >out &&
    grep -q 'on 8 mine GPUs' out
check "a type of the site's own keeps its other figures" $?

# A run's metrics as plait-train writes them, with the step time of `truth`.
step=$(step_of --gpus 2 --tp 2)
for i in 1 2 3 4 5; do
    echo "{\"step\":$i,\"loss\":3.1,\"step_s\":$step}"
done >run.jsonl
sed -i '1s/"step_s":.*/"step_s":9}/' run.jsonl
cat >run.jsonl.starts <<'END'
{"time":1,"step":0,"device":"cuda","ranks":2,"tp":2,"cp":1,"ep":1,"dp":1,"pp":1,"plan":{"order":"tp-cp-ep-dp-pp","schedule":"1f1b","zero":0,"precision":"bf16","micro_batch":2,"global_batch":32,"gpu_type":"a100-80g"},"config":"model: {family: llama, layers: 8, hidden: 1024, heads: 16, ffn: 4096, vocab: 32000, seq_len: 1024}\n"}
END
"$plait" calibrate run.jsonl >site.yaml && grep -q '^gpu_type: a100-80g$' site.yaml
rc=$?
check "a run names its GPUs: $(sed -n 2p site.yaml)" $rc
sed -n 's/.*before, \([0-9.]*\) % after/\1/p' site.yaml |
    awk '{ exit !($1 < 1) }'
check 'its first steps do not count' $?

# CPU ranks: four on two cores, whose products are slower than the peak that the
# run measured.
cat >cores.yaml <<'END'
gpu_type: cpu
gpu_types: {cpu: {cores: 2, per_node: 4, threads: 1, tflops: 0.15, stream: 2,
                  link_us: 200}}
END
slow=$("$plait" estimate --model model.yaml --site cores.yaml --json --gpus 4 \
    --tp 2 | sed -n 's/^ *"step_s": \([0-9.e-]*\),/\1/p')
sed -i "s/\"step_s\":$step/\"step_s\":$slow/" run.jsonl
sed -i 's/"device":"cuda"/"device":"cpu","peak_flops":2e11/
    s/"ranks":2,"tp":2,"cp":1,"ep":1,"dp":1/"ranks":4,"tp":2,"cp":1,"ep":1,"dp":2/
    s/"gpu_type":"a100-80g"/"gpu_type":"cpu","threads":1,"cores":2,"nodes":[0,0,0,0]/' \
    run.jsonl.starts
"$plait" calibrate run.jsonl --check run.jsonl --out site.yaml
check 'a run on processors' $?
grep -q '^    cores: 2$' site.yaml && grep -q '^    per_node: 4$' site.yaml &&
    grep -q '^    matmul: 0.95$' site.yaml &&
    awk '$1 == "tflops:" { found = $2 < 0.199 } END { exit !found }' site.yaml
check "has its cores, its ranks a node, and products fitted: $(grep tflops: \
    site.yaml)" $?
sed -n 's/.*before, \([0-9.]*\) % after/\1/p' site.yaml |
    awk '$1 > 1.5 { far = 1 } END { exit far }'
rc=$?
check "$(head -n 1 site.yaml)" $rc
[ "$(grep -c '^# run.jsonl: .* s after (.* %)$' site.yaml)" = 2 ] &&
    grep -q '^# 1 run not fitted to: mean error .* after$' site.yaml
check 'a run of --check is held against the result' $?
"$plait" estimate --model model.yaml --gpus 4 --dp 4 --site site.yaml --json |
    python3 -c 'import json, sys
assert json.load(sys.stdin)["step_s"] > 1' 2>/dev/null ||
    ! command -v python3 >/dev/null
check 'and estimate takes it' $?

sed 's/"peak_flops":2e11/"peak_flops":1e11/' run.jsonl.starts \
    >busy.jsonl.starts && cp run.jsonl busy.jsonl
"$plait" calibrate run.jsonl --check run.jsonl --check busy.jsonl >text &&
    [ "$(grep -c ' other processes were on its cores' text)" = 1 ] &&
    grep -A1 '^# busy.jsonl: ' text | grep -q ' had 50 % of another run' &&
    grep -q '^# 1 of them had their cores alone: mean error ' text
check 'a run beside which others computed is named' $?

refused() { # STATUS TEXT OPTION...
    local status=$1 text=$2
    shift 2
    "$plait" calibrate "$@" >out 2>err
    [ $? = "$status" ] && [ ! -s out ] && [ "$(cat err)" = "plait: $text" ]
    check "$text" $?
}
refused 2 'calibrate: name the metrics of a run, or a table of measurements'
refused 1 'none.jsonl.starts: missing, or without the start of a run of plait-train'"'"'s' \
    none.jsonl
refused 1 'none.csv: No such file or directory' table.csv --check none.csv
refused 1 'none.csv: No such file or directory' none.csv
printf 'model,step_s\nmodel.yaml,0\n' >bad.csv
refused 1 'bad.csv:2: needs a model and a step_s above 0' bad.csv
echo "1..$n"
