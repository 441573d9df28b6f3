# SPDX-License-Identifier: Apache-2.0
"""Commands whose advice is followed: which sentences of messages advise
something, and what a user would then paste. For tests/cli/advice.py."""
import os
import re
import shutil
import subprocess

SLURM = ("srun", "sbatch")
AXES = ("tp", "cp", "ep", "dp", "pp")
MODEL = """model: {family: llama, layers: 8, hidden: 64, heads: 8, kv_heads: 4,
  ffn: 128, vocab: 257, seq_len: 32}
data: {train: tokens}
train: {steps: 1, global_batch: 16, micro_batch: 2, precision: bf16}
"""


class Command:
    """A command line, with the files that it reads."""

    build = None  # the folder of the programs

    def __init__(self, words, files=None):
        self.words = list(words)
        self.files = dict(files or {})

    def copy(self):
        return Command(self.words, self.files)

    def set_key(self, key, value):
        """--set key=value, in place of another."""
        for i, word in enumerate(self.words):
            if word.startswith("--set=" + key + "="):
                self.words[i] = f"--set={key}={value}"
                return
        at = self.words.index("--") if "--" in self.words else len(self.words)
        self.words.insert(at, f"--set={key}={value}")

    def option(self, name, value=None):
        """--name=value, in place of another; None removes it."""
        at = 1
        also = "--set=parallel.%s=" % name
        for i, word in reversed(list(enumerate(self.words))):
            if word.split("=")[0] == "--" + name or word.startswith(also):
                del self.words[i]
                at = i
        if value is not None:
            at = max(at, 2)
            self.words.insert(at, f"--{name}={value}" if value != ""
                              else f"--{name}")

    def replace(self, wrong, right, in_file=False):
        """Within the words, else within the files."""
        whole = r"(?<!\w)%s(?!\w)" % re.escape(wrong)
        words = [re.sub(whole, right, word, count=1) for word in self.words]
        if words != self.words and not in_file:
            self.words = words  # as often as it is there
            return True
        for name, text in self.files.items():
            new = re.sub(r"\b%s\b" % re.escape(wrong), right, text, count=1)
            if new != text:
                self.files[name] = new
                return True
        return False

    def run(self):
        for name, text in self.files.items():
            with open(name, "w", encoding="utf-8") as f:
                f.write(text)
        for made in ("made.yaml", "hf", "other"):
            if os.path.isdir(made):
                shutil.rmtree(made)
            elif os.path.exists(made):
                os.remove(made)
        program = self.words[0]
        if program not in SLURM:
            program = os.path.join(Command.build, program)
        try:
            done = subprocess.run([program] + self.words[1:], timeout=60,
                                  stdin=subprocess.DEVNULL, text=True,
                                  capture_output=True, errors="replace")
        except subprocess.TimeoutExpired:
            return "it takes more than a minute"
        if done.returncode == 0:
            return ""
        lines = [re.sub(r"^(srun|sbatch): error: ", "", line)
                 for line in done.stderr.splitlines()]
        lines = [line for line in lines
                 if re.match(r"plait(-\w+)?: ", line) and
                 not re.match(r"plait: (no --|warning)", line)]
        if done.returncode < 0 or not lines:
            return f"exit {done.returncode}: {done.stderr[:300]!r}"
        return re.sub(r"^plait(-\w+)?: ", "", lines[-1])

    def __str__(self):
        text = " ".join(self.words)
        for name, content in self.files.items():
            text += f"  [{name}: {content!r}]"
        return text


# -- advice, and what it means to follow it -----------------------------------

def sizes(text):
    return dict(re.findall(r"--(tp|cp|ep|dp|pp)=(\d+)", text))


def would_fit(command, message, match):
    """Sizes in place of those that the message has refused."""
    refused = sizes(message[:match.start()])
    for text in filter(None, match.groups()):
        new = command.copy()
        for axis in refused:
            new.option(axis)
        for axis, size in sizes(text).items():
            new.option(axis, size)
        yield new


def batch_fits(command, message, match):
    for value in filter(None, match.groups()[1:]):
        new = command.copy()
        new.set_key(match.group(1), value)
        yield new


def other_word(command, message, match):
    new = command.copy()
    if new.replace(match.group(1), match.group(2),
                   re.match(r"[\w.]+:\d+: ", message)):
        yield new


def other_option(command, message, match):
    new = command.copy()
    if match.group(2).endswith("=VALUE?"):
        wrong = match.group(1)
        for i, word in enumerate(new.words):
            if word.split("=")[0] == wrong:
                value = word.partition("=")[2]
                new.words[i] = "--set=" + match.group(2)[6:-6] + value
    else:
        new.replace(match.group(1), match.group(2).rstrip("?"))
    yield new


