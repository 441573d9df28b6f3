/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that go with the optimizer. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "topology/job/fits.h"
#include "topology/job/model_size.h"

/* "betas, eps, " */
static void list_keys(unsigned keys, char *text, size_t size)
{
    size_t at = 0;

    text[0] = '\0';
    for (int i = 0; i < PLAIT_NOPTIM_KEYS && at < size; i++)
        if (keys >> i & 1)
            at += (size_t)snprintf(text + at, size - at, "%s, ",
                                   plait_optim_key_names[i]);
}

static int check_keys(const struct plait_optim_config *c,
                      struct plait_error *err)
{
    const struct plait_optimizer *o = &plait_optimizers[c->kind];
    unsigned wrong = c->keys_given & ~o->keys;
    char takes[96];
    int i = 0;

    if (!wrong)
        return 0;
    while (!(wrong >> i & 1))
        i++;
    list_keys(o->keys, takes, sizeof(takes));
    return plait_errorf(err,
                        "optim.%s is not a key of optim.name %s, which takes "
                        "%slr, weight_decay, clip and qk_clip",
                        plait_optim_key_names[i], o->name, takes);
}

/* The rates of model.mup are for steps as large as the rate, whatever the size
 * of the gradient. */
static int check_mup(const struct plait_job_config *config,
                     struct plait_error *err)
{
    const struct plait_model_config *m = &config->model;
    enum plait_optim_kind kind = config->optim.kind;

    if (!m->mup && (m->mup_layers || m->mup_head_dim))
        return plait_errorf(err,
                            "model.%s %d: it needs model.mup, the base's "
                            "hidden (model.hidden if the width stays)",
                            m->mup_layers ? "mup_layers" : "mup_head_dim",
                            m->mup_layers ? m->mup_layers : m->mup_head_dim);
    if (m->mup && plait_is_image_model(m))
        return plait_errorf(err, "model.mup is for gpt2 and llama models");
    if (m->mup && kind != PLAIT_OPTIM_ADAMW && kind != PLAIT_OPTIM_ADAMW8BIT &&
        kind != PLAIT_OPTIM_LION && kind != PLAIT_OPTIM_SCHEDULEFREE)
        return plait_errorf(err,
                            "model.mup: optim.name must be adamw, adamw8bit, "
                            "lion or schedulefree, not %s",
                            plait_optimizers[kind].name);
    return 0;
}

/* The average weighs steps by their rates, which must not fall; of these it
 * knows the schedule, not the size of each step's batch. */
static int check_average(const struct plait_job_config *config,
                         struct plait_error *err)
{
    if (!plait_optim_is_averaged(&config->optim))
        return 0;
    if (config->lr.schedule != PLAIT_LR_CONSTANT)
        return plait_errorf(err, "optim.name schedulefree: lr.schedule must "
                                 "be constant; its average replaces the decay");
    if (config->lr.base_batch &&
        (config->batch.growth.n || config->batch.growth.is_auto))
        return plait_errorf(err, "optim.name schedulefree: lr.base_batch and "
                                 "batch.growth must not both be set; its "
                                 "average needs a rate that does not follow "
                                 "the batch");
    if (plait_is_image_model(&config->model))
        return plait_errorf(err, "optim.name schedulefree is for gpt2 and "
                                 "llama models");
    return 0;
}

/* QK-clip bounds the logits by the weights of queries and keys, which must be
 * what makes them, and must do it for one model. */
static int check_qk_clip(const struct plait_job_config *config,
                         struct plait_error *err)
{
    const struct plait_model_config *m = &config->model;
    const char *why =
        plait_is_image_model(m) ? "image models have no attention"
        : m->mla_kv             ? "it is not for latent attention (model.mla)"
        : m->qk_norm
            ? "behind model.qk_norm the size of these weights has no effect"
        : m->qk_l2_norm ? "behind model.qk_l2_norm the size of these weights "
                          "has no effect, in the layers with rotary positions"
        : m->attention_softcap > 0
            ? "model.attention_softcap bounds the logits already"
        : plait_sync_parts(&config->sync)
            ? "sync.mode must be each: replicas that train apart have logits "
              "of their own"
            : NULL;

