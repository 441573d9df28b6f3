/* SPDX-License-Identifier: Apache-2.0 */
/* The model and how it is split. */
#include "fits_case.h"

static void check_model(void)
{
    CASE(CONFIG, NULL, (void)0);
    CASE(CONFIG, "model.hidden 64 is not divisible by model.heads 7",
         c.model.heads = 7);
    CASE(CONFIG, "model.heads 8 is not divisible by model.kv_heads 3",
         c.model.kv_heads = 3);
    CASE(CONFIG, "model.kv_heads 4 must be model.heads 8 in a gpt2 model",
         c.model.family = PLAIT_GPT2);
    CASE(CONFIG, NULL, TO_GPT2);
    CASE(CONFIG,
         "model.hidden 24 / model.heads 8 = 3 must be even for rotary "
         "embeddings",
         c.model.hidden = 24);
    CASE(CONFIG, "model.head_dim 7 must be even for rotary embeddings",
         c.model.head_dim = 7);
    CASE(CONFIG, NULL, c.model.head_dim = 6, c.model.hidden = 63);
    CASE(CONFIG,
         "model.head_dim 6 must be model.hidden 64 / model.heads 8 in a gpt2 "
         "model",
         TO_GPT2, c.model.head_dim = 6);
    CASE(CONFIG, "model.logits_scaling is for llama models", TO_GPT2,
         c.model.logits_scaling = 2);
    CASE(CONFIG, "model.logit_softcap is for llama models", TO_GPT2,
         c.model.logit_softcap = 30);
    CASE(TRAINER, NULL, c.model.attention_softcap = 50,
         c.model.logit_softcap = 30);
    CASE(TRAINER, NULL, TO_GPT2, c.model.dropout = 0.1,
         c.model.attention_dropout = 0.1);
    CASE(CONFIG, "model.mlp_bias is for llama models", TO_GPT2,
         c.model.mlp_bias = true);
    CASE(TRAINER,
         "model.mlp_bias with model.shared_experts: plait-train "
         "cannot combine the two",
         c.model.experts = 8, c.model.shared_experts = 1,
         c.model.mlp_bias = true);
    CASE(TRAINER, NULL, c.model.experts = 8, c.model.mlp_bias = true);
    CASE(CONFIG, "model.layers 0: only an mlp can do without layers",
         c.model.layers = 0);
    CASE(MODEL, "model.hidden 64 is not divisible by model.heads 7",
         c.model.heads = 7);
}

static void check_norms(void)
{
    CASE(CONFIG, "model.qk_norm is for llama models", TO_GPT2,
         c.model.qk_norm = true);
    CASE(CONFIG, "model.norm_place is for llama models", TO_GPT2,
         c.model.norm_place = PLAIT_NORMS_BOTH);
    CASE(TRAINER, NULL, c.model.norm_place = PLAIT_NORMS_AFTER,
         c.model.experts = 0);
    CASE(TRAINER,
         "model.norm_place after or both with model.experts: plait-train does "
         "not train norms after experts",
         c.model.norm_place = PLAIT_NORMS_AFTER);
    CASE(TRAINER,
         "model.norm_place after or both with model.residual_multiplier 0.5: "
         "plait-train cannot combine the two",
         c.model.norm_place = PLAIT_NORMS_BOTH, c.model.experts = 0,
         c.model.residual_multiplier = 0.5);
    CASE(CONFIG,
         "model.qk_norm_whole: model.qk_norm is false, the model has no such "
         "norm",
         c.model.qk_norm_whole = true);
    CASE(CONFIG,
         "model.qk_norm_whole: model.qk_norm is false, the model has no such "
         "norm",
         TO_GPT2, c.model.qk_norm_whole = true);
    CASE(TRAINER,
         "model.norm_plus_one with model.qk_norm_whole: plait-train "
         "cannot combine the two",
         c.model.qk_norm = c.model.qk_norm_whole = c.model.norm_plus_one =
             true);
    CASE(TRAINER,
         "model.norm_place after or both cannot be combined with a "
         "model.mup_layers (3) other than model.layers (8)",
         c.model.norm_place = PLAIT_NORMS_BOTH, c.model.experts = 0,
         c.model.mup = 64, c.model.mup_layers = 3);
}

static void check_mtp(void)
{
    CASE(TRAINER, NULL, c.model.mtp_layers = 1);
    CASE(TRAINER,
         "model.mtp_layers 1 with optim.qk_clip: plait-train "
         "cannot combine the two",
         c.model.mtp_layers = 1, c.optim.qk_clip = 100);
    CASE(TRAINER,
         "model.mtp_layers 1 with model.residual_multiplier: plait-train "
         "cannot combine the two",
         c.model.mtp_layers = 1, c.model.residual_multiplier = 0.5);
    CASE(TRAINER,
         "model.mtp_layers 1 with model.experts_every: plait-train "
         "cannot combine the two",
         c.model.mtp_layers = 1, c.model.experts_every = 2);
}

