# SPDX-License-Identifier: Apache-2.0
"""The layouts of the parity matrix, as (model, sizes, settings).

Sizes are one digit each of tp, pp, dp and, where they are not 1, cp and ep;
settings are keys of `parallel:` and `train:`.

  axes()      each model in a few layouts of ranks and nothing else
  together()  every schedule with every ZeRO stage on every model, in fp32,
              with the other settings chosen so that every pair of compatible
              settings occurs at least once
  STRANDS     cases that are not combinations of these factors

    matrix.py       prints them all
"""
import itertools
import os
import random

SEQ_LEN = 24
GLOBAL_BATCH = 24

# The odd models: layers that no pp divides, sizes that are no multiple of a
# vector, a vocabulary of which the last tp ranks have few rows or none.
MODELS = {
    "gpt2": dict(family="gpt2", layers=4, hidden=64, heads=4, kv_heads=4,
                 ffn=256, vocab=257),
    "llama": dict(family="llama", layers=4, hidden=64, heads=4, kv_heads=2,
                  ffn=192, vocab=257),
    "moe": dict(family="llama", layers=4, hidden=64, heads=4, kv_heads=2,
                ffn=128, vocab=257, experts=4, experts_top_k=2),
    "odd-gpt2": dict(family="gpt2", layers=5, hidden=63, heads=3, kv_heads=3,
                     ffn=129, vocab=131, tie_embeddings="false"),
    "odd-llama": dict(family="llama", layers=7, hidden=60, heads=6,
                      kv_heads=1, ffn=102, vocab=131, tie_embeddings="true"),
    "odd-moe": dict(family="gpt2", layers=5, hidden=60, heads=6, kv_heads=6,
                    ffn=66, vocab=131, experts=6, experts_top_k=3,
                    experts_capacity=0.75),
}

AXES = ("tp", "pp", "dp", "cp", "ep")

BASIC = ["211", "121", "112", "1112", "221", "212", "122", "222", "2112",
         "1212", "1122", "411", "141", "114", "1114", "421"]
BASIC_EXPERTS = ["211", "121", "11212", "11414", "11222", "21212", "12212",
                 "22212"]
BASIC_ODD = ["311", "131", "113", "1113", "331"]

# The first level of each factor is the configuration's.
FACTORS = {
    "model": list(MODELS),
    "tp": [1, 2, 3, 4],
    "pp": [1, 2, 3, 4],
    "dp": [1, 2, 3, 4],
    "cp": [1, 2, 3, 4],
    "ep": [1, 2, 3, 4],
    "schedule": ["1f1b", "naive", "gpipe", "interleaved", "zb-h1"],
    "zero": [0, 1, 2, 3],
    "sequence": ["false", "true"],
    "recompute": ["none", "selective", "full"],
    "bucket_mib": [25, 0.01],
    "micro_batch": [2, 1, 3],
    "precision": ["fp32", "bf16", "fp16"],
}
WORLD = 16

# fp16 from a loss scale so high that the first steps overflow: all ranks skip
# them while it decreases.
OVERFLOW = [(model, sizes, f"precision=fp16 loss_scale=50000000 {rest}".strip())
            for model, sizes, rest in [
    ("gpt2", "211", ""),
    ("gpt2", "121", ""),
    ("gpt2", "112", ""),
    ("llama", "1112", ""),
    ("gpt2", "114", "zero=1"),
    ("gpt2", "114", "zero=2"),
    ("llama", "114", "zero=3"),
    ("llama", "222", "zero=1 sequence=true"),
    ("gpt2", "142", "zero=2 schedule=zb-h1"),
    ("llama", "222", "zero=3 schedule=interleaved virtual=2"),
    ("gpt2", "124", "zero=3 schedule=gpipe"),
    ("odd-llama", "321", "recompute=full"),
    ("moe", "11414", "zero=1"),
    ("moe", "21212", "zero=3"),
]]

# Words as documents: attention and positions start again after each space.
DOCUMENTS = "data.mask_documents=true data.end_token=32"

WINDOWS = "model.sliding_window=5 model.full_attention_every=3 \
model.no_rope_every=2 model.embedding_multiplier=6 model.residual_multiplier=0.5 \
model.logits_scaling=3"

# A base of another width, depth and head, with which each rank's weights have
# rates of their own.
MUP = "model.mup=16 model.mup_layers=2 model.mup_head_dim=4"

# The models' largest logits are 0.11 to 0.16: some heads are clipped in every
# step, others in some.
QK_CLIP = "optim.qk_clip=0.07"

