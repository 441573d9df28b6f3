# SPDX-License-Identifier: Apache-2.0
"""experts that are balanced in each sequence or over the global batch

A small llama with experts reads a text of two languages, the Bible and the
Bible with each letter shifted by 13 places in the alphabet, passage by passage.
A balance loss over each sequence makes every passage use all experts alike; one
over the global batch (Qiu et al., arXiv 2501.11873) allows each language to
have experts of its own.
"""
import codecs
import json
import os
import struct
import subprocess

from plot import Plot, save
from study import Failure, find, last, mean, table

LETTER = "k"
STEPS, SEQUENCES, EXPERTS = 240, 32, 8
PASSAGE = 4096
WEIGHTS = (0.01, 0.1, 1)
TEXT = {
    "model.family": "llama", "model.layers": 2, "model.hidden": 64,
    "model.heads": 4, "model.ffn": 32, "model.experts": EXPERTS,
    "model.experts_top_k": 2, "model.vocab": 257, "model.seq_len": 64,
    "train.global_batch": SEQUENCES, "train.micro_batch": SEQUENCES,
    "train.eval_steps": 16, "optim.lr": 0.008, "optim.betas": [0.9, 0.95],
    "log.every": 1,
}


def prepare(study, name, text):
    plain = os.path.join(study.work, name + ".txt")
    with open(plain, "wb") as f:
        f.write(text)
    subprocess.run([find(study.prep, "--prep"), plain, "--out",
                    os.path.join(study.work, name)], check=True,
                   stdout=subprocess.DEVNULL)
    return os.path.join(study.work, name, "train.bin")


def languages(study):
    """{"train": both, "val": both, "plain", "turned": one of them}, in files
    of tokens; what is not trained on is the last tenth."""
    plain = study.read_bible().decode("ascii", "ignore")
    turned = codecs.encode(plain, "rot13")
    both = "".join((plain, turned)[i // PASSAGE % 2][i:i + PASSAGE]
                   for i in range(0, len(plain), PASSAGE))
    cut = len(plain) * 9 // 10
    return {name: prepare(study, name, text.encode()) for name, text in {
        "train": both[:cut], "val": both[cut:], "plain": plain[cut:],
        "turned": turned[cut:]}.items()}


def read_loads(path):
    """How often each layer's experts were chosen in the checkpoint's last
    step, 1 on average."""
    loads = {}
    for name in os.listdir(path):
        if not name.endswith(".safetensors"):
            continue
        with open(os.path.join(path, name), "rb") as f:
            data = f.read()
        size, = struct.unpack("<Q", data[:8])
        for tensor, entry in json.loads(data[8:8 + size]).items():
            if tensor.endswith(".router.load"):
                begin, end = entry["data_offsets"]
                loads[tensor] = struct.unpack(
                    f"<{EXPERTS}f", data[8 + size + begin:8 + size + end])
    return [loads[tensor] for tensor in sorted(loads)]


def loads_of(study, model, tokens):
    """How often a trained model chooses each expert on these tokens: counted in
    a step whose rate is so small that the weights stay the same."""
    to = f"{model}.{os.path.basename(os.path.dirname(tokens))}"
    study.train({**TEXT, "data.train": tokens, "train.init": model,
                 "train.steps": 1, "train.global_batch": 8 * SEQUENCES,
                 "optim.lr": 1e-30, "checkpoint.dir": to,
                 "model.experts_balance_over": "batch"})
    return read_loads(os.path.join(to, "latest"))


def config(study, data, keys, seed, steps):
    name = "-".join(str(value) for value in keys.values()) + f"-{seed}"
    return {**TEXT, **keys, "data.train": data["train"],
            "data.val": data["val"], "train.seed": seed, "train.steps": steps,
            "train.eval_every": steps, "lr.warmup": max(1, steps // 12),
            "checkpoint.dir": os.path.join(study.work, name)}


def shared(plain, turned):
    """The part of the choices that both languages make alike."""
    return mean([sum(map(min, a, b)) / EXPERTS for a, b in zip(plain, turned)])


def try_keys(study, data, keys, steps):
    """For each seed: validation loss, the load of the busiest expert (the mean
    of the layers), and the shared part."""
    configs = [config(study, data, keys, seed, steps) for seed in study.seeds]
    found = []
    for c, m in zip(configs, study.train_all(configs)):
        both, plain, turned = (loads_of(study, c["checkpoint.dir"], data[name])
                               for name in ("val", "plain", "turned"))
        found.append((last(m, "val_loss"), mean([max(x) for x in both]),
                      shared(plain, turned)))
    return list(zip(*found))


def text_of(values, digits):
    return (f"{mean(values):.{digits}f} ({min(values):.{digits}f} to "
            f"{max(values):.{digits}f})")


def check(study, data):
    """By construction: a loss of weight 0 balances nothing."""
    one, two = study.train_all([
        config(study, data, {"model.experts_balance": 0,
                             "model.experts_balance_over": over}, 1, 3)
        for over in ("sequence", "batch")])
    if any(a["loss"] != b["loss"] for a, b in zip(one, two)):
        raise Failure("a balance loss of weight 0 changes the loss")


def run(study):
    data = languages(study)
    weights, steps = (WEIGHTS[1:2], 3) if study.quick else (WEIGHTS, STEPS)
    check(study, data)
    loss = Plot("Llama with 8 experts on two languages",
                "weight of the balance loss", f"loss after {steps} steps",
                x_log=10)
    alike = Plot("", "weight of the balance loss",
                 "choices shared by the languages", x_log=10)
    rows = []
    for over in ("none", "sequence", "batch"):
        lines = []
        for weight in weights if over != "none" else (0,):
            keys = {"model.experts_balance": weight}
            if weight:
                keys["model.experts_balance_over"] = over
            found = try_keys(study, data, keys, steps)
            study.say(f"{over} {weight}: loss {mean(found[0]):.3f}")
            rows.append((over, f"{weight:g}", text_of(found[0], 3),
                         text_of(found[1], 2), text_of(found[2], 2)))
            lines.append((weight, found))
        for plot, i in ((loss, 0), (alike, 2)) if over != "none" else ():
            plot.line(f"over the {over}",
                      [(w, mean(found[i])) for w, found in lines],
                      spread=[(min(found[i]), max(found[i]))
                              for w, found in lines])
    print(table(("balance over", "weight", "validation loss",
                 "load of the busiest expert", "choices shared"), rows))
    save(study.path("balance.svg"), loss, alike)
