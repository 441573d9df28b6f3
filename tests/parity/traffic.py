#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bytes that rank 0 sends per axis and step, counted by the communicators,
equal the formulas, case by case.

    traffic.py PLAIT_TRAIN [TEXT]    (cases with TEXT in them)
"""
import sys
import tempfile

import parity

# Sizes are multiples of 64, so that regions are padded only for ZeRO's parts.
# The head is so small that all stages have equally many layers.
L, C, HEADS, KV, T, V, BATCH, MICRO = 4, 64, 4, 2, 32, 512, 16, 2
E = 4  # each token chooses all experts, so that traffic is not random
GPT2 = dict(family="gpt2", ffn=256, kv_heads=HEADS)
LLAMA = dict(family="llama", ffn=128, kv_heads=KV)
MOE = dict(LLAMA, experts=E, experts_top_k=E)
# Each expert has room for all tokens, so that none is dropped.
LIMITED = dict(MOE, experts_capacity=1)
F32 = 4

CASES = [
    # tensor parallel: the transfers of blocks, vocabulary and loss
    (GPT2, "111", ""),
    (GPT2, "211", ""),
    (GPT2, "411", ""),
    (GPT2, "211", "recompute=full"),
    (GPT2, "211", "precision=bf16"),
    (LLAMA, "411", ""),
    (GPT2, "211", "sequence=true"),
    (GPT2, "411", "sequence=true recompute=full"),
    (LLAMA, "411", "sequence=true zero=0"),
    # ... with so many rows that they travel in chunks
    (GPT2, "411", "micro_batch=16"),
    (LLAMA, "211", "micro_batch=16 sequence=true"),
    (GPT2, "221", "micro_batch=16 sequence=true schedule=zb-h1"),
    # data parallel
    (GPT2, "112", ""),
    (GPT2, "114", "bucket_mib=0.1"),
    (LLAMA, "212", "sequence=true"),
    (GPT2, "114", "zero=1"),
    (GPT2, "114", "zero=1 precision=bf16"),
    (GPT2, "114", "zero=2"),
    (GPT2, "212", "zero=2 sequence=true"),
    (GPT2, "112", "zero=3"),
    (LLAMA, "114", "zero=3 recompute=full micro_batch=1"),
    (LLAMA, "112", "zero=3 precision=bf16"),
    (GPT2, "114", "grad_sync=naive"),
    (GPT2, "114", "grad_sync=flat"),
    (GPT2, "114", "grad_reduce=bf16"),
    (GPT2, "112", "grad_reduce=bf16 zero=1"),
    (GPT2, "112", "grad_reduce=bf16 zero=3"),
    (GPT2, "114", "nodes=2 all_reduce=hierarchical"),
    (LLAMA, "118", "nodes=4 all_reduce=hierarchical grad_reduce=bf16 "
                   "micro_batch=1"),
    (GPT2, "114", "nodes=2 all_reduce=hierarchical zero=1"),
    (LLAMA, "118", "nodes=4 all_reduce=hierarchical zero=2 micro_batch=1"),
    (GPT2, "114", "nodes=2 all_reduce=hierarchical zero=3 precision=bf16"),
    (MOE, "11414", "nodes=2 all_reduce=hierarchical zero=1"),
    (GPT2, "124", "nodes=4 all_reduce=hierarchical zero=2"),
    (GPT2, "114", "nodes=2 shard_group=node zero=1"),
    (GPT2, "114", "nodes=2 shard_group=node zero=2"),
    (LLAMA, "118", "nodes=2 shard_group=node zero=3 micro_batch=1"),
    (MOE, "11412", "nodes=2 shard_group=node zero=3"),
    # context parallel
    (GPT2, "1112", ""),
    (LLAMA, "1114", "zero=1"),
    (LLAMA, "2112", "recompute=selective"),
    (GPT2, "1122", "zero=2 recompute=full"),
    # pipeline
    (GPT2, "121", ""),
    (GPT2, "121", "schedule=gpipe"),
    (GPT2, "141", "schedule=naive"),
    (GPT2, "121", "schedule=interleaved virtual=2"),
    (LLAMA, "221", "schedule=zb-h1 sequence=true"),
    (LLAMA, "1212", "schedule=zb-h1 recompute=selective"),
    (GPT2, "122", "zero=1"),
    (GPT2, "122", "zero=2 schedule=zb-h1"),
    (GPT2, "124", "nodes=4 shard_group=node zero=3"),
    (LLAMA, "122", "zero=3"),
    (LLAMA, "122", "zero=3 schedule=gpipe"),
    # experts
    (MOE, "11212", ""),
    (MOE, "11414", "zero=1"),
    (MOE, "11412", "zero=3"),
    (MOE, "21212", "sequence=true"),
    (MOE, "11222", "recompute=full"),
    (LIMITED, "1124", "recompute=full"),
]


class Run:
    """The formulas for one run, all for rank 0."""

    def __init__(self, model, layout, strand):
        self.model = model
        sizes = [int(c) for c in layout] + [1] * (5 - len(layout))
        self.tp, self.pp, self.dp, self.cp, self.ep = sizes
        s = dict(item.split("=") for item in strand.split())
        self.sequence = s.get("sequence") == "true"
        self.zero = int(s.get("zero", 0))
        self.recompute = s.get("recompute", "none")
        self.split = s.get("schedule") == "zb-h1"
        self.gpipe = s.get("schedule") == "gpipe"
        self.chunks = int(s.get("virtual", 1))
        self.naive = s.get("grad_sync") == "naive"
        # How many of those hold ranks of rank 0's stage.
        self.nodes = int(s.get("nodes", 1)) // self.pp or 1
        self.steps = s.get("all_reduce") == "hierarchical"
        self.grad = 2 if s.get("grad_reduce") == "bf16" else F32
        self.element = 2 if s.get("precision") == "bf16" else F32
        self.gpt2 = model["family"] == "gpt2"
        micro = int(s.get("micro_batch", MICRO))
        self.m = BATCH // (self.dp * micro)
        self.rows = micro * T // self.cp
        self.layers = L // self.pp
        self.kv = max(model["kv_heads"] // self.tp, 1) * C // HEADS
        self.stream = self.rows * C * self.element

    # How often a layer's forward is repeated in backward: for each half of a
    # split backward.
    def again(self):
        return 2 if self.split else 1

    # -- tensor parallel --

    def seams(self):
        """Gathers and scatters of the hidden states per layer, where a sum is
        both: before and after attention and mlp, forward and backward. With
        `sequence` weight gradients gather their inputs again or, if they are
        deferred, inputs and gradients."""
        n = 8
        if self.sequence:
            n += 4 if self.split else 2
        if self.recompute == "full":  # repeated up to the last matrix
            n += (3 if self.sequence else 2) * self.again()
        return n

    def norms(self):
        """Elements of gradients that are summed over tp, the layers' and the
        head's."""
        layer, head = 0, 0
        if self.sequence:
            layer, head = (4 * C, 2 * C) if self.gpt2 else (2 * C, C)
        if self.model["kv_heads"] < self.tp:  # k and v of shared heads
            layer += 2 * self.model["kv_heads"] * C // HEADS * C
        if "experts" in self.model:  # the router's
            layer += E * C
        return layer, head

    def tp_bytes(self):
        n, last = self.tp, self.pp == 1
        layer, head = self.norms()
        times = self.m if self.zero >= 2 else 1
        sent = self.m * gather(n, self.stream) * (
            self.layers * self.seams() + 2 + 2 * last)
        if last:  # the largest logit, the sum and the target's logit
            sent += self.m * all_reduce(n, 3 * self.rows * F32)
        return sent + times * all_reduce(
            n, (self.layers * layer + last * head) * F32)

    # -- context parallel --

    def cp_bytes(self):
        """Keys and values around the ring; in backward with their gradients,
        which are sums in fp32 and return to their rank."""
        n = 2 * (self.cp - 1)
        if self.recompute == "full":
            n += (self.cp - 1) * self.again()
        sent = (n * self.element + self.cp * F32) * self.rows * 2 * self.kv
        if "experts" in self.model:  # how often each expert was chosen
            full = 1 + (self.recompute == "full") * self.again()
            sent += full * all_reduce(self.cp, MICRO * E * F32)
            if "experts_capacity" in self.model:  # and the places
                sent += full * gather(self.cp, self.cp * 2 * MICRO * E * F32)
        return self.m * self.layers * sent if self.cp > 1 else 0

    # -- experts --

    def ep_bytes(self):
        """Each token to its experts and back, forward and backward."""
        if "experts" not in self.model:
            return 0
        n = 4
        if self.recompute == "full":
            n += 2 * self.again()
        return self.m * self.layers * n * gather(self.ep, self.stream * E)

    # -- data parallel --

    def regions(self):
        """Elements of the dense regions: embedding, layers, head."""
        bias, f = self.gpt2, self.model["ffn"]
        qkv = C // self.tp + 2 * self.kv
        layer = (qkv + C // self.tp) * C + 2 * C
        if "experts" in self.model:
            layer += E * C
        else:
            layer += (2 if self.gpt2 else 3) * f // self.tp * C
        if bias:
            layer += qkv + f // self.tp + 4 * C
        table = V // self.tp * C
        first = table + (T * C if bias else 0)
        head = (2 if bias else 1) * C + (0 if bias else table)
        return [first], [layer] * self.layers, [head] * (self.pp == 1)

    def sharded(self, n, first, layers, head):
        """Bytes of the gradients and weights of regions at this ZeRO stage."""
        whole = [shards(n, r) for r in first + layers + head]
        grads = gather(n, sum(whole) * self.grad)
        weights = gather(n, sum(whole) * self.element)
        if self.zero == 1:
            return grads + weights
        if self.zero == 2:
            return self.m * grads + weights
        # Weights are gathered in forward and in backward; the head, which does
        # both at once, only once; the embedding once more for a tied head.
        weights *= 2
        if head:
            weights -= gather(n, shards(n, head[0]) * self.element)
            if self.gpt2:
                weights += gather(n, shards(n, first[0]) * self.element)
        # ... and again for the second half of a split backward
        if self.split:
            weights += gather(n, sum(whole[:len(first + layers)]) *
                              self.element)
        return self.m * (grads + weights) - \
            gather(n, self.kept(n, first, layers) * self.element)

    def kept(self, n, first, layers):
        """Elements that stay gathered because one pass ends and the next
        begins with the same region: the embedding between a backward and a
        forward, the last layer between a forward and a backward if the rank
        has no head."""
        turns, back = 0, self.m - 1  # one stage: f b f b ...
        if self.pp > 1:  # rank 0 of two: f f b f b ... b, or f f f b b b
            turns, back = (1, 0) if self.gpipe else (self.m - 1, self.m - 2)
        embedding = shards(n, first[0]) if first else 0
        return back * embedding + turns * shards(n, layers[-1])

    def across(self, n, whole):
        """Bytes of a sum over nodes of this rank's share of each region."""
        times = self.m if self.zero >= 2 else 1
        parts = sum(shards(n, r) // n for r in whole) * self.grad
        return times * all_reduce(self.nodes, parts)

    def by_steps(self, axis, n, sent):
        """Gathers and scatters that would send `sent` bytes in a group of n:
        first inside each node, then, of each rank's share, across nodes."""
        here = n // self.nodes
        if n == 1 or here == 1:
            return {axis: sent}
        whole = sent * n // (n - 1)
        return {axis + "-inside": gather(here, whole),
                axis + "-across": gather(self.nodes, whole // here)}

    def reduced(self, axis, n, first, layers, head):
        """Bytes over the group of an axis or, if that is divided by nodes,
        over both parts."""
        whole = first + layers + head
        elements = sum(whole)
        if self.naive:
            return {axis: (n - 1) * elements * F32}
        if self.nodes == 1 or n == self.nodes and not self.zero:
            if self.zero and n > 1:
                return {axis: self.sharded(n, first, layers, head)}
            return {axis: all_reduce(n, elements * self.grad)}
        here = n // self.nodes
        if self.zero and self.steps:
            return self.by_steps(axis, n,
                                 self.sharded(n, first, layers, head))
        sent = {axis + "-across": self.across(here, whole)}
        if self.zero:
            inside = self.sharded(here, first, layers, head)
        else:
            inside = 2 * gather(here, sum(shards(here, r) for r in whole) *
                                self.grad)
        sent[axis + "-inside"] = inside
        return sent

    def dense_bytes(self):
        n = self.dp * self.cp
        first, layers, head = self.regions()
        sent = self.reduced("dp-cp", n, first, layers, head)
        if self.zero and self.gpt2 and self.pp > 1:
            # both ends of the pipeline gather the gradient of the tied
            # embedding
            if self.steps:
                put = gather(n, shards(n, first[0]) * F32)
                more = self.by_steps("dp-cp", n, put)
                return {axis: sent[axis] + more[axis] for axis in sent}
            axis = "dp-cp" if self.nodes == 1 else "dp-cp-inside"
            n //= self.nodes
            sent[axis] += gather(n, shards(n, first[0]) * F32)
        return sent

    def expert_bytes(self):
        if "experts" not in self.model:
            return {}
        here = E // self.ep * 3 * C * self.model["ffn"] // self.tp
        return self.reduced("expert-dp", self.dp * self.cp // self.ep, [],
                            [here] * self.layers, [])

    # -- pipeline --

    def pp_bytes(self):
        """Rank 0 sends the outputs of all its chunks forward, and the input
        gradients of all but the first back."""
        sends = 2 * self.chunks - 1
        part = self.tp if self.sequence else 1
        return self.m * sends * self.stream // part if self.pp > 1 else 0

    def bytes(self):
        tied = self.pp > 1 and self.gpt2
        sent = {
            "tp": self.tp_bytes(),
            "cp": self.cp_bytes(),
            "ep": self.ep_bytes(),
            "pp": self.pp_bytes(),
            "embedding": tied * all_reduce(2, V // self.tp * C * F32),
        }
        sent.update(self.dense_bytes())
        sent.update(self.expert_bytes())
        return {axis: n for axis, n in sent.items() if n}


def all_reduce(n, whole):
    return 2 * (n - 1) * whole // n


def gather(n, whole):
    return (n - 1) * whole // n


def shards(d, elements):
    """Elements of a region that is divided into d equal parts, each a multiple
    of 64 elements."""
    return -(-elements // (64 * d)) * 64 * d


def measure(train, work, model, layout, strand):
    """comm_bytes of the second of three steps, or what went wrong. ZeRO 1 and
    2 end the gathers of the first one in it, and its own in the third."""
    shape = dict(layers=L, hidden=C, heads=HEADS, vocab=V, seq_len=T)
    steps = dict(steps=3, global_batch=BATCH, micro_batch=MICRO)
    try:
        return parity.all_metrics(train, work, model, shape, steps, layout,
                                  strand)[1]["comm_bytes"]
    except parity.Failed as e:
        return str(e)


def name(model, layout, strand):
    words = parity.case_name(model, layout, strand)
    return words + " with a capacity" if model is LIMITED else words


def main():
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    todo, failed = [c for c in CASES if only in name(*c)], 0
    print(f"1..{len(todo)}")
    with tempfile.TemporaryDirectory(prefix="plait-traffic-") as work:
        parity.write_tokens(work + "/tokens.bin")
        for i, case in enumerate(todo):
            got = measure(sys.argv[1], work, *case)
            want = Run(*case).bytes()
            failed += got != want
            print(f"{'ok' if got == want else 'not ok'} {i + 1} - "
                  f"{name(*case)}", flush=True)
            if got != want:
                print("# " + str(got).replace("\n", "\n# ") +
                      f"\n# wanted {want}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
