# SPDX-License-Identifier: Apache-2.0
"""What can be drawn: for each key of plait.yaml its values. Keys whose values
depend on others are drawn in draw.py. `jobs.py --keys` holds both against
`plait keys`."""

# Values that plait-train refuses or that change nothing on processors, and
# why.
NEVER_VALUES = {
    "train.graph": {"on": "for GPUs"},
    "train.precision": {"tf32": "for GPUs"},
    "parallel.offload": {"optimizer": "for GPUs", "both": "for GPUs"},
    # sync.learners auto and checkpoint.every auto choose by the clock.
}

# Of a job, the same in all its runs. Each key is drawn with SHARE.
SHARE = 0.25
TEXT = {
    "model.tie_embeddings": ["true", "false"],
    "model.norm_eps": ["1e-5", "1e-3"],
    "model.mup": ["5", "64"],
    "model.mup_layers": ["2", "7"],
    "model.mup_head_dim": ["2", "16"],
    "model.dropout": ["0.1", "0.5"],
    "model.attention_dropout": ["0.1", "0.5"],
    "model.mtp_layers": ["1"],
    "model.mtp_loss": ["0.3"],
    "train.noise": ["0.5"],
    "optim.qk_clip": ["0.05", "100"],
}
LLAMA = {
    "model.rope_theta": ["500", "1000000"],
    "model.rope_factor": ["4"],
    "model.rope_scaling": ["llama3", "yarn", "longrope"],
    "model.rope_short": ["[1.5]"],
    "model.rope_long": ["[4]"],
    "model.rope_truncate": ["true"],
    "model.rope_attention_factor": ["1.2"],
    "model.rope_low_freq_factor": ["0.5", "1"],
    "model.rope_high_freq_factor": ["2", "4"],
    "model.rope_original_len": ["8", "64"],
    "model.rope_theta_window": ["300"],
    "model.rope_columns": ["2"],
    "model.attention_bias": ["none", "qkv", "all"],
    "model.qk_norm": ["true", "false"],
    "model.qk_norm_whole": ["true"],
    "model.norm_plus_one": ["true"],
    "model.gate": ["gelu", "clamped"],
    "model.norm_place": ["after", "both"],
    "model.sliding_window": ["3", "9", "64"],
    "model.full_attention_every": ["2"],
    "model.full_attention_first": ["1"],
    "model.no_rope_every": ["2"],
    "model.qk_l2_norm": ["true"],
    "model.attention_chunk": ["5"],
    "model.attention_temperature": ["0.5"],
    "model.attention_temperature_floor": ["3"],
    "model.embedding_multiplier": ["4"],
    "model.attention_multiplier": ["0.2"],
    "model.residual_multiplier": ["0.5"],
    "model.logits_scaling": ["2"],
    "model.attention_softcap": ["1"],
    "model.logit_softcap": ["3"],
    "model.attention_sinks": ["true"],
    "model.mlp_bias": ["true"],
}
LLAMA_EXPERTS = {
    "model.shared_experts": ["1", "2"],
}
EXPERTS = {
    "model.experts_capacity": ["0.75", "1.5"],
    "model.experts_balance": ["0", "0.1"],
    "model.experts_balance_over": ["batch"],
    "model.experts_scores": ["sigmoid", "input"],
    "model.experts_scale": ["2.5"],
    "model.experts_weights": ["scores"],
    "model.experts_balance_rate": ["0.01"],
    "model.dense_layers": ["1"],
    "model.experts_every": ["2"],
    "model.dense_ffn": ["48"],
}
IMAGES = {
    "model.loss": ["cross-entropy", "squared"],
    "model.label_smoothing": ["0.1"],
    "data.mean": ["0.4"],
    "data.std": ["0.5", "2"],
    "data.shift": ["1"],
    "data.flip": ["true", "false"],
    "train.noise": ["0.5"],
}
RATES = {
    "lr.min": ["0.1"],
    "lr.base_batch": ["16"],
    "lr.scaling": ["linear", "sqrt"],
    "optim.weight_decay": ["0", "0.01"],
    "optim.clip": ["0", "0.3"],
}

# Optimizers: what always goes with them, so that a step is of the size of
# AdamW's, and what may.
MOMENTUM = {"optim.momentum": ["0.5", "0.95"], "optim.nesterov": ["true",
                                                                "false"]}
ADAM = {"optim.betas": ["[0.8, 0.99]", "[0, 0.9]"], "optim.eps": ["1e-6"]}
MOMENTS = {"optim.moments": ["bf16", "bf16-nearest"]}
OPTIMIZERS = {
    "adamw": ({"optim.lr": "1e-3"}, {**ADAM, **MOMENTS}),
    "adamw8bit": ({"optim.lr": "1e-3"}, ADAM),
    "sgd": ({"optim.lr": "0.05"}, {**MOMENTUM, **MOMENTS}),
    "lars": ({"optim.lr": "1", "optim.trust": "0.02"}, {**MOMENTUM, **MOMENTS}),
    "larc": ({"optim.lr": "0.05", "optim.trust": "0.02"},
             {**MOMENTUM, **MOMENTS}),
    "lamb": ({"optim.lr": "0.01"}, {**ADAM, **MOMENTS}),
    "novograd": ({"optim.lr": "0.01"}, {**ADAM, **MOMENTS}),
    "lion": ({"optim.lr": "3e-5"}, {"optim.betas": ["[0.8, 0.99]"], **MOMENTS}),
    "adafactor": ({"optim.lr": "0.02"}, {}),
    "muon": ({"optim.lr": "2e-3"}, {
        **ADAM, **MOMENTUM, "optim.muon_heads": ["true"],
        "optim.muon_coefficients": ["quintic", "polar-express"]}),
    "soap": ({"optim.lr": "1e-3", "optim.eps": "1e-4"},
             {"optim.betas": ADAM["optim.betas"], "optim.frequency":
              ["2", "3"], "optim.max_dim": ["16", "40"]}),
    "schedulefree": ({"optim.lr": "1e-3"}, ADAM),
}

OF_MUP = ["adamw", "adamw8bit", "lion", "schedulefree"]
OF_TEXT = ["schedulefree"]
OF_MASTERS = ["adamw", "sgd", "lars", "larc", "lamb", "novograd", "lion"]
APART = ["adamw", "sgd", "lion"]  # whose replicas may train apart

# Of a run: free from one to the next.
RUN_SHARE = 0.15
RUN = {
    "parallel.bucket_mib": ["0.001", "0.01", "25"],
    "parallel.grad_sync": ["bucketed", "flat", "naive"],
    "parallel.grad_reduce": ["fp32", "bf16"],
    "parallel.all_reduce": ["auto", "flat", "hierarchical"],
    "parallel.shard_group": ["all", "node"],
    "train.timeout": ["auto", "0", "120"],
    "train.phase_timeout": ["0", "300", "600"],
    "train.check_replicas": ["0", "1", "3"],
    "train.graph": ["auto", "off"],
    "train.search_products": ["true", "false"],
    "train.deterministic": ["true", "false"],
    "checkpoint.async": ["true", "false"],
    "log.every": ["2"],
}
RUN_TEXT = {
    "parallel.recompute": ["none", "selective", "full"],
    "parallel.offload": ["none", "activations"],
}
PATHS = {  # in the run's folder
    "checkpoint.fallback": "fallback",
    "log.tensorboard": "events",
    "log.prometheus": "p.prom",
    "log.profile": "profile",
}
