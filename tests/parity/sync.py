#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replicas that train apart (sync.mode): their number is part of the
algorithm, the layout of each is not. Two replicas in any layout give the curve
of two processes; modes that are equal by definition give the same bits; and
the bytes sent are those of the meetings.

    sync.py PLAIT_TRAIN [--all]
"""
import argparse
import glob
import os
import shutil
import sys
import tempfile

import matrix
import parity

MODES = {
    "local": "mode=local steps=3",
    "post-local": "mode=post-local steps=2 from=4",
    "sma": "mode=sma",
    "learners": "mode=sma learners=2 steps=2 alpha=0.2",
    "diloco": "mode=diloco steps=3",
    "fragments": "mode=diloco steps=4 fragments=3",
}
# tp, pp, dp, cp of two replicas
LAYOUTS = ["212", "122", "222", "1122"]
QUICK = {"local": "222", "post-local": "1122", "sma": "122", "learners": "212",
         "diloco": "1122", "fragments": "222"}
RESUMED = {"local": "1122", "post-local": "212", "sma": "112",
           "learners": "122", "diloco": "222", "fragments": "122"}
SAVED = 5  # steps; not at a meeting of local, learners, post-local and diloco, and
           # of two of the three fragments


class Tests:
    def __init__(self, train, work):
        self.work, self.n, self.failed = work, 0, 0
        self.args = argparse.Namespace(launcher="mpirun", device="cpu",
                                       train=train, timeout=240)
        self.one = {}
        self.worst = {}
        parity.write_tokens(os.path.join(work, "tokens.bin"))
        for model in ("gpt2", "llama"):
            parity.write_config(os.path.join(work, model + ".yaml"), model,
                                os.path.join(work, "tokens.bin"))

    def ok(self, good, what):
        self.n += 1
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.n} - {what}", flush=True)

    def run(self, layout, sync, strand="", *more, model="gpt2"):
        """The metrics of a run, line by line."""
        sets = [w for item in sync.split()
                for w in ("--set", "sync." + item)]
        # A resumed run would keep the lines of an earlier one.
        open(self.work + "/metrics", "w").close()
        return parity.metrics(self.args, f"{self.work}/{model}.yaml",
                              self.work, layout, strand, *sets, *more)

    def saved(self, name, step):
        return f"{self.work}/{name}/step-{step:08d}"

    def reference(self, name):
        """The run of two processes, with a checkpoint between two meetings and
        one at the end."""
        if name not in self.one:
            self.one[name] = self.run(
                "112", MODES[name], "", "--set",
                f"checkpoint.dir={self.work}/{name}", "--set",
                f"checkpoint.every={SAVED}", "--set", "checkpoint.keep=0")
        return self.one[name]

    def hold(self, what, name, layout, first, *more):
        """Compare the steps from `first` on, and the final model, with the
        reference."""
        want = losses(self.reference(name))[first:]
        last = f"{self.work}/last"
        try:
            got = losses(self.run(layout, MODES[name], "", "--set",
                                  f"checkpoint.dir={last}", *more))
            d = parity.loss_deviation(got, want)
            dw = parity.weight_deviation(
                parity.load_weights(glob.glob(last + "/step-*")[0]),
                parity.load_weights(self.saved(name, parity.STEPS)))
            good = len(got) == len(want) and d <= parity.LOSS_RTOL and \
                dw <= parity.WEIGHT_RTOL
            self.note(loss=d, weights=dw)
            text = f"loss {d:.1e}, weights {dw:.1e}"
        except parity.Failed as e:
            good, text = False, str(e).replace("\n", "\n# ")
        shutil.rmtree(last, ignore_errors=True)
        self.ok(good, f"{name} {what} {','.join(layout)}: {text}")

    def note(self, **deviations):
        for what, d in deviations.items():
            self.worst[what] = max(self.worst.get(what, 0), d)

    def check_layout(self, name, layout):
        self.hold("in", name, layout, 0)

    def check_resume(self, name, layout):
        self.reference(name)
        self.hold(f"resumed after step {SAVED} in", name, layout, SAVED,
                  "--resume", self.saved(name, SAVED))

    def check_refused(self):
        """A checkpoint of two replicas is refused by four, and by a single
        model."""
        self.reference("local")
        for layout, sync, says in (
                ("114", MODES["local"], "has the state of 2 replicas"),
                ("112", "mode=each", "this run has 1 in sync.mode each"),
                ("112", MODES["diloco"], "in sync.mode diloco")):
            try:
                self.run(layout, sync, "", "--resume",
                         self.saved("local", SAVED))
                good = False
            except parity.Failed as e:
                good = says in str(e)
            self.ok(good, f"refused: {says}")

    def check_definitions(self):
        each = figures(self.run("112", "mode=each"))
        self.ok(figures(self.run("112", "mode=local steps=1")) == each,
                "local SGD with H = 1 is synchronous SGD, bit for bit")
        part = figures(self.run("112", "mode=post-local steps=2 from=6"))
        # The step at which replicas part is the first with separate gradients.
        self.ok(part[:6] == each[:6] and part[6][0] == each[6][0] and
                part[7:] != each[7:],
                "post-local is synchronous until sync.from, and not after it")
        sgd = ["--set", "optim.name=sgd", "--set", "optim.lr=0.05"]
        one = figures(self.run("111", "mode=each", "", *sgd))
        self.ok(figures(self.run("111", "mode=sma alpha=0", "", *sgd)) == one,
                "SMA with one learner and alpha 0 is SGD, bit for bit")
        self.ok(figures(self.run("111", "mode=sma", "", *sgd)) != one,
                "... and with its own alpha it is not")

    def check_fragments(self):
        whole = self.run("112", "mode=diloco steps=4")
        self.ok(figures(self.run("112", "mode=diloco steps=4 fragments=1")) ==
                figures(whole), "one fragment is DiLoCo, bit for bit")
        self.ok(figures(self.reference("fragments"))[:1] ==
                figures(whole)[:1] and
                figures(self.reference("fragments")) != figures(whole),
                "... and three fragments are not")
        # After steps 1, 2 and 4, and so on; all after step 10.
        sent = [line["comm_bytes"].get("dp", 0)
                for line in self.reference("fragments")]
        once = sent[-1]
        self.ok([b > 0 for b in sent] ==
                [s % 4 in (0, 1, 2) or s == 10 for s in range(1, 11)] and
                sum(sent[4:8]) == once and max(sent[:-1]) < once,
                f"fragments meet in turn, a model in four steps: {sent} bytes")

    def check_restart(self):
        """With alpha 0 the average stays the initial model. When the rate
        falls, learners restart from it."""
        more = ["--set", "lr.schedule=step", "--set", "lr.decay_at=[6]"]
        lines = losses(self.run("112", "mode=sma alpha=0", "", *more))
        initial = losses(self.run("112", "mode=each", "", "--set",
                                  "optim.lr=0"))
        self.ok(lines[6] == initial[6] and lines[5] < initial[5] and
                lines[7] < initial[7],
                "SMA starts anew from the average where the rate falls")

    def check_auto(self):
        """A run whose trials chose the number of learners equals a run with
        that number, from the first step on; when resumed it takes the
        checkpoint's number."""
        def ckpt(name):
            return ["--set", f"checkpoint.dir={self.work}/{name}", "--set",
                    f"checkpoint.every={SAVED}", "--set", "checkpoint.keep=0"]
        got = self.run("112", "mode=sma learners=auto")
        n = got[0]["global_batch"] // matrix.GLOBAL_BATCH
        want = self.run("112", f"mode=sma learners={n}", "", "--set",
                        f"train.global_batch={n * matrix.GLOBAL_BATCH}")
        self.ok(n >= 1 and figures(got) == figures(want),
                f"learners auto: {n}, the run is that of {n}")
        self.run("112", "mode=sma learners=3", "", *ckpt("three"), "--set",
                 f"train.global_batch={3 * matrix.GLOBAL_BATCH}")
        rest = self.run("112", "mode=sma learners=auto", "", *ckpt("three"),
                        "--resume", self.saved("three", SAVED))
        self.ok(rest[-1]["global_batch"] == 3 * matrix.GLOBAL_BATCH and
                len(rest) == parity.STEPS - SAVED,
                "... and resumed it has as many as the checkpoint")

    def check_bytes(self):
        """32 steps apart with H = 16 send 2/32 of what 32 synchronous do."""
        more = ["--set", "train.steps=40"]
        lines = self.run("112", "mode=post-local steps=16 from=8", "", *more)
        first = sum_bytes(lines[:8], "dp-cp")
        second = sum_bytes(lines[8:], "dp")
        self.ok(first > 0 and sum_bytes(lines[8:], "dp-cp") == 0 and
                16 * second * 8 == first * 32,
                f"post-local with H = 16 sends 1/16: {first // 8} bytes a "
                f"step, then {second} in 32 steps")
        for name, times in (("local", 4), ("diloco", 4), ("sma", 10),
                            ("learners", 5)):
            got = sum_bytes(self.reference(name), "dp")
            self.ok(got == times * first // 8,
                    f"{name}: {got} bytes in {times} meetings")