FIRST = "model.dense_layers=2 model.dense_ffn=192"
SHARED = "model.shared_experts=2"
PARTIAL = "model.rope_columns=6"
LONGROPE = PARTIAL + " model.rope_scaling=longrope model.rope_factor=4 \
model.rope_original_len=8 model.rope_short=[1,1.5,2] model.rope_long=[1,2,6]"
# As GLM-4.5 and DeepSeek-V3. Below fp32 layouts choose other experts now and
# then, and a count beside the mean would move a bias the other way.
SIGMOID = "model.experts_scores=sigmoid model.experts_scale=2.5"
BIASED = SIGMOID + " model.experts_balance_rate=0.01"
GROUPS = BIASED + " model.experts_groups=2 model.experts_top_groups=1"
# As DeepSeek-V2: groups with the best experts, and weights that add up to less
# than 1.
SCORES = "model.experts_weights=scores"
BEST = SCORES + " model.experts_groups=2 model.experts_top_groups=1 \
model.experts_scale=4"
# A weight with which the balance loss shows in every number.
BATCH = "model.experts_balance_over=batch model.experts_balance=1"
# As OLMo 2 and 3: norms after, one of all heads' queries, which tp divides.
OLMO = "model.norm_place=after model.qk_norm=true model.qk_norm_whole=true"
# As Gemma 3: norms before and after, positions by the kind of layer.
BOTH = "model.norm_place=both model.qk_norm=true model.sliding_window=5 \
model.full_attention_every=3 model.rope_theta_window=100 model.gate=gelu"
GEMMA = BOTH + " model.norm_plus_one=true"
# As Gemma 2: soft caps.
CAPS = "model.attention_softcap=1 model.logit_softcap=3"
# As DeepSeek-V3, with heads of v that are narrower than those of q and k, and
# without a latent of q as in its smaller ones.
LATENT = "model.mla=[24,16,10,6,12] model.kv_heads=4"
DIRECT = "model.mla=[0,12,6,4,8] model.kv_heads=6"
# As GPT-OSS.
SINKS = "model.attention_sinks=true"
OSS = "model.mlp_bias=true model.gate=clamped"

# As Llama 4: layers of both kinds of attention and of mlps in turns.
PLACED = "model.qk_l2_norm=true model.no_rope_every=3 model.attention_chunk=7 \
model.attention_temperature=0.5 model.attention_temperature_floor=3"
INPUT = "model.experts_scores=input model.shared_experts=1"
LLAMA4 = f"model.qk_l2_norm=true model.no_rope_every=3 {INPUT} \
model.experts_every=2 model.dense_ffn=192"

# What is dropped depends on no layout.
DROPS = "model.dropout=0.2 model.attention_dropout=0.3"

# As DeepSeek-V3: the token after the next is predicted too.
MTP = "model.mtp_layers=1 model.mtp_loss=0.5"

# Prompts have no loss; made of parity.py's tokens.
PROMPTS = "data.train=prompts.bin data.format=plait"

