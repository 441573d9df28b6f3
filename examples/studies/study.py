# SPDX-License-Identifier: Apache-2.0
"""What the studies share: trainings, their metrics, data, tables. README.md
beside this file says how a study is written."""
import concurrent.futures
import itertools
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
DIGITS = os.path.join(HERE, "..", "lessons", "digits.py")


class Failure(Exception):
    """One line: what is missing or went wrong."""


def last(metrics, name):
    """The newest value of a metric; NaN if there is none, or the training
    has diverged."""
    values = [line[name] for line in metrics if name in line]
    ok = values and values[-1] is not None and not diverged(metrics)
    return values[-1] if ok else math.nan


def diverged(metrics):
    """Whether the training was stopped because its loss was no number."""
    return any(line.get("diverged") for line in metrics)


def steps_to(metrics, name, target, at_least=False):
    """The first step whose metric is at most (or at least) the target; None
    if no step's is."""
    for line in metrics:
        value = line.get(name)
        if value is not None and \
                (value >= target if at_least else value <= target):
            return line["step"]
    return None


def bytes_sent(metrics):
    """By rank 0, over all groups, by the textbook count."""
    return sum(n for line in metrics
               for n in line.get("comm_bytes", {}).values())


def mean(values):
    return sum(values) / len(values)


def median(values):
    values = sorted(values)
    half = len(values) // 2
    return values[half] if len(values) % 2 else \
        (values[half - 1] + values[half]) / 2


def table(head, rows):
    """A table as markdown. Numbers are formatted by the caller."""
    lines = [head, ["---"] * len(head)] + [list(row) for row in rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |"
                     for line in lines)


def nested(config):
    """{"optim.lr": 1} as {"optim": {"lr": 1}}"""
    out = {}
    for key, value in config.items():
        section, name = key.split(".")
        out.setdefault(section, {})[name] = value
    return out


def write_idx(path, dims, data):
    with open(path, "wb") as f:
        f.write(struct.pack(f">HBB{len(dims)}I", 0, 8, len(dims), *dims))
        f.write(bytes(data))


def keep_first(path, count):
    """Shortens an IDX file."""
    with open(path, "rb") as f:
        head = bytearray(f.read(4))
        dims = list(struct.unpack(f">{head[3]}I", f.read(4 * head[3])))
        data = f.read()
    each = len(data) // dims[0]
    dims[0] = min(count, dims[0])
    write_idx(path, dims, data[:dims[0] * each])


def make_up_digits(directory):
    """Images of 10 noisy patterns, for a quick study without scikit-learn."""
    rng = random.Random(1)
    patterns = [[rng.randrange(200) for _ in range(64)] for _ in range(10)]
    for stem, count in (("train", 1437), ("val", 360)):
        labels = [rng.randrange(10) for _ in range(count)]
        pixels = [p + rng.randrange(56) for label in labels
                  for p in patterns[label]]
        stem = os.path.join(directory, stem)
        write_idx(f"{stem}-images-idx3-ubyte", (count, 8, 8), pixels)
        write_idx(f"{stem}-labels-idx1-ubyte", (count,), labels)


