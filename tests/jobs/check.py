# SPDX-License-Identifier: Apache-2.0
"""Runs a job and says what is wrong with it."""
import copy
import math
import os
import re
import shutil

import compare
import faults
import run as runs
from draw import apart, batches, fits, get, world

REFUSED = re.compile(r"\b(model|data|parallel|train|optim|lr|batch|sync|"
                     r"checkpoint|log)\.[a-z_]+|\b(tp|cp|ep|dp|pp) \d")
PROBES, MORE = 2, 8
# Rates that differ by less than what rounding makes of an update: where a slope
# jumps, few micro-batches and instructions may all miss it (seed 20828).
RATES = (1e-5, -1e-5, 2e-5, -2e-5)


class Report:
    """failed: (run, kind, text) of what is wrong; refused: runs that
    plait-train refused; worst: deviations over their bounds' probes."""

    def __init__(self):
        self.failed, self.refused, self.runs = [], [], 0
        self.diverged, self.worst = False, {}
        self.hits = self.ended = 0  # faults that happened; and ended the run
        self.said = []  # how many lines were said then
        self.again = 0  # runs that were made again, as mpirun crashed

    def fail(self, i, kind, text):
        self.failed.append((i, kind, text))


def other_micro(job):
    """Micro-batches of the reference that compute the same."""
    first = job["runs"][0]
    if "fixed" in job or job["config"].get("model.norm") in ("batch", "sync"):
        return [first["set"]["train.micro_batch"]]
    ghost = job["config"].get("model.ghost_batch", 1)
    learners = get(job, first, "sync.learners", 1)
    return [m for m in (2, 4, 3, 6, 1, 8, 12) if m % ghost == 0 and
            all(b % (m * learners) == 0 for b in batches(job))]