STRANDS = [
    ("gpt2", "211", QK_CLIP),
    ("gpt2", "121", QK_CLIP + " schedule=zb-h1"),
    ("llama", "112", QK_CLIP + " zero=1"),
    ("llama", "1112", QK_CLIP),
    ("llama", "411", QK_CLIP),
    ("odd-gpt2", "113", QK_CLIP + " zero=3 recompute=full"),
    ("odd-llama", "321", QK_CLIP + " micro_batch=1"),
    ("odd-llama", "131", QK_CLIP + " schedule=zb-h1 then=111"),
    ("odd-moe", "21212", QK_CLIP + " micro_batch=1"),
    ("moe", "11212", QK_CLIP + " zero=1"),
    ("gpt2", "222", QK_CLIP + " zero=2 sequence=true"),
    ("gpt2", "124", QK_CLIP + " zero=3 schedule=interleaved virtual=2 "
     "micro_batch=1"),
    ("gpt2", "1122", QK_CLIP + " precision=bf16 zero=2"),
    ("gpt2", "112", QK_CLIP + " zero=1 then=221"),
    ("gpt2", "112", QK_CLIP + " precision=fp16 loss_scale=50000000"),
    ("llama", "212", QK_CLIP + " model.attention_bias=qkv"),
    ("llama", "212", QK_CLIP + " " + DOCUMENTS),
    ("llama", "2112", QK_CLIP + " model.sliding_window=5 "
     "model.full_attention_every=3"),
    ("moe", "21212", QK_CLIP + " " + BIASED + " zero=1"),
    ("gpt2", "211", PROMPTS),
    ("gpt2", "121", PROMPTS),
    ("llama", "112", PROMPTS),
    ("llama", "1112", PROMPTS),
    ("odd-llama", "131", PROMPTS + " schedule=zb-h1"),
    ("odd-gpt2", "113", PROMPTS + " zero=2 micro_batch=1"),
    ("llama", "222", PROMPTS + " zero=3 sequence=true"),
    ("moe", "11212", PROMPTS + " zero=1"),
    ("odd-moe", "21212", PROMPTS + " micro_batch=1"),
    ("gpt2", "1122", PROMPTS + " precision=bf16"),
    ("gpt2", "112", PROMPTS + " precision=fp16 loss_scale=50000000"),
    ("gpt2", "211", DOCUMENTS + " precision=bf16"),
    ("gpt2", "211", DOCUMENTS),
    ("llama", "1112", DOCUMENTS),
    ("gpt2", "1113", DOCUMENTS),
    ("llama", "121", DOCUMENTS),
    ("odd-llama", "131", DOCUMENTS + " schedule=zb-h1"),
    ("gpt2", "222", DOCUMENTS + " sequence=true"),
    ("llama", "2222", DOCUMENTS + " precision=bf16 zero=1 micro_batch=1"),
    ("odd-moe", "11212", DOCUMENTS + " recompute=full"),
    # attention to a part of the sequence, layers without positions, constants
    ("llama", "1112", WINDOWS),
    ("odd-llama", "331", WINDOWS + " schedule=interleaved virtual=2"),
    ("llama", "2122", WINDOWS + " sequence=true zero=3 recompute=full"),
    ("odd-llama", "1113", WINDOWS + " " + DOCUMENTS),
    ("moe", "11212", WINDOWS + " recompute=selective"),
    ("gpt2", "222", MUP + " sequence=true"),
    ("odd-llama", "114", MUP + " zero=1"),
    ("llama", "2122", MUP + " zero=3 recompute=full"),
    ("moe", "11212", MUP + " zero=2"),
    ("gpt2", "122", MUP + " optim.name=adamw8bit optim.lr=1e-3 zero=1"),
    ("odd-llama", "131", MUP + " schedule=zb-h1 then=112"),
    # first layers without experts
    ("moe", "211", FIRST),
    ("moe", "2122", FIRST + " sequence=true zero=3 recompute=full"),
    ("moe", "12212", FIRST + " zero=2"),
    ("moe", "11222", FIRST + " zero=1 precision=bf16"),
    ("moe", "121", FIRST + " schedule=zb-h1 recompute=selective"),
    ("moe", "121", FIRST + " schedule=interleaved virtual=2"),
    ("moe", "112", FIRST + " offload=activations recompute=full"),
    ("moe", "2122", FIRST + " zero=1 then=12212"),
    ("odd-moe", "311", FIRST + " precision=fp8"),
    ("moe", "2212", FIRST + " " + MUP + " zero=1"),
    # experts that all tokens take
    ("moe", "211", SHARED),
    ("moe", "2122", SHARED + " sequence=true zero=3 recompute=full"),
    ("moe", "12212", SHARED + " zero=2"),
    ("moe", "11222", SHARED + " zero=1 precision=bf16"),
    ("moe", "121", SHARED + " schedule=zb-h1 recompute=selective"),
    ("moe", "211", SHARED + " precision=fp8"),
    ("moe", "11414", SHARED + " offload=activations"),
    ("moe", "2122", SHARED + " zero=1 then=12212"),
    ("moe", "2212", FIRST + " " + SHARED + " zero=1"),
    # experts by sigmoids and a bias that each step moves
    ("moe", "211", BIASED),
    ("moe", "2122", GROUPS + " sequence=true zero=3 recompute=full"),
    ("moe", "12212", BIASED + " zero=2"),
    ("moe", "11222", SIGMOID + " zero=1 precision=bf16"),
    ("moe", "121", BIASED + " schedule=zb-h1 recompute=selective"),
    ("odd-moe", "311", GROUPS.replace("groups=2", "groups=3").replace(
        "top_groups=1", "top_groups=2")),
    ("moe", "211", SIGMOID + " precision=fp8"),
    ("moe", "11414", GROUPS + " offload=activations"),
    ("moe", "2122", BIASED + " zero=1 then=12212"),
    ("moe", "2212", " ".join((FIRST, SHARED, PARTIAL, BIASED, "zero=1"))),
    # experts whose weights are scores
    ("moe", "211", SCORES),
    ("moe", "2122", BEST + " sequence=true zero=3 recompute=full"),
    ("odd-moe", "11212", SCORES + " zero=1 micro_batch=1"),
    ("moe", "12212", BEST + " zero=2"),
    ("moe", "11222", SCORES + " zero=1 precision=bf16"),
    ("moe", "121", BEST + " schedule=zb-h1 recompute=selective"),
    ("moe", "2122", BEST + " zero=1 then=12212"),
    ("moe", "211", f"{SCORES} {BIASED}"),
    ("moe", "2112", " ".join((LATENT, FIRST, SHARED, BEST))),
    # experts that are balanced over the batch
    ("moe", "211", BATCH),
    ("moe", "112", BATCH + " micro_batch=1"),
    ("moe", "112", BATCH + " micro_batch=12"),
    ("moe", "21212", BATCH + " micro_batch=3 recompute=full"),
    ("moe", "2122", BATCH + " sequence=true zero=3"),
    ("odd-moe", "11212", BATCH + " zero=1 " + DOCUMENTS),
    ("moe", "11222", BATCH + " zero=2 precision=bf16"),
    ("moe", "121", BATCH + " schedule=zb-h1 recompute=selective"),
    ("moe", "12212", BATCH + " " + BIASED + " zero=1"),
    ("moe", "11414", BATCH + " offload=activations"),
    ("moe", "2122", BATCH + " zero=1 then=12212"),
    ("moe", "212", BATCH + " " + PROMPTS),
    # latent attention
    ("llama", "211", LATENT),
    ("llama", "211", LATENT + " sequence=true recompute=selective"),
    ("llama", "121", LATENT + " schedule=zb-h1 recompute=selective"),
    ("llama", "1112", LATENT + " " + DOCUMENTS),
    ("llama", "114", LATENT + " zero=3 micro_batch=1"),
    ("llama", "2122", LATENT + " sequence=true zero=3 recompute=full"),
    ("llama", "411", LATENT + " optim.name=muon"),
    ("llama", "212", LATENT + " precision=bf16 zero=1"),
    ("llama", "211", LATENT + " offload=activations"),
    # LATENT's own matrices are too small for 8-bit codes.
    ("llama", "212", "model.mla=[96,64,10,6,12] model.kv_heads=4 zero=1 "
     "optim.name=adamw8bit optim.lr=1e-3"),
    ("odd-llama", "331", DIRECT + " schedule=zb-h1"),
    ("odd-llama", "1113", DIRECT + " recompute=full"),
    ("odd-llama", "312", DIRECT + " model.attention_sinks=true zero=2"),
    ("moe", "12212", " ".join((LATENT, FIRST, SHARED, BIASED, "zero=1"))),
    ("moe", "121", LATENT + " " + FIRST + " schedule=zb-h1 "
     "recompute=selective"),
    ("moe", "2122", LATENT + " " + BIASED + " zero=1 then=12212"),
    ("moe", "21212", LATENT + " model.rope_scaling=yarn model.rope_factor=4 "
     "model.rope_original_len=8 model.attention_multiplier=0.3 zero=3"),
    # rotary positions of some columns
    ("llama", "211", PLACED),
    ("llama", "411", PLACED + " recompute=selective"),
    ("llama", "1112", PLACED + " " + DOCUMENTS),
    ("odd-llama", "331", PLACED + " schedule=zb-h1"),
    ("llama", "2122", PLACED + " sequence=true zero=3 recompute=full"),
    ("llama", "212", PLACED + " precision=bf16 zero=1"),
    ("moe", "21212", INPUT),
    ("moe", "22111", INPUT + " sequence=true"),
    ("moe", "11414", LLAMA4 + " zero=1"),
    ("moe", "21111", LLAMA4 + " sequence=true recompute=selective"),
    ("moe", "12111", LLAMA4 + " schedule=zb-h1"),
    ("moe", "21222", LLAMA4 + " sequence=true zero=3 recompute=full"),
    ("moe", "11212", LLAMA4 + " " + DOCUMENTS),
    ("moe", "11212", LLAMA4 + " precision=bf16"),
    ("moe", "12212", LLAMA4 + " offload=activations"),
    ("llama", "221", PARTIAL),
    ("odd-llama", "1113", PARTIAL + " " + DOCUMENTS),
    # norms after attention and mlp
    ("llama", "211", OLMO),
    ("llama", "2122", OLMO + " sequence=true zero=3 recompute=full"),
    ("odd-llama", "331", OLMO + " schedule=zb-h1"),
    ("llama", "411", OLMO + " recompute=selective"),
    ("llama", "121", OLMO + " schedule=zb-h1 recompute=full"),
    ("llama", "212", OLMO + " precision=bf16 zero=1"),
    ("llama", "211", OLMO + " precision=fp8"),
    ("llama", "222", GEMMA + " sequence=true"),
    ("llama", "2122", CAPS + " model.sliding_window=5 sequence=true zero=3 \
recompute=full"),
    ("odd-llama", "331", CAPS + " schedule=zb-h1"),
    ("llama", "1112", f"{CAPS} {DOCUMENTS}"),
    ("llama", "212", CAPS + " precision=bf16 zero=1"),
    # attention sinks
    ("llama", "2122", SINKS + " model.sliding_window=5 sequence=true zero=3 \
micro_batch=1"),
    ("odd-llama", "331", SINKS + " schedule=zb-h1 recompute=full"),
    ("odd-llama", "331", OSS + " schedule=zb-h1"),
    # every gradient counts as it is, whatever its size
    ("llama", "2112", SINKS + " optim.name=sgd optim.lr=0.05"),
    ("moe", "21212", OSS + " optim.name=sgd optim.lr=0.05"),
    ("moe", "11222", OSS + " model.rope_scaling=yarn model.rope_factor=4 "
     "model.rope_original_len=8"),
    ("llama", "2112", LONGROPE + " sequence=true"),
    ("llama", "212", LONGROPE + " model.rope_original_len=64"),
    ("llama", "211", OSS + " sequence=true recompute=selective"),
    ("moe", "21212", OSS + " zero=3"),
    ("moe", "212", OSS + " recompute=full micro_batch=1"),
    ("moe", "212", OSS + " precision=bf16 zero=1"),
    ("llama", "1112", f"{SINKS} {DOCUMENTS}"),
    ("llama", "212", SINKS + " precision=bf16 zero=1"),
    ("odd-llama", "1113", BOTH),
    ("llama", "1112", BOTH + " " + DOCUMENTS),
    # Some gradients of these short documents are nothing but rounding, which
    # Adam with its default epsilon makes a weight's whole step.
    ("odd-llama", "1113", BOTH + " " + DOCUMENTS + " optim.eps=1e-4"),
    ("llama", "121", GEMMA + " schedule=zb-h1 recompute=selective"),
    ("llama", "211", GEMMA + " recompute=full precision=fp8 sequence=true"),
    # dropout
    ("gpt2", "211", DROPS),
    ("gpt2", "121", DROPS),
    ("gpt2", "1112", DROPS),
    ("llama", "112", DROPS + " micro_batch=1"),
    ("gpt2", "112", DROPS + " micro_batch=12 recompute=full"),
    ("gpt2", "222", DROPS + " sequence=true"),
    ("gpt2", "211", DROPS + " sequence=true micro_batch=12"),
    ("llama", "2122", DROPS + " sequence=true zero=3 recompute=full"),
    ("odd-llama", "331", DROPS + " schedule=zb-h1"),
    ("odd-gpt2", "113", DROPS + " zero=2 micro_batch=1"),
    ("llama", "121", DROPS + " schedule=interleaved virtual=2"),
    ("llama", "221", DROPS + " precision=bf16 recompute=selective"),
    ("gpt2", "211", DROPS + " precision=fp8"),
    ("gpt2", "112", DROPS + " precision=fp16 loss_scale=50000000"),
    ("llama", "221", f"{DROPS} {GEMMA} offload=activations"),
    ("llama", "1112", f"{DROPS} {SINKS} {CAPS}"),
    ("odd-llama", "1113", f"{DROPS} {DOCUMENTS}"),
    ("odd-moe", "21212", DROPS + " recompute=full"),
    ("moe", "2122", DROPS + " zero=1 then=12212"),
    ("gpt2", "221", DROPS + " then=114"),
    ("llama", "2122", f"{DROPS} {LATENT} sequence=true recompute=full zero=3"),
    ("gpt2", "112", "model.dropout=0.1"),
    ("llama", "1122", "model.attention_dropout=0.1"),
    # multi-token prediction
    ("gpt2", "211", MTP),
    ("llama", "211", MTP + " sequence=true micro_batch=1"),
    ("llama", "121", MTP),
    ("gpt2", "121", MTP + " zero=1 schedule=naive"),
    ("odd-llama", "331", MTP + " schedule=zb-h1"),
    ("odd-gpt2", "131", MTP + " schedule=zb-h1 recompute=full"),
    ("llama", "121", MTP + " schedule=interleaved virtual=2"),
    ("llama", "112", MTP + " zero=1"),
    ("gpt2", "112", MTP + " zero=2"),
    ("llama", "112", MTP + " zero=2 schedule=gpipe"),
    ("llama", "122", MTP + " zero=3"),
    ("gpt2", "122", MTP + " zero=3 schedule=gpipe micro_batch=1"),
    ("odd-llama", "113", MTP + " zero=3 recompute=selective"),
    ("llama", "1112", MTP),
    ("odd-llama", "1113", f"{MTP} {DOCUMENTS}"),
    ("llama", "121", f"{MTP} {PROMPTS}"),
    ("llama", "2122", MTP + " sequence=true zero=3 recompute=full"),
    ("moe", "211", f"{MTP} {FIRST}"),
    ("moe", "12212", f"{MTP} {BIASED} zero=2"),
    ("moe", "21212", f"{MTP} {SHARED} zero=3 recompute=full"),
    ("moe", "122", f"{MTP} zero=3 stages=[4,0] micro_batch=1"),
    ("odd-moe", "11212", MTP + " micro_batch=1"),
    ("llama", "2122", f"{MTP} {LATENT} zero=1"),
    ("moe", "2122", " ".join((MTP, FIRST, SHARED, BIASED,
                              "zero=1 then=12212"))),
    ("llama", "221", f"{MTP} {BOTH} offload=activations"),
    ("llama", "1112", f"{MTP} {DROPS}"),
    ("gpt2", "221", MTP + " then=114"),
    ("llama", "121", MTP + " stages=[4,0] schedule=zb-h1"),
    ("llama", "212", MTP + " precision=bf16 zero=1"),
    ("llama", "211", MTP + " precision=fp8 recompute=selective"),
    ("llama", "112", MTP + " precision=fp16 loss_scale=50000000"),
    ("llama", "122", MTP + " optim.name=adamw8bit optim.lr=1e-3 zero=1"),
    ("llama", "221", MTP + " optim.name=muon"),
    # the head's product is made before every other gradient
    ("gpt2", "112", "zero=2 schedule=gpipe"),
    ("gpt2", "112", "zero=3 schedule=gpipe"),
    ("gpt2", "111", "micro_batch=24"),
    ("llama", "111", "micro_batch=6 recompute=full"),
    ("moe", "111", "micro_batch=24"),
    ("gpt2", "111", "precision=bf16"),
    ("llama", "111", "precision=fp16"),
    # each product has its own scales, which a layout's shards change
    ("gpt2", "111", "precision=fp8"),
    ("moe", "111", "precision=fp8 micro_batch=6"),
    ("odd-gpt2", "111", "precision=fp8"),
    ("gpt2", "211", "precision=fp8 micro_batch=12"),
    ("llama", "211", "precision=fp8 sequence=true"),
    ("odd-llama", "131", "precision=fp8"),
    ("llama", "121", "precision=fp8 schedule=zb-h1"),
    ("gpt2", "112", "precision=fp8"),
    ("llama", "114", "precision=fp8 zero=3"),
    ("gpt2", "1112", "precision=fp8"),
    ("gpt2", "221", "precision=fp8 recompute=selective"),
    ("llama", "222", "precision=fp8 recompute=full zero=3 sequence=true"),
    ("moe", "11212", "precision=fp8 recompute=full zero=1"),
    # activations in the host's memory
    ("gpt2", "111", "offload=activations"),
    ("moe", "111", "offload=activations recompute=selective"),
    ("odd-llama", "131", "offload=activations schedule=gpipe"),
    ("llama", "141", "offload=activations micro_batch=1"),
    ("odd-gpt2", "121", "offload=activations schedule=naive"),
    ("llama", "121", "offload=activations schedule=interleaved virtual=2"),
    ("gpt2", "221", "offload=activations sequence=true recompute=selective"),
    ("llama", "212", "offload=activations zero=3 recompute=full"),
    ("odd-moe", "11212", "offload=activations zero=2 micro_batch=1"),
    ("gpt2", "1112", "offload=activations precision=bf16"),
    ("gpt2", "121", "schedule=interleaved virtual=2 micro_batch=4"),
    ("odd-llama", "121", "schedule=interleaved virtual=3"),
    ("odd-llama", "131", "schedule=interleaved virtual=2 micro_batch=4"),
    # stages with given numbers of layers; some have only the embedding or the
    # head
    ("gpt2", "121", "stages=[3,1]"),
    ("gpt2", "121", "stages=[0,4] schedule=zb-h1"),
    ("llama", "141", "stages=[0,2x2,0] micro_batch=1"),
    ("odd-llama", "131", "stages=[1,6,0] schedule=zb-h1 recompute=full"),
    ("llama", "122", "stages=[4,0] zero=3 schedule=gpipe"),
    ("gpt2", "132", "stages=[0,4,0] zero=2 schedule=naive"),
    ("odd-gpt2", "131", "stages=[0,1,1,1,2,0] schedule=interleaved virtual=2 "
     "micro_batch=1"),
    ("llama", "131", "schedule=interleaved virtual=2 micro_batch=1"),
    ("llama", "221", "stages=[4,0] sequence=true precision=bf16"),
    ("gpt2", "1212", "stages=[0,4] recompute=selective"),
    ("odd-moe", "12212", "stages=[5,0] zero=1"),
    ("llama", "131", "stages=[0,4,0] offload=activations"),
    ("gpt2", "131", "stages=[0,4,0] then=121"),
    ("moe", "12212", "stages=[4,0] zero=3 then=112"),
    # enough rows to multiply them in halves
    ("gpt2", "211", "micro_batch=12"),
    ("odd-llama", "312", "micro_batch=12 recompute=full"),
    # ways of reducing gradients
    ("gpt2", "114", "grad_sync=naive"),
    ("llama", "222", "grad_sync=naive sequence=true"),
    ("moe", "11414", "grad_sync=naive"),
    ("gpt2", "114", "grad_sync=flat"),
    ("llama", "222", "grad_sync=flat grad_reduce=bf16"),
    ("llama", "122", "grad_sync=flat schedule=interleaved virtual=2"),
    ("moe", "11414", "grad_sync=flat"),
    # experts are sent alone, and those that no other rank has are not
    ("moe", "112", "grad_sync=flat grad_reduce=bf16"),
    ("moe", "11212", "grad_sync=flat grad_reduce=bf16"),
    ("gpt2", "114", "nodes=2 all_reduce=hierarchical grad_sync=flat"),
    ("gpt2", "112", "grad_reduce=bf16"),
    ("llama", "222", "grad_reduce=bf16 zero=1"),
    ("gpt2", "122", "grad_reduce=bf16 zero=3"),
    # nodes=N: as if the ranks were on N nodes
    ("gpt2", "114", "nodes=2 all_reduce=hierarchical"),
    ("llama", "118", "nodes=4 all_reduce=hierarchical bucket_mib=0.01 "
     "micro_batch=1"),
    ("odd-gpt2", "116", "nodes=2 all_reduce=hierarchical micro_batch=1"),
    ("gpt2", "1122", "nodes=2 all_reduce=hierarchical"),
    ("llama", "214", "nodes=2 all_reduce=hierarchical sequence=true"),
    ("gpt2", "124", "nodes=4 all_reduce=hierarchical schedule=zb-h1"),
    ("moe", "11412", "nodes=2 all_reduce=hierarchical"),
    ("llama", "114", "nodes=2 all_reduce=hierarchical grad_reduce=bf16"),
    ("gpt2", "114", "nodes=2 all_reduce=hierarchical zero=1"),
    ("odd-llama", "116", "nodes=2 all_reduce=hierarchical zero=2"),
    ("odd-gpt2", "116", "nodes=3 all_reduce=hierarchical zero=3"),
    ("gpt2", "124", "nodes=4 all_reduce=hierarchical zero=3 schedule=zb-h1"),
    ("llama", "214", "nodes=2 all_reduce=hierarchical zero=2 "
     "grad_reduce=bf16"),
    ("gpt2", "1142", "nodes=4 all_reduce=hierarchical zero=1 precision=bf16"),
    ("moe", "11412", "nodes=2 all_reduce=hierarchical zero=3"),
    ("moe", "1182", "nodes=4 all_reduce=hierarchical zero=2 micro_batch=1"),
    ("gpt2", "114", "nodes=2 shard_group=node zero=1"),
    ("odd-llama", "116", "nodes=2 shard_group=node zero=2"),
    ("odd-gpt2", "116", "nodes=2 shard_group=node zero=3"),
    ("llama", "124", "nodes=4 shard_group=node zero=3 schedule=gpipe"),
    ("gpt2", "1142", "nodes=4 shard_group=node zero=3 recompute=full"),
    ("llama", "214", "nodes=2 shard_group=node zero=3 sequence=true"),
    ("gpt2", "224", "nodes=4 shard_group=node zero=2 schedule=zb-h1"),
    ("gpt2", "114", "nodes=2 shard_group=node zero=3 grad_reduce=bf16"),
    ("moe", "11412", "nodes=2 shard_group=node zero=2"),
    ("moe", "11414", "nodes=2 shard_group=node zero=3"),
]