def one_of(text):
    """'a, b or c' -> a, b, c; ranges -> their ends."""
    match = re.match(r'(?:"auto" or )?a (?:whole )?number (?:of \w+ )?from '
                     r'(\S+) to ([\d.e+]+)', text)
    if match:
        low, high = match.groups()
        middle = max(float(low), 1) if float(high) >= 1 else float(high)
        return [low, "%.15g" % middle]
    if text.startswith('"auto"'):
        return ["auto"]
    if text.startswith(("a whole number", "a number")):
        return ["1"]
    if text.startswith("a list"):
        return ["[1]"]
    text = re.split(r"; |: |, not |, with | of the | in | where ",
                    re.sub(r"^one of ", "", text))[0]
    return [w for w in re.split(r", | or | and |\s", text)
            if w and not w.isupper() and "FILE" not in w]


def must_be(command, message, match):
    """--option=value or --set key=value: must be ..."""
    for value in one_of(match.group("these")):
        new = command.copy()
        key = match.group("key")
        if "." in key:
            new.set_key(key, value)
        else:
            new.option(key.lstrip("-"), value)
        yield new


def file_must_be(command, message, match):
    """file:line: key must be ..., not 'value'"""
    for value in one_of(match.group(1)):
        new = command.copy()
        if new.replace(match.group(2), value, True):
            yield new


def key_must_be(command, message, match):
    """A key that goes with others: the value it is told to have."""
    key, these = match.group("key"), match.group("these")
    number = re.findall(r"(?:^|[\s(])(\d+(?:\.\d+)?)\b", these)
    values = []
    if re.match(r"(at (most|least)|below|above|from|even|a )", these):
        last = re.match(r"(?:at \w+|below|above) (\d+)", these)
        last = float(last[1] if last else number[-1] if number else 0)
        values = {"at most": [last], "at least": [last], "below": [last - 1],
                  "above": [last + 1], "even": [2], "from": [1]}.get(
                      re.match(r"at \w+|\w+", these).group(), [])
    elif "number" not in these and re.match(r"[\w.]+ \d", these):
        values = [float(number[-1])]
    if values:
        values = ["%.15g" % v for v in values]
    else:
        values = one_of(these)
    for value in values:
        new = command.copy()
        if key in AXES:
            new.option(key, value)
        elif key in ("parallel." + a for a in AXES):
            new.option(key[9:], value)
        else:
            new.set_key(key, value)
        yield new


def needs(command, message, match):
    new = command.copy()
    what = match.group(1)
    if what.startswith("--"):
        value = {"--model": "c.yaml", "--gpus": "8", "--nodes": "n[1-2]",
                 "--over": "gpus=8,16", "--out": "other",
                 "--ntasks-per-node": "2"}.get(what, "")
        new.option(what[2:], value)
        if what == "--model":
            new.files.setdefault(value, MODEL)
    else:
        new.set_key(what, {"checkpoint.dir": "ck"}.get(what, "0.5"))
    yield new


def take_away(command, message, match):
    for name in match.groups():
        new = command.copy()
        new.option(name.lstrip("-"))
        yield new


def give_key(command, message, match):
    new = command.copy()
    new.set_key(match.group(1), match.group(2))
    yield new


def set_axis(command, message, match):
    new = command.copy()
    new.option(match.group(1))
    new.set_key(match.group(3), match.group(2))
    yield new


def leave_out_key(command, message, match):
    new = command.copy()
    new.words = [w for w in new.words
                 if not w.startswith("--set=" + match.group(1) + "=")]
    yield new


def add_option(command, message, match):
    new = command.copy()
    name, _, value = match.group(1).replace("=", " ").partition(" ")
    new.option(name.lstrip("-"), value)
    yield new


def see_help(command, message, match):
    words = (match.group(1) or f"{command.words[0]} --help").split()
    if words[0] == "plait" and len(words) == 2 and len(command.words) > 1 and \
            not match.group(1) and not command.words[1].startswith("-"):
        words = ["plait", command.words[1], "--help"]
    yield Command(words)


def several(command, message, match):
    for axis in AXES[:2] + AXES[3:]:
        if f"--{axis}=auto" in command.words:
            new = command.copy()
            new.option(axis, "1")
            yield new
            return


def model_file(command, message, match):
    new = command.copy()
    new.option("model", "c.yaml")
    new.files["c.yaml"] = MODEL
    yield new


