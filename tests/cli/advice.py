# SPDX-License-Identifier: Apache-2.0
"""Random wrong commands, whose advice is pasted back.

advice.py BUILD SEED COUNT [slurm]: COUNT wrong commands, or as many of srun and
sbatch, in the shell of a cluster. Every sentence of advice that
one is answered with is followed, until the command is accepted or is refused
for what its user did wrong besides, as without the first mistake. An answer
that came before, a refusal that only the advice has caused, or words of advice
that this program does not know are failures. In TAP."""
import json
import os
import random
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from pasted import ADVICE, AXES, HINT, MODEL, PROMISES, Command, advice_of

# As many mistakes in a row, and commands in all, as one wrong command may need.
ROUNDS = 6
COMMANDS = 40
SMALL = """model: {family: gpt2, layers: 1, hidden: 16, heads: 4, kv_heads: 4,
  vocab: 257, seq_len: 16}
data: {train: tokens}
train: {steps: 1, global_batch: 8, micro_batch: 2, precision: fp32}
"""


# -- wrong commands -----------------------------------------------------------

def divisors(n):
    return [i for i in range(1, n + 1) if n % i == 0]


def layout(rng, world, node=0):
    """Sizes that make `world`, with tp within a node."""
    tp = rng.choice([d for d in divisors(world) if not node or node % d == 0])
    pp = rng.choice(divisors(world // tp))
    cp = rng.choice(divisors(world // tp // pp))
    chosen = {"tp": tp, "pp": pp, "cp": cp, "dp": world // tp // pp // cp}
    return {k: v for k, v in chosen.items()
            if rng.random() < 0.6 or k != "dp" and v > 1}


def misspell(rng, word):
    at = rng.randrange(len(word))
    kind = rng.randrange(3)
    if kind == 0 and len(word) > 3:
        return word[:at] + word[at + 1:]
    if kind == 1:
        return word[:at] + rng.choice("abcdexz") + word[at + 1:]
    return word[:at] + rng.choice("aeiou") + word[at:]


def number(rng):
    return rng.choice([0, 1, 2, 3, 5, 6, 7, 9, 10, 12, 15, 24, 33, 100, 1000])


def value_for(rng, key):
    values = key["values"].split("|")
    wild = ["x", "-1", "0", "1.5", "auto", "true", "1e99", "none", "", "7"]
    if len(values) > 1 and rng.random() < 0.6:
        return rng.choice(values)
    if re.match(r"\S+ to \S+", key["values"]) and rng.random() < 0.6:
        return rng.choice([number(rng), key["values"].split()[0],
                           rng.random()])
    return rng.choice(wild)


def wrong_size(rng, c):
    axis = rng.choice(AXES)
    c.option(axis, rng.choice([number(rng), number(rng), "x", "auto"]))


def wrong_option(rng, c):
    """Misspell the name of an option."""
    at = [i for i, w in enumerate(c.words[:c.words.index("--")
                                          if "--" in c.words else None])
          if w.startswith("--") and len(w.split("=")[0]) > 5]
    if at:
        i = rng.choice(at)
        name, equal, value = c.words[i].partition("=")
        if name == "--set":
            section, dot, key = value.partition(".")
            c.words[i] = f"--set={section}.{misspell(rng, key)}"
        else:
            c.words[i] = "--" + misspell(rng, name[2:]) + equal + value


def wrong_word(rng, c):
    """A habit of other programs, or a value that no option has."""
    at = c.words.index("--") if "--" in c.words else len(c.words)
    modelled = ["--over=gpus=8", "--recompute=some", "--schedule=zb",
                "--framework=megatro"] if c.files else []
    c.words.insert(min(at, 2), rng.choice(modelled + [
        "--nproc_per_node=2", "--nnodes=2", "--steps=3", "--lr=0.1",
         "--placement=best", "--pin=all", "--rank-order=tp-xp", "--json",
         "--gpu-type=h1000", "--gpu-type=mi300"]))


def wrong_batch(rng, c):
    c.set_key(rng.choice(["train.global_batch", "train.micro_batch"]),
              number(rng) % 64)


KEYS = []


def wrong_key(rng, c):
    key = rng.choice(KEYS)
    name = key["key"]
    if c.words[0] == "plait-train" and (
            name in ("train.steps", "model.seq_len", "train.global_batch") or
            name.startswith(("model.", "log.", "sync.", "data."))):
        return
    if rng.random() < 0.15 and name.startswith(("model.l", "train.", "lr.")):
        c.set_key(misspell(rng, name), key["default"])
    else:
        c.set_key(name, value_for(rng, key))


def wrong_file(rng, c):
    """Misspell a word of the configuration."""
    for name, text in c.files.items():
        words = re.findall(r"[a-z_]{4,}", text)
        word = rng.choice(words)
        c.files[name] = text.replace(word, misspell(rng, word), 1)


def plan(rng):
    nodes, each = rng.choice([1, 2, 3, 4]), rng.choice([1, 2, 4, 6, 8])
    c = Command(["plait", "plan"])
    for axis, size in layout(rng, nodes * each, each).items():
        c.option(axis, size)
    c.option("nodes", f"n[1-{nodes}]")
    c.option("tasks-per-node", each)
    return c, [wrong_size, wrong_size, wrong_option, wrong_word]


def modelled(rng, name):
    c = Command(["plait", name, "--model=c.yaml"], {"c.yaml": MODEL})
    if name == "plan":
        c.option("nodes", "n1")
        c.option("tasks-per-node", 8)
    else:
        c.option("gpus", 8)
    for axis, size in layout(rng, 8).items():
        if axis in ("dp",) or size <= 4:
            c.option(axis, size)
    return c, [wrong_size, wrong_option, wrong_word, wrong_batch, wrong_key,
               wrong_key, wrong_key, wrong_file]


def run(rng):
    n = rng.choice([1, 2, 3, 4, 6])
    c = Command(["plait", "run", f"--np={n}", "--pin=none"])
    for axis, size in layout(rng, n).items():
        c.option(axis, size)
    c.words += ["--", "true"]
    return c, [wrong_size, wrong_size, wrong_option, wrong_word]


def train(rng):
    c = Command(["plait-train", "c.yaml", "--device=cpu", "--comm=auto"],
                {"c.yaml": SMALL})
    return c, [wrong_option, wrong_word, wrong_batch, wrong_key, wrong_key,
               wrong_file]


def resume(rng):
    """Goes on from the checkpoint of a run with other settings."""
    c = Command(["plait-train", "c.yaml", "--device=cpu"],
                {"c.yaml": SMALL.replace("steps: 1", "steps: 4") +
                 "checkpoint: {dir: kept}\n"})
    c.option("resume", rng.choice(["kept", "kept/latest", "auto", "gone"]))
    return c, [lambda rng, c: c.set_key(*rng.choice([
        ("optim.lr", "0.01"), ("model.layers", 2), ("train.seed", 3),
        ("train.global_batch", 4), ("model.heads", 2), ("lr.warmup", 7),
        ("optim.name", "sgd"), ("train.precision", "bf16")]))] * 2


def prep(rng):
    c = Command(["plait-prep", "text", "--out=out", "--tokenizer=byte"])

    def change(rng, c):
        c.option(*rng.choice([
            ("tokenizer", "bytes"), ("format", "llm.c"), ("out", None),
            ("end-token", "x"), ("prompt-field", "x"), ("field", "")]))
    return c, [change, wrong_option, wrong_word]


def convert(rng):
    c = Command(["plait-convert", "--from=kept", "--to=hf", "--dtype=fp32"])

    def change(rng, c):
        c.option(*rng.choice([
            ("dtype", "fp8"), ("format", "hub"), ("tp", "x"), ("tp", 2),
            ("to", None), ("from", "gone")]))
    return c, [change, wrong_option]


def init(rng):
    c = Command(["plait", "init", "--model=tiny", "--gpus=1",
                 "--gpu-type=cpu", "--out=made.yaml"])

    def change(rng, c):
        c.option(*rng.choice([
            ("model", "tny"), ("model", "70b"), ("gpus", "x"),
            ("gpu-type", "h10"), ("model", None)]))
    return c, [change, wrong_option]


def slurm(rng):
    """Where a cluster of four nodes is up."""
    nodes, each = rng.choice([1, 2, 4]), rng.choice([1, 2])
    c = Command(rng.choice([["srun", "-Q", "true"], ["srun", "-Q", "true"],
                            ["sbatch", "-Q", "--wrap=true"]]))
    c.words[2:2] = [f"-N{nodes}", f"--ntasks-per-node={each}"]
    for axis, size in layout(rng, nodes * each, each).items():
        c.option(axis, size)
    return c, [wrong_size, wrong_size, wrong_flag]


def wrong_flag(rng, c):
    c.option(*rng.choice([
        ("placement", "best"), ("pin", "all"), ("rendezvous", "mpi"),
        ("ntasks-per-node", None), ("rank-order", "pp-dp-cp-ep-tp"),
        ("ntasks", 6)]))


def named(rng):
    """A command that is misspelled, or another program's."""
    name = rng.choice(["plan", "estimate", "simulate", "keys", "doctor",
                       "train", "generate", "convert"])
    wrong = rng.choice([misspell(rng, name), "torchrun", "evaluate", "memory"])
    return Command(["plait", name, "--help"]), [
        lambda rng, c: c.words.__setitem__(1, wrong)]


KINDS = [plan, plan, lambda r: modelled(r, "plan"),
         lambda r: modelled(r, "estimate"), lambda r: modelled(r, "estimate"),
         lambda r: modelled(r, "simulate"), run, train, resume, prep, convert,
         init, named]


# -- the test ------------------------------------------------------------------

def kind_of(message):
    """The message without what names this case."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|-?\d[\d.e+-]*|=\S+|--(tp|cp|dp|pp|ep)\b",
                  "#", re.sub(r"; .*would fit", "", message))


class Trial:
    def __init__(self, programs):
        self.programs = programs
        self.failures = []
        self.followed = 0
        self.kinds = set()
        self.seen = {}

    def fail(self, what, steps):
        kind = what, kind_of(steps[0][1]), kind_of(steps[-1][1])
        if kind in self.kinds:
            return
        self.kinds.add(kind)
        self.failures.append(what + "".join(
            f"\n#   $ {c}\n#     {m or 'accepted'}" for c, m in steps))

    def follow(self, command, message, steps, others):
        """What is wrong with the advice, or with that of what comes next, and
        where that led; None where it holds."""
        found = advice_of(message)
        if not found and HINT.search(message):
            return "advice that this test does not know", steps
        for match, follow in found:
            wrong = None
            for new in follow(command, message, match):
                wrong = self.step(new, match, steps, others)
                if (wrong is None) == (follow not in PROMISES):
                    break
            if wrong:
                return wrong
        return None

    def step(self, new, match, steps, others):
        self.followed += 1
        if self.followed > self.limit:
            return "advice without end", steps
        self.seen[match.re.pattern] = self.seen.get(match.re.pattern, 0) + 1
        told = new.run()
        then = steps + [(new, told)]
        if told == "":
            return None
        if told in [m for _, m in steps]:
            return "advice leads back", then
        if len(then) > ROUNDS:
            return "advice without end", then
        if kind_of(told) in others:
            return None
        ranged = match.groupdict().get("these", "")
        if ranged.startswith(("a whole", "a number", "a list", '"auto" or')) \
                and kind_of(told) != kind_of(steps[-1][1]):
            return None # another number of the range would do
        if advice_of(told) or HINT.search(told):
            return self.follow(new, told, then, others)
        if self.is_of_user(told, steps):
            return None
        return "advice is refused", then

    @staticmethod
    def is_of_user(told, steps):
        """Is that about a key or file that the user has named and no message
        was about, or about a model that this test has given, as one was
        needed?"""
        typed = str(steps[0][0])
        before = " ".join(m for _, m in steps)
        keys = re.findall(r"--set=([\w.]+)=", typed) + [
            f for f in re.findall(r"(\S+): No such file", told) if f in typed]
        return any(k in told and k not in before for k in keys) or \
            "needs --model" in before and re.match(r"c\.yaml: |model\.", told)

    def one(self, rng):
        base, wrongs = rng.choice(self.programs)(rng)
        mistakes = [rng.choice(wrongs) for _ in range(rng.choice([1, 1, 2]))]
        seeds = [rng.random() for _ in mistakes]
        command = base.copy()
        others = set()
        for seed, mistake in zip(seeds, mistakes):
            mistake(random.Random(seed), command)
        message = command.run()
        if message == "":
            return False
        if len(mistakes) == 2: # what each of them alone is told
            for seed, mistake in zip(seeds, mistakes):
                alone = base.copy()
                mistake(random.Random(seed), alone)
                others.add(kind_of(alone.run()))
        self.limit = self.followed + COMMANDS
        wrong = self.follow(command, message, [(command, message)], others)
        if wrong:
            self.fail(*wrong)
        return True


def main():
    rng = random.Random(int(sys.argv[2]))
    count = int(sys.argv[3])
    Command.build = os.path.abspath(sys.argv[1])
    KEYS.extend(json.loads(subprocess.check_output(
        [f"{Command.build}/plait", "keys", "--json"])))
    slurms = sys.argv[4:] == ["slurm"]
    trial = Trial([slurm] if slurms else KINDS)
    wrong = sum(trial.one(rng) for _ in range(count))
    print(f"# seed {sys.argv[2]}: {count} commands, {wrong} refused, advice "
          f"followed {trial.followed} times")
    for pattern, _ in [] if slurms else ADVICE:
        if not trial.seen.get(pattern):
            print(f"# never met: {pattern}")
    for failure in trial.failures[:100]:
        print("# " + failure)
    print(f"# {len(trial.failures)} failures")
    print(f"{'not ' if trial.failures else ''}ok 1 - advice can be pasted")
    print(f"{'ok' if wrong > count / 2 else 'not ok'} 2 - most were wrong")
    print("1..2")
    return 1 if trial.failures or wrong <= count / 2 else 0


if __name__ == "__main__":
    sys.exit(main())