def probes(job, tools):
    """The reference again, with what rounds otherwise."""
    first, micros = job["runs"][0], other_micro(job)
    for n in range(PROBES + MORE - len(RATES)):
        probe = copy.deepcopy(first)
        probe["set"]["train.micro_batch"] = micros[n // 2 % len(micros)]
        probe["isa"] = tools["isa"][n % len(tools["isa"])]
        yield probe
    for more in RATES:
        probe = copy.deepcopy(first)
        probe["set"]["optim.lr"] = \
            float(job["config"]["optim.lr"]) * (1 + more)
        yield probe


def sent_probes(job):
    """The reference whose ranks send bf16: what that rounds, no micro-batch
    shows."""
    for dp in (4, 2, 8):
        probe = copy.deepcopy(job["runs"][0])
        probe["set"].update({"parallel.dp": dp, "parallel.grad_reduce": "bf16"})
        probe["launcher"] = "run"
        if not apart(job) and fits(job, probe):
            yield probe


def is_narrow(job):
    return job["config"].get("train.precision", "fp32") != "fp32"


def in_fp32(job):
    """The job that neither computes nor sends anything narrower."""
    wide = copy.deepcopy(job)
    for run in wide["runs"]:
        run["set"].pop("parallel.grad_reduce", None)
    wide["config"]["train.precision"] = "fp32"
    wide["config"].pop("optim.masters", None)
    wide["config"].pop("train.loss_scale", None)
    return wide


def is_refused(result):
    said = result.said()
    return result.status == 1 and not result.lines and len(said) == 1 and \
        bool(REFUSED.search(said[0]))


def has_diverged(result):
    return bool(result.status) and "not finite" in result.text


def tail(result):
    return "\n".join([f"status {result.status} {result.note}"] +
                     result.text.splitlines()[-8:])


class Check:
    def __init__(self, tools, job, data, folder):
        self.tools, self.data, self.folder = tools, data, folder
        self.job, self.drawn = copy.deepcopy(job), job
        self.wide = None  # the whole job in fp32
        self.report, self.kept = Report(), {}
        self.probed, self.more = [], probes(job, tools)
        self.probed_sent, self.more_sent = [], sent_probes(job)
        os.makedirs(folder)
        runs.write_yaml(folder + "/c.yaml", job["config"], data)

    def start(self, i):
        self.report.runs += 1
        result = runs.start(self.tools, self.job, i, self.folder)
        self.report.again += result.again
        own = self.job["runs"][i]
        at = own["from"][0] if own["from"] and own["from"][1] == "auto" else i
        if result.status == 0 and not result.note:
            self.kept[i] = compare.Kept(result, f"{self.folder}/run{at}",
                                        self.job["config"])
        return result

    def probe(self, run, probed):
        i = len(self.job["runs"])
        self.job["runs"].append(run)
        result = self.start(i)
        if i in self.kept:
            probed.append(compare.deviations(self.kept[i], self.kept[0])[0])
        else:
            self.report.fail(i, "exit", tail(result))

    def first_weights(self):
        """What train.init names: the end of the reference with other weights
        at its beginning."""
        i, run = len(self.job["runs"]), copy.deepcopy(self.job["runs"][0])
        run["set"].update({"train.init": "new", "train.seed": 7})
        self.job["runs"].append(run)
        result = self.start(i)
        self.job["runs"].pop()
        if result.status == 0:
            os.rename(f"{self.folder}/run{i}/ck", self.folder + "/first")
        return result

    def reference(self):
        result = self.first_weights() \
            if "train.init" in self.job["config"] else None
        if result is None or result.status == 0:
            result = self.start(0)
        if 0 in self.kept:
            return True
        if is_refused(result):
            self.report.refused += result.said()
        elif has_diverged(result):
            self.report.diverged = True
        else:
            self.report.fail(0, "hang" if result.status is None else "exit",
                             tail(result))
        return False

    def sent(self, i):
        """Whether run i or one that it goes on from sends bf16."""
        run = self.job["runs"][i]
        return run["set"].get("parallel.grad_reduce") == "bf16" or \
            run["from"] is not None and self.sent(run["from"][0])

    def numbers(self, i, worst, wrong):
        sent = self.sent(i)
        floors = compare.floor(self.job["config"], sent)
        bad = compare.judge(worst, self.probed, floors)
        while bad and len(self.probed) < PROBES + MORE:
            self.probe(next(self.more), self.probed)
            bad = compare.judge(worst, self.probed, floors)
        for run in self.more_sent if bad and sent else ():
            self.probe(run, self.probed_sent)
        others = self.probed_sent if sent else []
        if compare.judge(worst, self.probed, floors, others) and \
                (sent or is_narrow(self.job)):
            others = others + self.from_fp32()
            floors = compare.floor(self.job["config"], sent, proved=True)
        bad = compare.judge(worst, self.probed, floors, others)
        for kind, value in worst.items():
            self.report.worst[kind] = max(self.report.worst.get(kind, 0),
                                          value)
        if bad or wrong:
            self.report.fail(i, "numbers", "; ".join(wrong[:3] + bad))

    def missing(self, i):
        """Steps that the metrics of run i should have."""
        run, lines = self.job["runs"][i], self.kept[i].lines
        last = self.job["config"]["train.steps"]
        if not lines and run["from"] and run["from"][1] == "auto":
            return []  # the run before had reached the end
        if last not in lines:
            return [f"step {last} has no metrics"]
        first = min(lines)
        if "log.every" not in run["set"] and not run.get("elastic"):
            gone = [s for s in range(first, last) if s not in lines]
            return [f"no metrics of steps {gone}"] if gone else []
        return []

    def one(self, i):
        run = self.job["runs"][i]
        if run["from"]:
            before, step = run["from"]
            if step != "auto" and not os.path.isdir(
                    runs.checkpoint(self.folder, run["from"])):
                return None
        result = self.start(i)
        hurt = run["fault"]
        if result.status is None:
            return self.report.fail(i, "hang", tail(result))
        if result.note:
            return self.report.fail(i, "left", tail(result))
        if is_refused(result) and not result.hit:
            self.report.refused += result.said()
            return None
        if hurt:
            self.report.hits += result.hit
            self.report.ended += bool(result.hit and result.status)
            if result.hit and result.status:
                self.report.said.append(len(result.said()))
            ill = faults.ends_well(run, result,
                                   self.job["config"]["train.steps"])
            if ill:
                return self.report.fail(i, ill[0], ill[1] + "\n" +
                                        tail(result))
        if i in self.kept:
            worst, wrong = compare.deviations(self.kept[i], self.kept[0])
            return self.numbers(i, worst, wrong + self.missing(i))
        if hurt:
            # Its last step may lack the evaluation, in which the fault was.
            end = max(result.lines, default=0)
            lines = {s: v for s, v in result.lines.items()
                     if s < end or "val_loss" in v}
            self.numbers(i, *compare.lines(lines, self.kept[0].lines))
        else:
            self.report.fail(i, "exit", tail(result))
        return None

    def all(self):
        if not self.reference():
            return self.report
        n = len(self.job["runs"])
        for _ in range(PROBES):
            self.probe(next(self.more), self.probed)
        for i in range(1, n):
            self.one(i)
        return self.report

    def from_fp32(self):
        """How far narrow numbers are from fp32, in which the whole job must be
        right."""
        if not self.wide:
            self.wide = Check(self.tools, in_fp32(self.drawn), self.data,
                              self.folder + "/wide")
            report = self.wide.all()
            self.report.runs += report.runs
            self.report.again += report.again
            for i, kind, text in report.failed:
                self.report.fail(i, kind, "in fp32: " + text)
        if 0 not in self.wide.kept:
            return []
        worst, _ = compare.deviations(self.wide.kept[0], self.kept[0])
        return [{k: v for k, v in worst.items() if math.isfinite(v)}]


def check(tools, job, data, folder):
    shutil.rmtree(folder, ignore_errors=True)
    try:
        return Check(tools, job, data, folder).all()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def describe(job):
    c = job["config"]
    words = [c["model.family"], c["optim.name"], c.get("train.precision",
                                                       "fp32"),
             c.get("sync.mode", "each")]
    if "model.experts" in c:
        words.append("experts")
    for run in job["runs"][1:]:
        words.append(f"{run['launcher']}:{world(run)}")
    words += [f"fault '{run['fault']}'" for run in job["runs"] if run["fault"]]
    return " ".join(words)
