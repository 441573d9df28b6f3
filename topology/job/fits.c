/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/job/fits.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "topology/job/fits_image.h"
#include "topology/job/fits_stages.h"
#include "topology/job/model_size.h"
#include "topology/job/stage.h"

static int refuse_indivisible(const char *what, int n, const char *by,
                              int divisor, struct plait_error *err)
{
    return plait_errorf(err, "%s %d is not divisible by %s %d", what, n, by,
                        divisor);
}

void plait_fits_name_nearest(int64_t n, int64_t unit, char text[64])
{
    long long below = n / unit * unit, above = below + unit;

    *text = '\0';
    if (below > 0)
        snprintf(text, 64, "; %lld or %lld would fit", below, above);
    else if (above <= 1 << 24)
        snprintf(text, 64, "; %lld would fit", above);
}

static int check_gpt2(const struct plait_model_config *m,
                      struct plait_error *err)
{
    const char *key = plait_model_llama_key(m);

    if (m->kv_heads != m->heads)
        return plait_errorf(err,
                            "model.kv_heads %d must be model.heads %d in a "
                            "gpt2 model",
                            m->kv_heads, m->heads);
    if (m->head_dim && m->head_dim != m->hidden / m->heads)
        return plait_errorf(err,
                            "model.head_dim %d must be model.hidden %d / "
                            "model.heads %d in a gpt2 model",
                            m->head_dim, m->hidden, m->heads);
    if (key)
        return plait_errorf(err, "model.%s is for llama models", key);
    return 0;
}

/* Latent attention. With 0 columns, queries are not compressed. */
static int check_latent(const struct plait_model_config *m,
                        struct plait_error *err)
{
    if (m->mla.n && m->mla.n != 5)
        return plait_errorf(err,
                            "model.mla has %d numbers; it is [columns of q, "
                            "of k and v, of a head without rotary positions, "
                            "with them, of its values]",
                            m->mla.n);
    if ((m->mla.n || m->mla_kv) &&
        (m->mla_kv < 1 || m->mla_nope < 1 || m->mla_value < 1))
        return plait_errorf(err, "model.mla: columns of k and v and of a head "
                                 "must be above 0");
    return 0;
}

/* Both may be the same: between YaRN's two columns there is always some room,
 * if only of rounding (Kimi K2), and Llama 3's scaling then has no pairs
 * between those that are stretched and those that are not (Llama 4 Scout). */
static int check_scaling(const struct plait_model_config *m,
                         struct plait_error *err)
{
    double low = m->rope_low_freq_factor, high = m->rope_high_freq_factor;

    if (!(m->rope_factor > 1) || m->rope_scaling == PLAIT_ROPE_LONGROPE ||
        high >= low)
        return 0;
    return plait_errorf(err,
                        "model.rope_high_freq_factor %g must be at least "
                        "model.rope_low_freq_factor %g",
                        high, low);
}

static int check_llama(const struct plait_model_config *m,
                       struct plait_error *err)
{
    /* with latent attention a head has other columns beside the rotary ones */
    bool odd = plait_model_head_dim(m) % 2 && !m->mla_kv;

    if (odd && m->head_dim)
        return plait_errorf(err,
                            "model.head_dim %d must be even for rotary "
                            "embeddings",
                            m->head_dim);
    if (odd)
        return plait_errorf(
            err,
            "model.hidden %d / model.heads %d = %d must be even for rotary "
            "embeddings",
            m->hidden, m->heads, m->hidden / m->heads);
    if (m->rope_columns % 2 || m->rope_columns > plait_model_head_dim(m))
        return plait_errorf(err,
                            "model.rope_columns %d must be even and at most "
                            "the %d columns of a head",
                            m->rope_columns, plait_model_head_dim(m));
    return check_scaling(m, err) < 0 ? -1 : check_latent(m, err);
}

