#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# All blocks of README.md as they stand, in a copy of the source: first the one
# that installs Plait, then the others in their order, with the cluster's srun. The files that
# README says are the user's are small ones here. Two lines are not run:
# ./quickstart installs packages, and ./run-tests would run this test.
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
command -v autoreconf >/dev/null || { echo "1..0 # SKIP no autoreconf"; exit 0; }
. "$top_srcdir/tests/cluster/tap.sh" --gpus 8 || exit 99
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL CONFIG_SITE

# The copy has what git knows, or all of the tarball.
mkdir source home bin
if [ -e "$top_srcdir/.git" ]; then
    (cd "$top_srcdir" && git ls-files -z | tar --null -T - -c) |
        tar -x -C source
else
    (cd "$top_srcdir" && find . -name 'build*' -prune -o -type f -print0 |
        tar --null -T - -c) | tar -x -C source
fi
# $HOME is the user's, and python what their virtual environment has.
export HOME=$work/home PATH=$work/bin:$PATH
ln -s "$(command -v python3)" bin/python
cd source || exit 99

# -- the user's own files -----------------------------------------------------

cat docs/*.md >book.txt
python3 -B tests/lib/small_model.py "$PWD" llama || exit 99
mv c.yaml llama2-7b.yaml
cat >train.py <<'END'
import os
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
assert os.environ["MASTER_ADDR"] and os.environ["MASTER_PORT"]
print("train.py", rank, "of", size, "tp", os.environ["PLAIT_TP_RANK"])
END
cat >pretrain_gpt.py <<'END'
import argparse, os
parser = argparse.ArgumentParser()
parser.add_argument("--tensor-model-parallel-size", type=int)
parser.add_argument("--seq-length", type=int)
args = parser.parse_args()
assert args.tensor_model_parallel_size == int(os.environ["PLAIT_TP_SIZE"])
assert args.seq_length == 128
print("pretrain_gpt.py", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])
END
export MEGATRON_ARGS="--seq-length 128"

# -- README's blocks ------------------------------------------------------------

# Each becomes a file named by its first line's number.
awk '/^    / { if (!at) at = NR; print substr($0, 5) >("../block." at); next }
    { at = 0 }' README.md
# block FILE: run it in the environment that the blocks before it have left
block()
{
    timeout 1200 bash -e -o pipefail -c '[ ! -f ../environment ] ||
        . ../environment; . "$1"; export -p >../environment' bash "$1" \
        </dev/null
}
# Of a block that is not run, the commands are scripts of the source.
exists()
{
    local command rest
    while read -r command rest; do
        [ -x "$command" ] && bash -n "$command" || return
    done <"$1"
}
n=0
for file in $(grep -l ./configure ../block.*) \
    $(ls ../block.* | xargs grep -L ./configure | sort -t . -k 4 -n); do
    line=${file##*.} n=$((n + 1))
    case $(cat "$file") in
    *./run-tests*) check "README line $line: programs of the source" \
        exists "$file" ;;
    *) check "README line $line: $(head -n 1 "$file" | cut -c1-60)" \
        block "$file" ;;
    esac
done
check "README has blocks" test $n -ge 5
done_testing