static void check_stages(void)
{
    static int64_t good[] = {0, 3, 5, 0}, hole[] = {4, 0, 4};
    static int64_t few[] = {3, 4};

#define STAGES(list)                            \
    c.parallel.stages = (struct plait_numbers){ \
        .n = sizeof(list) / sizeof((list)[0]), .at = (list)}
    CASE(CONFIG, NULL, STAGES(good));
    CASE(MODEL, NULL, STAGES(good), l.size[PLAIT_PP] = 4);
    CASE(MODEL, NULL, STAGES(good), l.size[PLAIT_PP] = 2,
         c.parallel.schedule = PLAIT_SCHEDULE_INTERLEAVED,
         c.parallel.virtual_stages = 2);
    CASE(MODEL,
         "parallel.stages has 4 stages, but pp 2 * parallel.virtual 1 are 2",
         STAGES(good), l.size[PLAIT_PP] = 2);
    CASE(CONFIG,
         "parallel.stages: stage 2 of 3 has no layer; only the first, which "
         "has the embedding, and the last, which has the head, can do without",
         STAGES(hole));
    CASE(CONFIG,
         "parallel.stages: its 2 stages have 7 layers, and model.layers is 8",
         STAGES(few));
}

static void check_settings(void)
{
    CASE(CONFIG,
         "parallel.virtual 2: parallel.schedule must be interleaved, not 1f1b",
         c.parallel.virtual_stages = 2);
    CASE(CONFIG,
         "parallel.offload of activations: parallel.schedule must be "
         "naive, gpipe, 1f1b or interleaved, not zb-h1, which needs them "
         "twice",
         c.parallel.schedule = PLAIT_SCHEDULE_ZB_H1,
         c.parallel.offload = PLAIT_OFFLOAD_BOTH);
    CASE(CONFIG, NULL, c.parallel.schedule = PLAIT_SCHEDULE_ZB_H1,
         c.parallel.offload = PLAIT_OFFLOAD_OPTIMIZER);
    CASE(TRAINER, "parallel.grad_sync naive: parallel.zero must be 0, not 1",
         c.parallel.grad_sync = PLAIT_GRAD_NAIVE, c.parallel.zero = 1);
    CASE(TRAINER, "parallel.grad_sync flat: parallel.zero must be 0, not 3",
         c.parallel.grad_sync = PLAIT_GRAD_FLAT, c.parallel.zero = 3);
    CASE(CONFIG, NULL, c.parallel.grad_sync = PLAIT_GRAD_FLAT,
         c.parallel.grad_reduce = PLAIT_GRAD_BF16);
    CASE(CONFIG,
         "parallel.grad_reduce bf16: parallel.grad_sync must be bucketed, not "
         "naive",
         c.parallel.grad_sync = PLAIT_GRAD_NAIVE,
         c.parallel.grad_reduce = PLAIT_GRAD_BF16);
    CASE(CONFIG,
         "parallel.all_reduce hierarchical: parallel.shard_group must be all "
         "and parallel.grad_sync bucketed",
         c.parallel.all_reduce = PLAIT_ALL_REDUCE_HIERARCHICAL,
         c.parallel.shard_group = PLAIT_SHARD_NODE, c.parallel.zero = 1);
    CASE(CONFIG,
         "parallel.shard_group node: parallel.zero must be 1, 2 or 3; with 0 "
         "nothing is sharded",
         c.parallel.shard_group = PLAIT_SHARD_NODE);
    CASE(CONFIG, NULL, c.parallel.shard_group = PLAIT_SHARD_NODE,
         c.parallel.zero = 1);
    CASE(CONFIG,
         "train.loss_scale 1024: train.precision must be fp16; no other "
         "precision needs one",
         c.train.loss_scale = 1024);
    CASE(CONFIG, NULL, c.train.loss_scale = 1024,
         c.train.precision = PLAIT_FP16);
}

