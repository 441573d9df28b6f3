#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A layout changes the speed, never the result.

Trains small models in many layouts (matrix.py) and compares every step's loss
and the final weights with one process of the same precision, and the memory of
every stage with `plait estimate`. Prints TAP, then the worst deviations.

    parity.py --train PROGRAM [--quick] [--launcher mpirun|srun|run]
              [--only TEXT]
"""
import argparse
import glob
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from array import array

import matrix
import signs

HERE = os.path.dirname(os.path.abspath(__file__))
LIB = os.path.join(HERE, "..", "lib")
MPIRUN = os.path.join(LIB, "mpirun.sh")
NODES = os.path.join(LIB, "nodes.sh")

sys.path.insert(0, LIB)
from tokens import write_prompts, write_tokens

LOSS_RTOL = 2e-5
MEMORY_RTOL = 0.1  # of each pipeline stage's rank with most memory
WEIGHT_RTOL = 1e-4
HALF_RTOL = 2e-2  # of the loss in bf16, fp16 and fp8
# With 8-bit codes, whose blocks differ between layouts: of the loss and of
# weights.
CODES_RTOL = (1e-4, 5e-2)
# Where bf16 is rounded stochastically: a sum that two layouts round to different
# fp32 may be rounded up in one and down in the other. With masters the weights
# that this moved are a few; they may be this share of a model's.
FLIPPED = 1e-4
# Without masters in bf16, whose sums differ more: the share of weights that
# differ. It is 0.33 at most, and 0.40 to 0.54 where what ranks draw is another
# element's.
BARE_APART = 0.36
# Soap derives its first bases from data by choices: which singular values are
# mere rounding, which of two is larger. Where rounding decides, a direction in
# 64 may turn. So loss and weights may deviate by this many times the deviation
# between runs of one process with other micro-batches, and at least by the
# bounds of all optimizers. With the bases of one process (from=4) the bounds
# of all optimizers hold.
SOAP_TIMES = 2
SOAP_MICRO = (1, 3, 4, 6, 8, 12, 24)
# Keys that change the weights of queries: what a run without one deviates by
# must be larger than what layouts may.
HEARD = ("optim.qk_clip", "optim.muon_heads", "optim.muon_coefficients")
QUERY_RTOL = 5e-3  # of these weights in 16 bits
BETAS = (0.9, 0.95)  # the default of optim.betas
STEPS = 10
TRAIN = ("micro_batch", "precision", "loss_scale")


def write_config(path, model, tokens):
    # A router's choice is discontinuous: where two logits are equal to
    # rounding, here about 1e-8, layouts may choose differently, and the curves
    # part for good. No choice from this seed is that close.
    shape = ", ".join(f"{k}: {v}" for k, v in matrix.MODELS[model].items())
    with open(path, "w") as f:
        f.write(f"""
model: {{{shape}, seq_len: {matrix.SEQ_LEN}}}
data: {{train: {tokens}, format: llmc}}
train:
  steps: {STEPS}
  global_batch: {matrix.GLOBAL_BATCH}
  micro_batch: {matrix.FACTORS["micro_batch"][0]}
  seed: 7