static int check_mixture(const struct plait_model_config *m,
                         struct plait_error *err)
{
    const char *key = m->shared_experts  ? "shared_experts"
                      : m->dense_layers  ? "dense_layers"
                      : m->experts_every ? "experts_every"
                      : m->dense_ffn     ? "dense_ffn"
                                         : NULL;

    if (!m->experts && key)
        return plait_errorf(
            err, "model.%s: model.experts is 0, the model has none", key);
    if (m->dense_layers && m->experts_every > 1)
        return plait_errorf(err,
                            "model.dense_layers %d with model.experts_every "
                            "%d: set one of them",
                            m->dense_layers, m->experts_every);
    if (m->dense_layers > m->layers)
        return plait_errorf(err,
                            "model.dense_layers %d must be at most "
                            "model.layers %d",
                            m->dense_layers, m->layers);
    if (m->experts && (m->experts_top_k < 1 || m->experts_top_k > m->experts))
        return plait_errorf(
            err, "model.experts_top_k %d must be from 1 to model.experts %d",
            m->experts_top_k, m->experts);
    return plait_fits_scores(m, err);
}

/* Do the model's sizes go together? */
static int check_model(const struct plait_model_config *m,
                       struct plait_error *err)
{
    if (m->layers < 1)
        return plait_errorf(err, "model.layers 0: only an mlp can do without "
                                 "layers");
    if (m->hidden % m->heads && !m->head_dim && !m->mla_kv)
        return refuse_indivisible("model.hidden", m->hidden, "model.heads",
                                  m->heads, err);
    if (m->heads % m->kv_heads)
        return refuse_indivisible("model.heads", m->heads, "model.kv_heads",
                                  m->kv_heads, err);
    if (m->family == PLAIT_GPT2 ? check_gpt2(m, err) < 0
                                : check_llama(m, err) < 0)
        return -1;
    return check_mixture(m, err) < 0 ? -1 : plait_fits_idle(m, err);
}

int plait_fits_end_token(const struct plait_job_config *c,
                         struct plait_error *err)
{
    errno = EINVAL;
    if (!c->data.mask_documents || c->data.end_token < c->model.vocab)
        return 0;
    return plait_errorf(err, "data.end_token %d must be below model.vocab %d",
                        c->data.end_token, c->model.vocab);
}

static int check_experts(const struct plait_model_config *m, int ep,
                         struct plait_error *err)
{
    if (ep > 1 && !m->experts)
        return plait_errorf(err,
                            "ep %d, but model.experts is 0: there are no "
                            "experts to spread",
                            ep);
    if (ep > 1 && m->experts % ep)
        return refuse_indivisible("model.experts", m->experts, "ep", ep, err);
    return 0;
}

static int check_schedule(const struct plait_parallel_config *p,
                          struct plait_error *err)
{
    if (p->virtual_stages > 1 && p->schedule != PLAIT_SCHEDULE_INTERLEAVED)
        return plait_errorf(err,
                            "parallel.virtual %d: parallel.schedule must be "
                            "interleaved, not %s",
                            p->virtual_stages,
                            plait_schedule_names[p->schedule]);
    if (p->offload & PLAIT_OFFLOAD_ACTIVATIONS &&
        p->schedule == PLAIT_SCHEDULE_ZB_H1)
        return plait_errorf(err, "parallel.offload of activations: "
                                 "parallel.schedule must be naive, gpipe, "
                                 "1f1b or interleaved, not zb-h1, which needs "
                                 "them twice");
    return 0;
}

/* How gradients are reduced depends on which rank owns them. */
static int check_gradients(const struct plait_parallel_config *p,
                           struct plait_error *err)
{
    if (p->grad_sync == PLAIT_GRAD_NAIVE && p->grad_reduce == PLAIT_GRAD_BF16)
        return plait_errorf(err, "parallel.grad_reduce bf16: "
                                 "parallel.grad_sync must be bucketed, not "
                                 "naive");
    if (p->all_reduce == PLAIT_ALL_REDUCE_HIERARCHICAL &&
        (p->shard_group == PLAIT_SHARD_NODE ||
         p->grad_sync == PLAIT_GRAD_NAIVE))
        return plait_errorf(err, "parallel.all_reduce hierarchical: "
                                 "parallel.shard_group must be all and "
                                 "parallel.grad_sync bucketed");
    if (p->shard_group == PLAIT_SHARD_NODE && !p->zero)
        return plait_errorf(err, "parallel.shard_group node: parallel.zero "
                                 "must be 1, 2 or 3; with 0 nothing is "
                                 "sharded");
    return 0;
}

