/* SPDX-License-Identifier: Apache-2.0 */
#include "fits_case.h"

#define AVERAGED \
    c.optim.kind = PLAIT_OPTIM_SCHEDULEFREE, c.lr.schedule = PLAIT_LR_CONSTANT

#define TO_BARE \
    c.optim.masters = PLAIT_MASTERS_BF16, c.train.precision = PLAIT_BF16

/* What is kept of a weight in bf16. */
static void check_kept(void)
{
    CASE(CONFIG,
         "optim.moments bf16: optim.name must be adamw, sgd, lars, larc, lamb, "
         "novograd or lion, not muon",
         c.optim.kind = PLAIT_OPTIM_MUON, c.optim.moments = PLAIT_MOMENTS_BF16);
    CASE(CONFIG,
         "optim.moments bf16-nearest: optim.name must be adamw, sgd, lars, "
         "larc, lamb, novograd or lion, not adamw8bit",
         c.optim.kind = PLAIT_OPTIM_ADAMW8BIT,
         c.optim.moments = PLAIT_MOMENTS_BF16_NEAREST);
    CASE(CONFIG, "optim.moments bf16 needs an optim.momentum above 0",
         c.optim.kind = PLAIT_OPTIM_SGD, c.optim.momentum = 0,
         c.optim.moments = PLAIT_MOMENTS_BF16);
    CASE(CONFIG, NULL, c.optim.kind = PLAIT_OPTIM_LAMB,
         c.optim.moments = PLAIT_MOMENTS_BF16);
    CASE(CONFIG, "optim.masters bf16: train.precision must be bf16",
         c.optim.masters = PLAIT_MASTERS_BF16, c.train.precision = PLAIT_FP8);
    CASE(CONFIG,
         "optim.masters bf16: optim.name must be adamw, sgd, lars, larc, lamb, "
         "novograd or lion",
         TO_BARE, c.optim.kind = PLAIT_OPTIM_SOAP);
    CASE(CONFIG,
         "optim.masters bf16: parallel.offload must be none or activations",
         TO_BARE, c.parallel.offload = PLAIT_OFFLOAD_OPTIMIZER);
    CASE(CONFIG, "optim.masters bf16: sync.mode must be each", TO_BARE,
         c.sync.mode = PLAIT_SYNC_LOCAL, c.sync.steps = 2);
    CASE(CONFIG, "optim.masters bf16: optim.qk_clip must be 0", TO_BARE,
         c.optim.qk_clip = 100);
    CASE(CONFIG, "optim.masters bf16: model.experts_scores must not be sigmoid",
         TO_BARE, c.model.experts = 4, c.model.experts_top_k = 1,
         c.model.experts_scores = PLAIT_SCORES_SIGMOID);
    CASE(CONFIG,
         "optim.masters bf16: model.experts_balance_over must be sequence",
         TO_BARE, c.model.experts = 4, c.model.experts_top_k = 1,
         c.model.experts_balance = 0.01,
         c.model.experts_balance_over = PLAIT_BALANCE_BATCH);
    CASE(CONFIG, NULL, TO_BARE);
}

static void check_average(void)
{
    static int64_t at[] = {3, 32};
    const struct plait_numbers grows = {.n = 1, .at = at};
    const char *follows =
        "optim.name schedulefree: lr.base_batch and batch.growth must not "
        "both be set; its average needs a rate that does not follow the batch";

    CASE(CONFIG,
         "optim.name schedulefree: lr.schedule must be constant; its average "
         "replaces the decay",
         c.optim.kind = PLAIT_OPTIM_SCHEDULEFREE);
    CASE(CONFIG, NULL, AVERAGED);
    CASE(CONFIG, follows, AVERAGED, c.lr.base_batch = 4,
         c.batch.growth = grows);
    CASE(CONFIG, follows, AVERAGED, c.lr.base_batch = 4,
         c.batch.growth.is_auto = true, c.batch.max = 1 << 10);
    CASE(CONFIG, NULL, AVERAGED, c.lr.base_batch = 4);
    CASE(CONFIG, NULL, AVERAGED, c.batch.growth = grows);
    CASE(CONFIG,
         "sync.mode local: optim.name must be adamw, sgd or lion, not "
         "schedulefree: the replicas would be averaged at weights other than "
         "those they train",
         AVERAGED, c.sync.mode = PLAIT_SYNC_LOCAL);
}

static void check_clip(void)
{
    CASE(CONFIG,
         "optim.qk_clip must be 0: behind model.qk_norm the size of these "
         "weights has no effect",
         c.optim.qk_clip = 100, c.model.qk_norm = true);
    CASE(CONFIG,
         "optim.qk_clip must be 0: behind model.qk_l2_norm the size of these "
         "weights has no effect, in the layers with rotary positions",
         c.optim.qk_clip = 100, c.model.qk_l2_norm = true);
    CASE(CONFIG,
         "optim.qk_clip must be 0: model.attention_softcap bounds the logits "
         "already",
         c.optim.qk_clip = 100, c.model.attention_softcap = 50);
    CASE(CONFIG,
         "optim.qk_clip must be 0: sync.mode must be each: replicas that train "
         "apart have logits of their own",
         c.optim.qk_clip = 100, c.sync.mode = PLAIT_SYNC_LOCAL,
         c.sync.steps = 2);
    CASE(CONFIG,
         "optim.qk_clip must be 0: it is not for latent attention (model.mla)",
         c.optim.qk_clip = 100, TO_LATENT);
    CASE(CONFIG, NULL, c.optim.qk_clip = 100, c.model.qk_norm = false);
}

static void check_muon(void)
{
    CASE(CONFIG,
         "optim.muon_heads is not for latent attention (model.mla), whose "
         "heads have other widths",
         c.optim.kind = PLAIT_OPTIM_MUON, c.optim.muon_heads = true, TO_LATENT);
    CASE(CONFIG, NULL, c.optim.kind = PLAIT_OPTIM_MUON, TO_LATENT);
    CASE(CONFIG, NULL, c.optim.kind = PLAIT_OPTIM_MUON,
         c.optim.muon_heads = true);
}

static void check_mup(void)
{
    CASE(CONFIG,
         "model.mup_layers 2: it needs model.mup, the base's hidden "
         "(model.hidden if the width stays)",
         c.model.mup_layers = 2);
    CASE(CONFIG,
         "model.mup_head_dim 4: it needs model.mup, the base's hidden "
         "(model.hidden if the width stays)",
         c.model.mup_head_dim = 4);
    CASE(CONFIG, NULL, c.model.mup = 16, c.model.mup_layers = 2,
         c.model.mup_head_dim = 4);
    CASE(CONFIG,
         "model.mup: optim.name must be adamw, adamw8bit, lion or "
         "schedulefree, not sgd",
         c.model.mup = 16, c.optim.kind = PLAIT_OPTIM_SGD);
    CASE(CONFIG, NULL, c.model.mup = 16, c.optim.kind = PLAIT_OPTIM_LION);
}

int main(void)
{
    check_kept();
    check_average();
    check_clip();
    check_muon();
    check_mup();
    return done_testing();
}