# Every optimizer in every kind of layout. Its rate and state are such that ten
# steps move the weights as far as AdamW's do.
OPTIMIZERS = {
    "adamw8bit": "optim.lr=1e-3",
    "sgd": "optim.lr=0.05 optim.weight_decay=0.01 optim.nesterov=true",
    "lars": "optim.lr=1 optim.trust=0.02",
    "larc": "optim.lr=0.05 optim.trust=0.02",
    "lamb": "optim.lr=0.01",
    "novograd": "optim.lr=0.01 optim.weight_decay=0.01",
    "lion": "optim.lr=3e-5",  # see signs.py
    "adafactor": "optim.lr=0.02",
    "muon": "optim.lr=2e-3 optim.momentum=0.95 optim.nesterov=true",
    "soap": "optim.lr=1e-3 optim.eps=1e-4 optim.frequency=3",
    "schedulefree": "optim.lr=3e-3 lr.schedule=constant",
}


MUON = "optim.muon_heads=true optim.muon_coefficients=polar-express"


def optimizer(name):
    return f"optim.name={name} {OPTIMIZERS[name]}"


def optimizers():
    for name in OPTIMIZERS:
        for model, sizes, rest in [
                ("gpt2", "211", ""),
                ("gpt2", "121", ""),
                ("odd-gpt2", "112", ""),
                ("odd-llama", "222", "sequence=true"),
                ("odd-llama", "114", "zero=1"),
                ("gpt2", "122", "zero=2"),
                ("llama", "212", "zero=3"),
                ("llama", "1112", ""),
                ("moe", "11212", "zero=1"),
                # resumed in another layout
                ("gpt2", "112", "zero=1 then=221"),
                ("gpt2", "221", "then=112"),
                ("odd-llama", "131", "then=111"),
                *([("llama", "212", MUON + " zero=1"),
                   ("odd-gpt2", "311", MUON),
                   ("llama", "411", MUON),
                   ("odd-llama", "321", MUON),
                   ("odd-llama", "131", MUON + " then=111"),
                   ("gpt2", "112", MUON + " zero=3 precision=bf16")]
                  if name == "muon" else []),
                *([("llama", "212", QK_CLIP + " zero=1"),
                   ("gpt2", "122", QK_CLIP + " zero=2")]
                  if name in ("muon", "schedulefree") else [])]:
            if name == "adamw8bit":
                # Tensors of the odd models are too small for 8-bit codes.
                model = model.replace("odd-", "")
                sizes = sizes.replace("131", "121")
            yield model, sizes, f"{optimizer(name)} {rest}".rstrip()
            if name == "soap" and "then" not in rest:
                # from one process's bases, which are recomputed at step 7
                yield model, sizes, f"{optimizer(name)} {rest} from=4".replace("  ", " ")


