/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "runtime/model/internal.h"
#include "topology/traffic.h"

enum plait_dtype plait_model_type(enum plait_precision precision)
{
    if (precision == PLAIT_BF16 || precision == PLAIT_FP8)
        return PLAIT_BF16_T;
    return precision == PLAIT_FP16 ? PLAIT_FP16_T : PLAIT_F32;
}

static int check_heads(const struct plait_model_config *c, int tp,
                       struct plait_error *err)
{
    if (c->hidden % c->heads)
        return plait_errorf(err,
                            "model.hidden %d does not divide by "
                            "model.heads %d",
                            c->hidden, c->heads);
    if (c->heads % c->kv_heads)
        return plait_errorf(err,
                            "model.heads %d does not divide by "
                            "model.kv_heads %d",
                            c->heads, c->kv_heads);
    if (c->heads % tp)
        return plait_errorf(err, "model.heads %d does not divide by tp %d",
                            c->heads, tp);
    if (c->kv_heads % tp && tp % c->kv_heads)
        return plait_errorf(err,
                            "model.kv_heads %d and tp %d: one must "
                            "divide the other",
                            c->kv_heads, tp);
    if (c->ffn % tp)
        return plait_errorf(err, "model.ffn %d does not divide by tp %d",
                            c->ffn, tp);
    if (c->family == PLAIT_LLAMA && c->hidden / c->heads % 2)
        return plait_errorf(err,
                            "rotary positions need an even head size, "
                            "not model.hidden %d / model.heads %d = %d",
                            c->hidden, c->heads, c->hidden / c->heads);
    return 0;
}

static int check_experts(const struct plait_model_config *c, int ep,
                         struct plait_error *err)
{
    if (!c->experts && ep > 1)
        return plait_errorf(err,
                            "ep %d, but model.experts is 0: there are no "
                            "experts to spread",
                            ep);
    if (!c->experts)
        return 0;
    if (c->experts % ep)
        return plait_errorf(err, "model.experts %d does not divide by ep %d",
                            c->experts, ep);
    if (c->experts_top_k < 1 || c->experts_top_k > c->experts)
        return plait_errorf(err,
                            "model.experts_top_k %d is not within 1 .. "
                            "model.experts %d",
                            c->experts_top_k, c->experts);
    return 0;
}

static int check(const struct plait_config *config,
                 const struct plait_layout *layout, int chunks,
                 struct plait_error *err)
{
    const struct plait_model_config *c = &config->model;
    int stages = layout->size[PLAIT_PP] * chunks;
    int cp = layout->size[PLAIT_CP];

    if (c->family != PLAIT_GPT2 && c->family != PLAIT_LLAMA)
        return plait_errorf(err, "model.family: only gpt2 and llama are "
                                 "language models");
    if (check_heads(c, layout->size[PLAIT_TP], err) < 0)
        return -1;
    if (c->layers < stages)
        return plait_errorf(err,
                            "model.layers %d is less than the %d "
                            "pipeline stages (pp %d, virtual %d)",
                            c->layers, stages, layout->size[PLAIT_PP], chunks);
    if (check_experts(c, layout->size[PLAIT_EP], err) < 0)
        return -1;
    if (cp > 1 && c->seq_len % (2 * cp))
        return plait_errorf(err,
                            "model.seq_len %d does not divide by "
                            "2 * cp = %d",
                            c->seq_len, 2 * cp);
    return 0;
}

static int divide_up(int n, int by)
{
    return (n + by - 1) / by;
}

