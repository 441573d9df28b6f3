# SPDX-License-Identifier: Apache-2.0
"""Starts the runs of a job, and ends what hangs."""
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
import uuid

from draw import AXES, sizes, world

HERE = os.path.dirname(os.path.abspath(__file__))
LIB = os.path.join(HERE, "..", "lib")
HANGS = 240  # seconds after which a run hangs in any case
# Ranks that nothing watches over wait so long for one that has ended before
# they met (RENDEZVOUS_S of runtime/comm/create.c), and say so.
MEETING = 300
UNMET = re.compile(r"plait-train: world: (rank \d+ at|.*did not connect)")
# Open MPI 4.1's mpirun crashes now and then as it ends.
MPIRUN_CRASH = re.compile(r"Signal: Segmentation fault[\s\S]*"
                          r"\bpmix_server_finalize\b")
LOOK = 30  # after which it is asked whether it goes on
MARK = f"PLAIT_JOBS_RUN={os.getpid()}."  # in the environment of all runs
ALONE = "found no rank of it"  # says plait stuck of a launcher
FAULT = 15  # and so after a fault: by then it has ended, or goes on


class Result:
    """status: of the launcher, None if the run hung; lines: {step: metrics};
    note: what `plait stuck` said, or which processes were left; hit: whether
    the fault has happened; again: this is the second try, as mpirun itself
    crashed at the first."""

    def __init__(self, status, text, lines, note, hit):
        self.status, self.text, self.lines = status, text, lines
        self.note, self.hit, self.again = note, hit, False

    def said(self):
        return [line for line in self.text.splitlines()
                if line.startswith("plait")]


def find_tools(build):
    """The programs of a build folder, and what this machine can run."""
    tools = {"plait": os.path.join(build, "plait"),
             "train": os.path.join(build, "plait-train"),
             "inject": os.path.join(build, "tests/jobs/.libs/inject.so"),
             "isa": ["base"]}
    with open("/proc/cpuinfo") as f:
        flags = f.read().split()
    tools["isa"] += [name for name, flag in
                     [("avx2", "avx2"), ("avx512", "avx512f")]
                     if flag in flags]
    if "neon" in flags or "asimd" in flags:
        tools["isa"] = ["neon"]
    with open(os.path.join(build, "config.h")) as f:
        has = "#define HAVE_MPI 1" in f.read()
    tools["mpi"] = has and subprocess.run(
        ["sh", LIB + "/mpirun.sh", "2", "true"], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL).returncode == 0
    return tools


def write_yaml(path, config, data):
    """@: the data; &: where the weights to begin with are."""
    sections, first = {}, f"{os.path.dirname(path)}/first"
    for key, value in config.items():
        section, name = key.split(".")
        sections.setdefault(section, []).append(f"{name}: {value}")
    with open(path, "w") as f:
        for section, keys in sections.items():
            f.write(f"{section}:\n")
            f.writelines("  " + k.replace("@", data).replace("&", first) +
                         "\n" for k in keys)


def checkpoint(folder, where):
    before, step = where
    base = f"{folder}/run{before}/ck"
    return "auto" if step == "auto" else f"{base}/step-{step:08}"


def started(tools, run, words, planned):
    """The words behind those of the run's launcher."""
    order = [str(n) for n in sizes(run)]
    if run["launcher"] == "mpi":
        if planned:
            words = ["sh", LIB + "/nodes.sh", str(run["nodes"])] + order + \
                words
        return ["sh", LIB + "/mpirun.sh", str(world(run))] + words
    words = words + ["--comm", "socket"]
    if run["launcher"] == "hand":
        return ["python3", HERE + "/hand.py", str(run["nodes"])] + order + \
            words
    return [tools["plait"], "run", "--np", str(world(run)), "--pin=none",
            *(["--elastic"] if run.get("elastic") else []),
            *(f"--{k}={n}" for k, n in zip(AXES, order)), "--"] + words


def command(tools, job, i, folder):
    """The environment and the words that start run i of the job."""
    run, env = job["runs"][i], {"PLAIT_CHECK_COLLECTIVES": "1"}
    own = f"{folder}/run{i}"
    saves = folder + "/run%d/ck" % (
        run["from"][0] if run["from"] and run["from"][1] == "auto" else i)
    layout = {"parallel." + axis: n for axis, n in zip(AXES, sizes(run))}
    planned = run["launcher"] in ("run", "hand") or run["nodes"] > 1
    words = [tools["train"], folder + "/c.yaml", "--device", "cpu",
             "--metrics", own + "/m.jsonl"]
    sets = {k: v for k, v in run["set"].items() if k not in layout}
    if not planned:
        sets.update({k: n for k, n in layout.items() if n > 1})
    sets["checkpoint.dir"] = saves
    for k, v in sets.items():
        words += ["--set", f"{k}={str(v).replace('%', own)}"]
    if run["from"]:
        words += ["--resume", checkpoint(folder, run["from"])]
        if job["config"].get("model.norm") == "sync":
            # dp * micro_batch is the same
            words += ["--resume-anyway", "train.micro_batch"]
    if run["launcher"] != "one":
        words = started(tools, run, words, planned)
    if run["isa"]:
        env["PLAIT_CPU_ISA"] = run["isa"]
    if run["fault"]:
        env["LD_PRELOAD"] = tools["inject"]
        env["INJECT"] = run["fault"]
        env["INJECT_MARK"] = own + "/hit"
    return env, words