# Moments in bf16, rounded by what no layout may change.
MOMENTS = "optim.moments=bf16"
MASTERS = "precision=bf16 optim.masters=bf16"
ROUNDED = [
    ("gpt2", "211", MOMENTS),
    ("gpt2", "121", MOMENTS),
    ("odd-gpt2", "112", MOMENTS),
    ("gpt2", "122", MOMENTS + " zero=2"),
    ("odd-llama", "222", MOMENTS + " sequence=true"),
    ("odd-llama", "114", MOMENTS + " zero=1"),
    ("odd-gpt2", "113", MOMENTS + " zero=2"),
    ("llama", "212", MOMENTS + " zero=3"),
    ("llama", "1112", MOMENTS),
    ("llama", "411", MOMENTS + " model.qk_norm=true"),
    ("moe", "11212", MOMENTS + " zero=1"),
    ("gpt2", "112", MOMENTS + " zero=1 then=221"),
    ("gpt2", "221", MOMENTS + " then=112"),
    ("odd-llama", "131", MOMENTS + " then=111"),
    ("gpt2", "122", MOMENTS + " precision=bf16 zero=2"),
    ("gpt2", "212", MOMENTS + "-nearest zero=1"),
    ("gpt2", "221", MASTERS),
    ("llama", "212", MASTERS + " zero=3"),
    ("gpt2", "122", MASTERS + " " + MOMENTS + " zero=2"),
    ("odd-llama", "222", MASTERS + " sequence=true zero=1"),
    ("llama", "1112", MASTERS + " " + MOMENTS),
    ("moe", "11212", MASTERS + " zero=1"),
    ("gpt2", "112", MASTERS + " zero=1 then=221"),
    ("gpt2", "112", MASTERS + " zero=3 " + optimizer("lamb")),
    *(("odd-llama", "222", f"{optimizer(name)} {MOMENTS} zero=1")
      for name in ("lamb", "sgd", "lars", "larc", "novograd")),
    ("gpt2", "112", optimizer("lamb") + " " + MOMENTS + " zero=3"),
]


