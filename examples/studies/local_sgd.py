# SPDX-License-Identifier: Apache-2.0
"""local, post-local SGD and DiLoCo against a small and a huge batch

The validation loss after the same text, and the bytes that it took. Four
processes train a small GPT-2 on the King James Bible, three seeds each. Lin
et al. (arXiv 1808.07217) compare local SGD with the huge batch that
communicates as seldom. Then DiLoCo in fragments, with a delay and in fewer
bits (Douillard et al., arXiv 2501.18512), of one seed.
"""
import math

from plot import Plot, save
from study import Failure, bytes_sent, last, mean, table

LETTER = "f"
RANKS = 4
BATCH = 16  # sequences of a small batch, over all ranks
H = 8       # steps from one meeting to the next
STEPS = 800
MODEL = {
    "model.family": "gpt2", "model.layers": 2, "model.hidden": 64,
    "model.heads": 4, "model.vocab": 257, "model.seq_len": 64,
    "train.micro_batch": 4, "train.eval_steps": 20, "optim.clip": 1.0,
    "optim.weight_decay": 0.1, "lr.schedule": "cosine", "lr.min": 0.1,
}


def sync(**keys):
    return {f"sync.{key.rstrip('_')}": value for key, value in keys.items()}


def methods(steps):
    """Name: (steps, sequences per step, learning rate, sync). Each sees the
    same number of sequences; the rate of the huge batch follows the square
    root of its size."""
    small, rate = (steps, BATCH, 3e-3), 3e-3 * math.sqrt(H)
    return {
        "small batch": (*small, {}),
        "huge batch": (steps // H, BATCH * H, rate, {}),
        "local SGD": (*small, sync(mode="local", steps=H)),
        "post-local SGD":
            (*small, sync(mode="post-local", steps=H, from_=steps // 2)),
        "DiLoCo":
            (*small, sync(mode="diloco", steps=4 * H, lr=0.7, momentum=0.6)),
    }


STREAMING = {
    "fragments 2": {"fragments": 2},
    "fragments 2, delay 2": {"fragments": 2, "delay": 2},
    "fragments 2, delay 5": {"fragments": 2, "delay": 5},
    "fp8": {"gradients": "fp8"},
    "fragments 2, delay 5, fp8":
        {"fragments": 2, "delay": 5, "gradients": "fp8"},
}


def streaming(steps):
    """The same for DiLoCo with more keys of sync."""
    *rest, keys = methods(steps)["DiLoCo"]
    return {name: (*rest, {**keys, **sync(**more)})
            for name, more in STREAMING.items()}


def config(data, method, seed):
    steps, batch, rate, keys = method
    return {**MODEL, **data, **keys, "train.steps": steps,
            "train.global_batch": batch, "train.seed": seed,
            "train.eval_every": steps, "optim.lr": rate,
            "lr.warmup": steps // 20}


def check(rows, steps):
    """What holds by construction."""
    sent = {name: n for name, _, n in rows}
    one = sent["small batch"] // steps
    wanted = {"huge batch": steps // H, "local SGD": steps // H,
              "post-local SGD": steps // 2 + steps // 2 // H,
              "DiLoCo": steps // (4 * H)}
    wrong = [name for name, n in wanted.items() if sent[name] != n * one]
    if wrong:
        raise Failure(f"bytes of {', '.join(wrong)} are not those of the "
                      "meetings")


def check_streaming(rows):
    """What is gathered: of n replicas n - 1 times the bytes of a weight, where
    a sum in fp32 sends 8 (n - 1) / n."""
    sent = {name: n for name, _, n in rows}
    for name, of, share in (("fp8", "DiLoCo", RANKS / 8),
                            ("fragments 2, delay 5", "fragments 2", 1),
                            ("fragments 2, delay 5, fp8", "fragments 2",
                             RANKS / 8)):
        if sent[name] != share * sent[of]:
            raise Failure(f"{name}: {sent[name]} bytes are not {share:g} times "
                          f"those of {of}")


def show_streaming(rows):
    print()
    print(table(
        ("DiLoCo with, of seed 1", "validation loss", "MB sent by a rank"),
        [(name if name in STREAMING else "nothing more", f"{losses[0]:.4f}",
          f"{sent / 1e6:.1f}")
         for name, losses, sent in rows]))


def show(study, rows):
    print(table(
        ("method", "validation loss", "least, most", "MB sent by a rank",
         "of the small batch's"),
        [(name, f"{mean(losses):.4f}", f"{min(losses):.4f}, "
          f"{max(losses):.4f}", f"{sent / 1e6:.1f}", f"{sent / rows[0][2]:.4f}")
         for name, losses, sent in rows]))
    plot = Plot("Loss after the same text, three seeds",
                "MB sent by a rank", "validation loss", x_log=10)
    for name, losses, sent in rows:
        plot.mark(name, sent / 1e6, mean(losses), min(losses), max(losses))
    save(study.path("local_sgd.svg"), plot)


def run(study):
    study.need_mpirun()
    data = study.bible()
    steps = 64 if study.quick else STEPS
    rows = []
    for name, method in {**methods(steps), **streaming(steps)}.items():
        seeds = study.seeds[:1] if name in STREAMING else study.seeds
        out = study.train_all([config(data, method, seed) for seed in seeds],
                              RANKS)
        losses = [last(metrics, "val_loss") for metrics in out]
        rows.append((name, losses, bytes_sent(out[0])))
        study.say(f"{name}: {mean(losses):.4f}, {rows[-1][2]} bytes")
    many = len(methods(steps))
    check(rows, steps)
    show(study, rows[:many])
    check_streaming(rows[many - 1:])
    show_streaming(rows[many - 1:])
