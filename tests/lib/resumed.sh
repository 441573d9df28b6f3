# SPDX-License-Identifier: Apache-2.0
# For scripts to source that resume runs of $dir/c.yaml, which they write, and
# compare states. A script that does ends with echo "1..$n".
export OMP_NUM_THREADS=1
train=$top_builddir/plait-train
mpirun=$top_srcdir/tests/lib/mpirun.sh
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
. "$top_srcdir/tests/lib/ok.sh"
shown=$dir/err

# prep NAME: the tokens of the text $dir/NAME in $dir/NAME.data
prep() {
    "$top_builddir/plait-prep" "$dir/$1" --out "$dir/$1.data" \
        >"$dir/err" 2>&1 ||
        { sed 's/^/# /' "$dir/err"; echo "Bail out! prep"; exit 1; }
}

# run RANKS NAME ARGS...: its checkpoints in NAME, its metrics in NAME.jsonl
run() {
    local ranks=$1 name=$2 start=
    shift 2
    [ "$ranks" = 1 ] || start="sh $mpirun $ranks"
    timeout 240 $start "$train" "$dir/c.yaml" --set "checkpoint.dir=$dir/$name" \
        --metrics "$dir/$name.jsonl" "$@" >"$dir/err" 2>&1
}

# The last run's.
state() {
    sed -n 's/.*state after step/state after step/p' "$dir/err"
}

# has_mpi: whether two ranks can run
has_mpi() {
    command -v mpirun >/dev/null && run 2 try --set train.steps=1 ||
        { echo "# no MPI: one rank alone"; return 1; }
}