def losses(lines):
    return [line["loss"] for line in lines]


def figures(lines):
    return [(line["loss"], line["grad_norm"]) for line in lines]


def sum_bytes(lines, group):
    return sum(line["comm_bytes"].get(group, 0) for line in lines)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("train")
    p.add_argument("--all", action="store_true", help="every mode and layout")
    args = p.parse_args()
    quick = os.environ.get("PLAIT_TEST_TIER") == "quick" # tests/lib/tier.sh
    resumed = ["learners", "diloco"] if quick else MODES
    with tempfile.TemporaryDirectory(prefix="plait-sync-") as work:
        t = Tests(args.train, work)
        for name in MODES:
            for layout in LAYOUTS if args.all else [QUICK[name]]:
                t.check_layout(name, layout)
            for layout in ["112"] + LAYOUTS if args.all else [RESUMED[name]]:
                if name in resumed:
                    t.check_resume(name, layout)
        t.check_definitions()
        t.check_fragments()
        if not quick:
            t.check_restart()
            t.check_auto()
        t.check_bytes()
        t.check_refused()
    print(f"1..{t.n}")
    for what, d in t.worst.items():
        print(f"# worst deviation: {what} {d:.2e}")
    return 1 if t.failed else 0


if __name__ == "__main__":
    sys.exit(main())
