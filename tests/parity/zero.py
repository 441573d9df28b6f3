#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ZeRO saves as much memory as its formula says.

Measures the memory of plait-train on every rank, with few layers and with
many, at ZeRO 0 to 3. The difference is the memory of the additional layers;
activations are the same at every stage, and the buffers for regions in flight
do not grow with the layers. So for each parameter that d ranks share there
remain

    zero   weight   gradient   master and moments
    0      w        4          s
    1      w        4          s / d
    2      w        4 / d      s / d
    3      w / d    4 / d      s / d

bytes, with w 4 and s 8 in fp32 (the weight is its own master), w 2 and s 12 in
16 bits.

    zero.py PLAIT_TRAIN [TEXT]    (cases with TEXT in them)
"""
import subprocess
import sys
import tempfile

import parity

FEW, MANY, C, HEADS, KV, T, V = 8, 24, 64, 4, 2, 16, 256
E = 4
GPT2 = dict(family="gpt2", ffn=256, kv_heads=HEADS)
LLAMA = dict(family="llama", ffn=128, kv_heads=KV)
MOE = dict(LLAMA, experts=E, experts_top_k=1)
RTOL = 0.01  # regions are padded to d equal parts of whole 64 elements

CASES = [
    (GPT2, "112", ""),
    (GPT2, "114", ""),
    (LLAMA, "114", "precision=bf16"),
    (GPT2, "122", "precision=fp16"),
    (LLAMA, "212", "sequence=true"),
    (LLAMA, "1122", "precision=bf16"),
    (MOE, "11412", ""),
    (GPT2, "114", "nodes=2 shard_group=node precision=bf16"),
]


def layer(model, tp, ep):
    """Parameters of a layer on one rank: dense ones, experts."""
    f, kv = model["ffn"] // tp, C // HEADS * model["kv_heads"] // tp
    qkv = C // tp + 2 * kv
    dense = (qkv + C // tp) * C
    if model["family"] == "gpt2":  # weights; biases; norms
        return dense + 2 * f * C + qkv + f + 2 * C + 4 * C, 0
    if "experts" in model:
        return dense + E * C + 2 * C, E // ep * 3 * f * C
    return dense + 3 * f * C + 2 * C, 0


def saved(zero, shared, half):
    """Bytes of each parameter that are saved if `shared` ranks share it."""
    w, s = (2, 12) if half else (4, 8)
    whole = (zero >= 1) * s + (zero >= 2) * 4 + (zero >= 3) * w
    return whole * (1 - 1 / shared)


def held(train, work, model, layout, strand, layers):
    """Bytes on the rank with most memory of each stage."""
    shape = dict(layers=layers, hidden=C, heads=HEADS, vocab=V, seq_len=T)
    steps = dict(steps=1, global_batch=4, micro_batch=1)
    return parity.all_metrics(train, work, model, shape, steps, layout,
                              strand)[-1]["mem_bytes_stages"]


def growth(train, work, model, layout, strand):
    """Bytes of MANY - FEW additional layers, all stages together."""
    few, many = (sum(held(train, work, model, layout, strand, n))
                 for n in (FEW, MANY))
    return many - few


def check(train, work, model, layout, strand):
    """[(zero, measured, formula)] of the bytes saved."""
    sizes = [int(c) for c in layout] + [1] * (5 - len(layout))
    tp, _, dp, cp, ep = sizes
    nodes = 2 if "nodes=2" in strand else 1
    half = "16" in strand
    dense, experts = (n * (MANY - FEW) for n in layer(model, tp, ep))
    shared = dp * cp // nodes
    # Only sharding depends on shard groups; at ZeRO 0 every rank has all.
    plain = " ".join(i for i in strand.split() if "shard_group" not in i)
    whole = growth(train, work, model, layout, plain)
    for zero in 1, 2, 3:
        got = whole - growth(train, work, model, layout,
                             f"{strand} zero={zero}")
        yield zero, got, dense * saved(zero, shared, half) + \
            experts * saved(zero, shared // ep, half)


def main():
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    todo = [(parity.case_name(*c), c) for c in CASES
            if only in parity.case_name(*c)]
    n = failed = 0
    print(f"1..{3 * len(todo)}")
    with tempfile.TemporaryDirectory(prefix="plait-zero-") as work:
        parity.write_tokens(work + "/tokens.bin")
        for name, case in todo:
            try:
                for zero, got, want in check(sys.argv[1], work, *case):
                    n += 1
                    good = abs(got - want) <= RTOL * want
                    failed += not good
                    print(f"{'ok' if good else 'not ok'} {n} - {name}: zero "
                          f"{zero} saves {got:.0f} bytes, {want:.0f} by its "
                          "formula", flush=True)
            except (parity.Failed, subprocess.TimeoutExpired) as e:
                print("Bail out! " + name + ": " +
                      str(e).replace("\n", "\n# "))
                return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
