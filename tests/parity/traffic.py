#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes that rank 0 sends per axis and step, counted by the communicators,
equal the formulas, strand by strand.

    traffic.py PLAIT_TRAIN
"""
import json
import os
import subprocess
import sys
import tempfile

import parity

L, C, T, V, HEADS, BATCH, MICRO = 4, 64, 32, 512, 4, 16, 2
F32 = 4
P_LAYER = 12 * C * C + 13 * C  # GPT-2: weights, biases, two norms
P_EMBED = (V + T) * C
P_HEAD = 2 * C


def all_reduce(n, elements):
    return 2 * (n - 1) * elements * F32 // n


def gather(n, elements):
    return (n - 1) * elements * F32 // n


def shards(d, elements):
    """Of a region: d equal parts, each a multiple of 64 elements."""
    return -(-elements // (64 * d)) * 64 * d


def tensor_parallel(tp, micro):
    """Two sums forward and two backward a layer, the embedding's, the
    head's; of the loss the largest logit, the sum and the target's."""
    rows = MICRO * T
    return all_reduce(tp, micro * ((4 * L + 2) * rows * C + 3 * rows))


def cases():
    whole = P_EMBED + L * P_LAYER + P_HEAD

    def padded(d):
        return (shards(d, P_EMBED) + L * shards(d, P_LAYER) +
                shards(d, P_HEAD))

    m = BATCH // MICRO
    yield "111", "", {}
    yield "211", "", {"tp": tensor_parallel(2, m)}
    yield "411", "", {"tp": tensor_parallel(4, m)}
    yield "112", "", {"dp-cp": all_reduce(2, whole)}
    yield "114", "bucket_mib=0.1", {"dp-cp": all_reduce(4, whole)}
    yield "114", "zero=1", {"dp-cp": 2 * gather(4, padded(4))}
    yield "114", "zero=2", {"dp-cp": (m // 4 + 1) * gather(4, padded(4))}
    # The embedding's region is gathered for itself and, tied, for the head,
    # and again backward; the head's in forward alone.
    zero3 = 2 * padded(2) + shards(2, P_EMBED) - shards(2, P_HEAD)
    yield "112", "zero=3", {
        "dp-cp": m // 2 * gather(2, padded(2) + zero3)}
    # Rank 0 is the first stage: it sends forward alone, and shares the
    # embedding with the last.
    yield "121", "", {"pp": m * MICRO * T * C * F32,
                      "embedding": all_reduce(2, V * C)}
    yield "121", "schedule=interleaved virtual=2", {
        "pp": (2 * m + m) * MICRO * T * C * F32,
        "embedding": all_reduce(2, V * C)}


def main():
    train = sys.argv[1]
    todo, failed = list(cases()), 0
    print(f"1..{len(todo)}")
    with tempfile.TemporaryDirectory(prefix="plait-traffic-") as work:
        tokens, config = work + "/tokens.bin", work + "/c.yaml"
        parity.write_tokens(tokens)
        with open(config, "w") as f:
            f.write(f"""
model: {{layers: {L}, hidden: {C}, heads: {HEADS}, vocab: {V}, seq_len: {T}}}
data: {{train: {tokens}}}
train: {{steps: 2, global_batch: {BATCH}, micro_batch: {MICRO}}}
""")
        for i, (layout, strand, want) in enumerate(todo):
            args = parity.argparse.Namespace(launcher="mpirun")
            program = [train, config, "--metrics", work + "/m", "--device",
                       "cpu"] + parity.settings(strand)
            env = dict(os.environ, OMP_NUM_THREADS="1")
            run = subprocess.run(parity.command(args, layout, program),
                                 stdout=subprocess.PIPE, env=env,
                                 stderr=subprocess.STDOUT, timeout=120,
                                 stdin=subprocess.DEVNULL,
                                 universal_newlines=True)
            got = run.stdout
            if run.returncode == 0:
                with open(work + "/m") as f:
                    got = json.loads(f.readlines()[-1])["comm_bytes"]
            good = got == want
            failed += not good
            print(f"{'ok' if good else 'not ok'} {i + 1} - "
                  f"tp,pp,dp={layout} {strand}".rstrip())
            if not good:
                print(f"# {got}\n# wanted {want}".replace("\\n", "\n# "))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
