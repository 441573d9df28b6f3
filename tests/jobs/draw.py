# SPDX-License-Identifier: Apache-2.0
"""A valid job from a seed.

A job is a dict: "config", the keys that all runs have; "runs", of which the
first is the reference; and how they differ from it:

  set       keys of this run alone: its layout, logs, checkpoints
  launcher  "one", "mpi", "run" (plait run) or "hand" (a process for each rank,
            with the launch contract in its environment)
  nodes     as if on so many nodes, which talk over TCP
  isa       PLAIT_CPU_ISA
  from      [number of a run, step]: resumed from what that one has saved
  fault     what happens to it: faults.py
"""
import random

import faults
import keys

AXES = ("tp", "pp", "dp", "cp", "ep")


def some(rng, table, share):
    return {k: rng.choice(v) for k, v in table.items()
            if rng.random() < share}


def get(job, run, key, default=0):
    value = run["set"].get(key, job["config"].get(key, default))
    return type(default)(value)


def sizes(run):
    return [int(run["set"].get("parallel." + axis, 1)) for axis in AXES]


def world(run):
    tp, pp, dp, cp, _ = sizes(run)
    return tp * pp * dp * cp


def is_image(job):
    return job["config"]["model.family"] in ("mlp", "resnet")


def apart(job):
    return job["config"].get("sync.mode", "each") != "each"


# -- the job -----------------------------------------------------------------

def leave_trained(c):
    """Without keys that others make idle, or that are not trained together."""
    if c.get("model.qk_norm") != "true":
        c.pop("model.qk_norm_whole", None)
    if "model.qk_norm_whole" in c:
        c.pop("model.norm_plus_one", None)
    if (c.get("model.qk_norm") == "true" or "model.qk_l2_norm" in c or
            "model.attention_softcap" in c or
            "model.mla" in c):
        c.pop("optim.qk_clip", None)
    if "model.sliding_window" not in c:
        c.pop("model.rope_theta_window", None)
    if c.get("model.rope_scaling") != "yarn" or "model.rope_factor" not in c:
        c.pop("model.rope_truncate", None)
        c.pop("model.rope_attention_factor", None)
    if "model.qk_norm" in c:
        c.pop("model.qk_l2_norm", None)
    if "model.sliding_window" in c:
        c.pop("model.attention_chunk", None)
    if "model.no_rope_every" not in c:
        c.pop("model.attention_temperature", None)
    if "model.attention_temperature" not in c:
        c.pop("model.attention_temperature_floor", None)
    if "model.mlp_bias" in c:
        c.pop("model.shared_experts", None)
    longrope(c)
    if "model.mup" not in c:
        c.pop("model.mup_layers", None)
        c.pop("model.mup_head_dim", None)
    if "model.mtp_layers" not in c:
        c.pop("model.mtp_loss", None)
    else:
        for key in ("optim.qk_clip", "model.residual_multiplier", "model.mup",
                    "model.mup_layers", "model.mup_head_dim",
                    "model.qk_l2_norm", "model.attention_chunk",
                    "model.attention_temperature"):
            c.pop(key, None)
        if c.pop("model.experts_every", None):
            c.pop("model.dense_ffn", None)
    if "model.experts" in c or "model.residual_multiplier" in c or \
            "model.mup_layers" in c:
        c.pop("model.norm_place", None)


def longrope(c):
    """A number for each pair of columns, which are two here."""
    lists = ["model.rope_short", "model.rope_long"]
    if c.get("model.rope_scaling") == "longrope":
        c.update({"model.rope_columns": "2", "model.rope_factor": "4"})
        c.update({name: c.get(name, "[2]") for name in lists})
    else:
        for name in lists:
            c.pop(name, None)


def routing(rng, c):
    """Biases of sigmoids alone, what goes with weights of inputs, and groups of
    experts."""
    if c.get("model.experts_scores") == "input":
        for key in ("capacity", "scale", "weights"):
            c.pop(f"model.experts_{key}", None)
    if c.get("model.experts_scores") != "sigmoid":
        c.pop("model.experts_balance_rate", None)
    if (c["model.experts"] == 4 and rng.random() < 0.3 and
            c.get("model.experts_scores") != "input"):
        c["model.experts_groups"] = 2
        c["model.experts_top_groups"] = 1 if c["model.experts_top_k"] < 3 else 2


