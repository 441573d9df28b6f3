# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning with prompts that have no loss equals PyTorch with ignore_index,
in every layout: prompts_check.py DIR, for prompts.sh.

Each step is over all samples, so that their order does not matter."""
import json
import os
import random
import subprocess
import sys

import torch
import transformers

TOP = os.environ["top_srcdir"]
BUILD = os.environ["top_builddir"]
STEPS, SAMPLES, LENGTH, RATE = 3, 24, 24, 0.1
MODEL = {
    "gpt2": transformers.GPT2Config(
        vocab_size=257, n_embd=48, n_layer=4, n_head=6, n_positions=LENGTH,
        initializer_range=0.1, bos_token_id=256, eos_token_id=256),
    "llama": transformers.LlamaConfig(
        vocab_size=257, hidden_size=48, intermediate_size=72,
        num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=2,
        max_position_embeddings=LENGTH, initializer_range=0.1)}
LAYOUTS = {
    "": 1, "train.micro_batch=3": 1, "parallel.tp=2": 2, "parallel.cp=2": 2,
    "parallel.pp=2": 2, "parallel.dp=2": 2, "parallel.dp=2 parallel.zero=3": 2,
    "parallel.tp=2 parallel.pp=2 parallel.schedule=zb-h1": 4,
    "parallel.cp=2 parallel.dp=2 train.micro_batch=2": 4}
count = 0


def ok(good, what):
    global count
    count += 1
    print(f"{'ok' if good else 'not ok'} {count} - {what}", flush=True)


def write_text(path):
    """Write JSON lines with all samples and the token after them; return the
    tokens, and whether each is to be predicted. Fewer than 20 lines, as each
    twentieth would be for validation."""
    tokens, predicted = [], []
    with open(path, "w") as f:
        while left := SAMPLES * LENGTH + 1 - len(tokens):
            prompt, text = (
                "".join(random.choices("abc éß€😀", k=random.randrange(*k)))
                for k in ((16,), (14, 30)))
            if left < 300:
                prompt, text = "at last ", "." * (left - 9)
            f.write(json.dumps({"prompt": prompt, "completion": text}) + "\n")
            for part, counts in ((prompt.encode(), False),
                                 (text.encode() + b"\0", True)):
                tokens += part
                predicted += [counts] * len(part)
            tokens[-1] = 256  # the end of a document
    return tokens, predicted


def torch_says(model, tokens, predicted):
    """Return losses, norms of the gradient, the count of targets, final
    weights."""
    ids = torch.tensor(tokens)
    labels = torch.where(torch.tensor(predicted), ids, -100)[1:]
    losses, norms = [], []
    for _ in range(STEPS):
        model.zero_grad()
        logits = model(ids[:-1].view(SAMPLES, LENGTH)).logits
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels, ignore_index=-100)
        loss.backward()
        grads = [p.grad for p in model.parameters()]
        losses.append(loss.item())
        norms.append(torch.cat([g.flatten() for g in grads]).norm().item())
        with torch.no_grad():
            for p in model.parameters():
                p -= RATE * p.grad
    return losses, norms, int((labels != -100).sum()), model.state_dict()


def plait_says(work, source, keys, ranks):
    config = f"{work}/c.yaml"
    with open(f"{source}/plait.yaml") as f:
        model = f.read()
    with open(config, "w") as f:
        f.write(f"{model}\ndata: {{train: {work}/data/train.bin}}\n"
                f"train: {{steps: {STEPS}, global_batch: {SAMPLES}, "
                "micro_batch: 1}\n"
                f"optim: {{name: sgd, lr: {RATE}, momentum: 0, "
                "weight_decay: 0, clip: 0}\nlr: {schedule: constant, "
                f"warmup: 0}}\ncheckpoint: {{dir: {work}/ck}}\n")
    command = [f"{BUILD}/plait-train", config, "--init", source, "--resume",
               "none", "--device", "cpu", "--metrics", f"{work}/m"]
    for key in (*keys.split(), "model.dropout=0", "model.attention_dropout=0"):
        command += ["--set", key]
    if ranks > 1:
        command = ["sh", f"{TOP}/tests/lib/mpirun.sh", str(ranks), *command]
    subprocess.run(command, check=True, timeout=240,
                   stdout=subprocess.DEVNULL)
    with open(f"{work}/m") as f:
        lines = [json.loads(line) for line in f]
    subprocess.run([f"{BUILD}/plait-convert", "--from", f"{work}/ck", "--to",
                    f"{work}/back", "--format", "hf"], check=True,
                   stdout=subprocess.DEVNULL)
    back = transformers.AutoModelForCausalLM.from_pretrained(
        f"{work}/back", dtype=torch.float32).state_dict()
    subprocess.run(["rm", "-r", f"{work}/ck", f"{work}/back"], check=True)
    return lines, back


def check(work, name, tokens, predicted):
    model = transformers.AutoModelForCausalLM.from_config(MODEL[name]).eval()
    source = f"{work}/{name}"
    model.save_pretrained(source)
    subprocess.run([f"{BUILD}/plait-convert", "--from", source, "--to",
                    f"{work}/plait-{name}"], check=True,
                   stdout=subprocess.DEVNULL)
    os.rename(f"{work}/plait-{name}/latest/plait.yaml", f"{source}/plait.yaml")
    first = {k: v.clone() for k, v in model.state_dict().items()}
    losses, norms, counted, last = torch_says(model.double(), tokens,
                                              predicted)
    for keys, ranks in LAYOUTS.items():
        lines, got = plait_says(work, source, keys, ranks)
        dl = max(abs(a["loss"] - b) / b for a, b in zip(lines, losses))
        dn = max(abs(a["grad_norm"] - b) / b for a, b in zip(lines, norms))
        off = sum(((got[k] - last[k]) ** 2).sum() for k in last) ** 0.5
        moved = sum(((first[k] - last[k]) ** 2).sum() for k in last) ** 0.5
        ok(len(lines) == STEPS and dl < 1e-6 and dn < 1e-5 and
           off < 1e-5 * moved and
           all(line["loss_tokens"] == counted for line in lines),
           f"{name}, {keys or 'one process'}: {counted} of "
           f"{len(tokens) - 1} targets, loss {losses[0]:.5f} to "
           f"{losses[-1]:.5f} within {dl:.1e}, gradient norm {dn:.1e}, "
           f"change of the weights {off / moved:.1e}")


def main():
    work = sys.argv[1]
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    seed = random.randrange(1 << 30)
    print(f"# seed {seed}, torch {torch.__version__}, transformers "
          f"{transformers.__version__}")
    random.seed(seed)
    torch.manual_seed(seed)
    tokens, predicted = write_text(f"{work}/text.jsonl")
    subprocess.run([f"{BUILD}/plait-prep", f"{work}/text.jsonl",
                    "--prompt-field", "prompt", "--out", f"{work}/data"],
                   check=True, stdout=subprocess.DEVNULL)
    for name in MODEL:
        check(work, name, tokens, predicted)
    print(f"1..{count}")


if __name__ == "__main__":
    main()
