#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Image models against PyTorch: every gradient, the loss over 100 steps, the
running statistics after them and the results of validation.

    image_torch.py PLAIT_TRAIN     TAP; skipped without torch

The models are written here from the papers (He et al., arXiv 1512.03385), in
fp64. All images are one batch, so that their order does not matter. So narrow
a net multiplies rounding errors in each step and layer: if PyTorch's own fp32
deviates from its fp64 by more than a third of the tolerance, three times that
deviation is the limit.
"""
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError:
    print("1..0 # SKIP python3-torch is not installed")
    sys.exit(0)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "lib"))
from images import write_images

# plait-train's convolutions are oneDNN's, so PyTorch's are not. With oneDNN 2.6
# PyTorch 1.13 also writes beyond its arrays on a Zen 3 (AVX2).
torch.backends.mkldnn.enabled = False

TOLERANCE = 1e-4
N, STEPS, RATE = 32, 100, 1e-3
PROBE = 1024.0  # a rate so large that one step shows the gradient
SMOOTHING = 0.1
MODELS = {
    "mlp": ((1, 8, 8), "family: mlp, layers: 2, width: 48, "
            f"label_smoothing: {SMOOTHING}"),
    "resnet-20": ((3, 12, 12), "family: resnet, depth: 20, width: 4, "
                  f"label_smoothing: {SMOOTHING}"),
    "resnet-50": ((1, 36, 33), "family: resnet, depth: 50, width: 4"),
}


def train(program, config, directory, log, sets):
    cmd = [program, config, "--metrics", log, "--resume", "none"]
    for s in sets + [f"checkpoint.dir={directory}"]:
        cmd += ["--set", s]
    subprocess.run(cmd, check=True, stdout=subprocess.DEVNULL, timeout=300)
    with open(log) as f:
        return [json.loads(line) for line in f]


def read_weights(directory):
    """{name: array} of the newest checkpoint, written by one process."""
    out, latest = {}, os.path.join(directory, "latest")
    for name in os.listdir(latest):
        if not name.endswith(".safetensors"):
            continue
        with open(os.path.join(latest, name), "rb") as f:
            size = int.from_bytes(f.read(8), "little")
            head = json.loads(f.read(size))
            data = f.read()
        for key, t in head.items():
            if key != "__metadata__":
                a, b = t["data_offsets"]
                out[key] = np.frombuffer(data[a:b], np.float32).reshape(
                    t["shape"]).astype(np.float64)
    return out


class Net:
    """The model by functions of its parameters, which have Plait's names; 4-d
    for convolutions."""

    def __init__(self, family, layers, weights, dtype=torch.float64):
        self.family, self.layers, self.train = family, layers, True
        self.p, self.stats = {}, {}
        for name, w in weights.items():
            t = torch.tensor(w, dtype=dtype)
            if name.endswith(("norm.mean", "norm.variance")):
                self.stats[name] = t.flatten()
                continue
            if ".norm." in name or name.endswith("bias"):
                t = t.flatten()
            self.p[name] = t.requires_grad_()

    def unit(self, name, x, kernel, stride):
        w = self.p[name + ".weight"]
        w = w.reshape(len(w), kernel, kernel, -1).permute(0, 3, 1, 2)
        x = F.conv2d(x, w, stride=stride, padding=kernel // 2)
        n = name + ".norm."
        return F.batch_norm(x, self.stats[n + "mean"],
                            self.stats[n + "variance"], self.p[n + "weight"],
                            self.p[n + "bias"], self.train, 0.1, 1e-5)

    def residual(self, i, x, stride, bottleneck):
        name = f"layers.{i}."
        if bottleneck:
            y = F.relu(self.unit(name + "conv1", x, 1, 1))
            y = F.relu(self.unit(name + "conv2", y, 3, stride))
            y = self.unit(name + "conv3", y, 1, 1)
        else:
            y = F.relu(self.unit(name + "conv1", x, 3, stride))
            y = self.unit(name + "conv2", y, 3, 1)
        if name + "shortcut.weight" in self.p:
            x = self.unit(name + "shortcut", x, 1, stride)
        return F.relu(x + y)

    def __call__(self, x):
        if self.family == "mlp":
            x = x.permute(0, 2, 3, 1).flatten(1)
            for i in range(self.layers):
                x = F.relu(F.linear(x, self.p[f"layers.{i}.weight"],
                                    self.p[f"layers.{i}.bias"]))
        else:
            deep = self.family == "resnet-50"
            x = F.relu(self.unit("stem", x, 7 if deep else 3,
                                 2 if deep else 1))
            if deep:
                x = F.max_pool2d(x, 3, 2, 1)
            starts = (0, 3, 7, 13) if deep else (0, self.layers // 3,
                                                 2 * self.layers // 3)
            for i in range(self.layers):
                x = self.residual(i, x, 2 if i in starts[1:] else 1, deep)
            x = x.mean((2, 3))
        return F.linear(x, self.p["head.weight"], self.p["head.bias"])


class Tap:
    def __init__(self):
        self.n = self.bad = 0

    def check(self, text, deviation, single=0):
        """single: the deviation of PyTorch's own fp32."""
        self.n += 1
        good = deviation <= max(TOLERANCE, 3 * single)
        self.bad += not good
        print(f"{'ok' if good else 'not ok'} {self.n} - {text}: "
              f"{deviation:.2g}" +
              (f" (PyTorch's fp32: {single:.2g})" if single else ""))


