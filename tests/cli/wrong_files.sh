#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Wrong files and keys, one per line of the table below: each is refused with
# status 1 or 2 and one line that begins with the command's name and says what
# is wrong, and the output asked for does not exist.
set -u
command -v python3 >/dev/null || { echo "1..0 # SKIP needs python3"; exit 0; }
build=$(realpath "$top_builddir")
lib=$(realpath "$top_srcdir/tests/lib")
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
unset SLURM_JOB_ID
export LC_ALL=C
python3 - "$lib" <<'END' || exit 99
import gzip, json, os, shutil, struct, sys
sys.path.insert(0, sys.argv[1])
import hf


def put(path, data):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def model(path, change=None, weights=None):
    """A llama with another config.json or other weights."""
    shutil.copytree("llama", path)
    config = json.load(open(f"{path}/config.json"))
    for key, value in (change or {}).items():
        config[key] = value
    put(f"{path}/config.json", json.dumps(config))
    if weights is not None:
        put(f"{path}/model.safetensors", weights)


def tensors(head, data=b""):
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + data


hf.make("llama", "llama")
whole = open("llama/model.safetensors", "rb").read()
os.makedirs("empty")
put("text", "a text\n" * 100)
put("nothing", b"")
put("zeros", bytes(4096))
put("binary", os.urandom(4096))
put("random.gz", gzip.compress(os.urandom(9000)))
put("utf16", "a text\n".encode("utf-16") * 100)
put("mixed/text", "a text\n" * 100)
put("mixed/tensor", struct.pack("<100f", *range(100)))
model("relu", {"hidden_act": "relu"})
model("type", {"model_type": "falcon"})
model("typeless", {"model_type": None})
model("layers", {"num_hidden_layers": -1})
model("words", {"num_hidden_layers": "two"})
model("huge", {"vocab_size": 10**12})
model("real", {"hidden_size": 24.5})
model("heads", {"num_attention_heads": 5})
model("norm", {"rms_norm_eps": "small"})
model("rope", {"rope_scaling": {"rope_type": "dynamic", "factor": 4}})
model("more-layers", {"num_hidden_layers": 3})
model("vocab", {"vocab_size": 131})
model("cut", weights=whole[:len(whole) // 2])
model("cut-head", weights=whole[:100])
model("long-head", weights=struct.pack("<Q", 1 << 60) + b"{}")
model("no-json", weights=struct.pack("<Q", 8) + b"notjson!")
model("cut-257", {"vocab_size": 257}, whole[:len(whole) // 2])
model("no-json-257", {"vocab_size": 257}, struct.pack("<Q", 8) + b"notjson!")
model("list-head", weights=tensors([]))
model("no-weights", weights=tensors({}))
model("outside", weights=tensors({"model.norm.weight": {
    "dtype": "F32", "shape": [24], "data_offsets": [0, 96]}}))
model("backwards", weights=tensors({"model.norm.weight": {
    "dtype": "F32", "shape": [24], "data_offsets": [96, 0]}}, bytes(96)))
model("negative", weights=tensors({"model.norm.weight": {
    "dtype": "F32", "shape": [-24], "data_offsets": [0, 96]}}, bytes(96)))
model("odd-size", weights=tensors({"model.norm.weight": {
    "dtype": "F32", "shape": [24], "data_offsets": [0, 95]}}, bytes(95)))
model("int8", weights=whole.replace(b'"F32"', b'"I8" ', 1))
for name, text in (("cut-config", '{"model_type":'), ("list-config", "[]"),
                   ("no-config", ""), ("twice", '{"a": 1, "a": 2}')):
    model(name)
    put(f"{name}/config.json", text)
put("lines.jsonl", '{"text": "one"}\n{"text": \n')
put("number.jsonl", '{"text": 1}\n')
put("list.jsonl", '["text"]\n')
put("other.jsonl", '{"body": "one"}\n' * 4)
put("cut.gz", gzip.compress(os.urandom(100000))[:5000])
put("fake.gz", b"\x1f\x8b" + os.urandom(2000))
put("fake.zst", b"\x28\xb5\x2f\xfd" + os.urandom(2000))
put("fake.xz", b"\xfd7zXZ\0" + os.urandom(2000))
put("cut.json", '{"model": {"type": "BPE", "vocab": {')
put("list.json", "[]")
put("wordpiece.json", '{"model": {"type": "WordPiece", "vocab": {}}}')
put("no-vocab.json", '{"model": {"type": "BPE", "merges": []}}')
put("words.csv", "1,2,3,four\n" * 9)
put("uneven.csv", "1,2,3,4,5\n1,2\n" * 9)
put("cut.npy", b"\x93NUMPY\x01\x00v\x00{'descr': ")
put("words.jsonl.m", "step one\n")
put("list.m", "[1, 2]\n" * 5)
put("cut.m", '{"step": 1, "loss": ')
put("no-step.m", '{"loss": 1}\n' * 5)
put("yaml/latest/plait.yaml", "model: [")
put("loop/x", "")
os.symlink("loop", "loop/latest")
put("ck/manifest.json", '{"step": ')
put("ck2/manifest.json", "[]")
put("gone/latest_checkpointed_iteration.txt", "7")
put("dist/iter_0000007/.metadata", b"")
put("dist/latest_checkpointed_iteration.txt", "7")
put("pickle/release/mp_rank_00/model_optim_rng.pt", b"\x80\x02}.")
put("pickle/latest_checkpointed_iteration.txt", "release")
put("llmc.bin", struct.pack("<8i", 20240326, 9, 1, 1, 1, 1, 1, 1))
put("llmc2.bin", struct.pack("<256i", 20240326, 3, 16, 130, 2, 3, 24, 256,
                             *[0] * 248))
END
mkdir out
"$build/plait-convert" --from llama --to good >said || exit 99
sed 's/vocab: .*/vocab: 257/' good/latest/plait.yaml >ck/plait.yaml
cp good/latest/plait.yaml ck2

# CODE COMMAND ARGUMENTS # words of the line that it says
cat >table <<'END'
1 convert --from empty --to out/x # neither
1 convert --from nothing --to out/x # neither the directory of a model
1 convert --from nowhere --to out/x # No such file
1 convert --from relu --to out/x # hidden_act
1 convert --from type --to out/x # falcon
1 convert --from typeless --to out/x # model_type
1 convert --from layers --to out/x # num_hidden_layers
1 convert --from words --to out/x # num_hidden_layers
1 convert --from huge --to out/x # vocab_size
1 convert --from real --to out/x # hidden_size
1 convert --from heads --to out/x # heads
1 convert --from norm --to out/x # rms_norm_eps
1 convert --from rope --to out/x # dynamic
1 convert --from more-layers --to out/x # model.layers.2
1 convert --from vocab --to out/x # embed_tokens
1 convert --from cut --to out/x # model.safetensors
1 convert --from cut-head --to out/x # model.safetensors
1 convert --from long-head --to out/x # model.safetensors
1 convert --from no-json --to out/x # model.safetensors
1 convert --from list-head --to out/x # model.safetensors
1 convert --from no-weights --to out/x # is missing; config.json requires it
1 convert --from outside --to out/x # model.safetensors
1 convert --from backwards --to out/x # model.safetensors
1 convert --from negative --to out/x # model.safetensors
1 convert --from odd-size --to out/x # model.safetensors
1 convert --from int8 --to out/x # I8|model.safetensors
1 convert --from cut-config --to out/x # config.json
1 convert --from list-config --to out/x # config.json
1 convert --from no-config --to out/x # config.json
1 convert --from twice --to out/x # config.json
1 convert --from ck --to out/x # manifest.json
1 convert --from ck2 --to out/x # manifest.json
1 convert --from yaml --to out/x # latest|checkpoint
1 convert --from gone --to out/x # mp_rank_00
1 convert --from dist --to out/x # common.pt
1 convert --from pickle --to out/x # not a file of torch.save
1 convert --from llmc.bin --to out/x # llm.c
1 convert --from llmc2.bin --to out/x # truncated
1 convert --from llama --to text # text: Not a directory
1 convert --from llama --to text/x # Not a directory
1 convert --from llama --to loop # the directory is not empty
2 convert --from llama --to out/x --format onnx # onnx
2 convert --from llama --to out/x --dtype int4 # int4
1 prep nowhere --out out/x # nowhere
1 prep nothing --out out/x # nothing
1 prep empty --out out/x # empty
1 prep lines.jsonl --out out/x # lines.jsonl
1 prep number.jsonl --out out/x # number.jsonl
1 prep list.jsonl --out out/x # list.jsonl
1 prep other.jsonl --out out/x # other.jsonl
1 prep cut.gz --out out/x # cut.gz
1 prep fake.gz --out out/x # fake.gz
1 prep fake.zst --out out/x # fake.zst
1 prep fake.xz --out out/x # fake.xz
1 prep binary --out out/x # binary: a binary file, no text: of its first 4096 bytes
1 prep zeros --out out/x # zeros: a binary file, no text: of its first 4096 bytes 4096 are
1 prep random.gz --out out/x # random.gz: a binary file
1 prep utf16 --out out/x # utf16: UTF-16, and texts must be UTF-8
1 prep mixed --out out/x # mixed/tensor: a binary file
1 prep text --out text # text: cannot make the directory: Not a directory
2 prep text out/x # --out DIR is missing.*; did you mean --out out/x\?
1 prep text --out out/x --tokenizer bpe:nowhere # nowhere
1 prep text --out out/x --tokenizer bpe:cut.json # cut.json
1 prep text --out out/x --tokenizer bpe:list.json # list.json
1 prep text --out out/x --tokenizer bpe:wordpiece.json # wordpiece.json
1 prep text --out out/x --tokenizer bpe:no-vocab.json # no-vocab.json
1 prep text --out out/x --tokenizer spm:binary # binary|SentencePiece
2 prep text --out out/x --format parquet # parquet
1 prep --images words.csv --out out/x # words.csv
1 prep --images uneven.csv --out out/x # uneven.csv
1 prep --images cut.npy --labels none --out out/x # cut.npy
2 init --model 9b --out out/x # 9b
2 init --model tiny --gpus 0 --out out/x # gpus
2 init --model tiny --gpus many --out out/x # many
1 init --model tiny --gpu-type h1000 --out out/x # h1000
1 init --model tiny --gpus 1 --gpu-type h100 --out text/x # Not a directory
1 init --model tiny --gpus 1 --gpu-type h100 --out text # text
1 init --model tiny --gpus 1 --gpu-type h100 --site binary --out out/x # binary
1 init --model tiny --gpus 1 --gpu-type h100 --site nowhere --out out/x # nowhere
1 watch nowhere # nowhere
1 watch empty # empty
1 report nowhere --out out/x # nowhere
1 report empty --out out/x # empty
1 report binary --out out/x # binary
1 report words.jsonl.m --out out/x # words.jsonl.m
1 report list.m --out out/x # list.m
1 report cut.m --out out/x # cut.m
1 report no-step.m --out out/x # no-step.m
1 report text --out out/x # text
2 report text --out out/x --gpu-type h1000 # h1000
1 generate nowhere --prompt a # nowhere
1 generate empty --prompt a # neither
1 generate text --prompt a # text
1 generate relu --prompt a --tokenizer byte # hidden_act
1 generate cut-257 --prompt a --tokenizer byte # model.safetensors
1 generate no-json-257 --prompt a --tokenizer byte # model.safetensors
1 generate ck --prompt a --tokenizer byte # manifest.json
1 generate llama --prompt a --tokenizer bpe:cut.json # cut.json
1 generate llama --prompt a --tokenizer byte --set model.hiden=8 # hiden
1 generate llama --prompt a --tokenizer byte --set model.layers=x # layers
2 generate llama --prompt a --temperature warm # warm
2 generate llama --prompt a -n 20 # unknown option '-n'; did you mean --tokens\?
2 generate llama -p a # unknown option '-p'; did you mean --prompt\?
2 generate llama --prompt a --max_new_tokens=9 # did you mean --tokens\?
2 generate llama --prompt a -k 9 # did you mean --top-k\?
2 generate --model llama --prompt a # leave --model out: the folder itself is the argument
2 train --config good/latest/plait.yaml # leave --config out: the file itself is the argument
2 train good/latest/plait.yaml --model llama # did you mean --init\?
2 train good/latest/plait.yaml --train.global_batch=4 # did you mean --set train.global_batch=VALUE\?
1 train good # good: Is a directory; its configuration is good/plait.yaml$
1 train good/latest # good/latest: Is a directory; its configuration is good/latest/plait.yaml$
1 train yaml # yaml: Is a directory; its configuration is yaml/latest/plait.yaml$
1 train llama # llama: Is a directory; 'plait convert --from llama --to NEW-FOLDER' makes
1 train llama/config.json # unknown key .*; 'plait convert --from llama --to NEW-FOLDER' makes
1 train empty # empty: Is a directory$
2 train good/latest/plait.yaml -n 2 # plait run --np=N -- COMMAND starts
2 generate llama --prompt a --top-p 7 # top-p
END

# refused CODE REGEX COMMAND ARGUMENTS...: one line of the table
refused() {
    local code=$1 regex=$2 program got
    shift 2
    program=("$build/plait-$1")
    [ "$1" = init ] && program=("$build/plait" init)
    timeout 240 "${program[@]}" "${@:2}" >said 2>err </dev/null
    got=$?
    [ $got = "$code" ] && [ "$(wc -l <err)" = 1 ] && [ ! -s said ] &&
        grep -q "^$(basename "${program[0]}"): " err && grep -Eq -e "$regex" err &&
        [ -z "$(find out -type f ! -name '*.tmp')" ] && [ -f text ]
}

n=0
while IFS= read -r line; do
    [[ $line =~ ^([12])\ (.*)\ \#\ (.*)$ ]] || exit 99
    n=$((n + 1))
    read -ra words <<<"${BASH_REMATCH[2]}"
    if refused "${BASH_REMATCH[1]}" "${BASH_REMATCH[3]}" "${words[@]}"; then
        echo "ok $n - $(tr -d '\n' <err)"
    else
        echo "not ok $n - $line"
        sed 's/^/# /' err said | head -5
        find out -type f | sed 's/^/# /'
    fi
    rm -rf out/x
done <table
echo "1..$n"