static void set_dims(struct plait_dims *d, const struct plait_model_config *c,
                     const struct plait_parallel *par)
{
    int tp = par->layout.size[PLAIT_TP], r = par->coord.at[PLAIT_TP];

    d->tp = tp;
    d->tp_rank = r;
    d->experts = c->experts;
    d->top_k = c->experts_top_k;
    d->ep = par->layout.size[PLAIT_EP];
    d->ep_rank = par->coord.at[PLAIT_EP];
    d->expert_first = d->experts / d->ep * d->ep_rank;
    d->capacity = plait_model_capacity(c);
    d->gated = c->family == PLAIT_LLAMA;
    d->bias = c->family == PLAIT_GPT2;
    d->tied = c->tie_embeddings;
    d->hidden = c->hidden;
    d->head_dim = c->hidden / c->heads;
    d->heads = c->heads / tp;
    d->kv_copies = c->kv_heads < tp ? tp / c->kv_heads : 1;
    d->kv_heads = c->kv_heads < tp ? 1 : c->kv_heads / tp;
    d->kv_first = r / d->kv_copies * d->kv_heads;
    d->qkv = (d->heads + 2 * d->kv_heads) * d->head_dim;
    d->ffn = c->ffn / tp;
    d->up = d->gated ? 2 * d->ffn : d->ffn;
    d->vocab = divide_up(divide_up(c->vocab, tp), 64) * 64;
    d->vocab_first = r * d->vocab;
    d->vocab_count = c->vocab - d->vocab_first;
    if (d->vocab_count < 0)
        d->vocab_count = 0;
    if (d->vocab_count > d->vocab)
        d->vocab_count = d->vocab;
}

struct plait_model *plait_model_create(const struct plait_config *config,
                                       struct plait_parallel *par,
                                       struct plait_error *err)
{
    int chunks = plait_model_chunks(&config->parallel);
    struct plait_model *m;

    if (check(config, &par->layout, chunks, err) < 0)
        return NULL;
    m = calloc(1, sizeof(*m));
    if (!m)
        goto error;
    m->state = calloc(1, sizeof(*m->state));
    if (!m->state)
        goto error;
    m->config = config;
    m->par = par;
    m->type = plait_model_type(config->train.precision);
    m->chunks = chunks;
    m->state->next_chunk = -1;
    set_dims(&m->state->dims, &config->model, par);
    m->vocab_padded = m->state->dims.vocab * m->state->dims.tp;
    if (plait_model_layout(m) < 0)
        goto error;
    return m;
error:
    plait_model_destroy(m);
    plait_errorf(err, "out of memory for the table of tensors");
    return NULL;
}

static void destroy_handle(struct plait_model *m, struct plait_matrix *w)
{
    if (w->handle)
        m->par->ops->weight_destroy(w->handle);
}

static void destroy_block(struct plait_model *m, struct plait_block *b)
{
    int experts = m->state->dims.experts / m->state->dims.ep;

    destroy_handle(m, &b->qkv);
    destroy_handle(m, &b->out);
    destroy_handle(m, &b->up);
    destroy_handle(m, &b->down);
    destroy_handle(m, &b->router);
    destroy_handle(m, &b->vocab);
    for (int i = 0; b->experts && i < experts; i++) {
        destroy_handle(m, &b->experts[i].up);
        destroy_handle(m, &b->experts[i].down);
    }
    free(b->experts);
}

void plait_model_destroy(struct plait_model *model)
{
    int saved_errno = errno;

    if (!model)
        return;
    if (model->state) {
        for (int i = 0; i < model->state->nblocks; i++)
            destroy_block(model, &model->state->blocks[i]);
        plait_model_release_arena(model);
        free(model->state->chunk_first);
        free(model->state->blocks);
        free(model->state->unmade);
    }
    free(model->state);
    free(model->regions);
    free(model->tensors);
    free(model);
    errno = saved_errno;
}

double plait_model_flops_per_token(const struct plait_model *model)
{
    const struct plait_model_config *c = &model->config->model;
    double multiplied = (double)c->vocab * c->hidden, share = 1;
    int layer = -1;

    if (c->experts) /* of the experts here, what a token sees of all */
        share = (double)c->experts_top_k * model->state->dims.ep / c->experts;
    for (int i = 0; i < model->ntensors; i++) {
        const struct plait_tensor *t = &model->tensors[i];

        if (layer < 0)
            layer = t->layer;
        if (layer >= 0 && t->layer == layer && t->ndim == 2)
            multiplied += (double)c->layers * t->shape[0] * t->shape[1] *
                          (t->expert ? share : 1);
    }
    return 6 * multiplied + 12.0 * c->layers * c->hidden * c->seq_len;
}