def deviation(a, b):
    a, b = np.asarray(a).flatten(), np.asarray(b).flatten()
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-12))


def write_config(path, model, data):
    shape, text = MODELS[model]
    with open(path, "w") as f:
        f.write(f"""
model: {{{text}, input: {list(shape)}}}
data: {{train: {data}, val: {data}, mean: 0.3, std: 0.25}}
train: {{steps: 1, global_batch: {N}, micro_batch: {N}, eval_steps: 1}}
optim: {{name: sgd, lr: 0, momentum: 0, weight_decay: 0, clip: 0}}
lr: {{schedule: constant, warmup: 0}}
""")


def gradients(net, x, y, smoothing):
    loss = F.cross_entropy(net(x), y, label_smoothing=smoothing)
    grads = torch.autograd.grad(loss, list(net.p.values()))
    return [g.numpy() for g in grads], loss.item()


def worst(a, b):
    return max(deviation(x, y) for x, y in zip(a, b))


def curve_of(net, x, y, smoothing):
    losses, velocity = [], {}
    for _ in range(STEPS):
        loss = F.cross_entropy(net(x), y, label_smoothing=smoothing)
        losses.append(loss.item())
        grads = torch.autograd.grad(loss, list(net.p.values()))
        with torch.no_grad():
            for (name, p), g in zip(net.p.items(), grads):
                velocity[name] = 0.9 * velocity.get(name, 0) + g
                p -= RATE * velocity[name]
    return losses


def check_validation(tap, model, net, x, y, smoothing, got):
    net.train = False
    with torch.no_grad():
        out = net(x)
        loss = F.cross_entropy(out, y, label_smoothing=smoothing).item()
    net.train = True
    right = (out.argmax(1) == y).double().mean().item()
    tap.check(f"{model}: validation", abs(got["val_loss"] - loss) / loss)
    tap.check(f"{model}: accuracy", abs(got["accuracy"] - right))


def check_model(tap, program, tmp, model):
    shape, text = MODELS[model]
    smoothing = SMOOTHING if "smoothing" in text else 0
    path, log = os.path.join(tmp, model), os.path.join(tmp, "log")
    data, images, labels = write_images(os.path.join(tmp, "d"), N, shape, 10)
    x = torch.tensor(images, dtype=torch.float64).reshape(N, *shape)
    x, y = (x / 255 - 0.3) / 0.25, torch.tensor(labels)
    write_config(path, model, data)
    zero, one = os.path.join(tmp, "0"), os.path.join(tmp, "1")
    start = train(program, path, zero, log, ["train.eval_every=1"])[0]
    before = read_weights(zero)
    layers = {"mlp": 2, "resnet-20": 9, "resnet-50": 16}[model]
    # Reset the running statistics to 0 and 1: `before` has seen one batch.
    fresh = {k: np.full_like(v, k.endswith("variance"))
             if k.endswith(("norm.mean", "norm.variance")) else v
             for k, v in before.items()}

    def nets():
        return (Net(model, layers, fresh),
                Net(model, layers, fresh, torch.float32))

    net, single = nets()
    want, loss = gradients(net, x, y, smoothing)
    tap.check(f"{model}: the first loss", abs(start["loss"] - loss) / loss)
    for name, s in net.stats.items():
        if name.startswith(("stem", "layers.2.shortcut")):
            tap.check(f"{model}: {name} after a step",
                      deviation(before[name], s.numpy()))
    check_validation(tap, model, net, x, y, smoothing, start)
    if model == "resnet-50": # its gradients double every rounding error
        return
    train(program, path, one, log, [f"optim.lr={PROBE}"])
    after = read_weights(one)
    tap.check(f"{model}: the {len(net.p)} gradients",
              worst([(before[k] - after[k]) / PROBE for k in net.p], want))
    net, single = nets()
    got = train(program, path, one, log,
                [f"train.steps={STEPS}", f"optim.lr={RATE}",
                 "optim.momentum=0.9"])
    want = curve_of(net, x, y, smoothing)
    tap.check(f"{model}: the loss of {STEPS} steps",
              worst([m["loss"] for m in got], want),
              worst(curve_of(single, x.float(), y, smoothing), want))


def main(program):
    tap = Tap()
    torch.manual_seed(1)
    for model in MODELS:
        with tempfile.TemporaryDirectory() as tmp:
            check_model(tap, program, tmp, model)
    print(f"1..{tap.n}")
    return tap.bad > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