static void check_axes(void)
{
    CASE(MODEL, NULL, l.size[PLAIT_TP] = 8);
    CASE(MODEL, "model.heads 8 is not divisible by tp 3", l.size[PLAIT_TP] = 3);
    CASE(MODEL, "model.kv_heads 6 and tp 4: one must be divisible by the other",
         c.model.hidden = 48, c.model.heads = 24, c.model.kv_heads = 6,
         l.size[PLAIT_TP] = 4);
    CASE(MODEL, "model.ffn 190 is not divisible by tp 4", c.model.ffn = 190,
         l.size[PLAIT_TP] = 4);
    CASE(MODEL, NULL, l.size[PLAIT_PP] = 8);
    CASE(MODEL, NULL, l.size[PLAIT_PP] = 10);
    CASE(MODEL,
         "model.layers 8 must be at least 9, pp 11 * parallel.virtual 1 - 2; "
         "only the embedding and the head can be stages of their own",
         l.size[PLAIT_PP] = 11);
    CASE(MODEL,
         "model.layers 8 must be at least 10, pp 4 * parallel.virtual 3 - 2; "
         "only the embedding and the head can be stages of their own",
         l.size[PLAIT_PP] = 4, c.parallel.schedule = PLAIT_SCHEDULE_INTERLEAVED,
         c.parallel.virtual_stages = 3);
    check_stages();
    CASE(MODEL, NULL, l.size[PLAIT_CP] = 16);
    CASE(MODEL, "model.seq_len 32 is not divisible by 2 * cp = 64",
         l.size[PLAIT_CP] = 32);
    CASE(MODEL, NULL, c.model.seq_len = 33);
    CASE(MODEL, NULL, l.size[PLAIT_EP] = 8);
    CASE(MODEL, "model.experts 8 is not divisible by ep 3",
         l.size[PLAIT_EP] = 3);
    CASE(MODEL, "ep 2, but model.experts is 0: there are no experts to spread",
         c.model.experts = 0, l.size[PLAIT_EP] = 2);
    CASE(CONFIG, "model.experts 8 is not divisible by ep 3",
         c.parallel.layout.size[PLAIT_EP] = 3);
}

/* An image model that satisfies every rule. */
#define IMAGE(name)                                                     \
    c.model.family = (name), c.model.depth = 20, c.model.layers = 9,    \
    c.model.classes = 10, c.model.ghost_batch = 2, c.model.experts = 0, \
    c.model.heads = 7

static void check_images(void)
{
    CASE(CONFIG, NULL, IMAGE(PLAIT_RESNET));
    CASE(CONFIG, NULL, IMAGE(PLAIT_MLP), c.model.layers = 0);
    CASE(CONFIG, "model.depth 21 must be 50 or 6 n + 2: 8, 14, 20, 26, 32, ...",
         IMAGE(PLAIT_RESNET), c.model.depth = 21);
    CASE(CONFIG, NULL, IMAGE(PLAIT_RESNET), c.model.depth = 50);
    CASE(CONFIG, "model.input has 2 numbers; it is [channels, height, width]",
         IMAGE(PLAIT_MLP), c.model.input.n = 2);
    CASE(CONFIG,
         "model.classes 1: model.loss must be squared; a single class "
         "leaves nothing to choose",
         IMAGE(PLAIT_MLP), c.model.classes = 1);
    CASE(CONFIG, NULL, IMAGE(PLAIT_MLP), c.model.classes = 1,
         c.model.loss = PLAIT_LOSS_SQUARED);
    CASE(CONFIG, "train.micro_batch 2 is not divisible by model.ghost_batch 3",
         IMAGE(PLAIT_RESNET), c.model.norm = PLAIT_NORM_GHOST,
         c.model.ghost_batch = 3);
    CASE(CONFIG, "model.mtp_layers: an image model predicts no tokens",
         IMAGE(PLAIT_RESNET), c.model.mtp_layers = 1);
    CASE(CONFIG, "model.dropout: an image model has no dropout",
         IMAGE(PLAIT_RESNET), c.model.dropout = 0.1);
    CASE(CONFIG, "model.attention_dropout: an image model has no dropout",
         IMAGE(PLAIT_MLP), c.model.attention_dropout = 0.1);
    CASE(CONFIG, "train.precision: an image model computes in fp32 or tf32",
         IMAGE(PLAIT_RESNET), c.train.precision = PLAIT_BF16);
    CASE(CONFIG,
         "model.norm sync: sync.mode must be each, not local, whose replicas "
         "train apart",
         IMAGE(PLAIT_RESNET), c.model.norm = PLAIT_NORM_SYNC,
         c.sync.mode = PLAIT_SYNC_LOCAL, c.sync.steps = 4);
    CASE(MODEL, NULL, IMAGE(PLAIT_RESNET), l.size[PLAIT_DP] = 4,
         l.size[PLAIT_PP] = 9);
    CASE(MODEL, "tp 3: an image model is split over dp and pp alone",
         IMAGE(PLAIT_MLP), l.size[PLAIT_TP] = 3);
    CASE(MODEL, "cp 2: an image model is split over dp and pp alone",
         IMAGE(PLAIT_MLP), l.size[PLAIT_CP] = 2);
    CASE(CONFIG,
         "parallel.stages: the blocks of an image model differ; it has no "
         "such key",
         IMAGE(PLAIT_MLP), c.parallel.stages.n = 2);
    CASE(MODEL,
         "residual blocks of the resnet: 9: fewer than pp 10 * "
         "parallel.virtual 1",
         IMAGE(PLAIT_RESNET), l.size[PLAIT_PP] = 10);
}