/* ", or train.micro_batch 16": the largest smaller one that divides the batch,
 * if there is one. Of a batch that was chosen it keeps the result. */
static void add_micro_batch(const struct plait_train_config *t, int dp,
                            char *text, size_t size)
{
    size_t used = strlen(text);
    int micro = t->micro_batch - 1;

    if (t->global_batch % dp || !used)
        return;
    while (micro > 0 && t->global_batch / dp % micro)
        micro--;
    if (micro > 0)
        snprintf(text + used, size - used, ", or train.micro_batch %d", micro);
}

static int check_global_batch(const struct plait_train_config *t, int dp,
                              struct plait_error *err)
{
    int64_t unit = (int64_t)dp * t->micro_batch;
    char nearest[128];

    if (t->global_batch % unit == 0)
        return 0;
    plait_fits_name_nearest(t->global_batch, unit, nearest);
    add_micro_batch(t, dp, nearest, sizeof(nearest));
    if (dp == 1)
        return plait_errorf(err,
                            "train.global_batch %d is not divisible by "
                            "train.micro_batch %d%s",
                            t->global_batch, t->micro_batch, nearest);
    return plait_errorf(err,
                        "train.global_batch %d is not divisible by dp %d * "
                        "train.micro_batch %d%s",
                        t->global_batch, dp, t->micro_batch, nearest);
}

/* The batch of entry i of the growth. */
static int check_entry(const struct plait_job_config *c, int i, int dp,
                       struct plait_error *err)
{
    const int64_t *at = c->batch.growth.at + 2 * i;
    int64_t unit = (int64_t)dp * c->train.micro_batch;
    long long step = at[0], batch = at[1];
    char nearest[64];

    if (i > 0 && at[0] <= at[-2])
        return plait_errorf(err,
                            "batch.growth: step %lld follows step %lld; steps "
                            "must increase",
                            step, (long long)at[-2]);
    if (batch > 1 << 24)
        return plait_errorf(err,
                            "batch.growth: the batch of %lld after step %lld "
                            "is more than %d",
                            batch, step, 1 << 24);
    if (batch < unit)
        return plait_errorf(err,
                            "batch.growth: the batch of %lld after step %lld "
                            "is below dp %d * train.micro_batch %d: no "
                            "micro-batch for every rank",
                            batch, step, dp, c->train.micro_batch);
    plait_fits_name_nearest(batch, unit, nearest);
    if (batch % unit)
        return plait_errorf(err,
                            "batch.growth: the batch of %lld after step %lld "
                            "is not divisible by dp %d * train.micro_batch "
                            "%d%s",
                            batch, step, dp, c->train.micro_batch, nearest);
    return 0;
}

/* batch.min and max. */
static int check_bounds(const struct plait_job_config *c,
                        struct plait_error *err)
{
    const struct plait_batch_config *b = &c->batch;
    int first = c->train.global_batch;

    if (!b->growth.is_auto && (b->min || b->max))
        return plait_errorf(err, "batch.min and batch.max: batch.growth must "
                                 "be auto");
    if (b->growth.is_auto && !b->max)
        return plait_errorf(err, "batch.growth auto: batch.max must be given");
    if (b->growth.is_auto && b->max < first)
        return plait_errorf(err,
                            "batch.growth auto: batch.max %d must be at "
                            "least train.global_batch %d",
                            b->max, first);
    if (b->min > first)
        return plait_errorf(err,
                            "batch.growth auto: batch.min %d must be at most "
                            "train.global_batch %d",
                            b->min, first);
    return 0;
}

