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
import outer
import parity

MODES = {
    "local": "mode=local steps=3",
    "post-local": "mode=post-local steps=2 from=4",
    "sma": "mode=sma",
    "learners": "mode=sma learners=2 steps=2 alpha=0.2",
    "diloco": "mode=diloco steps=3",
    "fragments": "mode=diloco steps=4 fragments=3",
    "bf16": "mode=diloco steps=3 gradients=bf16",
    "fp8": "mode=diloco steps=4 fragments=3 gradients=fp8",
    "delay": "mode=diloco steps=4 fragments=3 delay=2",
    "codes": "mode=diloco steps=4 delay=3 mixing=0.25 gradients=bf16",
}
# tp, pp, dp, cp of two replicas
LAYOUTS = ["212", "122", "222", "1122"]
QUICK = {"local": "222", "post-local": "1122", "sma": "122", "learners": "212",
         "diloco": "1122", "fragments": "222", "bf16": "122", "fp8": "212",
         "delay": "222", "codes": "1122"}
RESUMED = {"local": "1122", "post-local": "212", "sma": "112",
           "learners": "122", "diloco": "222", "fragments": "122",
           "bf16": "112", "fp8": "1122", "delay": "212",
           "codes": "122"}
CONSTANT = ["--set", "lr.schedule=constant"] # whatever train.steps is
OUTER_RTOL = 1e-5 # of a meeting's change: rounding of the weights
SAVED = 5  # steps; not at a meeting of local, learners, post-local and diloco, and
           # of two of the three fragments; with a delay, two are under way


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
            # Rounding may bring a number across the middle of two codes. Then
            # the other one is sent, in fp8 a quarter away.
            coded = "gradients=" in MODES[name]
            most = parity.CODES_RTOL[1] if coded else parity.WEIGHT_RTOL
            good = len(got) == len(want) and d <= parity.LOSS_RTOL and \
                dw <= most
            self.note(loss=d, **{"weights with codes" if coded else
                                 "weights": dw})
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
                ("112", MODES["diloco"], "in sync.mode diloco"),
                ("114", MODES["delay"], "has the state of 2 replicas"),
                ("112", MODES["delay"] + " mixing=0.1", "sync.mixing")):
            of = "delay" if sync.startswith(MODES["delay"]) else "local"
            self.reference(of)
            try:
                self.run(layout, sync, "", "--resume", self.saved(of, SAVED))
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

    def pieces(self, name, step, *prefixes):
        """The tensors that begin with each prefix, one after the other."""
        path = self.saved(name, step)
        order = sorted(parity.load_weights(path))
        for prefix in prefixes:
            tensors = parity.load_weights(path, prefix)
            yield [x for key in order for x in tensors[key]]

    def every(self, name, layout, sync, *more):
        """A run with a checkpoint after each step."""
        shutil.rmtree(f"{self.work}/{name}", ignore_errors=True)
        return self.run(layout, "mode=diloco " + sync, "", "--set",
                        f"checkpoint.dir={self.work}/{name}", "--set",
                        "checkpoint.every=1", "--set", "checkpoint.keep=0",
                        *CONSTANT, *more)

    def check_outer(self, form, delay, dp):
        """Meetings against the formula. What the replicas bring to the first is
        in the checkpoint of a run that does not meet there; what they bring to
        the last, in that of a run that does not end there."""
        keys = f" delay={delay} mixing=0.25" if delay else ""
        kept, apart = 0.25 if delay else 0, f"apart-{dp}"
        keys = f"steps=4 gradients={form}{keys}"
        self.every("met", f"11{dp}", keys)
        self.every("longer", f"11{dp}", keys, "--set", "train.steps=12")
        if not os.path.exists(f"{self.work}/{apart}"):
            self.every(apart, f"11{dp}", "steps=9")
        all_of = [f"replica.{i}." for i in range(dp)]
        before, *brought = self.pieces(apart, 4, "", *all_of)
        zero = [0] * len(before)
        want = outer.step(before, zero, brought, form, 0.7, 0.9)
        want += [[kept * a + (1 - kept) * b for a, b in zip(w, want[0])]
                 for w in self.pieces(apart, 4 + delay, *all_of)]
        got = list(self.pieces("met", 4 + delay, "", "sync.momentum.", *all_of))
        d = [outer.deviation(a, b, c) for a, b, c in
             zip(got, want, [before, zero] + [before] * dp)]
        before, m = self.pieces("met", parity.STEPS - 1, "", "sync.momentum.")
        brought = list(self.pieces("longer", parity.STEPS, *all_of))
        want = outer.step(before, m, brought, form, 0.7, 0.9)
        last = list(self.pieces("met", parity.STEPS, "", "sync.momentum.",
                                *all_of))
        d += [outer.deviation(a, b, c)
              for a, b, c in zip(last, want, (before, m))]
        self.ok(len(d) == dp + 4 and max(d) <= OUTER_RTOL,
                f"{form}, delay {delay}, {dp} replicas: as the formula, "
                f"{max(d):.1e}")
        self.ok(all(w == last[0] for w in last[2:]) and
                (delay or all(w == got[0] for w in got[2:])),
                "... all replicas have the same bits")

    def check_ended_early(self):
        """Of a run that ends before what is under way arrives: that moves the
        common model, and not the replicas, which then meet."""
        two = ("replica.0.", "replica.1.")
        sync = "steps=4 delay=3"
        self.every("late", "112", sync)
        self.every("early", "112", sync, "--set", "train.steps=6", "--resume",
                   self.saved("late", 5))
        before, *brought = self.pieces("apart-2", 4, "", *two)
        x, m = outer.step(before, [0] * len(before), brought, "fp32", 0.7, 0.9)
        want = outer.step(x, m, list(self.pieces("apart-2", 6, *two)), "fp32",
                          0.7, 0.9)
        d = [outer.deviation(a, b, before)
             for a, b in zip(self.pieces("early", 6, ""), want)]
        self.ok(max(d) <= OUTER_RTOL,
                f"under way at the end: as the formula, {max(d):.1e}")

    def check_rescheduled(self):
        """Resumed with other keys: nothing that was received comes again, and
        what is under way is neither lost nor moved."""
        anyway = ["--resume-anyway", "sync.delay,sync.steps,sync.fragments"]
        for keys, more, says in (
                ("delay=1", anyway, "(sync.delay): sync.delay was 2"),
                ("steps=5", anyway, "(sync.delay): sync.steps was 4"),
                ("fragments=2", anyway, "(sync.delay): sync.fragments was "),
                ("", ["--set", f"train.steps={SAVED}"], "must be above 5")):
            self.reference("delay")
            try:
                self.run("112", f"{MODES['delay']} {keys}", "", "--resume",
                         self.saved("delay", SAVED), *more)
                good, text = False, "not refused"
            except parity.Failed as e:
                good, text = says in str(e), str(e).replace("\n", "\n# ")
            self.ok(good, f"refused: {says}" if good else text)
        longer = ["--set", "train.steps=12"]
        whole = figures(self.every("whole", "112", "steps=4 delay=2", *longer))
        self.every("short", "112", "steps=4 delay=2")
        for step in (5, 6, 9):
            got = self.run("112", "mode=diloco steps=4 delay=2", "", "--resume",
                           self.saved("short", step), *CONSTANT, *longer)
            want = whole[step:] if step < 8 else None
            self.ok(figures(got) == want if want else len(got) == 12 - step,
                    f"resumed after step {step} with more steps")
        want = figures(self.run("112", "mode=diloco steps=4 delay=2", "",
                                "--resume", self.saved("short", 6), *CONSTANT))
        got = self.run("112", "mode=diloco steps=4 delay=3", "", "--resume",
                       self.saved("short", 6), *CONSTANT, *anyway)
        self.ok(figures(got) == want, "what has arrived does not come again")
        self.reference("diloco")
        got = self.run("112", MODES["diloco"] + " delay=1", "", "--resume",
                       self.saved("diloco", SAVED), *anyway)
        self.ok(figures(got)[0] == figures(self.reference("diloco"))[SAVED],
                "a delay from the middle of a run on")

    def state(self, name):
        """All that the last checkpoint has."""
        return [parity.load_weights(self.saved(name, parity.STEPS), prefix)
                for prefix in (None, "optim.", "replica.", "sync.")]

    def check_phases(self, name):
        """Resumed after each step, the run ends with the same bits."""
        every = f"{self.work}/every"
        shutil.rmtree(every, ignore_errors=True)
        keep = ["--set", "checkpoint.every=1", "--set", "checkpoint.keep=0"]
        whole = self.run("112", MODES[name], "", "--set",
                         f"checkpoint.dir={every}", *keep)
        end, wrong = self.state("every"), []
        for step in range(1, parity.STEPS):
            again = f"{self.work}/again"
            lines = self.run("112", MODES[name], "", "--set",
                             f"checkpoint.dir={again}", "--resume",
                             self.saved("every", step))
            if figures(lines) != figures(whole)[step:] or \
                    end != self.state("again"):
                wrong.append(step)
            shutil.rmtree(again)
        self.ok(not wrong, f"{name}: resumed after each step, bit for bit, but "
                f"{wrong or 'none'}")

    def check_memory(self):
        """What two processes hold, as `plait estimate` says: two buffers for
        gradients in bf16 only where replicas sum them."""
        half, runs = "grad_reduce=bf16", [
            (sync, "", self.reference(name)) for name, sync in MODES.items()]
        runs += [(MODES[name], half, self.run("112", MODES[name], half))
                 for name in ("local", "post-local")]
        for sync, strand, lines in runs:
            keys = [f"sync.{item}" for item in sync.split()]
            d = parity.memory_deviation(
                self.args, self.work, "gpt2", "112",
                " ".join(keys + [strand]), lines[-1]["mem_bytes_stages"])
            self.ok(d <= parity.MEMORY_RTOL,
                    f"{sync} {strand}: memory as estimated, to {d:.1%}")

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
                            ("learners", 5), ("bf16", 4 / 2)):
            got = sum_bytes(self.reference(name), "dp")
            self.ok(got == times * first // 8,
                    f"{name}: {got} bytes in {times:g} meetings of fp32")
        whole = sum_bytes(self.reference("fragments"), "dp")
        self.ok(4 * sum_bytes(self.reference("fp8"), "dp") == whole,
                "fp8: a fourth of the bytes of two replicas in fp32")
        # What would be sent after steps 8 and 9 would arrive too late.
        late = sum_bytes(self.reference("fragments")[7:9], "dp")
        self.ok(sum_bytes(self.reference("delay"), "dp") == whole - late > 0,
                f"a delay: {late} bytes less, at the end")


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
        for form, delay, dp in (("fp32", 0, 2), ("bf16", 0, 3), ("fp8", 0, 4),
                                ("fp32", 1, 2), ("fp8", 3, 3)):
            t.check_outer(form, delay, dp)
        t.check_ended_early()
        t.check_rescheduled()
        for name in ["delay"] if quick else ["delay", "codes"]:
            t.check_phases(name)
        if not quick:
            t.check_restart()
            t.check_auto()
        t.check_bytes()
        t.check_memory()
        t.check_refused()
    print(f"1..{t.n}")
    for what, d in t.worst.items():
        print(f"# worst deviation: {what} {d:.2e}")
    return 1 if t.failed else 0


if __name__ == "__main__":
    sys.exit(main())
