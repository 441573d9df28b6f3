# SPDX-License-Identifier: Apache-2.0
"""Models that torch.distributed.checkpoint writes, and Megatron-core as
torch_dist, are read bit for bit, and torch.distributed.checkpoint reads what
plait-convert writes: dcp_check.py DIR, for dcp.sh."""
import json
import os
import subprocess
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the ranks are forked
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import (  # noqa: E402
    Replicate, Shard, distribute_tensor)

try:
    import megatron.core
except ImportError:
    megatron = None

TOP = os.environ["top_srcdir"]
BUILD = os.environ["top_builddir"]
sys.path.insert(0, f"{TOP}/tests/lib")
import hf  # noqa: E402

TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
NAMES = {"F32": "fp32", "BF16": "bf16", "F16": "fp16"}
# Two groups of heads, which two tensor parallel ranks divide.
hf.KINDS["llama-even"] = {**hf.LLAMA, "num_key_value_heads": 2}
hf.KINDS["mixtral-even"] = {**hf.KINDS["mixtral"], "num_key_value_heads": 2}
count = 0


def ok(good, what):
    global count
    count += 1
    print(f"{'ok' if good else 'not ok'} {count} - {what}", flush=True)


def convert(source, to, *more):
    subprocess.run([f"{BUILD}/plait-convert", "--from", source, "--to", to,
                    *more], check=True, stdout=subprocess.DEVNULL)


def made(work, kind, dtype):
    at = f"{work}/{kind}-{dtype}"
    if not os.path.exists(at):
        hf.make(at, kind, 1, dtype)
    return at


def tensors_of(at):
    return {name: torch.frombuffer(bytearray(data), dtype=TYPES[dtype])
            .reshape(shape) for name, (shape, dtype, data) in
            hf.read(at).items()}


def back(at, written, dtype):
    """Whether the model `at` comes back out of `written`."""
    try:
        convert(written, f"{written}.in")
        convert(f"{written}.in", f"{written}.back", "--dtype", NAMES[dtype])
        hf.same(at, f"{written}.back", dtype)
    except (AssertionError, subprocess.CalledProcessError) as why:
        return str(why) or "differs"
    return ""


# -- layouts ------------------------------------------------------------------

def placed(tensor, layout):
    """What a rank has of a tensor."""
    if layout == "rows":  # FSDP2's, uneven where 4 does not divide the rows
        mesh = init_device_mesh("cpu", (4,))
        return distribute_tensor(tensor, mesh, [Shard(0)])
    mesh = init_device_mesh("cpu", (2, 2))
    return distribute_tensor(
        tensor, mesh,
        [Shard(0), Shard(1) if tensor.dim() > 1 else Replicate()])


def begin(rank, work, world):
    dist.init_process_group("gloo", init_method=f"file://{work}/rendezvous",
                            rank=rank, world_size=world)


def run(work, world, job, *args):
    if os.path.exists(f"{work}/rendezvous"):
        os.remove(f"{work}/rendezvous")
    mp.start_processes(job, args=(work, world, *args), nprocs=world,
                       start_method="fork")


def save_all(rank, work, world, models, layout):
    begin(rank, work, world)
    torch.manual_seed(1)
    for tensors, wrap, path in models:
        state = {name: placed(t, layout) for name, t in tensors.items()}
        if wrap:  # as torch's documents have it, with an optimizer beside it
            state = {"model": state, "optimizer": {"state": {
                name: {"step": torch.tensor(3.),
                       "exp_avg": placed(torch.ones_like(t), layout)}
                for name, t in tensors.items()}}, "step": 7}
        dcp.save(state, checkpoint_id=path)
    dist.destroy_process_group()


# -- names --------------------------------------------------------------------

def titan(tensors, config):
    """The tensors as torchtitan has them: rotary positions turn neighbours, so
    that row i of the first half of a head is row 2i there."""
    words = [("model.embed_tokens", "tok_embeddings"), ("model.", ""),
             ("self_attn.o_proj", "attention.wo"),
             ("self_attn.q_proj", "attention.qkv_linear.wq"),
             ("self_attn.k_proj", "attention.qkv_linear.wk"),
             ("self_attn.v_proj", "attention.qkv_linear.wv"),
             ("mlp.gate_proj", "feed_forward.w1"),
             ("mlp.up_proj", "feed_forward.w3"),
             ("mlp.down_proj", "feed_forward.w2"),
             ("input_layernorm", "attention_norm"),
             ("post_attention_layernorm", "ffn_norm")]
    head = config["hidden_size"] // config["num_attention_heads"]
    found = {}
    for name, t in tensors.items():
        if "q_proj" in name or "k_proj" in name:
            out = torch.empty_like(t)
            for h in range(0, t.shape[0], head):
                half = head // 2
                for i in range(half):
                    out[h + 2 * i] = t[h + i]
                    out[h + 2 * i + 1] = t[h + half + i]
            t = out
        for old, new in words:
            name = name.replace(old, new)
        found[name] = t
    return found