QUICK = [
    ("odd-llama", "222", MOMENTS + " zero=1"),
    ("odd-gpt2", "113", QK_CLIP + " zero=3 recompute=full"),
    ("llama", "212", optimizer("muon") + " " + QK_CLIP + " zero=1"),
    ("gpt2", "122", optimizer("schedulefree") + " " + QK_CLIP + " zero=2"),
    ("gpt2", "2212", DOCUMENTS),
    ("moe", "21212", PROMPTS),
    ("llama", "222", "zero=3 sequence=true"),
    ("odd-gpt2", "131", "schedule=zb-h1"),
    ("gpt2", "1122", "precision=bf16 zero=2"),
    ("llama", "212", "precision=fp8 zero=3 recompute=full"),
    ("odd-llama", "222", optimizer("muon") + " zero=1"),
    ("moe", "11212", optimizer("adafactor") + " zero=1"),
    ("moe", "2122", GROUPS + " sequence=true zero=3 recompute=full"),
]
if os.environ.get("PLAIT_TEST_TIER") != "quick": # tests/lib/tier.sh
    QUICK += [
        ("gpt2", "211", ""),
        ("moe", "11212", "zero=1"),
        ("gpt2", "112", "zero=2 schedule=gpipe"),
        ("gpt2", "122", optimizer("lamb") + " zero=2"),
        ("llama", "212", optimizer("lion") + " zero=3"),
        ("gpt2", "122", optimizer("soap") + " zero=2 from=4"),
        ("odd-moe", "11212", "offload=activations"),
    ]


