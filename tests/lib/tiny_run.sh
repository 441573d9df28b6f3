# SPDX-License-Identifier: Apache-2.0
# For scripts to source: in a folder of their own, $dir, a text, its tokens and
# gpt.yaml, the tiny model that `small` makes smaller. What stays in $pid is
# ended. A script that does ends with echo "1..$n".
train=$top_builddir/plait-train
plait=$top_builddir/plait
export OMP_NUM_THREADS=1
dir=$(mktemp -d) || exit 1
pid=
trap '[ -n "$pid" ] && kill -9 $pid 2>/dev/null; rm -rf "$dir"' EXIT
. "$top_srcdir/tests/lib/ok.sh"
. "$top_srcdir/tests/lib/until.sh"
shown=$dir/out
cd "$dir" || exit 1
case $top_builddir in /*) ;; *) echo "Bail out! top_builddir"; exit 99 ;; esac
seq 3000 >text

# run ARGS...: train; its output in $dir/out, its status in $status
run() {
    timeout 240 "$train" gpt.yaml --device cpu "$@" >out 2>&1 </dev/null
    status=$?
}
says() { grep -Eq -e "$1" out; }
said_not() { ! says "$1"; }

ok "plait prep" "$plait" prep text --out tokens
ok "plait init" "$plait" init --model tiny --gpus 1 --gpu-type cpu --out gpt.yaml
small=(--set train.steps=4 --set model.layers=1 --set model.hidden=64
    --set model.seq_len=32 --set train.global_batch=4 --set train.micro_batch=2
    --set lr.warmup=0)
