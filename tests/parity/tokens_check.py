#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plait-prep's tokens of a folder of texts against those of PyPI's
`tokenizers`, one by one: tokens_check.py PREP DIR MEGABYTES SEED [KIND...]

The texts are those of tests/lib/texts.py; the tokenizers are trained on a part
of them. TAP."""
import array
import os
import subprocess
import sys
import zlib

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here + "/../lib", here + "/../fixtures/tokenizer"]
import make  # noqa: E402
import texts  # noqa: E402
import tokenizers  # noqa: E402


def shard(path):
    with open(path, "rb") as file:
        head = file.read(64)
        data = file.read()
    assert head[:8] == b"PLAITTOK" and zlib.crc32(head[:60]) == int.from_bytes(
        head[60:], "little"), path
    tokens = array.array("HI"[head[12] == 4])
    tokens.frombytes(data)
    assert len(tokens) == int.from_bytes(head[16:24], "little"), path
    return tokens


def split(data):
    """Where the last twentieth, the validation set, begins: after a line
    break, or before the last character if there is none nearby."""
    at = len(data) - len(data) // 20
    line = data.rfind(b"\n", at // 2, at)
    if line >= 0:
        return line + 1
    for _ in range(3):
        if data[at - 1] & 0xc0 == 0x80:
            at -= 1
    return at - (data[at - 1] >= 0xc0)


def compare(tokenizer, end, want, got):
    """How many tokens at the beginning of `got` equal those of the texts
    `want`, and how many those are."""
    at = total = 0
    for first in range(0, len(want), 64):
        some = want[first:first + 64]
        for text, one in zip(some, tokenizer.encode_batch_fast(
                [t.decode("utf-8", "replace") for t in some],
                add_special_tokens=False)):
            ids = array.array(got.typecode, one.ids + [end])
            total += len(ids)
            if got[at:at + len(ids)] != ids:
                for i, id in enumerate(ids):
                    if at + i >= len(got) or got[at + i] != id:
                        break
                near = tokenizer.decode(ids[max(0, i - 5):i + 5])
                print(f"# token {i} of a text, near {near!a}: "
                      f"{list(got[at + i:at + i + 5])}, not "
                      f"{list(ids[i:i + 5])}")
                return at + i, total
            at += len(ids)
    return at, total


def main():
    prep, work, size, seed = sys.argv[1:5]
    kinds = sys.argv[5:] or ["gpt2", "llama3", "qwen"]
    folder = work + "/texts"
    os.mkdir(folder)
    subprocess.run([sys.executable, texts.__file__, folder, size, seed],
                   check=True)
    documents = []
    for name in sorted(os.listdir(folder)):
        with open(f"{folder}/{name}", "rb") as file:
            documents.append(file.read())
    megabytes = sum(map(len, documents)) / 1e6
    some = b"".join(documents[::max(1, len(documents) // 20)])
    print(f"# tokenizers {tokenizers.__version__}, {megabytes:.1f} MB in "
          f"{len(documents)} files, seed {seed}")
    for n, kind in enumerate(kinds):
        tokenizer = make.train(kind, some.decode("utf-8", "replace"),
                               4000 if megabytes < 20 else 30000)
        tokenizer.save(work + "/t.json")
        subprocess.run([prep, folder, "--out", work + "/out", "--tokenizer",
                        f"bpe:{work}/t.json"], check=True,
                       stdout=subprocess.DEVNULL)
        end = tokenizer.token_to_id("<|endoftext|>")
        equal = total = 0
        for name, part in (("train", lambda d: d[:split(d)]),
                           ("val", lambda d: d[split(d):])):
            got = shard(f"{work}/out/{name}.bin")
            same, all_ = compare(tokenizer, end,
                                 [part(d) for d in documents], got)
            equal, total = equal + same, total + max(all_, len(got))
        print(f"{'ok' if equal == total else 'not ok'} {n + 1} - {kind}: "
              f"{equal} of {total} tokens are those of tokenizers", flush=True)
    print(f"1..{len(kinds)}")


if __name__ == "__main__":
    main()