def latent(rng, c):
    """Keys and values of a latent, in place of what that has no place for."""
    if rng.random() >= 0.15:
        return
    c["model.mla"] = rng.choice(["[0, 8, 4, 2, 6]", "[12, 8, 6, 4, 6]"])
    c["model.kv_heads"] = c["model.heads"]
    for key in ("head_dim", "qk_norm", "qk_norm_whole", "attention_bias",
                "rope_columns", "norm_plus_one", "mup", "mup_layers",
                "mup_head_dim", "qk_l2_norm", "attention_temperature"):
        c.pop(f"model.{key}", None)


def text_model(rng, c):
    family = rng.choice(["gpt2", "llama"])
    heads = rng.choice([1, 2, 2, 3, 4, 4, 6])
    width = rng.choice([2, 4, 8, 10] if family == "llama" else [3, 4, 8])
    c.update({"model.family": family, "model.layers": rng.randint(1, 5),
              "model.heads": heads, "model.hidden": heads * width,
              "model.ffn": rng.choice([12, 24, 36, 40, 2 * heads * width]),
              "model.vocab": rng.choice([61, 64, 67, 96]),
              "model.seq_len": rng.choice([8, 12, 16, 24])})
    c.update(some(rng, keys.TEXT, keys.SHARE))
    if family == "llama":
        c["model.kv_heads"] = rng.choice([n for n in range(1, heads + 1)
                                          if heads % n == 0])
        c.update(some(rng, keys.LLAMA, keys.SHARE))
        if rng.random() < keys.SHARE:
            c["model.head_dim"] = rng.choice([4, 6])
        latent(rng, c)
    if rng.random() < 0.3:
        c["model.experts"] = rng.choice([2, 3, 4])
        c["model.experts_top_k"] = rng.randint(1, c["model.experts"])
        c["model.ffn"] = rng.choice([12, 24])
        c.update(some(rng, keys.EXPERTS, keys.SHARE))
        if family == "llama":
            c.update(some(rng, keys.LLAMA_EXPERTS, keys.SHARE))
        if "model.dense_layers" in c:
            c.pop("model.experts_every", None)
        elif "model.experts_every" not in c:
            c.pop("model.dense_ffn", None)
        routing(rng, c)
    leave_trained(c)
    c["train.precision"] = rng.choice(["fp32"] * 7 + ["bf16", "fp16", "fp8"])
    if "model.mla" in c and c["train.precision"] == "fp8":
        c["train.precision"] = "bf16"
    if c["train.precision"] != "fp32":  # layouts choose other experts
        c.pop("model.experts_balance_rate", None)
    if c["train.precision"] == "fp16" and rng.random() < 0.7:
        c["train.loss_scale"] = rng.choice(["1024", "50000000"])


def text_data(rng, c):
    form, name = rng.choice([
        ("llmc", "{}.16.bin"), ("llmc", "{}.32.bin"), ("plait", "{}.16.plait"),
        ("plait", "{}.32.plait"), ("plait", "{}.masked.plait"),
        ("megatron", "{}.m16.bin"), ("megatron", "{}.m32.bin")])
    c["data.format"] = rng.choice(["auto", form])
    a, b, v, both = (f'"@/{name.format(x)}"' for x in ("a", "b", "v", "[ab]"))
    c["data.train"] = rng.choice([a, a, both, f"{{{a}: 0.7, {b}: 0.3}}"])
    if rng.random() < 0.7:
        c["data.val"] = rng.choice([v, f"{{first: {v}, second: {b}}}"])
    if rng.random() < 0.25:
        c.update({"data.mask_documents": "true", "data.end_token": 7})


