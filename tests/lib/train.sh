# SPDX-License-Identifier: Apache-2.0
# For scripts to source that start plait-train on several ranks. A script that
# does ends with echo "1..$n". $dir has a small model to train, c.yaml.
train=$top_builddir/plait-train
mpirun=$top_srcdir/tests/lib/mpirun.sh
. "$top_srcdir/tests/lib/until.sh"
export OMP_NUM_THREADS=1
command -v mpirun >/dev/null && "$train" --version >/dev/null ||
    { echo "1..0 # SKIP needs mpirun"; exit 0; }
dir=$(mktemp -d) || exit 1
# Open MPI does not remove the shared memory of killed ranks.
shm=$(mktemp -d /dev/shm/plait.XXXXXX) || exit 1
export OMPI_MCA_btl_vader_backing_directory=$shm
pid=
trap '[ -z "$pid" ] || kill -9 $(ranks_of "$pid") "$pid" 2>/dev/null
    rm -rf "$dir" "$shm"' EXIT
. "$top_srcdir/tests/lib/ok.sh"
shown=$dir/out

# run RANKS ARGS...: output in $dir/out, exit status in $status
run() {
    local ranks=$1
    shift
    if [ "$ranks" = 1 ]; then
        timeout 240 "$train" "$dir/c.yaml" "$@" >"$dir/out" 2>&1 </dev/null
    else
        timeout 240 sh "$mpirun" "$ranks" "$train" "$dir/c.yaml" "$@" \
            >"$dir/out" 2>&1 </dev/null
    fi
    status=$?
}

# start ARGS...: train with tp 2 x pp 2 in the background, without an end; $pid
# is its mpirun
start() {
    : >"$dir/out"
    sh "$mpirun" 4 "$train" "$dir/c.yaml" --set train.steps=1000000 \
        --set parallel.tp=2 --set parallel.pp=2 "$@" >"$dir/out" 2>&1 \
        </dev/null &
    pid=$!
    until_true grep -q "step 1/\|resumed" "$dir/out"
}

# ranks_of MPIRUN: the ranks of a run in the background, found by their parent
ranks_of() {
    pgrep -P "$1" plait-train
}

python3 -B "$top_srcdir/tests/lib/small_model.py" "$dir" gpt2 ||
    { echo "1..0 # SKIP needs python3"; exit 0; }