def joined(tensors):
    """Mixtral's experts as transformers 5 has them in memory."""
    found = {}
    for name, t in tensors.items():
        if ".experts." not in name:
            found[name.replace("block_sparse_moe", "mlp")] = t
            continue
        layer, _, rest = name.partition("block_sparse_moe.experts.")
        expert, which, _ = rest.split(".")
        found.setdefault((layer, int(expert)), {})[which] = t
    layers = {key[0] for key in found if isinstance(key, tuple)}
    for layer in layers:
        experts = [found.pop((layer, e)) for e in range(4)]
        found[f"{layer}mlp.experts.gate_up_proj"] = torch.stack(
            [torch.cat([e["w1"], e["w3"]]) for e in experts])
        found[f"{layer}mlp.experts.down_proj"] = torch.stack(
            [e["w2"] for e in experts])
    return found


def check_torch(work):
    models = []
    for kind, dtype, names in (
            ("llama", "F32", "hf"), ("llama", "BF16", "titan"),
            ("qwen3", "F16", "hf"), ("gpt2", "F32", "hf"),
            ("phi3", "BF16", "hf"), ("mixtral", "F32", "joined"),
            ("qwen3_moe", "F32", "hf")):
        at = made(work, kind, dtype)
        tensors = tensors_of(at)
        if names == "titan":
            tensors = titan(tensors, hf.KINDS[kind])
        elif names == "joined":
            tensors = joined(tensors)
        models.append((at, dtype, names, tensors))
    for layout, world in (("one", 1), ("rows", 4), ("grid", 4)):
        jobs = []
        for i, (at, dtype, names, tensors) in enumerate(models):
            path = f"{at}.{names}.{layout}"
            jobs.append((tensors, i % 2 == (layout == "rows"), path))
        if layout == "one":
            for tensors, wrap, path in jobs:
                state = {"model": tensors} if wrap else tensors
                dcp.save(state, checkpoint_id=path, no_dist=True)
        else:
            run(work, world, save_all, jobs, layout)
        for (at, dtype, names, _), (_, wrap, path) in zip(models, jobs):
            for name in ("config.json", "tokenizer.json"):
                with open(f"{at}/{name}") as f, open(f"{path}/{name}",
                                                     "w") as out:
                    out.write(f.read())
            why = back(at, path, dtype)
            files = len([f for f in os.listdir(path) if "distcp" in f])
            ok(not why and os.path.exists(f"{path}.in/tokenizer.json"),
               f"{os.path.basename(path)}{', under model' if wrap else ''}: "
               f"{files} files, the same bits {why}")


# -- what is written ----------------------------------------------------------

def load_all(rank, work, world, folders, layout):
    """Load each folder's tensors into this rank's parts of them."""
    begin(rank, work, world)
    for path in folders:
        want = tensors_of(path)
        state = {name: placed(torch.zeros_like(t), layout)
                 for name, t in want.items()}
        dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(path))
        for name, t in want.items():
            same = torch.equal(state[name].full_tensor(), t)
            assert same, f"{path}: {name} differs"
    dist.destroy_process_group()


def check_written(work):
    """torch.distributed.checkpoint reads what plait-convert writes into the
    layout of its own ranks."""
    if not hasattr(dcp, "HuggingFaceStorageReader"):
        print("# torch before 2.8 does not read Hugging Face's files")
        return
    folders = []
    for kind, dtype in (("llama", "F32"), ("qwen3", "BF16"), ("gpt2", "F32"),
                        ("mixtral", "F16")):
        at = made(work, kind, dtype)
        convert(at, f"{at}.written.in")
        convert(f"{at}.written.in", f"{at}.written", "--dtype", NAMES[dtype])
        hf.same(at, f"{at}.written", dtype)
        folders.append(f"{at}.written")
    for layout in ("rows", "grid"):
        why = ""
        try:
            run(work, 4, load_all, folders, layout)
        except mp.ProcessRaisedException as e:
            why = str(e)
        ok(not why, f"four models are loaded as {layout}, the same bits {why}")


# -- Megatron-core ------------------------------------------------------------