optim: {{lr: 1e-3}}
lr: {{warmup: 5}}
""")


def settings(text):
    """Turn "zero=1 micro_batch=4" into --set options."""
    out = []
    for item in text.split():
        key = item.split("=")[0]
        if key in ("nodes", "then", "from"):  # for command(), train()
            continue
        section = "train." if key in TRAIN else "parallel."
        out += ["--set", item if "." in key else section + item]
    return out


def nodes_of(strand):
    return int(dict(i.split("=") for i in strand.split()).get("nodes", 1))


def command(args, layout, program, strand=""):
    """How to start the program; nodes=N in the strand: on N nodes, under
    mpirun as if."""
    nodes = nodes_of(strand)
    sizes = dict(zip(matrix.AXES, [int(c) for c in layout]))
    world = math.prod(n for axis, n in sizes.items() if axis != "ep")
    if args.launcher == "srun":
        # The cluster's nodes claim more cores than this machine may have, and
        # Slurm cannot bind a task to a core that does not exist.
        tp = sizes["tp"]
        per_node = next(n for n in range(tp, world + 1, tp)
                        if world % n == 0 and
                        world // n <= (args.nodes if nodes == 1 else nodes))
        return ["srun", f"-N{world // per_node}",
                f"--ntasks-per-node={per_node}", "--mpi=pmix",
                "--cpu-bind=none"] + \
            [f"--{k}={v}" for k, v in sizes.items()] + program
    if args.launcher == "run" and world > 1:  # over sockets, without MPI
        plait = os.path.join(os.path.dirname(args.train), "plait")
        return [plait, "run", "--np", str(world), "--pin=none"] + \
            [f"--{k}={v}" for k, v in sizes.items()] + ["--"] + program
    program = program + [o for k, v in sizes.items()
                         for o in ("--set", f"parallel.{k}={v}")]
    if world == 1:
        return program
    if nodes > 1:
        program = ["sh", NODES, str(nodes)] + \
            [str(sizes.get(k, 1)) for k in matrix.AXES] + program
    return ["sh", MPIRUN, str(world)] + program


class Failed(Exception):
    pass


def memory_deviation(args, work, model, layout, strand, got):
    """How far the memory of each stage is from what `plait estimate` says of
    this run: the worst |got - said| / said."""
    sizes = dict(zip(matrix.AXES, map(int, layout)))
    plait = os.path.join(os.path.dirname(os.path.abspath(args.train)), "plait")
    site = os.path.join(work, "site.yaml")
    with open(site, "w") as f:
        world = math.prod(n for axis, n in sizes.items() if axis != "ep")
        f.write("gpu_types: {cpu: {per_node: %d}}\n" %
                (world // nodes_of(strand)))
    said = json.loads(subprocess.run(
        [plait, "estimate", "--json", "--gpu-type", "cpu", "--site", site,
         "--model", os.path.join(work, model + ".yaml")] +
        [f"--{axis}={n}" for axis, n in sizes.items()] + settings(strand),
        stdout=subprocess.PIPE, check=True,
        universal_newlines=True).stdout)["stages_memory_bytes"]
    if len(got) != len(said):
        raise Failed(f"{len(got)} stages, not {len(said)}")
    return max(abs(a - b["total"]) / b["total"] for a, b in zip(got, said))


def metrics(args, config, work, layout, strand, *more):
    """The metrics of one run, line by line."""
    path = os.path.join(work, "metrics")
    program = [args.train, config, "--metrics", path, "--device",
               args.device, *more] + settings(strand)
    env = dict(os.environ)
    env.setdefault("OMP_NUM_THREADS", "1")
    run = subprocess.run(command(args, layout, program, strand),
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         stdin=subprocess.DEVNULL, env=env,
                         timeout=args.timeout, universal_newlines=True)
    if run.returncode:
        raise Failed(f"exit {run.returncode}\n" + run.stdout)
    with open(path) as f:
        return [json.loads(line) for line in f]


def all_metrics(program, work, model, shape, train, layout, strand):
    """The metrics of each step of a small model on the CPU. `model`, `shape`
    and `train` are keys and values of the configuration."""
    def section(*parts):
        return ", ".join(f"{k}: {v}" for part in parts
                         for k, v in part.items())

    config = os.path.join(work, "c.yaml")
    with open(config, "w") as f:
        f.write(f"model: {{{section(model, shape)}}}\n"
                f"data: {{train: {work}/tokens.bin}}\n"
                f"train: {{{section(train)}}}\n")
    args = argparse.Namespace(launcher="mpirun", device="cpu", train=program,
                              timeout=240)
    return metrics(args, config, work, layout, strand)


def case_name(model, layout, strand):
    kind = "moe" if "experts" in model else model["family"]
    axes = ",".join(matrix.AXES[:len(layout)])
    return f"{kind} {axes}={','.join(layout)} {strand}".rstrip()


def resumed(args, config, out, first, second, at):
    """The metrics of a run that is resumed in another layout from its
    checkpoint of step `at`; first, second: (layout, strand)."""
    lines = metrics(args, config, out, *first, "--set",
                    f"checkpoint.dir={out}/first", "--set",
                    f"checkpoint.every={at}", "--set", "checkpoint.keep=0")
    rest = metrics(args, config, out, *second, "--resume",
                   f"{out}/first/step-{at:08}", "--set",
                   f"checkpoint.dir={out}/ckpt")
    return lines[:at] + rest[-(STEPS - at):]


def train(args, work, family, layout, strand):
    """The losses of one run, its final weights by name, the bytes that each
    stage holds, which steps were skipped because gradients overflowed, and the
    steps' largest logits with optim.qk_clip."""
    name = f"{family}-{layout}-{strand}".replace(" ", "-")
    name = "".join(c for c in name if c not in "/[]")
    out = os.path.join(work, name)
    config = os.path.join(work, family + ".yaml")
    items = dict(i.split("=") for i in strand.split())
    os.mkdir(out)
    if "then" in items:  # the second half in that layout, without ZeRO
        rest = " ".join(i for i in strand.split()
                        if i.split("=")[0] not in ("zero", "stages"))
        lines = resumed(args, config, out, (layout, strand),
                        (items["then"], rest), STEPS // 2)
    elif "from" in items:  # the first steps in one process
        lines = resumed(args, config, out, ("111", rule(strand)),
                        (layout, strand), int(items["from"]))
    else:
        lines = metrics(args, config, out, layout, strand, "--set",
                        f"checkpoint.dir={out}/ckpt")
    losses = [line["loss"] for line in lines]
    if len(losses) != STEPS:
        raise Failed(f"{len(losses)} lines of metrics, not {STEPS}")
    further = [line["mtp_loss"] for line in lines if "mtp_loss" in line]
    if len(further) != STEPS * ("mtp_layers=1" in strand):
        raise Failed(f"{len(further)} lines with mtp_loss")
    losses += further
    weights = load_weights(glob.glob(out + "/ckpt/step-*")[0])
    shutil.rmtree(out)
    skipped = [line["grad_norm"] is None for line in lines]
    logits = [line["max_logit"] for line in lines if "max_logit" in line]
    if len(logits) != STEPS * ("optim.qk_clip=" in strand):
        raise Failed(f"{len(logits)} lines with max_logit")
    return losses, weights, lines[-1]["mem_bytes_stages"], skipped, logits


def place(whole, p, data):
    """Put the run of elements `data` of a box into the whole tensor."""
    (rows, cols), (row0, col0) = p["shape"], p["begin"]
    width = p["box"][1]
    at, end = p["run"][0], p["run"][0] + p["run"][1]
    while at < end:  # one row of the box at a time
        row, col = divmod(at, width)
        n = min(width - col, end - at)
        keep = min(n, cols - col0 - col)
        if row0 + row < rows and keep > 0:
            to = (row0 + row) * cols + col0 + col
            data_at = at - p["run"][0]
            whole[to:to + keep] = data[data_at:data_at + keep]
        at += n


def load_weights(path, prefix=None):
    """{name: values} of the model's tensors in a checkpoint, or of those whose
    names begin with the prefix, which is removed."""
    weights = {}
    for shard in glob.glob(path + "/*.safetensors"):
        with open(shard, "rb") as f:
            size = struct.unpack("<Q", f.read(8))[0]
            head, body = json.loads(f.read(size)), f.read()
        for name, p in json.loads(head["__metadata__"]["plait"]).items():
            if not name.startswith(prefix or "") or (not prefix and
                    name.startswith(("optim.", "replica.", "sync."))):
                continue
            begin, end = head[name]["data_offsets"]
            rows, cols = p["shape"]
            key = name[len(prefix or ""):]
            whole = weights.setdefault(key, array("f", [math.nan]) *
                                       (rows * cols))
            place(whole, p, array("f", body[begin:end]))
    return weights


def free_of_signs(args, work, model, strand):
    """What signs.judge() needs of one process with lion: which elements are
    free, and the rates of its steps."""
    out = os.path.join(work, "signs")
    lines = metrics(args, os.path.join(work, model + ".yaml"), work, "111",
                    strand, "--set", f"checkpoint.dir={out}", "--set",
                    "checkpoint.every=1", "--set", "checkpoint.keep=0")
    free = signs.undecided((load_weights(path, "optim.m.") for path in
                            sorted(glob.glob(out + "/step-*"))), BETAS)
    shutil.rmtree(out)
    return free, [line["lr"] for line in lines]


def loss_deviation(got, want):
    worst = 0.0
    for a, b in zip(got, want):
        if a is None or not math.isfinite(a):
            return math.inf
        worst = max(worst, abs(a - b) / abs(b))
    return worst


def weight_deviation(got, want):
    """The worst tensor's |a - b| / |b|, in the 2-norm."""
    if got.keys() != want.keys():
        raise Failed("other tensors: "
                     f"{sorted(got.keys() ^ want.keys())}")
    worst = 0.0
    for name, b in want.items():
        # A key's bias adds the same to all scores of a query, which softmax
        # cancels: its gradient is 0 but for rounding errors, of which Adam
        # makes steps of size lr.
        if name.endswith("attention.k.bias"):
            continue
        a = got[name]
        if len(a) != len(b):
            raise Failed(f"{name}: {len(a)} elements, not {len(b)}")
        diff = math.fsum((x - y) ** 2 for x, y in zip(a, b))
        norm = math.fsum(y * y for y in b)
        if not math.isfinite(diff) or (norm == 0 and diff > 0):
            return math.inf
        if norm > 0:
            worst = max(worst, math.sqrt(diff / norm))
    return worst


def share_apart(got, want):
    """The share of weights that differ at all."""
    apart = sum(a != b for name, w in want.items()
                for a, b in zip(got[name], w))
    return apart / sum(map(len, want.values()))


def share_flipped(got, want):
    """The smallest share of weights to leave out so that the others of each
    tensor are within WEIGHT_RTOL."""
    out = 0
    for name, b in want.items():
        if name.endswith("attention.k.bias"):
            continue
        room = WEIGHT_RTOL ** 2 * math.fsum(y * y for y in b)
        for d in sorted((x - y) ** 2 for x, y in zip(got[name], b)):
            room -= d
            out += room < 0
    return out / sum(map(len, want.values()))


def is_narrow(strand):
    strand = strand.replace("moments=bf16", "")
    return any(narrow in strand for narrow in ("bf16", "fp16", "fp8"))


def queries(weights):
    return {name: w for name, w in weights.items()
            if name.endswith("attention.q.weight")}


def rule(strand):
    """The part of a strand that changes the result: precision, optimizer,
    data."""
    return " ".join(item for item in strand.split()
                    if item.startswith(("optim.", "lr.", "data.", "model.")) or
                    item.split("=")[0] in ("precision", "loss_scale"))


class Matrix:
    """Runs all cases and their references, and counts the results."""

    def __init__(self, args, work):
        self.args, self.work = args, work
        self.one = {}  # (model, rule): what train() returns
        self.free = {}  # (model, rule): what free_of_signs() returns
        self.choices = {}  # (model, rule): what own_choices() returns
        self.worst = {}
        self.count = self.failed = 0
        write_tokens(os.path.join(work, "tokens.bin"))
        write_prompts(os.path.join(work, "prompts.bin"))
        for model in matrix.MODELS:
            write_config(os.path.join(work, model + ".yaml"), model,
                         os.path.join(work, "tokens.bin"))

    def reference(self, model, strand):
        key = model, rule(strand)
        if key not in self.one:
            self.one[key] = train(self.args, self.work, model, "111", key[1])
            losses = self.one[key][0]
            print(f"# {model} {key[1]}: one process, loss {losses[0]:.6f} to "
                  f"{losses[-1]:.6f}, {sum(self.one[key][3])} steps skipped")
        return self.one[key]

    def check_heard(self, model, strand):
        """Raise Failed unless each of these keys matters in one process."""
        items = rule(strand).split()
        with_all = queries(self.reference(model, strand)[1])
        for item in items:
            if item.split("=")[0] not in HEARD:
                continue
            rest = " ".join(i for i in items if i != item)
            d = weight_deviation(queries(self.reference(model, rest)[1]),
                                 with_all)
            print(f"# without {item}: queries {d:.1e}")
            if d <= 2 * QUERY_RTOL:
                raise Failed(f"{item} changes the queries by {d:.1e} only")

    def compare_heard(self, name, model, strand, got):
        """Whether keys that change queries did so in this layout; got: what
        train() returns."""
        if not any(key + "=" in strand for key in HEARD):
            return True, ""
        self.check_heard(model, strand)
        want = self.reference(model, strand)
        narrow = is_narrow(strand)
        dq = weight_deviation(queries(got[1]), queries(want[1]))
        dm = loss_deviation(got[4], want[4])
        where = " in 16 bits" if narrow else ""
        self.note("queries" + where, dq, name)
        if want[4]:
            self.note("largest logit" + where, dm, name)
        return (dq <= (QUERY_RTOL if narrow else WEIGHT_RTOL) and
                dm <= (HALF_RTOL if narrow else WEIGHT_RTOL),
                f", queries {dq:.1e}" +
                (f", largest logit {dm:.1e}" if want[4] else ""))

    def note(self, what, deviation, name):
        self.worst[what] = max(self.worst.get(what, (0.0, "")),
                               (deviation, name))

    def compare(self, name, model, layout, strand):
        """Return whether the case passed, and its deviations in a few
        words."""
        got = train(self.args, self.work, model, layout, strand)
        heard, more = self.compare_heard(name, model, strand, got)
        good, text = self.compare_run(name, model, layout, strand, got)
        return good and heard, text + more

    def compare_run(self, name, model, layout, strand, got):
        losses, weights, held, skipped, _ = got
        last = dict(i.split("=") for i in strand.split()).get("then", layout)
        dm = 0 if last != layout else memory_deviation(
            self.args, self.work, model, layout, strand, held)
        self.note("memory", dm, name)
        want = self.reference(model, "" if layout == "111" else strand)
        dl = loss_deviation(losses, want[0])
        if layout != "111" and skipped != want[3] or \
                ("loss_scale=" in strand and sum(skipped) in (0, STEPS)):
            raise Failed(f"skipped steps {skipped}, one process: {want[3]}")
        if is_narrow(strand):
            # other rounding errors let the weights drift
            self.note("loss in 16 bits or 8", dl, name)
            if "masters=bf16" in strand:
                return self.compare_bare(name, dl, weights, want[1], dm)
            return (dl <= HALF_RTOL and dm <= MEMORY_RTOL,
                    f"loss {dl:.1e}, memory {dm:.1%}")
        dw = weight_deviation(weights, want[1])
        if "adamw8bit" in strand:
            self.note("loss with states of 8 bits", dl, name)
            return (dl <= CODES_RTOL[0] and dw <= CODES_RTOL[1] and
                    dm <= MEMORY_RTOL,
                    f"loss {dl:.1e}, weights {dw:.1e}, memory {dm:.1%}")
        if "optim.name=lion" in strand:
            return self.compare_signs(name, model, strand, dl, weights,
                                      want[1], dm)
        if "optim.moments=bf16" in strand:
            flipped = share_flipped(weights, want[1])
            self.note("loss with moments of bf16", dl, name)
            self.note("weights that a rounding moved", flipped, name)
            return (dl <= LOSS_RTOL and flipped <= FLIPPED and
                    dm <= MEMORY_RTOL,
                    f"loss {dl:.1e}, weights {dw:.1e}, without {flipped:.1e} "
                    f"of them {WEIGHT_RTOL:.0e}, memory {dm:.1%}")
        soap = "optim.name=soap" in strand and "from=" not in strand
        self.note("loss with soap's choices" if soap else "loss", dl, name)
        self.note("weights with soap's choices" if soap else "weights", dw,
                  name)
        most = self.own_choices(model, strand) if soap else \
            (LOSS_RTOL, WEIGHT_RTOL)
        return (dl <= most[0] and dw <= most[1] and dm <= MEMORY_RTOL,
                f"loss {dl:.1e}, weights {dw:.1e}, memory {dm:.1%}")

    def own_choices(self, model, strand):
        """The bounds of loss and weights for a model with soap."""
        key = model, rule(strand)
        if key not in self.choices:
            want = self.reference(*key)
            loss = weights = 0.0
            for micro in SOAP_MICRO:
                got = train(self.args, self.work, model, "111",
                            f"{key[1]} micro_batch={micro}")
                loss = max(loss, loss_deviation(got[0], want[0]))
                weights = max(weights, weight_deviation(got[1], want[1]))
            print(f"# {model} {key[1]}: one process with other micro-batches, "
                  f"loss {loss:.1e}, weights {weights:.1e}")
            self.choices[key] = (max(LOSS_RTOL, SOAP_TIMES * loss),
                                 max(WEIGHT_RTOL, SOAP_TIMES * weights))
        return self.choices[key]

    def compare_bare(self, name, dl, got, want, dm):
        apart = share_apart(got, want)
        self.note("share of weights apart without masters", apart, name)
        return (dl <= HALF_RTOL and apart <= BARE_APART and dm <= MEMORY_RTOL,
                f"loss {dl:.1e}, {apart:.2f} of the weights apart, memory "
                f"{dm:.1%}")

    def compare_signs(self, name, model, strand, dl, got, want, dm):
        key = model, rule(strand)
        if key not in self.free:
            self.free[key] = free_of_signs(self.args, self.work, *key)
        self.note("loss", dl, name)
        decided, reach, moved = signs.judge(got, want, *self.free[key])
        dw = weight_deviation(decided, want)
        self.note("weights", dw, name)
        self.note("weights that a sign of 0 left free", moved, name)
        return (dl <= LOSS_RTOL and dw <= WEIGHT_RTOL and reach <= 1 and
                moved <= signs.FREE and dm <= MEMORY_RTOL,
                f"loss {dl:.1e}, weights {dw:.1e}, {moved:.1e} of them by "
                f"sign of 0, memory {dm:.1%}")

    def run(self, model, layout, strand):
        axes = ",".join(matrix.AXES[:len(layout)])
        name = f"{model} {axes}={','.join(layout)} {strand}".rstrip()
        self.count += 1
        try:
            good, text = self.compare(name, model, layout, strand)
        except (Failed, subprocess.TimeoutExpired) as e:
            good, text = False, "\n# " + str(e).replace("\n", "\n# ")
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.count} - {name}: {text}",
              flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--train", required=True, help="the plait-train program")
    p.add_argument("--quick", action="store_true")
    p.add_argument("--only", default="", help="cases with this text in them")
    p.add_argument("--launcher", choices=["mpirun", "srun", "run"], default="mpirun")
    p.add_argument("--nodes", type=int, default=4, help="of the cluster")
    p.add_argument("--device", default="cpu")
    p.add_argument("--timeout", type=int, default=240)
    args = p.parse_args()
    args.train = os.path.abspath(args.train)
    todo = [c for c in (matrix.QUICK if args.quick else matrix.cases())
            if args.only in " ".join(c)]
    work = tempfile.mkdtemp(prefix="plait-parity-", dir=os.environ.get(
        "PLAIT_PARITY_DIR"))
    os.chdir(work)  # strands name files in this folder
    start = time.monotonic()
    print(f"1..{len(todo)}")
    try:
        m = Matrix(args, work)
        for c in todo:
            m.run(*c)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"# {len(todo)} layouts under {args.launcher} in "
          f"{time.monotonic() - start:.0f} s, {m.failed} failed; worst "
          "deviation:")
    for what, (deviation, name) in sorted(m.worst.items()):
        print(f"#   {what} {deviation:.2e} ({name})")
    return 1 if m.failed else 0


if __name__ == "__main__":
    sys.exit(main())
