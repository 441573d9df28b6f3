#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Loss and every gradient of a small model against PyTorch's autograd.

usage: torch_check.py DUMP...     (files written by dump_grads)

The models are written here from their papers (GPT-2; Llama), not from
Plait's code: attention as an explicit softmax over masked scores, rotary
positions as complex numbers. Prints TAP; skipped where there is no torch.
"""
import sys

import numpy as np

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("1..0 # SKIP python3-torch is not installed")
    sys.exit(0)

TOLERANCE = 1e-4


def read_dump(path):
    config, weights, grads = {}, {}, {}
    with open(path, "rb") as f:
        for line in iter(f.readline, b""):
            key, *rest = line.decode().split()
            if key != "tensor":
                config[key] = rest
                continue
            name, rows, cols = rest[0], int(rest[1]), int(rest[2])
            shape = (rows, cols) if cols > 1 else (rows,)
            for into in (weights, grads):
                data = np.frombuffer(f.read(4 * rows * cols), np.float32)
                into[name] = data.reshape(shape).astype(np.float64)
    return config, weights, grads


def rotate(x):
    """x: [batch, seq, heads, dim]; pairs are d and d + dim/2."""
    seq, half = x.shape[1], x.shape[3] // 2
    freq = 10000.0 ** (-torch.arange(half, dtype=x.dtype) / half)
    angle = torch.outer(torch.arange(seq, dtype=x.dtype), freq)
    turn = torch.polar(torch.ones_like(angle), angle)[None, :, None, :]
    z = torch.complex(x[..., :half], x[..., half:]) * turn
    return torch.cat([z.real, z.imag], dim=-1)


def attention(q, k, v):
    """[batch, seq, heads, dim]; k and v may have fewer heads."""
    share = q.shape[2] // k.shape[2]
    k = k.repeat_interleave(share, dim=2)
    v = v.repeat_interleave(share, dim=2)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[3] ** 0.5
    future = torch.ones(scores.shape[2:], dtype=torch.bool).triu(1)
    p = scores.masked_fill(future, float("-inf")).softmax(dim=-1)
    return torch.einsum("bhqk,bkhd->bqhd", p, v).flatten(2)


def summed(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(),
                           ignore_index=-1, reduction="sum")


class Model:
    def __init__(self, config, w):
        self.w = w
        self.llama = config["family"] == ["llama"]
        self.layers = int(config["layers"][0])
        self.heads = int(config["heads"][0])
        self.kv_heads = int(config["kv_heads"][0])
        self.experts = int(config["experts"][0])
        self.top_k = int(config["top_k"][0])
        self.capacity = int(config["capacity"][0])
        self.mtp = float(config["mtp"][0])
        self.dropped = 0
        self.imbalance = 0  # of all layers

    def linear(self, name, x):
        y = x @ self.w[name + ".weight"].T
        return y if self.llama else y + self.w[name + ".bias"]

    def norm(self, name, x):
        g = self.w[name + ".weight"]
        if self.llama:
            return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * g
        return F.layer_norm(x, g.shape, g, self.w[name + ".bias"], 1e-5)

    def layer(self, p, x):
        n = self.norm(p + "attention_norm", x)
        q, k, v = (self.linear(p + "attention." + s, n) for s in "qkv")
        q = q.unflatten(2, (self.heads, -1))
        k = k.unflatten(2, (self.kv_heads, -1))
        v = v.unflatten(2, (self.kv_heads, -1))
        if self.llama:
            q, k = rotate(q), rotate(k)
        x = x + self.linear(p + "attention.out", attention(q, k, v))
        n = self.norm(p + "mlp_norm", x)
        if p + "router.weight" in self.w:
            x = x + self.mixture(p, n)
            if p + "shared.up.weight" not in self.w:
                return x
            return x + self.mlp(p + "shared.", n)
        return x + self.mlp(p + "mlp.", n)

    def mlp(self, p, n):
        up = self.linear(p + "up", n)
        if self.llama:
            hidden = F.silu(self.linear(p + "gate", n)) * up
        else:
            hidden = 0.5 * up * (1 + torch.tanh(
                (2 / np.pi) ** 0.5 * (up + 0.044715 * up ** 3)))
        return self.linear(p + "down", hidden)

    def mixture(self, p, n):
        """All experts compute all tokens; most of the weights are 0."""
        prob = (n @ self.w[p + "router.weight"].T).softmax(dim=-1)
        best, index = prob.topk(self.top_k, dim=-1)
        share = torch.zeros_like(prob).scatter(
            2, index, best / best.sum(dim=-1, keepdim=True))
        one = (share > 0).to(prob.dtype)
        chosen = one.mean(dim=1) / self.top_k
        if self.capacity:  # the first tokens of each sequence
            kept = one * (one.cumsum(dim=1) <= self.capacity)
            self.dropped += int((one - kept).sum())
            share = share * kept
        self.imbalance += (self.experts * chosen.detach() *
                           prob.mean(dim=1)).sum()
        return sum(share[..., e:e + 1] * self.mlp(p + "experts.%d." % e, n)
                   for e in range(self.experts))

    def logits(self, norm, x):
        head = "head.weight" if self.llama else "embedding.weight"
        return self.norm(norm, x) @ self.w[head].T

    def further(self, x, tokens):
        """Logits of the token after the next; the last row of a sequence,
        which is of no loss, takes its own token for the next. x: the stream
        behind the last layer."""
        p = "mtp.0."
        following = torch.cat([tokens[:, 1:], tokens[:, -1:]], dim=1)
        e = self.norm(p + "token_norm", self.w["embedding.weight"][following])
        h = self.norm(p + "hidden_norm", self.norm("norm", x))
        x = torch.cat([e, h], dim=-1) @ self.w[p + "join.weight"].T
        return self.logits(p + "norm", self.layer(p, x))

    def loss(self, tokens, targets):
        x = self.w["embedding.weight"][tokens]
        if not self.llama:
            x = x + self.w["position.weight"]
        for i in range(self.layers):
            x = self.layer("layers.%d." % i, x)
        loss = summed(self.logits("norm", x), targets)
        if self.mtp:
            beyond = F.pad(targets[:, 1:], (0, 1), value=-1)
            loss = loss + self.mtp * summed(self.further(x, tokens), beyond)
        return loss


class Tap:
    count = failed = 0

    def ok(self, good, text):
        self.count += 1
        self.failed += not good
        print("%sok %d - %s" % ("" if good else "not ", self.count, text))


def check(tap, path):
    config, weights, grads = read_dump(path)
    family = "%s with %s experts of capacity %s, mtp %s" % tuple(
        config[key][0] for key in ("family", "experts", "capacity", "mtp"))
    w = {k: torch.tensor(v, requires_grad=True) for k, v in weights.items()}
    batch = int(config["batch"][0])
    tokens = torch.tensor([int(t) for t in config["tokens"]])
    targets = torch.tensor([int(t) for t in config["targets"]])
    model = Model(config, w)
    loss = model.loss(tokens.view(batch, -1), targets.view(batch, -1))
    # A sequence's imbalance has the weight of its tokens' losses.
    seq_len = tokens.numel() // batch
    balance = float(config["balance"][0]) * seq_len
    (loss + balance * model.imbalance).backward()
    mine = float(config["loss"][0])
    off = abs(mine - loss.item()) / loss.item()
    tap.ok(off <= TOLERANCE, "%s: loss %.6f, torch %.6f" % (family, mine,
                                                            loss.item()))
    if model.capacity:
        tap.ok(model.dropped > 0, "%s: %d choices dropped" % (family,
                                                           model.dropped))
    for name, g in grads.items():
        want = w[name].grad.numpy()
        # A key's bias has gradient 0, as it adds the same to all scores of a
        # query: its rounding error is compared with the query's gradient. An
        # expert that no token chose has none.
        size = np.linalg.norm(grads[name.replace("k.bias", "q.bias")])
        off = np.linalg.norm(g - want) / (size or 1)
        tap.ok(off <= TOLERANCE, "%s: gradient of %s off by %.1e" %
               (family, name, off))


tap = Tap()
for dump in sys.argv[1:]:
    check(tap, dump)
print("1..%d" % tap.count)
sys.exit(1 if tap.failed or not tap.count else 0)
