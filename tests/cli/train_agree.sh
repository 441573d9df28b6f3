#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that are started with different settings, arguments or sizes: the run
# ends on all of them before the first step, with one line that names the rank,
# its host, the key and both values. What may differ does.
set -u
. "$top_srcdir/tests/lib/train.sh"
plait=$top_builddir/plait

# differs MPI|SOCKET ARGS...: rank 1 of 4 gets more arguments, $1
differs() {
    local by=$1 more=$2
    shift 2
    : >"$dir/out"
    if [ "$by" = mpi ]; then
        timeout -k 9 240 sh "$mpirun" 4 sh -c 'train=$1 dir=$2 more=$3; shift 3
            [ "$OMPI_COMM_WORLD_RANK" = 1 ] || more=
            exec "$train" "$dir/c.yaml" "$@" $more' sh "$train" "$dir" \
            "$more" "$@" >"$dir/out" 2>&1 </dev/null
    else
        timeout -k 9 240 "$plait" run --np 4 --dp=4 --pin=none -- sh -c \
            'train=$1 dir=$2 more=$3; shift 3
            [ "$PLAIT_RANK" = 1 ] || more=
            exec "$train" "$dir/c.yaml" --device cpu "$@" $more' sh "$train" \
            "$dir" "$more" "$@" >"$dir/out" 2>&1 </dev/null
    fi
    status=$?
}

# told KEY MINE OTHER: the run has failed with that line, once
told() {
    local line="plait-train: $1 is $2 on rank 1 ($(hostname)), but $3 on rank 0"
    [ "$status" != 0 ] && [ "$status" != 124 ] && [ "$status" != 137 ] &&
        [ "$(grep -cF -- "$line ($(hostname)): all ranks" "$dir/out")" = 1 ] &&
        [ "$(grep -c "plait-train: " "$dir/out")" = 1 ] &&
        ! grep -q "step 1/" "$dir/out"
}

while read -r key value other; do
    for by in mpi socket; do
        differs $by "--set $key=$value"
        ok "$key over $by" told "$key" "$value" "$other"
    done
done <<'END'
train.seed 8 7
train.micro_batch 3 2
train.global_batch 48 24
train.precision bf16 fp32
optim.name soap adamw
optim.clip 0.5 1
lr.min 0.1 0
train.noise 0.5 0
train.skip_outliers true false
parallel.grad_sync naive bucketed
train.steps 12 10
parallel.zero 2 0
parallel.bucket_mib 1 0
model.layers 2 4
train.check_replicas 3 100
checkpoint.keep 3 2
model.family mlp gpt2
END
differs socket "--set data.mask_documents=true --set data.end_token=1"
ok "data.mask_documents" told data.mask_documents true false
differs socket "--set data.train=$dir/other.bin"
ok "data.train" told data.train "$dir/other.bin" "$dir/tokens.bin"
for by in mpi socket; do
    differs $by "--set data.train=null"
    ok "no data.train over $by" told data.train "not given" "$dir/tokens.bin"
done
# Rank 1's is the default of a vocabulary that is not given.
cp "$dir/c.yaml" "$dir/whole.yaml"
sed -i 's/\<vocab: [0-9]*, *//; s/, *vocab: [0-9]*//; /^ *vocab: [0-9]*$/d' \
    "$dir/c.yaml"
ok "no vocabulary is given" bash -c "! grep -q vocab '$dir/c.yaml'"
for by in mpi socket; do
    differs $by "--set model.vocab=50304"
    ok "model.vocab given to one rank over $by" \
        told model.vocab 50304 "not given"
done
mv "$dir/whole.yaml" "$dir/c.yaml"
differs socket "--set train.timeout=77"
ok "train.timeout" told train.timeout 77 auto

# Rank 1 runs another program. other_build FROM TO: one that says TO of itself
other_build() {
    LC_ALL=C sed "s/$1/$2/" "$train" >"$dir/other-train"
    chmod +x "$dir/other-train"
    ! cmp -s "$train" "$dir/other-train"
}
built=$(LC_ALL=C grep -aom1 'MPI [yn][eso]*, CUDA [a-zA-Z, ]*' "$train")
version=$("$train" --version | cut -d' ' -f2)
cat >"$dir/either" <<END
#!/bin/sh
[ "\${PLAIT_RANK:-\$OMPI_COMM_WORLD_RANK}" = 1 ] && exec "$dir/other-train" "\$@"
exec "$train" "\$@"
END
chmod +x "$dir/either"
for by in mpi socket; do
    ok "a build of another kind" other_build "CUDA [yn]" "CUDA x"
    train=$dir/either differs $by ""
    ok "... over $by" told "the build of Plait" \
        "$(echo "$built" | sed 's/CUDA [yn]/CUDA x/')" "$built"
    ok "a build of another version" other_build "the version of Plait=." \
        "the version of Plait=8"
    train=$dir/either differs $by ""
    ok "... over $by" told "the version of Plait" "8${version#?}" "$version"
done

run 2 --set train.steps=2 --set checkpoint.dir="$dir/ck"
for by in mpi socket; do
    differs $by "--resume $dir/ck/step-00000002" --set checkpoint.dir="$dir/no"
    ok "--resume over $by" told --resume "$dir/ck/step-00000002" auto
    differs $by "--init $dir/ck"
    ok "--init over $by" told --init "$dir/ck" "not given"
    differs $by "--sample 5"
    ok "--sample over $by" told --sample 5 0
done
differs socket "--resume none" --set checkpoint.dir="$dir/ck"
ok "--resume none" told --resume none auto

# sized VARIABLE VALUE...: rank 1 finds another launch
sized() {
    : >"$dir/out"
    timeout -k 9 240 "$plait" run --np 4 --dp=2 --tp=2 --pin=none -- sh -c \
        'train=$1 dir=$2; shift 2
        [ "$PLAIT_RANK" != 1 ] || export "$@"
        exec "$train" "$dir/c.yaml" --device cpu' sh "$train" "$dir" "$@" \
        >"$dir/out" 2>&1 </dev/null
    status=$?
}
sized PLAIT_DP_SIZE=4
ok "PLAIT_DP_SIZE" told PLAIT_DP_SIZE 4 2
sized PLAIT_TP_SIZE=1
ok "PLAIT_TP_SIZE" told PLAIT_TP_SIZE 1 2
sized PLAIT_ORDER=dp-cp-ep-tp-pp
ok "PLAIT_ORDER" told PLAIT_ORDER dp-cp-ep-tp-pp tp-cp-ep-dp-pp
sized PLAIT_ELASTIC=1
ok "PLAIT_ELASTIC" told PLAIT_ELASTIC 1 0
sized PLAIT_TP_SIZE=4 PLAIT_DP_SIZE=1 PLAIT_TP_RANK=1 PLAIT_DP_RANK=0
ok "both sizes, each fitting" told PLAIT_TP_SIZE 4 2

differs socket "--set log.metrics=$dir/own --set log.profile=$dir/profile" \
    --set train.steps=2
ok "a rank's own files" test "$status" = 0
echo "1..$n"
