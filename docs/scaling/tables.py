#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/scaling.md, and the records of docs/measured-scaling.md:
plait plan --auto finds a layout, plait simulate plays its step. Usage:
tables.py PLAIT > tables.md"""
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PLAIT = sys.argv[1] if len(sys.argv) > 1 else "plait"
GPUS = [8, 64, 512, 4096, 16384, 65536, 131072]
MODELS = ["8b", "70b", "405b", "1t"]
FABRICS = [("H100, DGX of 8, one 400 Gb/s NIC a GPU", ["--gpu-type", "h100"]),
           ("GB200, NVL72, one 400 Gb/s NIC a GPU", ["--gpu-type", "gb200"])]
# Sequences of a step: so many per GPU (weak), or as many on any number of
# GPUs (strong).
WEAK = {"8b": 2, "70b": 1, "405b": 1 / 4, "1t": 1 / 4}
STRONG = {"8b": 2048, "70b": 2048, "405b": 2048, "1t": 4096}


def run(*words):
    """A JSON document, or None where plait says no."""
    out = subprocess.run([PLAIT, *words, "--json"], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE,
                         env=dict(os.environ, PLAIT_SITE=""))
    return json.loads(out.stdout) if out.returncode == 0 else None


def model(name):
    return ["--model", f"{HERE}/{name}.yaml"]


def best(name, fabric, gpus, batch):
    found = run("plan", "--auto", *model(name), *fabric, "--gpus", str(gpus),
                "--global-batch", str(batch))
    return found["choices"][0] if found and found["choices"] else None


def simulate(name, fabric, gpus, batch, c):
    words = ["--gpus", str(gpus), "--global-batch", str(batch)]
    for key in ("tp", "cp", "pp", "dp", "virtual", "zero", "schedule",
                "recompute"):
        words += ["--" + key, str(c[key])]
    words += ["--micro-batch", str(c["micro_batch"])]
    if c["sequence"]:
        words.append("--sequence")
    if c["offload"] != "none":
        words += ["--set", "parallel.offload=" + c["offload"]]
    return run("simulate", *model(name), *fabric, *words)


def layout(c):
    text = f"tp {c['tp']}"
    for key in ("cp", "pp", "dp"):
        if c[key] > 1:
            text += f" {key} {c[key]}"
    if c["virtual"] > 1:
        text += f" v {c['virtual']}"
    text += f", b {c['micro_batch']}, zero {c['zero']}"
    if c["recompute"] != "none":
        text += ", " + c["recompute"]
    if c["offload"] != "none":
        text += ", " + c["offload"] + " offloaded"
    return text


def table(name, fabric, batch_of, strong):
    print("| GPUs | sequences | layout | step s | tokens/s/GPU | "
          "TFLOP/s/GPU | MFU % | bubble % | exposed % | GB | "
          + ("speed-up" if strong else "efficiency %") + " |")
    print("|---" * 11 + "|")
    first = None
    for gpus in GPUS:
        batch = batch_of(gpus)
        c = best(name, fabric, gpus, batch) if batch >= 1 else None
        s = simulate(name, fabric, gpus, batch, c) if c else None
        if not s:
            print(f"| {gpus} | {batch:g} | none fits | | | | | | | | |")
            continue
        rate = s["tokens_per_s"] / gpus
        first = first or (gpus, rate)
        last = (f"{rate * gpus / first[1] / first[0]:.0f}" if strong
                else f"{100 * rate / first[1]:.0f}")
        print(f"| {gpus} | {batch} | {layout(c)} | {s['step_s']:.3f} | "
              f"{rate:.0f} | {s['tflops_per_gpu']:.0f} | "
              f"{100 * s['mfu']:.1f} | {100 * s['bubble']:.1f} | "
              f"{100 * s['exposed']:.1f} | {c['memory_bytes'] / 1e9:.0f} | "
              f"{last} |")
    print()


# Who, where, model, what is different, tokens/s/GPU (or TFLOP/s/GPU).
H100 = FABRICS[0][1]
GB200 = FABRICS[1][1]
RECORDS = [
    ("Llama 3, table 4", "bf16", "405b", H100,
     "--gpus 8192 --tp 8 --pp 16 --dp 64 --global-batch 2048 --sequence "
     "--zero 2 --schedule interleaved --virtual 8", "tflops", 430),
    ("Llama 3, table 4", "bf16", "405b", H100,
     "--gpus 16384 --tp 8 --pp 16 --dp 128 --global-batch 2048 --sequence "
     "--zero 2 --schedule interleaved --virtual 8", "tflops", 400),
    ("llm-foundry 7B", "bf16", "8b", H100,
     "--gpus 8 --dp 8 --zero 3 --global-batch 256 --micro-batch 8 "
     "--set model.seq_len=2048 --set model.vocab=50368 "
     "--set model.kv_heads=32 --set model.ffn=11008", "tokens", 10643),
    ("torchtitan 8B", "bf16", "8b", H100,
     "--gpus 8 --dp 8 --zero 3 --global-batch 8 --recompute selective",
     "tokens", 6667),
    ("Megatron-Bridge 26.02", "fp8", "70b", H100,
     "--gpus 64 --tp 4 --pp 8 --dp 2 --global-batch 256 --sequence --zero 1 "
     "--schedule interleaved --virtual 5", "tokens", 1621),
    ("Megatron-Bridge 26.02", "fp8", "405b", H100,
     "--gpus 1024 --tp 8 --pp 8 --cp 2 --dp 8 --global-batch 1536 --sequence "
     "--zero 1 --schedule interleaved --virtual 8", "tokens", 311),
    ("Megatron-Bridge 25.11", "fp8", "8b", GB200,
     "--gpus 8 --dp 8 --global-batch 128 --micro-batch 2 --zero 1", "tokens",
     31508),
    ("Megatron-Bridge 26.02", "fp8", "70b", GB200,
     "--gpus 64 --dp 64 --zero 3 --global-batch 256 --micro-batch 2 ",
     "tokens", 4040),
    ("Megatron-Bridge 26.02", "fp8", "405b", GB200,
     "--gpus 256 --tp 4 --pp 16 --dp 4 --global-batch 1536 --sequence "
     "--zero 1 --schedule interleaved --virtual 4", "tokens", 793),
]


def records():
    print("| record | products | GPUs and layout | measured | simulated | "
          "simulated / measured |\n|---|---|---|---|---|---|")
    for who, precision, name, fabric, words, unit, measured in RECORDS:
        software = ("megatron" if "Megatron" in who or "Llama" in who else
                    "torchtitan" if "titan" in who else "llm-foundry")
        s = run("simulate", *model(name), *fabric, *words.split(),
                "--precision", precision, "--framework", software)
        kind = "GB200" if "gb200" in fabric else "H100"
        short = words.replace("--global-batch", "B").replace("--", "")
        if not s:
            print(f"| {who} | {precision} | {kind}, {name}, {short} | "
                  f"{measured} | refused | |")
            continue
        got = s["tflops_per_gpu"]
        text = "TFLOP/s/GPU"
        if unit == "tokens":
            got = s["tokens_per_s"] / s["gpus"]
            text = "tokens/s/GPU"
        print(f"| {who} | {precision} | {kind}, {name}, {short} | {measured} "
              f"{text} | {got:.0f} | {got / measured:.2f} |")
    print()


print("## Next to published records\n")
records()
for title, fabric in FABRICS:
    print(f"## {title}\n")
    for name in MODELS:
        print(f"### {name.upper()}, weak scaling\n")
        table(name, fabric, lambda n: int(n * WEAK[name]), False)
        print(f"### {name.upper()}, strong scaling\n")
        table(name, fabric, lambda n: STRONG[name], True)