def image_model(rng, c):
    family = rng.choice(["mlp", "mlp", "resnet"])
    form, name, shape, classes = rng.choice(
        [("idx", "small-images-idx3-ubyte", "[1, 6, 5]", 10),
         ("idx", "color-images-idx4-ubyte", "[3, 8, 8]", 10),
         ("cifar10", "ten.bin", "[3, 32, 32]", 10),
         ("cifar100", "hundred.bin", "[3, 32, 32]", 100)])
    c.update({"model.family": family, "model.input": shape,
              "model.classes": classes, "data.train": f'"@/{name}"',
              "data.format": rng.choice(["auto", form])})
    if family == "mlp":
        c.update({"model.layers": rng.randint(0, 4),
                  "model.width": rng.choice([5, 8, 16])})
    else:
        c.update({"model.depth": rng.choice([8, 8, 14]),
                  "model.width": rng.choice([3, 4]),
                  "model.norm": rng.choice(["batch", "ghost", "sync"])})
        if c["model.norm"] == "ghost":
            c["model.ghost_batch"] = rng.choice([1, 2])
    c.update(some(rng, keys.IMAGES, keys.SHARE))
    if c.get("model.loss") == "squared":
        c.pop("model.label_smoothing", None)
    if rng.random() < 0.7:
        c["data.val"] = c["data.train"]


def optimizer(rng, c):
    names = [n for n in keys.OPTIMIZERS
             if ("model.mup" not in c or n in keys.OF_MUP) and
             (c.get("sync.mode", "each") == "each" or n in keys.APART) and
             (n not in keys.OF_TEXT or "model.seq_len" in c)]
    name = rng.choice(names)
    always, may = keys.OPTIMIZERS[name]
    c["optim.name"] = name
    c.update(always)
    c.update(some(rng, may, keys.SHARE))
    if (c.get("train.precision") == "bf16" and "optim.qk_clip" not in c and
            c.get("sync.mode", "each") == "each" and
            "model.experts_scores" not in c and
            "model.experts_balance_over" not in c and
            name in keys.OF_MASTERS):
        c.update(some(rng, {"optim.masters": ["bf16"]}, keys.SHARE))
    if "model.mla" in c:
        c.pop("optim.muon_heads", None)
    if name == "soap" and c.get("model.input") == "[3, 32, 32]":
        c["optim.max_dim"] = 40  # a basis of 3072 takes minutes


def rates(rng, c):
    c["lr.warmup"] = rng.choice([0, 2, 4])
    c["lr.schedule"] = rng.choice(["cosine", "linear", "constant", "step",
                                   "wsd"])
    if c["optim.name"] == "schedulefree":
        c["lr.schedule"] = "constant"
    if c["lr.schedule"] == "step":
        c["lr.decay_at"] = rng.choice(["[3]", "[2, 4]"])
        c.update(some(rng, {"lr.decay_by": ["0.5"]}, 0.5))
    if c["lr.schedule"] == "wsd":
        c.update(some(rng, {"lr.stable": ["0.5"]}, 0.5))
    if rng.random() < 0.2:
        c.update({"lr.warmup_shape": rng.choice(["gradual", "constant"]),
                  "lr.warmup_from": "0.2"})
    c.update(some(rng, keys.RATES, keys.SHARE))


def sync(rng, c):
    """Replicas that train apart: their number is a part of the job."""
    c.pop("optim.qk_clip", None)
    mode = rng.choice(["local", "post-local", "sma"] +
                      ["diloco"] * (c["model.family"] != "resnet"))
    c["sync.mode"] = mode
    if mode != "sma" or rng.random() < 0.3:
        c["sync.steps"] = rng.choice([2, 3])
    if mode == "post-local":
        c["sync.from"] = rng.choice([1, 2])
    if mode == "diloco":
        c.update(some(rng, {"sync.lr": ["0.5"]}, 0.5))
        c.update(some(rng, {"sync.delay": ["1"]}, 0.5))
        if "sync.delay" in c:
            c.update(some(rng, {"sync.mixing": ["0.25", "1"]}, 0.5))
        c.update(some(rng, {"sync.gradients": ["bf16", "fp8"]}, 0.3))
        if c["model.family"] in ("gpt2", "llama") and \
                c["model.layers"] > 1 and "model.mtp_layers" not in c:
            c.update(some(rng, {"sync.fragments": ["2"]}, 0.5))
    if mode in ("diloco", "sma"):
        c.update(some(rng, {"sync.momentum": ["0.5", "0"]}, 0.5))
    if mode == "sma":
        c.update(some(rng, {"sync.alpha": ["0.2"]}, 0.5))
        if c.get("train.precision") != "fp16":
            c["sync.learners"] = rng.choice([1, 2, 3])
    if c.get("model.norm") == "sync":
        c["model.norm"] = "batch"