def axes():
    for name in MODELS:
        for sizes in BASIC_ODD if name.startswith("odd") else \
                BASIC_EXPERTS if name == "moe" else BASIC:
            if possible(case(name, sizes)):
                yield name, sizes, ""


def case(model, sizes):
    """The first level of every factor, but in that layout."""
    c = {f: levels[0] for f, levels in FACTORS.items()}
    c.update(zip(AXES, map(int, sizes)), model=model)
    return c


def world(c):
    return c["tp"] * c["pp"] * c["dp"] * c["cp"]


def virtual(c):
    return 2 if c["schedule"] == "interleaved" else 1


def model_fits(c):
    m, tp, ep = MODELS[c["model"]], c["tp"], c["ep"]
    kv = m["kv_heads"]
    if m["heads"] % tp or m["ffn"] % tp or (kv % tp and tp % kv):
        return False
    if ep > 1 and (m.get("experts", 1) % ep or c["cp"] * c["dp"] % ep):
        return False
    return m["layers"] >= c["pp"] * virtual(c)


def possible(c):
    """Whether plait-train would accept the case, and no setting is
    ineffective."""
    if world(c) > WORLD or not model_fits(c):
        return False
    if GLOBAL_BATCH % (c["dp"] * c["micro_batch"]):
        return False
    microbatches = GLOBAL_BATCH // (c["dp"] * c["micro_batch"])
    if c["schedule"] == "interleaved" and microbatches % c["pp"]:
        return False
    rows = c["micro_batch"] * SEQ_LEN // c["cp"]
    if c["sequence"] == "true" and (c["tp"] == 1 or rows % c["tp"]):
        return False
    if c["schedule"] != "1f1b" and c["pp"] == 1:
        return False
    return (c["zero"] == 0 and c["bucket_mib"] == 25) or c["dp"] * c["cp"] > 1