def anew(command, message, match):
    new = command.copy()
    new.set_key("checkpoint.dir", "other")
    new.option("resume", "none")
    if match.groups():
        new.option("resume")
        new.option("init", match.group(1).split()[1])
    yield new


def given(command, message, match):
    new = command.copy()
    new.set_key(match.group(1), 64)
    yield new


def more_gpus(command, message, match):
    new = command.copy()
    new.option("gpus", match.group(1))
    yield new


def name_one(command, message, match):
    for value in one_of(match.group(2)):
        new = command.copy()
        new.option(match.group(1), value)
        yield new


SIZES = r"((?:--(?:tp|cp|ep|dp|pp)=\d+ ?)+?)"
ADVICE = [
    (r"set that back to resume from it, or begin a new run with another "
     r"checkpoint\.dir and --resume none", anew),
    (r"set that back, or begin a new run with its weights by (--init \S+) and "
     r"another checkpoint\.dir", anew),
    (r"(batch\.max) must be given", given),
    (r"needs at least --gpus=(\d+)", more_gpus),
    (r"; " + SIZES + r"(?: or " + SIZES + r")? would fit", would_fit),
    (r"or allow it by (--placement=linear)", add_option),
    (r"--spares goes with (--elastic)", add_option),
    (r"([a-z]+\.\w+) is not a key of", leave_out_key),
    (r"unknown option '--(\w+)=(\d+)'; .* or --set (parallel\.\w+)=N",
     set_axis),
    (r"; (--ntasks-per-node=\d+) would fit", add_option),
    (r"(train\.global_batch|batch\.max) \d+ is not divisible by .*; "
     r"(\d+)(?: or (\d+))? would fit", batch_fits),
    (r"would fit, or (train\.micro_batch) (\d+)", give_key),
    (r"cannot run (\S+): .*; did you mean (.*)\?", other_word),
    (r"unknown key '([^']+)'.*; did you mean '([^']+)'\?", other_word),
    (r"'([^']+)' is not a plait command; did you mean '([^']+)'\?",
     other_word),
    (r'no GPU type "([^"]+)"(?:; did you mean| \(did you mean) ([^\s?),]+)',
     other_word),
    (r"(?:unrecognized|unknown) option '([^'=]+)(?:=[^']*)?'; did you mean "
     r"(--\S+(?: \S+=VALUE)?\?)", other_option),
    (r"^(?:\w+: )?(?:--set )?(?P<key>--[\w-]+|\w+\.\w+)(?:=[^:]*?| '[^']*')?:?"
     r" (?:\w+ )?must be (?P<these>.*)", must_be),
    (r"^[\w.]+:\d+: .* must be (.*), not '([^']*)'", file_must_be),
    (r'unknown (framework) "[^"]*"; must be one of (.*)', name_one),
    (r"(?P<key>(?:model|data|train|parallel|optim|lr|batch|sync|checkpoint|log)"
     r"\.\w+)(?: [\w.+-]+)? must (?:not )?be (?P<these>.*)", key_must_be),
    (r"(--\w[\w-]*|[a-z]+\.\w+) is missing", needs),
    (r"needs (?:an )?(--[a-z][\w-]*|[a-z]+\.\w+)", needs),
    (r"give one of (--[\w-]+) and (--[\w-]+)", take_away),
    (r"(--[\w-]+) (?:\S+ )?and (--[\w-]+) (?:\S+ )?exclude each other",
     take_away),
    (r"see '(plait [^']*)'", see_help),
    (r"see (?:plait-\w+ )?--help()", see_help),
    (r"only one of --tp, --cp, --dp and --pp can be left to be inferred",
     several),
    (r"unless --model=FILE says", model_file),
    (r"add (--resume-anyway [\w.,]+)", add_option),
    (r"use (--resume none|--init \S+|--resume-anyway [\w.]+)", add_option),
    (r"or (--resume none)", add_option),
]
# Promises: each of their alternatives holds. Of the others, such as a range,
# one does.
PROMISES = (would_fit, batch_fits, give_key, other_word, other_option,
            add_option, anew, more_gpus, see_help)
# Words of advice: a message that has one must match a line of the table.
HINT = re.compile(r"would fit|did you mean|nearest|goes on|\bneeds\b|must be|"
                  r"(?:[;:,]|\bor|\band) (use|add|give|set|leave|try|see|take|"
                  r"name|ask for|start|run) ")


def advice_of(message):
    return [(match, follow) for pattern, follow in ADVICE
            for match in [re.search(pattern, message)] if match]