def steps(rng, c):
    c.update({"train.steps": rng.randint(3, 7), "train.seed":
              rng.randint(0, 1 << 64 - 1),
              "train.global_batch": rng.choice([4, 6, 8, 12, 12, 24])})
    if "data.val" in c:
        c.update({"train.eval_every": rng.choice([1, 2, 3]),
                  "train.eval_steps": rng.choice([1, 2])})
    if c["model.family"] == "mlp" and rng.random() < 0.15:
        c.update({"train.skip_outliers": "true", "train.steps": 40})


def growth(rng, job):
    c = job["config"]
    if rng.random() < 0.15 and c.get("sync.learners", 1) == 1:
        first = c["train.global_batch"]
        c["batch.growth"] = f"[[2, {2 * first}]]"
    elif (c["model.family"] == "mlp" and not apart(job) and
          "train.skip_outliers" not in c and rng.random() < 0.1):
        # All runs in one layout: another could change batches at other steps.
        c.update({"batch.growth": "auto", "batch.max": 48, "batch.min": 4,
                  "train.global_batch": 8, "train.steps": 54})
        job["fixed"] = {"parallel.dp": 2, "train.micro_batch": 2}


def config(rng, job):
    c = job["config"]
    if rng.random() < 0.7:
        text_model(rng, c)
        text_data(rng, c)
    else:
        image_model(rng, c)
    if rng.random() < 0.15 and "model.experts_scores" not in c and \
            "model.experts_balance_over" not in c:
        sync(rng, c)
    optimizer(rng, c)
    rates(rng, c)
    steps(rng, c)
    growth(rng, job)
    if c["optim.name"] == "schedulefree" and "batch.growth" in c:
        c.pop("lr.base_batch", None)
    if apart(job):
        fix_replicas(rng, job)
    elif c.get("model.norm") in ("batch", "sync"):
        micro = rng.choice([2, 4] if c["train.global_batch"] % 4 == 0 else [2])
        c["train.micro_batch"] = micro


def fix_replicas(rng, job):
    c = job["config"]
    units = [(dp, micro) for dp in (1, 2, 3, 4) for micro in (1, 2, 4)
             if c["train.global_batch"] %
             (dp * micro * c.get("sync.learners", 1)) == 0 and
             micro % c.get("model.ghost_batch", 1) == 0]
    if not units:
        c["train.global_batch"], units = 24, [(2, 2)]
    dp, micro = rng.choice(units)
    job["fixed"] = {"parallel.dp": dp, "train.micro_batch": micro}
    if "model.norm" in c:
        c["train.micro_batch"] = micro


# -- a run of it -------------------------------------------------------------

def batches(job):
    c = job["config"]
    grown = c.get("batch.growth", "auto")
    more = [] if grown == "auto" else [int(grown.strip("[]").split(",")[1])]
    return [c["train.global_batch"]] + more


def fits_model(job, run):
    tp, pp, dp, cp, ep = sizes(run)
    chunks = pp * get(job, run, "parallel.virtual", 1)
    if is_image(job):
        c = job["config"]
        blocks = c["model.layers"] if c["model.family"] == "mlp" else \
            (c["model.depth"] - 2) // 2
        return tp == cp == ep == 1 and (chunks == 1 or blocks >= chunks)
    heads, layers = get(job, run, "model.heads"), get(job, run, "model.layers")
    kv = get(job, run, "model.kv_heads", heads)
    if heads % tp or get(job, run, "model.ffn") % tp or (kv % tp and tp % kv):
        return False
    if cp > 1 and get(job, run, "model.seq_len") % (2 * cp):
        return False
    if ep > 1 and (get(job, run, "model.experts", 1) % ep or cp * dp % ep):
        return False
    stages = run["set"].get("parallel.stages")
    return layers + 2 >= chunks and (not stages or
                                     stages.count(",") + 1 == chunks)