def save_megatron(rank, work, world, sizes, jobs):
    tp, pp = sizes
    begin(rank, work, world)
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = lambda *args: None
    torch.Tensor.cuda = lambda tensor: tensor
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.transformer.moe import moe_utils
    if not hasattr(moe_utils, "te_general_gemm"):  # 0.16 reads it unset
        moe_utils.te_general_gemm = None
    parallel_state.initialize_model_parallel(tp, pp)
    t = parallel_state.get_tensor_model_parallel_rank()
    p = parallel_state.get_pipeline_model_parallel_rank()
    name = f"mp_rank_{t:02}" + (f"_{p:03}" if pp > 1 else "")
    for path, metadata in jobs:
        saved = torch.load(f"{path}.ranks/release/{name}/model_optim_rng.pt",
                           weights_only=False)
        model = megatron_model(saved["args"], tp, pp)
        model.load_state_dict(saved["model"], strict=False)
        state = {"args": saved["args"], "checkpoint_version": 3.0,
                 "iteration": 7,
                 "model": model.sharded_state_dict(metadata=metadata)}
        if rank == 0:
            os.makedirs(f"{path}/iter_0000007")
            with open(f"{path}/latest_checkpointed_iteration.txt", "w") as f:
                f.write("7")
        dist.barrier()
        dist_checkpointing.save(state, f"{path}/iter_0000007",
                                ("torch_dist", 1))
    dist.destroy_process_group()


def megatron_model(a, tp, pp):
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel, gpt_layer_specs
    from megatron.core.transformer import TransformerConfig
    from megatron.core.transformer.enums import AttnBackend
    gpt2 = a.position_embedding_type != "rope"
    experts = getattr(a, "num_experts", None)
    config = TransformerConfig(
        num_layers=a.num_layers, hidden_size=a.hidden_size,
        ffn_hidden_size=a.ffn_hidden_size,
        num_attention_heads=a.num_attention_heads,
        num_query_groups=a.num_query_groups, kv_channels=a.kv_channels,
        normalization=a.normalization, gated_linear_unit=a.swiglu,
        add_bias_linear=a.add_bias_linear, num_moe_experts=experts,
        activation_func=torch.nn.functional.gelu if gpt2 else
        torch.nn.functional.silu,
        moe_token_dispatcher_type="allgather", use_cpu_initialization=True,
        attention_backend=AttnBackend.local, pipeline_dtype=torch.float32,
        bias_activation_fusion=False, apply_rope_fusion=False,
        masked_softmax_fusion=False, bias_dropout_fusion=False,
        tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp)
    spec = gpt_layer_specs.get_gpt_layer_local_spec(
        num_experts=experts, normalization=a.normalization)
    return GPTModel(
        config, spec, vocab_size=a.padded_vocab_size,
        max_sequence_length=a.max_position_embeddings,
        position_embedding_type=a.position_embedding_type,
        share_embeddings_and_output_weights=not (
            a.untie_embeddings_and_output_weights),
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage())


def check_megatron(work):
    for tp, pp in ((1, 1), (2, 1), (1, 2), (2, 2)):
        jobs = []
        for kind, single in (("llama-even", False), ("llama-even", True),
                             ("llama-tied", False), ("mixtral-even", False),
                             ("mixtral-even", True), ("gpt2", False)):
            if kind == "gpt2" and tp > 1:
                continue  # three heads
            at = made(work, kind, "F32")
            path = f"{at}.tp{tp}-pp{pp}{'-single' if single else ''}"
            if not os.path.exists(f"{at}.plait"):
                convert(at, f"{at}.plait")
            convert(f"{at}.plait", f"{path}.ranks", "--format", "megatron",
                    "--transformer-impl", "local", "--tp", str(tp), "--pp",
                    str(pp))
            # What Megatron-LM writes, and what it writes where layers differ.
            jobs.append((path, {"singleton_local_shards": True,
                                "non_homogeneous_layers": True}
                         if single else {}))
        run(work, tp * pp, save_megatron, (tp, pp), jobs)
        for path, _ in jobs:
            at = path[:path.rindex(".tp")]
            why = back(at, path, "F32")
            with open(f"{path}/iter_0000007/metadata.json") as f:
                form = json.load(f)["sharded_backend"]
            ok(not why and form == "torch_dist",
               f"{os.path.basename(path)}: the same bits {why}")


def main():
    work = sys.argv[1]
    print(f"# torch {torch.__version__}, megatron-core "
          f"{megatron.core.__version__ if megatron else 'missing'}")
    check_torch(work)
    check_written(work)
    if megatron:
        check_megatron(work)
    print(f"1..{count}")


if __name__ == "__main__":
    main()