def shown(tools, job, i, folder):
    """The same as a line for a shell."""
    env, words = command(tools, job, i, folder)
    sets = [f"{k}={shlex.quote(v)}" for k, v in env.items()]
    return " ".join([f"mkdir -p {folder}/run{i};"] + sets +
                    [shlex.quote(w) for w in words])


def marked(mark):
    """Processes of a run, by what is in their environment: mpirun's ranks are
    in groups of their own."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if mark.encode() in f.read():
                    found.append(int(pid))
        except OSError:
            pass
    return found


def end_all(mark):
    for _ in range(100):
        pids = marked(mark)
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, 9)
            except OSError:
                pass
        time.sleep(0.05)


def stuck(tools, process, sure):
    """What `plait stuck` says of a run that hangs; None: it goes on. Two looks,
    as a machine that is busy with others may not run a rank for seconds. Of
    ranks that keep no record yet it sees stacks alone, which move where MPI
    waits: that counts if we are sure that the run should have ended."""
    said = ""
    for _ in range(2):
        said = subprocess.run([tools["plait"], "stuck", str(process.pid)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=60, universal_newlines=True).stdout
        vague = "by their stacks" in said
        # Ranks that end may take long for it, with MPI on a busy machine.
        ends = " ended" in said and " wait" not in said
        if process.poll() is not None or ends or \
                ("goes on" in said or vague) and not (vague and sure):
            return None
        time.sleep(1)
    return "hangs: " + " ".join(said.split())


def is_unwatched(run):
    """Whether ranks may wait for one that has ended before they met: they keep
    no record yet."""
    return run["launcher"] == "hand" and run["fault"] is not None


def wait(tools, process, hit, unwatched):
    """None once it has ended, or what `plait stuck` says as it hangs."""
    begin, fault, look = time.monotonic(), None, LOOK
    most = HANGS + (MEETING if unwatched else 0)
    while process.poll() is None:
        now = time.monotonic()
        if fault is None and hit and os.path.exists(hit):
            fault, look = now, now - begin + FAULT
        if now - begin > look:
            said = stuck(tools, process,
                         fault is not None and not unwatched)
            if said and ALONE in said:
                # mpirun may hang when a rank dies while it connects
                process.kill()
            elif said or now - begin > most:
                return said or "hangs: it goes on and on"
            look += LOOK
        time.sleep(0.01 if now - begin < 2 else 0.1)
    return None


def left(mark):
    """The processes that a run which has ended left, after a while."""
    end = time.monotonic() + 10
    while True:
        pids = marked(mark)
        if not pids or time.monotonic() > end:
            break
        time.sleep(0.05)
    return f"leaves {len(pids)} processes behind" if pids else ""


def read_metrics(path):
    """The last line of each step: a run that lost a rank makes some again."""
    lines = {}
    try:
        with open(path) as f:
            for text in f:
                if text.endswith("\n"):
                    line = json.loads(text)
                    lines[line["step"]] = line
    except OSError:
        pass
    return lines


def start(tools, job, i, folder):
    result = start_once(tools, job, i, folder)
    if job["runs"][i]["launcher"] == "mpi" and \
            MPIRUN_CRASH.search(result.text):
        shutil.rmtree(f"{folder}/run{i}")
        result = start_once(tools, job, i, folder)
        result.again = True
    return result


def start_once(tools, job, i, folder):
    own = f"{folder}/run{i}"
    os.makedirs(own, exist_ok=True)
    env, words = command(tools, job, i, folder)
    mark = f"{MARK}{uuid.uuid4().hex}"
    env.update([mark.split("=", 1)])
    # One mpirun removes the folder in which another is making its own.
    tmp = tempfile.mkdtemp(prefix="m")
    env = {**{"OMP_NUM_THREADS": "1"}, **os.environ, "TMPDIR": tmp, **env}
    with open(own + "/out", "w+", errors="replace") as out:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.STDOUT, env=env, start_new_session=True)
        try:
            hit = job["runs"][i]["fault"] and own + "/hit"
            begin, run = time.monotonic(), job["runs"][i]
            hangs = wait(tools, process, hit, is_unwatched(run))
            late = time.monotonic() - begin > HANGS
            note = hangs or left(mark)
        finally:
            end_all(mark)
            process.wait()
            shutil.rmtree(tmp, ignore_errors=True)
        out.seek(0)
        text = out.read()
    if late and not hangs and not UNMET.search(text):
        hangs = note = f"hangs: it ends after more than {HANGS} s"
    return Result(None if hangs else process.returncode, text,
                  read_metrics(own + "/m.jsonl"), note,
                  bool(hit) and os.path.exists(hit))
