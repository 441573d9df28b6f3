# SPDX-License-Identifier: Apache-2.0
"""naive, flat and bucketed sums of the gradients side by side

Two to four processes train the same GPT-2 on the King James Bible.
naive sends all gradients to one rank, which adds them up and sends them back;
flat is one all-reduce after the backward pass (Horovod's fused buffer,
arXiv 1802.05799); bucketed are several during it (PyTorch's DDP, arXiv
2006.15704). What each sends, and how long the ranks wait for it.
"""
from plot import Plot, save
from study import Failure, bytes_sent, table

LETTER = "h"
WAYS = ("naive", "flat", "bucketed")
RANKS = (2, 3, 4)
BATCH = 12
MODEL = {
    "model.family": "gpt2", "model.vocab": 257, "model.heads": 4,
    "train.micro_batch": 1, "train.global_batch": BATCH, "optim.lr": 1e-3,
    "lr.warmup": 5, "parallel.bucket_mib": 1,
}


def config(data, way, quick):
    size = {"model.layers": 2, "model.hidden": 64, "model.seq_len": 64} \
        if quick else \
        {"model.layers": 4, "model.hidden": 256, "model.seq_len": 128}
    return {**MODEL, **size, **data, "train.steps": 6 if quick else 15,
            "parallel.grad_sync": way}


def quartile(values):
    return sorted(values)[len(values) // 4]


def measure(runs):
    """{losses, bytes and times of a step}: lower quartiles, so that what else
    runs on the machine counts little, after the first steps of each training,
    which set up what the later ones use."""
    later = [line for metrics in runs for line in metrics[3:]]
    return {
        "losses": [line["loss"] for line in runs[0]],
        "bytes": bytes_sent(later[:1]),
        "exposed": quartile([line["comm_s"] for line in later]),
        "hidden": quartile([line["comm_hidden_s"] for line in later]),
        "step": quartile([line["step_s"] for line in later]),
    }


def others_bytes(way, ranks, sent):
    """What each rank but the first sends: naive, its gradients once."""
    return sent // (ranks - 1) if way == "naive" else sent


def check(found, ranks):
    """What holds by construction: naive's first rank sends all gradients
    back to each other rank, ranks of the others 2 (ranks - 1) / ranks of
    them, within what parts of different sizes make; and the losses are those
    of one sum."""
    flat, bucketed = found["flat", ranks], found["bucketed", ranks]
    naive = found["naive", ranks]
    # Each bucket's bytes are rounded down.
    if not 0 <= flat["bytes"] - bucketed["bytes"] < 100:
        raise Failure(f"flat sends {flat['bytes']} bytes, bucketed "
                      f"{bucketed['bytes']}")
    if abs(naive["bytes"] / flat["bytes"] - ranks / 2) > 1e-3:
        raise Failure(f"naive sends {naive['bytes']} bytes, flat "
                      f"{flat['bytes']}: not {ranks} / 2 times as many")
    for other in (naive, bucketed):
        far = max(abs(a - b) for a, b in zip(flat["losses"], other["losses"]))
        if far > 1e-4:
            raise Failure(f"losses differ by {far:g}")


def show(study, found):
    print(table(
        ("ranks", "way", "MB sent by the first rank", "by each other",
         "waited, ms", "hidden, ms", "step, ms"),
        [(ranks, way, f"{f['bytes'] / 1e6:.2f}",
          f"{others_bytes(way, ranks, f['bytes']) / 1e6:.2f}",
          f"{1e3 * f['exposed']:.1f}", f"{1e3 * f['hidden']:.1f}",
          f"{1e3 * f['step']:.1f}")
         for (way, ranks), f in sorted(
             found.items(), key=lambda item: (item[0][1],
                                              WAYS.index(item[0][0])))]))
    traffic = Plot("Traffic of a step", "ranks", "MB sent by the first rank")
    waits = Plot("Exposed time of a step", "ranks", "waited for messages, ms")
    for plot in (traffic, waits):
        plot.x.only = sorted({ranks for _, ranks in found})
        plot.y.values.append(0)
    for way in WAYS:
        rows = {r: f for (w, r), f in found.items() if w == way}
        traffic.line(way, [(r, f["bytes"] / 1e6) for r, f in rows.items()],
                     dash=way == "bucketed")
        waits.line(way, [(r, 1e3 * f["exposed"]) for r, f in rows.items()])
    save(study.path("grad_sync.svg"), traffic, waits)


def run(study):
    study.need_mpirun()
    data = study.bible()
    found = {}
    for ranks in (4,) if study.quick else RANKS:
        runs = {way: [] for way in WAYS}
        # In turn, so that each has its share of the machine's quiet moments.
        for _ in study.seeds:
            for way in WAYS:
                runs[way].append(
                    study.train(config(data, way, study.quick), ranks))
        for way in WAYS:
            found[way, ranks] = f = measure(runs[way])
            study.say(f"{ranks} ranks, {way}: {f['bytes']} bytes, "
                      f"{1e3 * f['exposed']:.1f} ms waited")
        check(found, ranks)
    show(study, found)