class Study:
    """A run of one study: its programs, its folders, its trainings."""

    def __init__(self, name, args, work):
        self.name = name
        self.quick = args.quick
        self.seeds = (1,) if args.quick else (1, 2, 3)
        self.program = find(args.train, "--train")
        self.prep = args.prep
        self.jobs = args.jobs
        self.out = args.out
        self.work = work
        self.runs = itertools.count()

    def say(self, text):
        """A line of progress."""
        print(f"# {text}", flush=True)

    def path(self, name):
        """Where a result goes: PNG, SVG, ..."""
        os.makedirs(self.out, exist_ok=True)
        return os.path.join(self.out, name)

    def need_mpirun(self):
        find("mpirun", "PATH")

    # data: each returns the keys of the section data
    def digits(self, validate=360):
        """scikit-learn's digits: 1,437 images of 8 x 8 to train on, and up
        to 360 to validate with."""
        made = os.path.join(self.work, "digits")
        if not os.path.isdir(made):
            os.mkdir(made)
            run = subprocess.run([sys.executable, "-B", DIGITS, made],
                                 stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
            if run.returncode and not self.quick:
                raise Failure("no scikit-learn: install python3-sklearn "
                              "(Debian) or scikit-learn (PyPI)")
            if run.returncode:
                make_up_digits(made)
            keep_first(os.path.join(made, "val-images-idx3-ubyte"), validate)
            keep_first(os.path.join(made, "val-labels-idx1-ubyte"), validate)
        return {"data.train": os.path.join(made, "train-images-idx3-ubyte"),
                "data.val": os.path.join(made, "val-images-idx3-ubyte")}

    def bible(self):
        """The King James Bible as bytes (model.vocab 257): nine tenths to
        train on, one tenth to validate with."""
        made = os.path.join(self.work, "bible")
        if not os.path.isdir(made):
            os.mkdir(made)
            prep = find(self.prep, "--prep")
            text = self.read_bible()
            cut = len(text) * 9 // 10
            for stem, part in (("train", text[:cut]), ("val", text[cut:])):
                plain = os.path.join(made, stem + ".txt")
                with open(plain, "wb") as f:
                    f.write(part)
                subprocess.run(
                    [prep, plain, "--out", os.path.join(made, stem)],
                    check=True, stdout=subprocess.DEVNULL)
        return {"data.train": os.path.join(made, "train", "train.bin"),
                "data.val": os.path.join(made, "val", "train.bin")}

    def read_bible(self):
        if shutil.which("bible"):
            return subprocess.run(["bible", "-f", "Gen1:1-Rev22:21"],
                                  check=True, stdout=subprocess.PIPE).stdout
        if not self.quick:
            raise Failure("no program bible: install bible-kjv (Debian)")
        return b"In the beginning was no book, but a sentence. " * 20000

    # trainings
    def train(self, config, ranks=1):
        """The metrics of one training, a dict for each step. config:
        {"section.key": value}. A loss that is no number ends it; its last
        dict then has "diverged"."""
        stem = os.path.join(self.work, f"run{next(self.runs)}")
        if ranks > 1 and "parallel.dp" not in config:
            config = dict(config, **{"parallel.dp": ranks})
        with open(stem + ".yaml", "w") as f:
            json.dump(nested(config), f)
        command = [self.program, stem + ".yaml", "--device", "cpu",
                   "--metrics", stem + ".jsonl"]
        if ranks > 1:
            command = [find("mpirun", "PATH"), "-n", str(ranks)] + command
        # More processes than there may be cores.
        env = dict(os.environ, OMP_NUM_THREADS="1",
                   OMPI_MCA_rmaps_base_oversubscribe="1",
                   OMPI_MCA_hwloc_base_binding_policy="none")
        run = subprocess.run(command, env=env, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             universal_newlines=True, timeout=600)
        stopped = run.returncode and ": stopped; try " in run.stdout
        if run.returncode and not stopped:
            raise Failure(f"plait-train failed: {reason(run.stdout)}")
        with open(stem + ".jsonl") as f:
            metrics = [json.loads(line) for line in f]
        if stopped:
            metrics[-1:] = [dict(*metrics[-1:], diverged=True)]
        for end in (".yaml", ".jsonl"):
            os.remove(stem + end)
        return metrics

    def train_all(self, configs, ranks=1):
        """The metrics of several trainings, as many at a time as --jobs."""
        jobs = max(1, self.jobs // ranks)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(lambda c: self.train(c, ranks), configs))


def reason(output):
    """The line of a failed run that says why: plait-train's own, or else the
    first one of words, since mpirun frames its own in dashes."""
    lines = [line.strip() for line in output.splitlines()
             if any(c.isalnum() for c in line)]
    own = [line for line in lines if line.startswith("plait-train: ")]
    return (own or lines or ["no message"])[0]


def find(program, option):
    path = shutil.which(program)
    if not path:
        hint = "not in PATH" if option == "PATH" else \
            f"not found: give its path with {option}"
        raise Failure(f"{program} is {hint}")
    return os.path.abspath(path)


def seconds_since(begin):
    return f"{time.monotonic() - begin:.0f} s"
