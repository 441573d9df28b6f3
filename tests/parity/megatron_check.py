# SPDX-License-Identifier: Apache-2.0
"""Megatron-core computes with an exported checkpoint what Plait computes, and
the checkpoint that it saves is read back bit for bit:
megatron_check.py DIR [KIND]..., for megatron.sh."""
import argparse
import contextlib
import os
import random
import struct
import subprocess
import sys

import torch
import megatron.core
from megatron.core import parallel_state, tensor_parallel
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.enums import AttnBackend
from megatron.core.transformer.moe import moe_utils

TOP = os.environ["top_srcdir"]
BUILD = os.environ["top_builddir"]
sys.path.insert(0, f"{TOP}/tests/lib")
import hf  # noqa: E402

FILE = "release/mp_rank_00/model_optim_rng.pt"
KINDS = ["gpt2", "gpt2-untied", "llama", "llama-tied", "mistral", "mixtral",
         "qwen2", "qwen3"]
LENGTH = 15
count = 0


def ok(good, what):
    global count
    count += 1
    print(f"{'ok' if good else 'not ok'} {count} - {what}", flush=True)


def convert(source, to, *more):
    subprocess.run([f"{BUILD}/plait-convert", "--from", source, "--to", to,
                    *more], check=True, stdout=subprocess.DEVNULL)


def tanh_gelu(x):
    """Megatron-LM's openai_gelu."""
    return torch.nn.functional.gelu(x, approximate="tanh")


def build(a):
    """The GPTModel that Megatron-LM makes of these arguments."""
    gated = a.swiglu
    experts = getattr(a, "num_experts", None)
    config = TransformerConfig(
        num_layers=a.num_layers, hidden_size=a.hidden_size,
        ffn_hidden_size=a.ffn_hidden_size,
        num_attention_heads=a.num_attention_heads,
        num_query_groups=a.num_query_groups, kv_channels=a.kv_channels,
        normalization=a.normalization, layernorm_epsilon=a.norm_epsilon,
        gated_linear_unit=gated, add_bias_linear=a.add_bias_linear,
        activation_func=torch.nn.functional.silu if gated else tanh_gelu,
        add_qkv_bias=getattr(a, "add_qkv_bias", False),
        qk_layernorm=getattr(a, "qk_layernorm", False),
        num_moe_experts=experts,
        moe_router_topk=getattr(a, "moe_router_topk", 2),
        moe_token_dispatcher_type="allgather",
        hidden_dropout=0, attention_dropout=0, use_cpu_initialization=True,
        attention_backend=AttnBackend.local, bias_activation_fusion=False,
        apply_rope_fusion=False, masked_softmax_fusion=False,
        bias_dropout_fusion=False, pipeline_dtype=torch.float32)
    spec = get_gpt_layer_local_spec(
        num_experts=experts, normalization=a.normalization,
        qk_layernorm=getattr(a, "qk_layernorm", False))
    rope = {}
    if a.position_embedding_type == "rope":
        rope = dict(rotary_base=a.rotary_base, rotary_percent=a.rotary_percent)
    model = GPTModel(
        config, spec, vocab_size=a.padded_vocab_size,
        max_sequence_length=a.max_position_embeddings, parallel_output=False,
        position_embedding_type=a.position_embedding_type,
        share_embeddings_and_output_weights=not (
            a.untie_embeddings_and_output_weights), **rope)
    keys = spec.submodules.sharded_state_dict_keys_map
    return model.float().eval(), keys


@torch.no_grad()
def megatron_says(model, tokens):
    ids = torch.tensor([tokens])
    n = len(tokens)
    mask = torch.ones(1, 1, n, n).triu(1).bool()
    logits = model(ids, torch.arange(n)[None], mask)
    return logits.reshape(n, -1)


def plait_says(work, path, tokens, vocab):
    with open(f"{work}/tokens", "w") as f:
        f.write(" ".join(map(str, tokens)))
    subprocess.run([f"{BUILD}/tests/parity/hf_probe",
                    f"{path}/latest/plait.yaml", path, f"{work}/tokens", "1",
                    f"{work}/out", "train.global_batch=2",
                    "train.micro_batch=1"], check=True, timeout=560)
    data = open(f"{work}/out", "rb").read()
    return torch.frombuffer(bytearray(data[8:8 + 12 * vocab]),
                            dtype=torch.float32).reshape(3, vocab)


