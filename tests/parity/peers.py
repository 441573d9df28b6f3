#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every optimizer against another implementation: torch.optim, timm and
pytorch-optimizer repeat the steps of optim_steps on the same weights and
gradients. Packages and classes that are not installed are skipped.

    peers.py --program OPTIM_STEPS

Prints TAP. The deviation of a tensor is |a - b| / |b - start| in the 2-norm:
relative to the change made by the steps.
"""
import argparse
import importlib
import os
import random
import subprocess
import sys
import tempfile

STEPS = 30
RTOL = 2e-5        # of the change, in fp32
SOAP = 1e-4        # an element near 0 is divided by its size: see test_soap.c
MUON_BF16 = 0.05   # torch.optim.Muon rounds its products to bf16

try:
    import torch
except ImportError:
    torch = None


class Missing(Exception):
    pass


def package(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        raise Missing(f"no {name}")


def of_torch(name):
    if not hasattr(torch.optim, name):
        raise Missing(f"no torch.optim.{name} in torch {torch.__version__}")
    return getattr(torch.optim, name)


def groups(params, **matrix):
    """Weight decay on matrices only."""
    decay = matrix.pop("weight_decay")
    return [dict(params=[p for p in params if p.decays],
                 weight_decay=decay, **matrix),
            dict(params=[p for p in params if not p.decays],
                 weight_decay=0.0, **matrix)]


def sgd(params, momentum, nesterov):
    return [of_torch("SGD")(groups(params, weight_decay=0.1), lr=1e-2,
                            momentum=momentum, nesterov=nesterov)]


def adamw(params):
    return [of_torch("AdamW")(groups(params, weight_decay=0.1), lr=1e-2,
                              betas=(0.9, 0.95), eps=1e-6)]


def adafactor(params):
    return [of_torch("Adafactor")(groups(params, weight_decay=0.1), lr=2e-2)]


class NoBf16:
    """The module torch with fp32 in place of bf16."""
    def __getattr__(self, name):
        return getattr(torch, "float32" if name == "bfloat16" else name)


def muon(params, exact):
    cls = of_torch("Muon")
    module = importlib.import_module("torch.optim._muon")
    module.torch = NoBf16() if exact else torch
    hidden = [p for p in params if p.hidden]
    rest = [p for p in params if not p.hidden]
    return [cls(hidden, lr=1e-2, weight_decay=0.1, momentum=0.9, nesterov=True,
                adjust_lr_fn="match_rms_adamw"),
            of_torch("AdamW")(groups(rest, weight_decay=0.1), lr=1e-2,
                              betas=(0.9, 0.95), eps=1e-6)]


def lars(params, clip):
    cls = package("timm.optim.lars").Lars
    return [cls(groups(params, weight_decay=0.1), lr=0.1, momentum=0.9,
                trust_coeff=0.01, eps=0.0, trust_clip=clip)]


def lamb(params):
    cls = package("timm.optim.lamb").Lamb
    return [cls(groups(params, weight_decay=0.1), lr=1e-2, betas=(0.9, 0.95),
                eps=1e-6, max_grad_norm=None)]


def lion(params):
    cls = package("timm.optim.lion").Lion
    return [cls(groups(params, weight_decay=0.1), lr=1e-3, betas=(0.9, 0.95))]


def lion_decided(params, gradients, betas):
    """For each parameter, a mask of the elements where Lion's c was never so
    close to 0 that rounding decides its sign."""
    out = []
    for p, grads in zip(params, zip(*gradients)):
        m, decided = torch.zeros_like(p), torch.ones_like(p, dtype=bool)
        for g in grads:
            c = betas[0] * m + (1 - betas[0]) * g
            decided &= c.abs() > 1e-6 * c.pow(2).mean().sqrt()
            m = betas[1] * m + (1 - betas[1]) * g
        out.append(decided)
    return out


def novograd(params):
    cls = package("pytorch_optimizer").NovoGrad
    return [cls(groups(params, weight_decay=0.1), lr=1e-2, betas=(0.9, 0.95),
                eps=1e-6)]


class Decayed:
    """Decays weights before every step, like AdamW; pytorch-optimizer's SOAP
    decays them after it, and not in the first step."""
    def __init__(self, optimizer, params, factor):
        self.optimizer, self.params = optimizer, params
        self.factor = factor

    def step(self):
        with torch.no_grad():
            for p in self.params:
                p.mul_(self.factor)
        self.optimizer.step()


def soap(params):
    cls = package("pytorch_optimizer").SOAP
    hidden = [p for p in params if p.hidden]
    rest = [p for p in params if not p.hidden]
    return [Decayed(cls(hidden, lr=1e-2, betas=(0.9, 0.95), shampoo_beta=0.95,
                        weight_decay=0.0, precondition_frequency=4, eps=1e-6),
                    hidden, 1 - 1e-2 * 0.1),
            of_torch("AdamW")(groups(rest, weight_decay=0.1), lr=1e-2,
                              betas=(0.9, 0.95), eps=1e-6)]


ADAM = "betas: [0.9, 0.95], eps: 1e-6"
MUON = f"name: muon, lr: 1e-2, momentum: 0.9, nesterov: true, {ADAM}"
CASES = [
    ("SGD, torch.optim", "name: sgd, lr: 1e-2, momentum: 0",
     lambda p: sgd(p, 0, False), RTOL),
    ("SGD with momentum, torch.optim", "name: sgd, lr: 1e-2, momentum: 0.9",
     lambda p: sgd(p, 0.9, False), RTOL),
    ("SGD with Nesterov's momentum, torch.optim",
     "name: sgd, lr: 1e-2, momentum: 0.9, nesterov: true",
     lambda p: sgd(p, 0.9, True), RTOL),
    ("AdamW, torch.optim", f"name: adamw, lr: 1e-2, {ADAM}", adamw, RTOL),
    ("Adafactor, torch.optim", "name: adafactor, lr: 2e-2", adafactor, RTOL),
    ("Muon, torch.optim in fp32", MUON, lambda p: muon(p, True), RTOL),
    ("Muon, torch.optim as it is", MUON, lambda p: muon(p, False), MUON_BF16),
    ("LARS, timm", "name: lars, lr: 0.1, trust: 0.01",
     lambda p: lars(p, False), RTOL),
    ("LARC, timm", "name: larc, lr: 0.1, trust: 0.01",
     lambda p: lars(p, True), RTOL),
    ("LAMB, timm", f"name: lamb, lr: 1e-2, {ADAM}", lamb, RTOL),
    ("Lion, timm", "name: lion, lr: 1e-3, betas: [0.9, 0.95]", lion, RTOL),
    ("NovoGrad, pytorch-optimizer", f"name: novograd, lr: 1e-2, {ADAM}",
     novograd, RTOL),
    # Square matrices: for others, the first gradient determines only a part of
    # the basis, and rounding the rest.
    ("SOAP, pytorch-optimizer in fp64",
     f"name: soap, lr: 1e-2, frequency: 4, {ADAM}", soap, SOAP, 24, True),
]


def read_steps(path):
    """Read what optim_steps wrote: [(ndim, decay, layer)], and lists of
    tensors: weights, gradients of each step, weights."""
    with open(path, "rb") as f:
        data = f.read()
    head, _, body = data.partition(b"\n\n")
    rows = [line.split() for line in head.decode().splitlines()]
    kinds = [(int(r[1]), r[4] == "1", int(r[5])) for r in rows]
    shapes = [(int(r[2]), int(r[3])) if r[1] == "2" else (int(r[2]),)
              for r in rows]
    flat = torch.frombuffer(bytearray(body), dtype=torch.float32)
    lists, at = [], 0
    while at < len(flat):
        tensors = []
        for shape in shapes:
            n = torch.Size(shape).numel()
            tensors.append(flat[at:at + n].reshape(shape))
            at += n
        lists.append(tensors)
    return kinds, lists


def run_program(program, keys, work, seed, ffn):
    config, out = os.path.join(work, "c.yaml"), os.path.join(work, "steps")
    with open(config, "w") as f:
        f.write("model: {family: gpt2, layers: 2, hidden: 24, heads: 2, "
                f"ffn: {ffn}, vocab: 67, seq_len: 16}}\n"
                f"optim: {{{keys}, weight_decay: 0.1}}\n")
    subprocess.run([program, config, str(STEPS), str(seed), out], check=True)
    return read_steps(out)


def deviation(program, keys, make, work, seed, ffn=40, double=False):
    kinds, lists = run_program(program, keys, work, seed, ffn)
    if double:
        lists = [[t.double() for t in tensors] for tensors in lists]
    start, gradients, end = lists[0], lists[1:-1], lists[-1]
    params = [torch.nn.Parameter(t.clone()) for t in start]
    for p, (ndim, decay, layer) in zip(params, kinds):
        p.decays, p.hidden = decay, ndim == 2 and layer >= 0
    optimizers = make(params)
    for step in gradients:
        for p, g in zip(params, step):
            p.grad = g.clone()
        for o in optimizers:
            o.step()
    decided = [1.0] * len(params)
    if make is lion:
        decided = lion_decided(start, gradients, (0.9, 0.95))
    worst = 0.0
    for p, a, b, keep in zip(params, end, start, decided):
        d = (((p.data - a) * keep).double().norm() /
             (a - b).double().norm()).item()
        worst = d if not d <= worst else worst
    return worst


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--program", required=True)
    program = args.parse_args().program
    seed = random.randrange(1 << 32)
    if not torch:
        print("1..0 # SKIP no torch")
        return 0
    print(f"1..{len(CASES)}\n# seed {seed}", flush=True)
    failed = 0
    for n, (name, keys, make, most, *how) in enumerate(CASES, 1):
        try:
            with tempfile.TemporaryDirectory() as work:
                d = deviation(program, keys, make, work, seed, *how)
        except Missing as e:
            print(f"ok {n} # SKIP {name}: {e}", flush=True)
            continue
        good = d <= most
        failed += not good
        print(f"{'ok' if good else 'not ok'} {n} - {name}: {d:.1e} of the "
              f"change, at most {most:g}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
