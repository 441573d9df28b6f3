#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ./check-gpu does once Plait is built: environment, operations, sanitizer,
trainings against the CPU, speed, several GPUs; then one page of it.

Usage: check_gpu.py SOURCE BUILD OUT MINUTES [--emulated]
Each program's output stays in OUT; the page is OUT/gpu.md and OUT/gpu.json.
Status 1 where something failed. Figures below their target fail nothing.
"""
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gpu_page  # noqa: E402

CONFIG = """model: {family: %s, layers: %d, hidden: %d, heads: %d, vocab: 257, seq_len: %d}
data: {train: "%s"}
train: {steps: %d, global_batch: 8, micro_batch: 2, seed: 7}
optim: {lr: 1.0e-3}
lr: {warmup: 1}
"""


class Check:
    """One run of everything; what it finds is in `page`."""

    def __init__(self, source, build, out, minutes, emulated):
        self.source, self.build, self.out = source, build, out
        self.emulated = emulated
        self.minutes = minutes
        self.deadline = time.monotonic() + 60 * minutes
        self.programs = build + ("/tests/gpu/emulated" if emulated
                                 else "/tests/gpu")
        modules = "/tests/gpu/emulated/modules" if emulated else "/.libs"
        self.env = dict(os.environ, LC_ALL="C", top_srcdir=source,
                        top_builddir=build, PLAIT_TEST_GPU="1",
                        PLAIT_MODULE_PATH=build + modules)
        self.env["PATH"] = ":".join((
            [self.programs] if emulated else []) + [build, os.environ["PATH"]])
        self.checks = []
        self.page = {"checks": self.checks, "emulated": emulated,
                     "tables": [], "notes": [], "losses": {}}

    def run(self, name, argv, limit, **more):
        """(status, output, seconds); status None where time was up."""
        log = os.path.join(self.out, name + ".log")
        limit = min(limit, self.deadline - time.monotonic())
        if limit <= 0:
            return None, "", 0.0
        begun = time.monotonic()
        with open(log, "w+", errors="replace") as f:
            p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=f,
                                 stderr=subprocess.STDOUT, cwd=self.build,
                                 env=dict(self.env, **more),
                                 start_new_session=True)
            try:
                status = p.wait(limit)
            except subprocess.TimeoutExpired:
                os.killpg(p.pid, signal.SIGKILL)
                p.wait()
                status = None
            f.seek(0)
            return status, f.read(), time.monotonic() - begun

    def add(self, name, result, text, seconds=0.0):
        """result: passed, failed, skipped or unfinished"""
        self.checks.append({"name": name, "result": result, "text": text,
                            "seconds": round(seconds, 1)})
        print("%-10s %s%s" % (result, name, ": " + text if text else ""),
              flush=True)

    def tap(self, name, argv, limit, **more):
        """A program or script of the tests, which prints TAP."""
        status, out, seconds = self.run(name.replace(" ", "-"), argv, limit,
                                        **more)
        good = len(re.findall(r"^ok (?!.*# SKIP)", out, re.M))
        bad = re.findall(r"^not ok \d+ -? ?(.*)", out, re.M)
        skip = re.search(r"^1\.\.0 # SKIP (.*)", out, re.M)
        if skip:
            return self.add(name, "skipped", skip[1], seconds)
        if bad:
            text = "%d of %d: %s" % (len(bad), good + len(bad), bad[0])
            return self.add(name, "failed", text, seconds)
        if status is None:
            return self.add(name, "unfinished", "%d passed before its time "
                            "was up" % good, seconds)
        if status != 0 or not good:
            last = (out.strip().splitlines() or ["no output"])[-1]
            return self.add(name, "failed", "status %s: %s" % (status, last),
                            seconds)
        return self.add(name, "passed", "%d of %d" % (good, good), seconds)

    # -- environment ------------------------------------------------------

    def environment(self):
        status, out, seconds = self.run("facts", [self.programs + "/gpu_facts"],
                                        60)
        try:
            facts = json.loads(out[out.index("{"):out.rindex("}") + 1])
        except ValueError:
            facts = {"gpus": [], "types": []}
        self.page.update(facts)
        gpus = facts["gpus"]
        self.page["machine"] = {
            "host": platform.node(), "system": system_name(),
            "kernel": platform.release(),
            "processors": os.cpu_count(), "plait": self.commit(),
            "build": self.summary()}
        smi = shutil.which("nvidia-smi") if not self.emulated else None
        if smi:
            self.page["machine"]["driver"] = self.run("nvidia-smi", [
                smi, "--query-gpu=driver_version,power.limit,clocks.max.sm,"
                "ecc.mode.current,mig.mode.current,compute_mode",
                "--format=csv,noheader"], 30)[1].strip()
            self.run("topology", [smi, "topo", "-m"], 30)
        if status == 0 and gpus:
            self.add("environment", "passed", "%d GPU%s" % (
                len(gpus), "s" if len(gpus) > 1 else ""), seconds)
        else:
            why = re.search(r"^gpu_facts: (.*)", out, re.M)
            self.add("environment", "failed", why[1] if why else "status %s: "
                     "facts.log" % status, seconds)
        return len(gpus)

    def commit(self):
        git = subprocess.run(["git", "-C", self.source, "describe", "--always",
                              "--dirty"], capture_output=True, text=True)
        return git.stdout.strip() or "a tarball"

    def summary(self):
        """What ./configure said that it found."""
        try:
            with open(os.path.join(self.build, "config.log")) as f:
                log = f.read()
        except OSError:
            return {}
        found = {}
        for name, key in (("plait_cuda_summary", "CUDA"),
                          ("plait_nccl_summary", "NCCL"),
                          ("plait_cudnn_summary", "cuDNN"),
                          ("plait_mpi_summary", "MPI")):
            m = re.search(r"^%s='?(.*?)'?$" % name, log, re.M)
            found[key] = m[1].strip() if m else "unknown"
        return found

    # -- right ------------------------------------------------------------

    def operations(self):
        if self.emulated:
            self.tap("operations", [self.programs + "/test_ops"], 120,
                     PLAIT_TEST_CASES="cast")
            return
        tests = self.build + "/tests/"
        self.tap("modules", [tests + "gpu/test_modules"], 30)
        self.tap("operations", [tests + "unit/test_ops_cuda"], 120)
        self.tap("cuDNN plans", [tests + "gpu/test_cudnn_plans"], 60)
        if os.path.exists(tests + "gpu/test_nccl"):
            self.tap("NCCL", [tests + "gpu/test_nccl"], 60)
            self.calls_of_nccl()
        else:
            self.add("NCCL", "skipped", "built without it")

    def calls_of_nccl(self):
        """The figures by which Plait's kind of communicators is judged."""
        status, out, _ = self.run("calls-of-NCCL", [
            self.build + "/tests/gpu/nccl_calls"], 60)
        found = re.findall(r"^ok \d+ - (\S+) communicators: (\S+) us of",
                           out, re.M)
        self.add("calls of NCCL", "passed" if status == 0 and len(found) == 2
                 else "failed", "; ".join("%s %s us" % row for row in found))
        if found:
            self.page["tables"].append({
                "title": "Host's time for a call of NCCL, two ranks on a GPU",
                "columns": ["communicators", "us"], "rows":
                [list(row) for row in found]})

    def one_gpu(self):
        """Several ranks over NCCL on one GPU."""
        name = "NCCL, ranks on one GPU"
        if self.emulated:
            self.add(name, "skipped", "tests/gpu/emulated/one-gpu.sh does it")
        elif os.path.exists(self.build + "/tests/gpu/test_nccl"):
            self.tap(name, ["sh", self.source + "/tests/gpu/one_gpu.sh"], 150,
                     NCCL_DEBUG="WARN")
        else:
            self.add(name, "skipped", "built without it")

    def sanitizer(self):
        """Run every kernel once, at shapes small enough for
        compute-sanitizer."""
        tool = shutil.which("compute-sanitizer") or next(
            (f for f in ("/usr/local/cuda/bin/compute-sanitizer",
                         os.environ.get("CUDA_HOME", "") +
                         "/bin/compute-sanitizer") if os.path.exists(f)), None)
        for kind in "memcheck", "racecheck", "synccheck":
            name = "compute-sanitizer " + kind
            if self.emulated or not tool:
                self.add(name, "skipped", "its checks are the emulation's own"
                         if self.emulated else "compute-sanitizer is missing")
                continue
            if kind != "memcheck" and self.minutes < 20:
                self.add(name, "skipped", "--minutes 20 has time for it")
                continue
            status, out, seconds = self.run(kind, [
                tool, "--tool", kind, "--target-processes", "all",
                "--error-exitcode", "99",
                self.build + "/tests/unit/test_ops_cuda"], 75,
                PLAIT_TEST_ELEMENTS="20000")
            found = re.findall(r"SUMMARY: (\d+) (?:error|hazard)", out)
            wrong = [line[10:] for line in out.splitlines()
                     if line.startswith("========= ")
                     and "COMPUTE-SANITIZER" not in line] or ["status 99"]
            if any(int(n) for n in found) or status == 99:
                self.add(name, "failed", wrong[0].strip(), seconds)
            elif status is None:
                self.add(name, "unfinished", "nothing found before its time "
                         "was up", seconds)
            elif not found:
                self.add(name, "failed", "it did not run: " +
                         (out.strip().splitlines() or ["no output"])[-1],
                         seconds)
            else:
                self.add(name, "passed", "nothing found", seconds)

    def data(self):
        folder = os.path.join(self.out, "data")
        if not os.path.exists(folder):
            status, out, _ = self.run("prep", [
                self.build + "/plait-prep", self.source + "/LICENSE", "--out",
                folder], 60)
            if status != 0:
                self.add("plait-prep", "failed", out.strip()[-200:])
        return folder + "/train.bin"

    def train(self, name, family, size, launch=(), **settings):
        """Train. Return (metrics of the steps, seconds); on failure (None,
        last line of output), or (None, None) if the time was up."""
        metrics = os.path.join(self.out, name + ".jsonl")
        config = os.path.join(self.out, name + ".yaml")
        device = settings.pop("device", "cuda")
        with open(config, "w") as f:
            f.write(CONFIG % ((family,) + size[:4] + (self.data(), size[4])))
        if os.path.exists(metrics):
            os.remove(metrics)
        argv = list(launch) + ["plait-train", config, "--resume", "none",
                               "--device", device, "--metrics", metrics]
        for key, value in settings.items():
            argv += ["--set", "%s=%s" % (key.replace("__", "."), value)]
        status, out, seconds = self.run(name, argv, 90)
        if status is None:
            return None, None
        if status != 0:
            return None, (out.strip().splitlines() or ["no output"])[-1]
        with open(metrics) as f:
            steps = [json.loads(line) for line in f if '"loss"' in line]
        return steps, seconds

    def against_cpu(self, name, tolerance, cpu, launch=(), **settings):
        size = self.size()
        steps, said = self.train(name.replace(" ", "-"), cpu[0], size, launch,
                                 **settings)
        if steps is None:
            return self.no_training(name, said)
        if cpu[1] is None:
            return self.no_training(name, cpu[2] and
                                    "on the CPU: %s" % cpu[2])
        pairs = list(zip((s["loss"] for s in steps),
                         (s["loss"] for s in cpu[1])))
        worst = max(abs(a - b) / b for a, b in pairs)
        right = len(pairs) == size[4] and worst <= tolerance
        self.page["losses"][name] = worst
        self.add(name, "passed" if right else "failed",
                 "%d steps, losses off by %.1e of %.0e" % (
                     len(pairs), worst, tolerance), said)

    def no_training(self, name, said):
        if said is None:
            self.add(name, "unfinished", "its time was up")
        else:
            self.add(name, "failed", said)

    def size(self):
        """layers, width, heads, length, steps"""
        return (1, 64, 1, 16, 2) if self.emulated else (4, 256, 4, 128, 10)

    def trainings(self):
        families = ["gpt2"] if self.emulated else ["gpt2", "llama"]
        for family in families:
            steps, said = self.train("cpu-" + family, family, self.size(),
                                     device="cpu")
            cpu = (family, steps, said)
            self.against_cpu(family + " fp32", 1e-3, cpu)
            if self.emulated:
                return cpu
            self.against_cpu(family + " bf16", 2e-2, cpu,
                             train__precision="bf16")
        if self.emulated:
            return cpu
        self.tap("trainings", ["sh", self.source + "/tests/gpu/train.sh"], 120)
        self.tap("cuDNN", ["sh", self.source + "/tests/gpu/cudnn.sh"], 90)
        return cpu

    # -- several GPUs -----------------------------------------------------

    def several(self, gpus, cpu):
        if gpus < 2:
            self.add("several GPUs", "skipped", "one is visible")
            return
        for axis in "tp", "pp", "dp":
            self.against_cpu("%s over 2 GPUs" % axis, 1e-3, cpu, [
                "plait", "run", "--np", "2", "--%s=2" % axis, "--"])
        self.scaling(min(gpus, 8))
        site = os.path.join(self.out, "site.yaml")
        if os.path.exists(site):
            os.remove(site)
        status, out, seconds = self.run("links", [
            "plait", "run", "--np", str(gpus), "--dp=%d" % gpus, "--",
            "plait-probe", "--device", "cuda", "--out", site], 90)
        if status == 0 and os.path.exists(site):
            with open(site) as f:
                self.page["links"] = f.read()
            self.add("links between GPUs", "passed", "", seconds)
        else:
            self.add("links between GPUs", "failed",
                     (out.strip().splitlines() or ["no output"])[-1], seconds)

    def scaling(self, gpus):
        """Measure tokens/s of one GPU and of several, which shows how much of
        the time they wait for each other."""
        size = (12, 768, 12, 512, 15)
        rows, one = [], None
        for name, launch, settings in (
                ("1 GPU", [], {}),
                ("dp %d" % gpus, ["--dp=%d" % gpus], {}),
                ("tp 2", ["--tp=2"], {"parallel__sequence": "true"}),
                ("pp 2", ["--pp=2"], {})):
            ranks = 1 if not launch else int(launch[0].split("=")[1])
            per_step = 8 * (ranks if name.startswith("dp") else 1)
            steps, said = self.train(
                "speed-" + name.replace(" ", ""), "gpt2", size,
                ["plait", "run", "--np", str(ranks)] + launch + ["--"]
                if launch else [], train__precision="bf16",
                train__global_batch=per_step, **settings)
            if steps is None:
                self.no_training("speed, " + name, said)
                continue
            rate = sorted(s["tokens_per_s"] for s in steps[5:])
            rate = rate[len(rate) // 2]
            one = one or rate
            rows.append([name, "%.0f" % rate, "%.0f %%" % (
                100 * rate / one / ranks)])
        self.page["tables"].append({
            "title": "Several GPUs, 12 layers of 768, bf16",
            "columns": ["layout", "tokens/s", "of as many single GPUs"],
            "rows": rows})

    # -- fast -------------------------------------------------------------

    def bench(self):
        if self.emulated:
            argv, limit = [self.programs + "/bench_gpu", "--small"], 120
        else:
            argv = ["sh", self.source + "/tests/gpu/bench-gpu.sh"]
            limit = 300
        status, out, seconds = self.run("bench", argv, limit,
                                        BENCH_GPU="short")
        tables = gpu_page.read_tables(out)
        self.page["tables"] += tables
        m = re.search(r"copy (\S+) GB/s, bf16 product of \d+ cubed (\S+) "
                      r"TFLOP/s", out)
        if m:
            self.page["ceilings"] = {"copy": float(m[1]) * 1e9,
                                     "product": float(m[2]) * 1e12}
        if status == 0 and tables:
            self.add("measurements", "passed", "%d figures" % sum(
                len(t["rows"]) for t in tables), seconds)
        else:
            last = (out.strip().splitlines() or ["no output"])[-1]
            self.add("measurements",
                     "unfinished" if status is None else "failed", last,
                     seconds)
        missing = re.search(r"^PyTorch: missing.*", out, re.M)
        if missing or self.emulated:
            self.add("PyTorch", "skipped", "its figures would be of another "
                     "machine" if self.emulated else missing[0])


def system_name():
    try:
        with open("/etc/os-release") as f:
            return re.search(r'^PRETTY_NAME="?(.*?)"?$', f.read(), re.M)[1]
    except (OSError, TypeError):
        return platform.system()


def main():
    source, build, out, minutes = sys.argv[1:5]
    os.makedirs(out, exist_ok=True)
    check = Check(source, build, out, float(minutes), "--emulated" in sys.argv)
    begun = time.monotonic()
    gpus = check.environment()
    if gpus:
        check.operations()
        check.one_gpu()
        check.sanitizer()
        cpu = check.trainings()
        check.several(gpus, cpu)
        check.bench()
    check.page["seconds"] = round(time.monotonic() - begun)
    check.page["date"] = time.strftime("%Y-%m-%d")
    return gpu_page.write(check.page, out)


sys.exit(main())