def engine_name(name, keys):
    """The name of a local model's tensor in Transformer Engine's model, by
    Megatron's map."""
    for local, engine in keys.items():
        name = name.replace(local, engine)
    return name


def large(n, dtype):
    """Weights that give logits of noticeable size."""
    return struct.pack(f"<{n}f", *(random.gauss(0, .3) for _ in range(n)))


def check(work, kind):
    at = f"{work}/{kind}"
    hf.make(at, kind)
    convert(at, f"{at}.plait")
    local = ["--format", "megatron", "--transformer-impl", "local"]
    convert(f"{at}.plait", f"{at}.mega", *local)
    saved = torch.load(f"{at}.mega/{FILE}", weights_only=True)
    args = saved["args"]
    model, keys = build(args)
    result = model.load_state_dict(saved["model"], strict=False)
    missing = [k for k in result.missing_keys if "_extra_state" not in k]
    ok(not missing and not result.unexpected_keys,
       f"{kind}: GPTModel takes all its tensors {missing} "
       f"{result.unexpected_keys}")
    vocab = args.vocab_size
    tokens = [random.randrange(vocab) for _ in range(LENGTH)]
    want = megatron_says(model, tokens)[:, :vocab]
    got = plait_says(work, f"{at}.plait", tokens, vocab)
    want = want[[LENGTH * i // 3 - 1 for i in (1, 2, 3)]]
    off, most = (want - got).abs().max().item(), want.abs().max().item()
    ok(off <= 1e-5 * most and most > 0.5,
       f"{kind}: logits within {off:.1e} of Megatron-core's, which are up to "
       f"{most:.2g}")

    # Megatron-LM saves more than weights.
    more = argparse.Namespace(**{
        **vars(args), "attention_backend": AttnBackend.auto,
        "params_dtype": torch.float32, "loss_scale": None})
    root = {"args": more, "checkpoint_version": 3.0, "iteration": 7,
            "model": model.state_dict(), "num_floating_point_operations": 1e20,
            "rng_state": [{"random_rng_state": random.getstate(),
                           "torch_rng_state": torch.get_rng_state()}]}
    os.makedirs(f"{at}.saved/iter_0000007/mp_rank_00")
    torch.save(root, f"{at}.saved/iter_0000007/mp_rank_00/model_optim_rng.pt")
    with open(f"{at}.saved/latest_checkpointed_iteration.txt", "w") as f:
        f.write("7")
    convert(f"{at}.saved", f"{at}.in")
    convert(f"{at}.in", f"{at}.back")
    try:
        hf.same(at, f"{at}.back")
        same = ""
    except (AssertionError, SystemExit) as why:
        same = str(why) or "no"
    ok(not same, f"{kind}: what torch.save writes is read bit for bit {same}")

    # Transformer Engine's names are those of Megatron-core's own map.
    convert(f"{at}.plait", f"{at}.engine", "--format", "megatron")
    engine = torch.load(f"{at}.engine/{FILE}", weights_only=True)["model"]
    local = {engine_name(k, keys): v for k, v in saved["model"].items()}
    if getattr(args, "num_experts", None):  # a separate norm there
        local = {k.replace("mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm."):
                 v for k, v in local.items()}
    ok(set(local) == set(engine) and
       all(torch.equal(local[k], engine[k]) for k in local),
       f"{kind}: with Transformer Engine's names the same")


def main():
    work, kinds = sys.argv[1], sys.argv[2:]
    hf.values = large
    seed = random.randrange(1 << 30)
    print(f"# seed {seed}, torch {torch.__version__}, megatron-core "
          f"{megatron.core.__version__}")
    random.seed(seed)
    torch.manual_seed(seed)
    torch.serialization.add_safe_globals([argparse.Namespace])
    if not torch.cuda.is_available():  # buffers go where the model is
        torch.cuda.current_device = lambda: "cpu"
        tracker = tensor_parallel.get_cuda_rng_tracker()  # unused: no dropout
        tracker.fork = contextlib.nullcontext
    if not hasattr(moe_utils, "te_general_gemm"):  # 0.16 reads it unset
        moe_utils.te_general_gemm = None
    os.environ.update(MASTER_ADDR="127.0.0.1", RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{work}/rendezvous", rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    for kind in kinds or KINDS:
        check(work, kind)
    torch.distributed.destroy_process_group()
    print(f"1..{count}")


if __name__ == "__main__":
    main()