    if (config->optim.qk_clip == 0 || !why)
        return 0;
    return plait_errorf(err, "optim.qk_clip must be 0: %s", why);
}

/* Of what is kept for each weight beside it, bf16 is for what a step makes
 * anew from itself and the gradient. */
static bool is_plain(enum plait_optim_kind kind)
{
    const struct plait_optimizer *o = &plait_optimizers[kind];
    const struct plait_optim_config c = {.kind = kind};

    return !o->codes && !o->uneven && !plait_optim_is_averaged(&c);
}

/* "a, b or c" */
static void list_plain(char *text, size_t size)
{
    int left = 0, at = 0;

    for (int k = 0; k < PLAIT_NOPTIMIZERS; k++)
        left += is_plain(k);
    for (int k = 0; k < PLAIT_NOPTIMIZERS && at < (int)size; k++)
        if (is_plain(k) && left--)
            at +=
                snprintf(text + at, size - at, "%s%s", plait_optimizers[k].name,
                         left > 1    ? ", "
                         : left == 1 ? " or "
                                     : "");
}

static int check_moments(const struct plait_optim_config *c,
                         struct plait_error *err)
{
    const char *moments = plait_moments_names[c->moments];
    char plain[128];

    if (c->moments == PLAIT_MOMENTS_FP32)
        return 0;
    list_plain(plain, sizeof(plain));
    if (!is_plain(c->kind))
        return plait_errorf(err,
                            "optim.moments %s: optim.name must be %s, not %s",
                            moments, plain, plait_optimizers[c->kind].name);
    if (plait_optim_nstates(c) == 0)
        return plait_errorf(
            err, "optim.moments %s needs an optim.momentum above 0", moments);
    return 0;
}

/* What moves weights beside the optimizer moves masters. */
static int check_masters(const struct plait_job_config *config,
                         struct plait_error *err)
{
    const struct plait_optim_config *c = &config->optim;
    char name[128] = "optim.name must be ";
    const char *why =
        config->train.precision != PLAIT_BF16 ? "train.precision must be bf16"
        : !is_plain(c->kind)                  ? name
        : config->parallel.offload & PLAIT_OFFLOAD_OPTIMIZER
            ? "parallel.offload must be none or activations"
        : plait_sync_parts(&config->sync) ? "sync.mode must be each"
        : c->qk_clip > 0                  ? "optim.qk_clip must be 0"
        : config->model.experts_scores == PLAIT_SCORES_SIGMOID
            ? "model.experts_scores must not be sigmoid"
        : plait_model_counts_loads(&config->model)
            ? "model.experts_balance_over must be sequence"
        : plait_is_image_model(&config->model)
            ? "it is for gpt2 and llama models"
            : NULL;

    if (c->masters == PLAIT_MASTERS_FP32 || !why)
        return 0;
    list_plain(name + strlen(name), sizeof(name) - strlen(name));
    return plait_errorf(err, "optim.masters bf16: %s", why);
}

int plait_fits_optim(const struct plait_job_config *config,
                     struct plait_error *err)
{
    const struct plait_optim_config *c = &config->optim;
    const struct plait_optimizer *o = &plait_optimizers[c->kind];

    errno = EINVAL;
    if (check_keys(c, err) < 0 || check_moments(c, err) < 0)
        return -1;
    if (c->nesterov && c->momentum == 0 && o->keys & PLAIT_KEY_NESTEROV)
        return plait_errorf(err, "optim.nesterov needs an optim.momentum "
                                 "above 0");
    if (config->parallel.offload & PLAIT_OFFLOAD_OPTIMIZER && !o->separate)
        return plait_errorf(err,
                            "parallel.offload of the optimizer: optim.name "
                            "must be adamw, sgd or lion, not %s",
                            o->name);
    if (c->muon_heads && config->model.mla_kv)
        return plait_errorf(err, "optim.muon_heads is not for latent attention "
                                 "(model.mla), whose heads have other widths");
    if (check_masters(config, err) < 0 || check_average(config, err) < 0 ||
        check_qk_clip(config, err) < 0)
        return -1;
    return check_mup(config, err);
}