def pairs(c):
    return set(itertools.combinations(c.items(), 2))


def all_pairs():
    for a, b in itertools.combinations(FACTORS, 2):
        for x, y in itertools.product(FACTORS[a], FACTORS[b]):
            yield (a, x), (b, y)


def complete(rng, fixed, todo, tries):
    """The case with `fixed` in it that covers most pairs in `todo`; None if
    none was found."""
    best, most = None, -1
    for _ in range(tries):
        c = {f: fixed.get(f, rng.choice(levels))
             for f, levels in FACTORS.items()}
        if possible(c) and len(todo & pairs(c)) > most:
            best, most = c, len(todo & pairs(c))
    return best


def write(c):
    sizes = "".join(str(c[a]) for a in AXES)
    while len(sizes) > 3 and sizes.endswith("1"):
        sizes = sizes[:-1]
    out = []
    for f, levels in FACTORS.items():
        if f == "model" or f in AXES or c[f] == levels[0]:
            continue
        out.append(f"{f}={c[f]}")
        if c[f] == "interleaved":
            out.append("virtual=2")
    return c["model"], sizes, " ".join(out)


def together():
    rng, todo = random.Random(1), set(all_pairs())
    for model, schedule, zero in itertools.product(
            MODELS, FACTORS["schedule"], FACTORS["zero"]):
        c = complete(rng, {"model": model, "schedule": schedule,
                           "zero": zero, "precision": "fp32"}, todo, 2000)
        todo -= pairs(c)
        yield write(c)
    for pair in all_pairs():
        if pair in todo:
            c = complete(rng, dict(pair), todo, 2000)
            if c:
                todo -= pairs(c)
                yield write(c)


def cases():
    seen = {}
    for c in itertools.chain(axes(), STRANDS, OVERFLOW, optimizers(),
                             ROUNDED, together()):
        seen[c] = None
    return list(seen)


if __name__ == "__main__":
    for one in cases():
        print(*one)
