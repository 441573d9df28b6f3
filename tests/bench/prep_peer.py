# SPDX-License-Identifier: Apache-2.0
"""plait-prep next to Hugging Face's `tokenizers`, from a text in a file to its
tokens, on one core and on two: prep_peer.py PREP TOKENIZER JSON [ROUNDS]. Rows
are printed and written to the file JSON, which plait-bench reads.

The text is that of this repository, some twenty times; taskset binds the
processes to their cores."""
import glob
import json
import os
import subprocess
import sys
import tempfile
import time

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
MB = 20
# Parts of some hundred lines, like plait-prep's, so that all cores work.
PEER = """import sys, time
from tokenizers import Tokenizer, __version__
t = Tokenizer.from_file(sys.argv[1])
begin = time.monotonic()
lines = open(sys.argv[2], encoding="utf-8", errors="replace",
             newline="").readlines()
parts = ["".join(lines[i:i + 200]) for i in range(0, len(lines), 200)]
n = sum(len(e.ids) for e in t.encode_batch_fast(parts,
                                                add_special_tokens=False))
print(__version__, n, time.monotonic() - begin)"""


def make_text(path):
    parts = [open(name, "rb").read() for name in sorted(
        glob.glob(TOP + "/docs/*.md") + glob.glob(TOP + "/runtime/*/*.c"))
        + [TOP + "/LICENSE", TOP + "/tests/fixtures/tokenizer/text"]]
    data = b"".join(parts)
    with open(path, "wb") as f:
        for _ in range(MB * 1000000 // len(data) + 1):
            f.write(data)
    return os.path.getsize(path) / 1e6


def bound(cores, command, env=None):
    mine = sorted(os.sched_getaffinity(0))[:cores]
    return subprocess.run(
        ["taskset", "-c", ",".join(map(str, mine))] + command, check=True,
        stdout=subprocess.PIPE, universal_newlines=True,
        env={**os.environ, **(env or {})}).stdout


def plait(prep, tokenizer, text, out, cores):
    begin = time.monotonic()
    bound(cores, [prep, text, "--out", out, "--tokenizer", "bpe:" + tokenizer])
    return time.monotonic() - begin


def peer(tokenizer, text, cores):
    said = bound(cores, [sys.executable, "-c", PEER, tokenizer, text],
                 {"RAYON_NUM_THREADS": str(cores),
                  "TOKENIZERS_PARALLELISM": "true"}).split()
    return float(said[2]), said[0]


def main():
    prep, tokenizer, out = sys.argv[1:4]
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    rows = []
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        print("# TOKENIZERS_PYTHON names no python3 with tokenizers: "
              "plait-prep alone")
        tokenizers = None
    print("| text to tokens | who | MB/s a core | least | most |\n"
          "|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="plait-bench-") as work:
        size = make_text(work + "/text")
        for cores in (1, 2):
            if cores > len(os.sched_getaffinity(0)):
                continue
            speeds = {"plait-prep": [], "tokenizers": []}
            for _ in range(rounds):
                speeds["plait-prep"].append(size / cores / plait(
                    prep, tokenizer, work + "/text", work + "/out", cores))
                if tokenizers:
                    seconds, version = peer(tokenizer, work + "/text", cores)
                    speeds["tokenizers"].append(size / cores / seconds)
            for who, s in speeds.items():
                if s:
                    name = who + (" " + version if who == "tokenizers" else "")
                    rows.append({"what": f"{cores} core" + "s" * (cores > 1),
                                 "who": name, "mb": size,
                                 "mb_per_s_core": sorted(s)[len(s) // 2]})
                    print(f"| {size:.0f} MB, {cores} core"
                          f"{'s' if cores > 1 else ''} | {name} | "
                          f"{sorted(s)[len(s) // 2]:.1f} | {min(s):.1f} | "
                          f"{max(s):.1f} |", flush=True)
    with open(out, "w") as f:
        json.dump(rows, f)


if __name__ == "__main__":
    main()