static int check_batch(const struct plait_job_config *c, int dp,
                       struct plait_error *err)
{
    if (check_global_batch(&c->train, dp, err) < 0)
        return -1;
    if (check_bounds(c, err) < 0)
        return -1;
    for (int i = 0; i < c->batch.growth.n; i++)
        if (check_entry(c, i, dp, err) < 0)
            return -1;
    return 0;
}

static int check_lr(const struct plait_lr_config *lr, struct plait_error *err)
{
    const struct plait_numbers *at = &lr->decay_at;

    if (lr->warmup_shape == PLAIT_LR_WARMUP_CONSTANT && lr->warmup_from == 0)
        return plait_errorf(err, "lr.warmup_shape constant: lr.warmup_from "
                                 "must be above 0, or nothing is learned "
                                 "while it lasts");
    if (at->n > 0 && lr->schedule != PLAIT_LR_STEP)
        return plait_errorf(err, "lr.decay_at: lr.schedule must be step; no "
                                 "other schedule falls at chosen steps");
    if (at->n == 0 && lr->schedule == PLAIT_LR_STEP)
        return plait_errorf(err, "lr.schedule step: lr.decay_at must list the "
                                 "steps at which the rate falls");
    for (int i = 1; i < at->n; i++)
        if (at->at[i] <= at->at[i - 1])
            return plait_errorf(err,
                                "lr.decay_at: step %lld follows step %lld; "
                                "steps must increase",
                                (long long)at->at[i], (long long)at->at[i - 1]);
    return 0;
}

static int check_log(const struct plait_job_config *c, struct plait_error *err)
{
    if (!c->log.histograms)
        return 0;
    if (!c->log.tensorboard)
        return plait_errorf(err, "log.histograms: log.tensorboard must name "
                                 "the directory that they go to");
    if (plait_sync_parts(&c->sync))
        return plait_errorf(err,
                            "log.histograms: sync.mode must be each, not %s, "
                            "whose replicas have gradients of their own",
                            plait_sync_mode_names[c->sync.mode]);
    return 0;
}

int plait_fits_config(const struct plait_job_config *config,
                      struct plait_error *err)
{
    const struct plait_train_config *t = &config->train;
    const int *size = config->parallel.layout.size;
    int dp = size[PLAIT_DP] == PLAIT_AUTO ? 1 : size[PLAIT_DP];

    errno = EINVAL;
    if (plait_is_image_model(&config->model)
            ? plait_fits_image(config, err) < 0
            : check_model(&config->model, err) < 0)
        return -1;
    if ((config->vocab_given && plait_fits_end_token(config, err) < 0) ||
        plait_fits_stages(config, err) < 0 ||
        check_schedule(&config->parallel, err) < 0 ||
        check_experts(&config->model, size[PLAIT_EP], err) < 0 ||
        check_gradients(&config->parallel, err) < 0 ||
        plait_fits_optim(config, err) < 0 || check_batch(config, dp, err) < 0 ||
        check_lr(&config->lr, err) < 0 ||
        plait_fits_sync(config, dp, err) < 0 || check_log(config, err) < 0)
        return -1;
    if (plait_sync_many(&config->sync) &&
        (t->skip_outliers || config->batch.growth.n > 0))
        return plait_errorf(err, "train.skip_outliers and batch.growth: "
                                 "sync.learners must be 1");
    if (t->deterministic && config->sync.learners == PLAIT_SYNC_LEARNERS_AUTO)
        return plait_errorf(err, "train.deterministic: sync.learners auto "
                                 "chooses by the clock; give a number");
    if (config->checkpoint.fallback && !config->checkpoint.dir)
        return plait_errorf(err, "checkpoint.fallback needs checkpoint.dir, "
                                 "in whose place it is used");
    if (config->checkpoint.memory && !config->checkpoint.dir)
        return plait_errorf(err, "checkpoint.memory needs checkpoint.dir, for "
                                 "state of which no copy is left");
    if (t->loss_scale > 0 && t->precision != PLAIT_FP16)
        return plait_errorf(err,
                            "train.loss_scale %g: train.precision must be "
                            "fp16; no other precision needs one",
                            t->loss_scale);
    return 0;
}