static void check_batch(void)
{
    CASE(ALL, NULL, l.size[PLAIT_DP] = 8);
    CASE(ALL,
         "train.global_batch 15 is not divisible by train.micro_batch 2; 14 "
         "or 16 would fit, or train.micro_batch 1",
         c.train.global_batch = 15);
    CASE(ALL,
         "train.global_batch 16 is not divisible by dp 3 * train.micro_batch "
         "2; 12 or 18 would fit",
         l.size[PLAIT_DP] = 3);
    CASE(ALL,
         "train.global_batch 16 is not divisible by dp 2 * train.micro_batch "
         "16; 32 would fit, or train.micro_batch 8",
         l.size[PLAIT_DP] = 2, c.train.micro_batch = 16);
    CASE(CONFIG,
         "train.global_batch 16 is not divisible by dp 3 * train.micro_batch "
         "2; 12 or 18 would fit",
         c.parallel.layout.size[PLAIT_DP] = 3);
    CASE(CONFIG, NULL, c.parallel.layout.size[PLAIT_DP] = PLAIT_AUTO);
    CASE(ALL,
         "train.global_batch 16 is not divisible by dp 1048576 * "
         "train.micro_batch 65536",
         l.size[PLAIT_DP] = 1 << 20, c.train.micro_batch = 1 << 16);
    CASE(ALL, "model.heads 8 is not divisible by tp 3", l.size[PLAIT_TP] = 3);
}

static void check_micro_batch(void)
{
    CASE(MICRO_BATCH, NULL, c.parallel.sequence = true, l.size[PLAIT_TP] = 64);
    CASE(MICRO_BATCH,
         "parallel.sequence: micro-batch 2 * model.seq_len 32 / cp 2 is not "
         "divisible by tp 64",
         c.parallel.sequence = true, l.size[PLAIT_TP] = 64,
         l.size[PLAIT_CP] = 2);
    CASE(MICRO_BATCH, NULL, l.size[PLAIT_TP] = 64, l.size[PLAIT_CP] = 2);
    CASE(ALL,
         "parallel.sequence: micro-batch 1 * model.seq_len 2 / cp 1 is not "
         "divisible by tp 4",
         c.parallel.sequence = true, c.train.micro_batch = 1,
         c.model.seq_len = 2, l.size[PLAIT_TP] = 4);
}

static void check_schedule(void)
{
    CASE(ALL, "schedule interleaved with 2 chunks: pp must be above 1",
         c.parallel.schedule = PLAIT_SCHEDULE_INTERLEAVED,
         c.parallel.virtual_stages = 2);
    CASE(ALL, NULL, c.parallel.schedule = PLAIT_SCHEDULE_INTERLEAVED,
         c.parallel.virtual_stages = 2, l.size[PLAIT_PP] = 4);
    CASE(ALL, "schedule interleaved: 2 micro-batches are not divisible by pp 4",
         c.parallel.schedule = PLAIT_SCHEDULE_INTERLEAVED,
         c.parallel.virtual_stages = 2, l.size[PLAIT_PP] = 4,
         l.size[PLAIT_DP] = 4);
}

/* The default of a vocabulary that is not given refuses nothing. */
static void check_documents(void)
{
    struct plait_error err = {""};
    struct plait_job_config found;
    struct plait_layout layout;

    CASE(CONFIG, NULL, c.data.mask_documents = true, c.data.end_token = 151643);
    CASE(CONFIG, NULL, c.data.mask_documents = true, c.data.end_token = 256,
         c.vocab_given = true);
    CASE(CONFIG, "data.end_token 151643 must be below model.vocab 257",
         c.data.mask_documents = true, c.data.end_token = 151643,
         c.vocab_given = true);
    set_good(&found, &layout);
    found.data.mask_documents = true;
    found.data.end_token = 257;
    ok(plait_fits_end_token(&found, &err) == -1 && errno == EINVAL &&
           !strcmp(err.text, "data.end_token 257 must be below model.vocab "
                             "257"),
       "a vocabulary that was found refuses a token above it: %s", err.text);
}

int main(void)
{
    check_model();
    check_norms();
    check_mtp();
    check_settings();
    check_axes();
    check_images();
    check_batch();
    check_documents();
    check_micro_batch();
    check_schedule();
    return done_testing();
}