def fits_batch(job, run):
    tp, pp, dp, cp, _ = sizes(run)
    micro = get(job, run, "train.micro_batch", 4)
    chunks = get(job, run, "parallel.virtual", 1)
    unit = dp * micro * get(job, run, "sync.learners", 1)
    if any(b % unit or (chunks > 1 and b // unit % pp) for b in batches(job)):
        return False
    norm = job["config"].get("model.norm")
    if norm == "sync" and dp * micro != job["config"]["train.micro_batch"]:
        return False
    if norm == "ghost" and micro % job["config"]["model.ghost_batch"]:
        return False
    return get(job, run, "parallel.sequence", "") != "true" or \
        micro * get(job, run, "model.seq_len") // cp % tp == 0


def fits_sums(job, run):
    s = run["set"]
    zero, flat = int(s.get("parallel.zero", 0)), s.get("parallel.grad_sync")
    naive = flat == "naive"
    half = s.get("parallel.grad_reduce") == "bf16"
    steep = s.get("parallel.all_reduce") == "hierarchical"
    node = s.get("parallel.shard_group") == "node"
    if zero and flat in ("flat", "naive") or naive and (half or steep):
        return False
    # there the noise scale is that of micro-batches, not of the ranks' parts
    if zero >= 2 and job["config"].get("batch.growth") == "auto":
        return False
    if steep and node or node and not zero:
        return False
    # over many steps bf16 leads elsewhere
    if half and ("model.experts_balance_rate" in job["config"] or
                 "model.experts_balance_over" in job["config"] or
                 job["config"]["model.family"] == "resnet" or
                 job["config"]["train.steps"] > 10):
        return False
    if apart(job) and (zero or naive or steep or sizes(run)[4] > 1 or
                       "log.histograms" in s):
        return False
    return s.get("parallel.offload") != "activations" or \
        s.get("parallel.schedule") != "zb-h1"


def fits_nodes(run):
    """A node has whole tensor-parallel groups; sums in steps and shards on each
    node take several of the ranks that share weights on several nodes."""
    tp, _, dp, cp, _ = sizes(run)
    if world(run) % run["nodes"]:
        return False
    local, share = world(run) // run["nodes"], tp * cp * dp
    if ("hierarchical" in run["set"].values() or
            run["set"].get("parallel.shard_group") == "node") and \
            (share % local or share == local or local == tp):
        return False
    return local % tp == 0


def fits(job, run):
    fixed = job.get("fixed", {})
    return world(run) <= 8 and fits_model(job, run) and \
        fits_batch(job, run) and fits_sums(job, run) and fits_nodes(run) and \
        all(int(run["set"].get(k, 1)) == v for k, v in fixed.items())


def pipeline(rng, job, s):
    c = job["config"]
    kinds = ["1f1b", "naive", "gpipe", "interleaved"]
    s["parallel.schedule"] = rng.choice(kinds + ["zb-h1"] * (not is_image(job)))
    if s["parallel.schedule"] == "interleaved":
        s["parallel.virtual"] = 2
    if not is_image(job) and rng.random() < 0.2:
        chunks = s["parallel.pp"] * s.get("parallel.virtual", 1)
        layers = [1] * chunks
        for end in (0, -1):
            layers[end] = 0 if chunks > 2 and rng.random() < 0.5 else 1
        layers[rng.randrange(chunks)] += c["model.layers"] - sum(layers)
        if min(layers) >= 0 and all(layers[1:-1]):
            s["parallel.stages"] = f"[{', '.join(map(str, layers))}]"


def layout(rng, job):
    s = {}
    for axis in AXES:
        if rng.random() < (0.4 if axis != "ep" else 0.8):
            s["parallel." + axis] = rng.choice([2, 2, 3, 4, 6, 8])
    if is_image(job):
        s = {k: v for k, v in s.items() if k in ("parallel.dp", "parallel.pp")}
    elif "model.experts" not in job["config"] or apart(job):
        s.pop("parallel.ep", None)
    if rng.random() < 0.5 and not apart(job):
        s["parallel.zero"] = rng.choice([1, 2, 3])
    s["train.micro_batch"] = rng.choice([1, 1, 2, 2, 3, 4, 6])
    s.update(some(rng, keys.RUN, keys.RUN_SHARE))
    if not is_image(job):
        s.update(some(rng, keys.RUN_TEXT, 2 * keys.RUN_SHARE))
        if s.get("parallel.tp", 1) > 1 and rng.random() < 0.4:
            s["parallel.sequence"] = "true"
        s.update(some(rng, {"parallel." + k: [job["config"]["model.layers"]]
                            for k in ("recompute_layers", "offload_layers")},
                      0.05))
    s.update(job.get("fixed", {}))
    if s.get("parallel.pp", 1) > 1:
        pipeline(rng, job, s)
    if job["config"].get("model.norm") in ("batch", "sync"):
        micro = job["config"]["train.micro_batch"]
        if job["config"]["model.norm"] == "sync":
            micro = micro // s.get("parallel.dp", 1)
        s["train.micro_batch"] = micro or 1
    return s


def place(rng, job, run, tools):
    ranks = world(run)
    run["nodes"] = rng.choice([n for n in (1, 1, 1, 2, 4, 8) if n <= ranks])
    run["launcher"] = "one" if ranks == 1 else rng.choice(
        ["mpi"] * tools["mpi"] +
        (["run", "hand"] if run["nodes"] == 1 else ["hand"] * 2))
    run["isa"] = rng.choice([None] * 3 + tools["isa"])
    if (rng.random() < 0.1 and run["launcher"] == "run" and
            not apart(job) and "fixed" not in job):
        run["elastic"] = True
        run["set"]["checkpoint.memory"] = rng.choice([1, 2])


def logs(rng, job, run):
    s = run["set"]
    s["checkpoint.every"] = rng.choice([1, 2, 2, 3])
    s["checkpoint.keep"] = rng.choice([0, 99])
    for key, name in keys.PATHS.items():
        if rng.random() < 0.05:
            s[key] = f'"%/{name}"'
    if "log.tensorboard" in s and not apart(job) and \
            "model.mtp_layers" not in job["config"]:
        s.update(some(rng, {"log.histograms": [1, 2]}, 0.5))
    if rng.random() < 0.1:  # the number of ranks over the others
        s.pop("parallel.dp", None) if s.get("parallel.dp", 1) == 1 else None


def one_run(rng, job, tools):
    """A run in a random layout that the job allows. Most layouts that fit are
    of two ranks: so the least number of them is drawn first."""
    least = rng.choice([1, 2, 2, 2, 3, 4, 4, 6, 8])
    for i in range(400):
        run = {"set": layout(rng, job), "launcher": "one", "nodes": 1,
               "isa": None, "from": None, "fault": None}
        place(rng, job, run, tools)
        if fits(job, run) and (world(run) >= least or i > 300):
            break
    else:
        run = reference(job)
        place(rng, job, run, tools)
        run["nodes"] = 1
        run["launcher"] = "one" if world(run) == 1 else "run"
    logs(rng, job, run)
    return run


def reference(job):
    """One process; replicas that train apart are processes of their own."""
    s = {"train.micro_batch": job["config"].get("train.micro_batch", 1)}
    if "model.ghost_batch" in job["config"]:
        s["train.micro_batch"] = job["config"]["model.ghost_batch"]
    s.update(job.get("fixed", {}))
    s.update({"checkpoint.every": 1, "checkpoint.keep": 0})
    run = {"set": s, "nodes": 1, "isa": None, "from": None, "fault": None}
    run["launcher"] = "run" if world(run) > 1 else "one"
    return run


INIT_SHARE = 0.1  # of jobs that begin with the weights of another


def draw(seed, tools, hurt=False):
    """tools: {"mpi": is there mpirun, "isa": classes of this processor}"""
    rng = random.Random(seed)
    job = {"seed": seed, "config": {}, "runs": []}
    config(rng, job)
    job["runs"].append(reference(job))
    # of its own, so that other seeds stay what they are
    if random.Random(f"init {seed}").random() < INIT_SHARE:
        job["config"]["train.init"] = "&"
    last = job["config"]["train.steps"]
    for i in range(1, rng.randint(3, 4)):
        run = one_run(rng, job, tools)
        before = rng.randrange(i)
        every = job["runs"][before]["set"]["checkpoint.every"]
        at = [s for s in range(every, last, every)]
        if at and rng.random() < 0.6:
            run["from"] = [before, rng.choice(at)]
        job["runs"].append(run)
    if hurt:
        faults.add(rng, job, world, lambda: one_run(rng, job, tools))
    return job
