# SPDX-License-Identifier: Apache-2.0
"""Small Hugging Face directories, made and compared without any package:

hf.py make DIR KIND [FILES [DTYPE]]   hf.py same DIR DIR [DTYPE]"""
import json
import math
import os
import random
import struct
import sys

WIDTH = {"F32": 4, "BF16": 2, "F16": 2}

GPT2 = {
    "model_type": "gpt2", "n_layer": 2, "n_embd": 24, "n_head": 3,
    "n_positions": 16, "n_inner": None, "vocab_size": 130,
    "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05,
    "bos_token_id": 7, "eos_token_id": 8}
LLAMA = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 24,
    "num_attention_heads": 6, "num_key_value_heads": 3,
    "intermediate_size": 42, "max_position_embeddings": 32, "vocab_size": 130,
    "hidden_act": "silu", "rms_norm_eps": 1e-06, "rope_theta": 500000.0,
    "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": [2, 3]}
KINDS = {
    "gpt2": GPT2,
    "gpt2-untied": {**GPT2, "tie_word_embeddings": False, "n_inner": 56},
    "llama": LLAMA,
    "llama-tied": {**LLAMA, "tie_word_embeddings": True,
                   "num_key_value_heads": 6},
    "llama3": {**LLAMA, "attention_bias": True, "mlp_bias": True,
               "head_dim": 6, "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 24}},
    "mistral": {**LLAMA, "model_type": "mistral", "sliding_window": 20},
    "mixtral": {**LLAMA, "model_type": "mixtral", "num_local_experts": 4,
                "num_experts_per_tok": 2, "sliding_window": None},
    "gpt_oss": {**LLAMA, "model_type": "gpt_oss", "num_local_experts": 4,
                "num_experts_per_tok": 2, "head_dim": 8, "sliding_window": 20,
                "attention_bias": True, "layer_types": [
                    "sliding_attention", "full_attention"], "rope_scaling": {
                    "rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0,
                    "beta_slow": 1.0, "truncate": False,
                    "original_max_position_embeddings": 8}},
    "qwen2": {**LLAMA, "model_type": "qwen2", "use_sliding_window": False},
    "qwen2-window": {**LLAMA, "model_type": "qwen2", "use_sliding_window": True,
                     "sliding_window": 20, "max_window_layers": 1},
    "qwen3": {**LLAMA, "model_type": "qwen3", "head_dim": 8,
              "tie_word_embeddings": True},
    "granite": {**LLAMA, "model_type": "granite", "attention_bias": False,
                "embedding_multiplier": 12.0, "attention_multiplier": 0.25,
                "residual_multiplier": 0.22, "logits_scaling": 8.0},
    "gemma": {**LLAMA, "model_type": "gemma", "head_dim": 8,
              "hidden_act": "gelu_pytorch_tanh", "hidden_activation": None,
              "tie_word_embeddings": True},
    "gemma2": {**{key: value for key, value in LLAMA.items()
                  if key not in ("hidden_act", "tie_word_embeddings")},
               "model_type": "gemma2", "head_dim": 8, "num_hidden_layers": 3,
               "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 20,
               "query_pre_attn_scalar": 12, "attn_logit_softcapping": 40.0,
               "final_logit_softcapping": 20.0},
    "gemma3_text": {**{key: value for key, value in LLAMA.items()
                       if key not in ("hidden_act", "rope_theta",
                                      "tie_word_embeddings")},
                    "model_type": "gemma3_text", "head_dim": 8,
                    "hidden_activation": "gelu_pytorch_tanh",
                    "num_hidden_layers": 3, "sliding_window": 20,
                    "sliding_window_pattern": 3, "query_pre_attn_scalar": 12,
                    "attn_logit_softcapping": None, "rope_theta": 1000000.0,
                    "rope_local_base_freq": 10000.0},
    "olmo2": {**LLAMA, "model_type": "olmo2", "attention_bias": False},
    "olmo3": {**{key: value for key, value in LLAMA.items()
                 if key != "rope_theta"}, "model_type": "olmo3",
              "sliding_window": 20, "rope_parameters": {
                  "full_attention": {"rope_type": "default",
                                     "rope_theta": 500000.0},
                  "sliding_attention": {"rope_type": "default",
                                        "rope_theta": 500000.0}}},
    "phi3": {**LLAMA, "model_type": "phi3", "sliding_window": 20,
             "resid_pdrop": 0.0, "embd_pdrop": 0.0,
             "original_max_position_embeddings": 32},
    "phi3-long": {**LLAMA, "model_type": "phi3", "resid_pdrop": 0.0,
                  "embd_pdrop": 0.0, "partial_rotary_factor": 0.5,
                  "max_position_embeddings": 32,
                  "original_max_position_embeddings": 8, "rope_scaling": {
                      "type": "longrope", "short_factor": [1.0],
                      "long_factor": [2.5]}},
    "smollm3": {key: value for key, value in {
        **LLAMA, "model_type": "smollm3"}.items()
        if key not in ("rope_theta", "tie_word_embeddings")},
    "qwen3_moe": {**LLAMA, "model_type": "qwen3_moe", "head_dim": 8,
                  "num_experts": 4, "num_experts_per_tok": 2,
                  "moe_intermediate_size": 18, "norm_topk_prob": True,
                  "decoder_sparse_step": 1, "mlp_only_layers": [],
                  "use_sliding_window": False, "sliding_window": None,
                  "max_window_layers": 2}}
KINDS["glm4_moe"] = {
    **LLAMA, "model_type": "glm4_moe", "attention_bias": True, "head_dim": 8,
    "first_k_dense_replace": 1, "moe_intermediate_size": 18, "n_group": 2,
    "n_routed_experts": 4, "n_shared_experts": 2, "norm_topk_prob": True,
    "num_experts_per_tok": 2, "num_nextn_predict_layers": 0,
    "partial_rotary_factor": 0.5, "routed_scaling_factor": 2.5, "topk_group": 1,
    "use_qk_norm": True}
KINDS["glm4_moe-mtp"] = {**KINDS["glm4_moe"], "num_nextn_predict_layers": 1}
KINDS["glm4_moe-two"] = {**KINDS["glm4_moe"], "num_nextn_predict_layers": 2}
KINDS["deepseek_v3"] = {
    **LLAMA, "model_type": "deepseek_v3", "num_key_value_heads": 6,
    "first_k_dense_replace": 1, "kv_lora_rank": 10, "q_lora_rank": 14,
    "moe_intermediate_size": 18, "moe_layer_freq": 1, "n_group": 2,
    "n_routed_experts": 4, "n_shared_experts": 2, "norm_topk_prob": True,
    "num_experts_per_tok": 2, "num_nextn_predict_layers": 0,
    "qk_nope_head_dim": 5, "qk_rope_head_dim": 4, "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid", "topk_group": 1, "topk_method": "noaux_tc",
    "v_head_dim": 7}
KINDS["deepseek_v3-mtp"] = {**KINDS["deepseek_v3"],
                            "num_nextn_predict_layers": 1}
# columns of heads are no share of the model's
KINDS["deepseek_v3-5"] = {**KINDS["deepseek_v3"], "num_attention_heads": 5,
                          "num_key_value_heads": 5}
# the sizes that transformers gives where config.json does not
KINDS["deepseek_v3-short"] = {
    **KINDS["deepseek_v3"], "num_hidden_layers": 4, "n_shared_experts": 1,
    "first_k_dense_replace": 3, "kv_lora_rank": 512, "q_lora_rank": 1536,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
KINDS["kimi_k2"] = {**KINDS["deepseek_v3"], "model_type": "kimi_k2",
                    "q_lora_rank": None, "rope_scaling": {
                        "type": "yarn", "factor": 4.0, "beta_fast": 1.0,
                        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                        "original_max_position_embeddings": 16}}
KINDS["deepseek_v2"] = {
    **{key: value for key, value in KINDS["deepseek_v3"].items()
       if key != "num_nextn_predict_layers"}, "model_type": "deepseek_v2",
    "n_group": 2, "norm_topk_prob": False, "q_lora_rank": None,
    "routed_scaling_factor": 16.0, "scoring_func": "softmax",
    "topk_method": "group_limited_greedy", "rope_scaling": {
        "type": "yarn", "factor": 4.0, "beta_fast": 32, "beta_slow": 1,
        "mscale": 0.707, "mscale_all_dim": 0.707,
        "original_max_position_embeddings": 16}}
KINDS["llama4_text"] = {
    **LLAMA, "model_type": "llama4_text", "num_hidden_layers": 4,
    "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 1,
    "intermediate_size_mlp": 60, "interleave_moe_layer_step": 2,
    "attention_chunk_size": 16, "no_rope_layer_interval": 4,
    "use_qk_norm": True, "attn_temperature_tuning": True, "floor_scale": 8,
    "attn_scale": 0.1}
KINDS["llama4_text-first"] = {**KINDS["llama4_text"], "moe_layers": [1, 2, 3],
                              "num_experts_per_tok": 2}
KINDS["llama4_text-third"] = {**KINDS["llama4_text"], "moe_layers": [2]}
KINDS["llama4_text-last"] = {**KINDS["llama4_text"], "moe_layers": [3]}
KINDS["glm4_moe_lite"] = {
    **KINDS["deepseek_v3"], "model_type": "glm4_moe_lite",
    "mlp_layer_types": ["dense", "sparse"]}
KINDS["olmoe"] = {**LLAMA, "model_type": "olmoe", "attention_bias": False,
                  "clip_qkv": None, "norm_topk_prob": False, "num_experts": 4,
                  "num_experts_per_tok": 2}
KINDS["minimax_m2"] = {**LLAMA, "model_type": "minimax_m2", "head_dim": 8,
                       "num_local_experts": 4, "num_experts_per_tok": 2,
                       "rotary_dim": 4, "scoring_func": "sigmoid"}
KINDS["exaone4"] = {**LLAMA, "model_type": "exaone4", "sliding_window": 20,
                    "sliding_window_pattern": "LG", "layer_types": [
                        "sliding_attention", "full_attention"]}
KINDS["seed_oss"] = {**LLAMA, "model_type": "seed_oss", "head_dim": 8,
                     "attention_bias": True, "attention_out_bias": False,
                     "attention_dropout": 0.1, "residual_dropout": 0.1,
                     "mlp_bias": False}
KINDS["seed_oss-out"] = {**KINDS["seed_oss"], "attention_out_bias": True}
KINDS["phi3-88"] = {**KINDS["phi3"], "head_dim": 88}
KINDS["qwen3_moe-first"] = {**KINDS["qwen3_moe"], "mlp_only_layers": [0]}


def gpt2_shapes(c):
    width, inner = c["n_embd"], c["n_inner"] or 4 * c["n_embd"]
    yield "transformer.wte.weight", [c["vocab_size"], width]
    yield "transformer.wpe.weight", [c["n_positions"], width]
    for i in range(c["n_layer"]):
        for name, shape in (
                ("ln_1", [width]), ("attn.c_attn", [width, 3 * width]),
                ("attn.c_proj", [width, width]), ("ln_2", [width]),
                ("mlp.c_fc", [width, inner]), ("mlp.c_proj", [inner, width])):
            yield f"transformer.h.{i}.{name}.weight", shape
            yield f"transformer.h.{i}.{name}.bias", shape[-1:]
    yield "transformer.ln_f.weight", [width]
    yield "transformer.ln_f.bias", [width]
    if not c.get("tie_word_embeddings", True):
        yield "lm_head.weight", [c["vocab_size"], width]


def biases(c):
    if c["model_type"] == "qwen2" or (
            c["model_type"] in ("glm4_moe", "seed_oss") and
            c["attention_bias"] and not c.get("attention_out_bias")):
        return "qkv"
    return "qkvo" if c.get("attention_bias") else ""


def gated(name, width, inner, biased=False):
    for matrix, shape in {"gate": [inner, width], "up": [inner, width],
                          "down": [width, inner]}.items():
        yield f"{name}{matrix}_proj.weight", shape
        if biased:
            yield f"{name}{matrix}_proj.bias", shape[:1]


def glm_shapes(mlp, c):
    width, inner = c["hidden_size"], c["moe_intermediate_size"]
    yield mlp + "gate.weight", [c["n_routed_experts"], width]
    if c["model_type"] != "deepseek_v2":
        yield mlp + "gate.e_score_correction_bias", [c["n_routed_experts"]]
    yield from gated(mlp + "shared_experts.", width,
                     inner * c["n_shared_experts"])
    for e in range(c["n_routed_experts"]):
        yield from gated(f"{mlp}experts.{e}.", width, inner)


def llama4_shapes(mlp, c, i):
    width, inner = c["hidden_size"], c["intermediate_size"]
    if i not in c.get("moe_layers", range(1, i + 1, 2)):
        yield from gated(mlp, width, c["intermediate_size_mlp"])
        return
    n = c["num_local_experts"]
    yield mlp + "router.weight", [n, width]
    yield mlp + "experts.gate_up_proj", [n, width, 2 * inner]
    yield mlp + "experts.down_proj", [n, inner, width]
    yield from gated(mlp + "shared_expert.", width, inner)


def mlp_shapes(layer, c, i):
    width, inner = c["hidden_size"], c["intermediate_size"]
    if c["model_type"] == "llama4_text":
        yield from llama4_shapes(layer + "feed_forward.", c, i)
        return
    if i >= c.get("first_k_dense_replace", i + 1):
        yield from glm_shapes(layer + "mlp.", c)
        return
    if "num_experts" in c and i not in c.get("mlp_only_layers", []):
        inner = c.get("moe_intermediate_size", inner)
        yield layer + "mlp.gate.weight", [c["num_experts"], width]
        for e in range(c["num_experts"]):
            expert = f"{layer}mlp.experts.{e}."
            yield expert + "gate_proj.weight", [inner, width]
            yield expert + "up_proj.weight", [inner, width]
            yield expert + "down_proj.weight", [width, inner]
        return
    if c["model_type"] == "gpt_oss":
        n = c["num_local_experts"]
        yield layer + "mlp.router.weight", [n, width]
        yield layer + "mlp.router.bias", [n]
        layer += "mlp.experts."
        yield layer + "gate_up_proj", [n, width, 2 * inner]
        yield layer + "gate_up_proj_bias", [n, 2 * inner]
        yield layer + "down_proj", [n, inner, width]
        yield layer + "down_proj_bias", [n, width]
        return
    if c["model_type"] not in ("mixtral", "minimax_m2"):
        if c["model_type"] == "phi3":
            yield layer + "mlp.gate_up_proj.weight", [2 * inner, width]
            yield layer + "mlp.down_proj.weight", [width, inner]
        else:
            yield from gated(layer + "mlp.", width, inner, c.get("mlp_bias"))
        return
    layer += "block_sparse_moe."
    yield layer + "gate.weight", [c["num_local_experts"], width]
    if c["model_type"] == "minimax_m2":
        yield layer + "e_score_correction_bias", [c["num_local_experts"]]
    for i in range(c["num_local_experts"]):
        yield f"{layer}experts.{i}.w1.weight", [inner, width]
        yield f"{layer}experts.{i}.w2.weight", [width, inner]
        yield f"{layer}experts.{i}.w3.weight", [inner, width]


def latent_shapes(name, c):
    width, heads, rank = (c[k] for k in (
        "hidden_size", "num_attention_heads", "kv_lora_rank"))
    rope, nope, v = (c[k] for k in (
        "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"))
    q = heads * (nope + rope)
    if c["q_lora_rank"]:
        yield name + "q_a_proj.weight", [c["q_lora_rank"], width]
        yield name + "q_a_layernorm.weight", [c["q_lora_rank"]]
        yield name + "q_b_proj.weight", [q, c["q_lora_rank"]]
    else:
        yield name + "q_proj.weight", [q, width]
    yield name + "kv_a_proj_with_mqa.weight", [rank + rope, width]
    yield name + "kv_a_layernorm.weight", [rank]
    yield name + "kv_b_proj.weight", [heads * (nope + v), rank]
    yield name + "o_proj.weight", [width, heads * v]


def llama_shapes(c):
    width = c["hidden_size"]
    head = c.get("head_dim") or width // c["num_attention_heads"]
    q, kv = head * c["num_attention_heads"], head * c["num_key_value_heads"]
    yield "model.embed_tokens.weight", [c["vocab_size"], width]
    for i in range(c["num_hidden_layers"] +
                   c.get("num_nextn_predict_layers", 0)):
        layer = f"model.layers.{i}."
        if i >= c["num_hidden_layers"]:
            for norm in "enorm", "hnorm", "shared_head.norm":
                yield f"{layer}{norm}.weight", [width]
            yield layer + "eh_proj.weight", [width, 2 * width]
        after = c["model_type"] in ("olmo2", "olmo3", "exaone4")
        both = c["model_type"] in ("gemma2", "gemma3_text")
        if not after:
            yield layer + "input_layernorm.weight", [width]
        if both:
            yield layer + "pre_feedforward_layernorm.weight", [width]
        if after or both:
            yield layer + "post_feedforward_layernorm.weight", [width]
        if c["model_type"] == "phi3":
            yield layer + "self_attn.qkv_proj.weight", [q + 2 * kv, width]
        elif "kv_lora_rank" in c:
            yield from latent_shapes(layer + "self_attn.", c)
        else:
            yield layer + "self_attn.q_proj.weight", [q, width]
            yield layer + "self_attn.k_proj.weight", [kv, width]
            yield layer + "self_attn.v_proj.weight", [kv, width]
        if "kv_lora_rank" not in c:
            yield layer + "self_attn.o_proj.weight", [width, q]
        for x in biases(c):
            yield (layer + f"self_attn.{x}_proj.bias",
                   [{"q": q, "o": width}.get(x, kv)])
        if c["model_type"] == "gpt_oss":
            yield layer + "self_attn.sinks", [c["num_attention_heads"]]
        if c["model_type"].startswith(("gemma3", "qwen3", "exaone")) or \
                (c.get("use_qk_norm") and c["model_type"] != "llama4_text"):
            yield layer + "self_attn.q_norm.weight", [head]
            yield layer + "self_attn.k_norm.weight", [head]
        if "olmo" in c["model_type"] or c["model_type"] == "minimax_m2":
            yield layer + "self_attn.q_norm.weight", [q]
            yield layer + "self_attn.k_norm.weight", [kv]
        yield layer + "post_attention_layernorm.weight", [width]
        yield from mlp_shapes(layer, c, i)
    yield "model.norm.weight", [width]
    if not c.get("tie_word_embeddings",
                 c["model_type"] in ("smollm3", "gemma2", "gemma3_text")):
        yield "lm_head.weight", [c["vocab_size"], width]


def shapes(config):
    gpt2 = config["model_type"] == "gpt2"
    return list((gpt2_shapes if gpt2 else llama_shapes)(config))


def values(n, dtype):
    if dtype == "F32":
        return struct.pack(f"<{n}f", *(random.gauss(0, .05) for _ in range(n)))
    if dtype == "F16":
        return struct.pack(f"<{n}e", *(random.gauss(0, .05) for _ in range(n)))
    wide = struct.pack(f"<{n}f", *(random.gauss(0, .05) for _ in range(n)))
    return b"".join(wide[i + 2:i + 4] for i in range(0, len(wide), 4))


def write_file(path, tensors, dtype):
    """Write a safetensors file. tensors: [(name, shape, bytes)]"""
    head, at = {}, 0
    for name, shape, data in tensors:
        head[name] = {"dtype": dtype, "shape": shape,
                      "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors:
            f.write(data)


def make(path, kind, files=1, dtype="F32"):
    config = KINDS[kind]
    tensors = []
    for name, shape in shapes(config):
        n = math.prod(shape)
        tensors.append((name, shape, values(n, dtype)))
    os.makedirs(path)
    with open(f"{path}/config.json", "w") as f:
        json.dump(config, f)
    with open(f"{path}/tokenizer.json", "w") as f:
        f.write('{"not": "read"}')
    with open(f"{path}/generation_config.json", "w") as f:
        f.write('{"eos_token_id": 2}')
    if files == 1:
        write_file(f"{path}/model.safetensors", tensors, dtype)
        return
    index = {}
    for i in range(files):
        name = f"model-{i + 1:05}-of-{files:05}.safetensors"
        write_file(f"{path}/{name}", tensors[i::files], dtype)
        index.update((t[0], name) for t in tensors[i::files])
    with open(f"{path}/model.safetensors.index.json", "w") as f:
        json.dump({"weight_map": index}, f)


def read(path):
    """Return {name: (shape, dtype, bytes)} of all safetensors files of a
    directory."""
    found = {}
    for name in sorted(os.listdir(path)):
        if not name.endswith(".safetensors"):
            continue
        with open(f"{path}/{name}", "rb") as f:
            data = f.read()
        size, = struct.unpack("<Q", data[:8])
        head = json.loads(data[8:8 + size])
        head.pop("__metadata__", None)
        for tensor, entry in head.items():
            begin, end = entry["data_offsets"]
            assert tensor not in found
            found[tensor] = (entry["shape"], entry["dtype"],
                             data[8 + size + begin:8 + size + end])
    return found


def widen(shape, dtype, data):
    if dtype == "F32":
        return data
    n = len(data) // 2
    if dtype == "F16":
        return struct.pack(f"<{n}f", *struct.unpack(f"<{n}e", data))
    return b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))


def same(a, b, dtype=None):
    """Assert that the tensors of two directories have equal bits as fp32."""
    a, b = read(a), read(b)
    assert a and set(a) == set(b), set(a) ^ set(b)
    for name in a:
        assert a[name][0] == b[name][0], name
        kept = "F32" if name.endswith("e_score_correction_bias") else dtype
        assert dtype is None or b[name][1] == kept, b[name][1]
        assert widen(*a[name]) == widen(*b[name]), name


def same_config(a, b):
    """Assert that each value in the first config.json is in the second too."""
    a, b = (json.load(open(f"{d}/config.json")) for d in (a, b))
    for key, value in a.items():
        if value is not None:
            assert b.get(key) == value, (key, value, b.get(key))


def add_copies(path, changed="", more=()):
    """Give the module of one fp32 file copies of the embedding and the head, as
    published models have them. changed: the copy of one of the two, a number
    of which differs; more: names of further vectors."""
    tensors = [(name, *entry[::2]) for name, entry in read(path).items()]
    layer = json.load(open(f"{path}/config.json"))["num_hidden_layers"]
    for own, copy in (("model.embed_tokens", "embed_tokens"),
                      ("lm_head", "shared_head.head")):
        _, shape, data = next(t for t in tensors if t[0] == own + ".weight")
        if changed == copy:
            data = data[:-4] + struct.pack("<f", 7)
        tensors.append((f"model.layers.{layer}.{copy}.weight", shape, data))
    tensors += [(name, [1], bytes(4)) for name in more]
    write_file(f"{path}/model.safetensors", tensors, "F32")


if __name__ == "__main__":
    command, *args = sys.argv[1:]
    if command == "copies":
        add_copies(args[0], *args[1:2], args[2:])
    elif command == "make":
        make(args[0], args[1], *map(int, args[2:3]), *args[3:4])
    else:
        same(*args)
        same_config(*args[:2])