static int check_tp(const struct plait_model_config *m, int tp,
                    struct plait_error *err)
{
    if (m->heads % tp)
        return refuse_indivisible("model.heads", m->heads, "tp", tp, err);
    if (m->kv_heads % tp && tp % m->kv_heads)
        return plait_errorf(err,
                            "model.kv_heads %d and tp %d: one must be "
                            "divisible by the other",
                            m->kv_heads, tp);
    if (m->ffn % tp)
        return refuse_indivisible("model.ffn", m->ffn, "tp", tp, err);
    if (plait_model_dense_layers(m) && m->dense_ffn % tp)
        return refuse_indivisible("model.dense_ffn", m->dense_ffn, "tp", tp,
                                  err);
    return 0;
}

int plait_fits_model(const struct plait_job_config *config,
                     const struct plait_layout *layout, struct plait_error *err)
{
    const struct plait_model_config *m = &config->model;
    int cp = layout->size[PLAIT_CP];

    errno = EINVAL;
    if (plait_is_image_model(m))
        return plait_fits_image_layout(config, layout, err);
    if (check_model(m, err) < 0 || check_tp(m, layout->size[PLAIT_TP], err) < 0)
        return -1;
    if (plait_fits_stages_layout(config, layout, err) < 0)
        return -1;
    if (cp > 1 && m->seq_len % (2 * cp))
        return refuse_indivisible("model.seq_len", m->seq_len,
                                  "2 * cp =", 2 * cp, err);
    return check_experts(m, layout->size[PLAIT_EP], err);
}

int plait_fits_micro_batch(const struct plait_job_config *config,
                           const struct plait_layout *layout, int micro_batch,
                           struct plait_error *err)
{
    int seq_len = config->model.seq_len;
    int tp = layout->size[PLAIT_TP], cp = layout->size[PLAIT_CP];
    int64_t tokens = (int64_t)micro_batch * (seq_len / cp);

    if (!config->parallel.sequence || tokens % tp == 0)
        return 0;
    errno = EINVAL;
    return plait_errorf(err,
                        "parallel.sequence: micro-batch %d * model.seq_len %d "
                        "/ cp %d is not divisible by tp %d",
                        micro_batch, seq_len, cp, tp);
}

/* The pipeline schedule can run the micro-batches of such a batch, those of one
 * learner after those of another. */
static int check_schedules_batch(const struct plait_job_config *config,
                                 const struct plait_layout *layout,
                                 int64_t batch, struct plait_error *err)
{
    int64_t unit = (int64_t)layout->size[PLAIT_DP] * config->train.micro_batch *
                   plait_sync_learners(&config->sync);

    return plait_schedule_possible(
        &(struct plait_schedule_form){.kind = config->parallel.schedule,
                                      .stages = layout->size[PLAIT_PP],
                                      .chunks =
                                          plait_model_chunks(&config->parallel),
                                      .microbatches = (int)(batch / unit)},
        err);
}

int plait_fits(const struct plait_job_config *config,
               const struct plait_layout *layout, struct plait_error *err)
{
    const struct plait_train_config *t = &config->train;
    const struct plait_numbers *growth = &config->batch.growth;
    int dp = layout->size[PLAIT_DP];

    if (plait_fits_model(config, layout, err) < 0 ||
        check_batch(config, dp, err) < 0 ||
        plait_fits_sync(config, dp, err) < 0 ||
        plait_fits_micro_batch(config, layout, t->micro_batch, err) < 0 ||
        check_schedules_batch(config, layout, t->global_batch, err) < 0)
        return -1;
    for (int i = 0; i < growth->n; i++)
        if (check_schedules_batch(config, layout, growth->at[2 * i + 1], err) <
            0)
            return -1;
    return 0;
}
