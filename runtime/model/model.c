/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "runtime/model/internal.h"
#include "topology/job/fits.h"
#include "topology/job/held.h"
#include "topology/job/model_size.h"

enum plait_dtype plait_model_type(enum plait_precision precision)
{
    if (precision == PLAIT_BF16 || precision == PLAIT_FP8)
        return PLAIT_BF16_T;
    return precision == PLAIT_FP16 ? PLAIT_FP16_T : PLAIT_F32;
}

static void set_dims(struct plait_dims *d,
                     const struct plait_job_config *config,
                     const struct plait_mesh *mesh)
{
    const struct plait_model_config *c = &config->model;
    struct plait_rank_sizes z; /* columns matter here, rows do not */
    int r = mesh->coord.at[PLAIT_TP];

    plait_rank_sizes_set(&z, config, &mesh->layout, 1, 1, false);
    d->tp = mesh->layout.size[PLAIT_TP];
    d->tp_rank = r;
    d->experts = c->experts;
    d->top_k = c->experts_top_k;
    d->ep = mesh->layout.size[PLAIT_EP];
    d->ep_rank = mesh->coord.at[PLAIT_EP];
    d->expert_first = (int)z.here * d->ep_rank;
    d->capacity = (int)z.capacity;
    d->gated = z.gated;
    d->bias = c->family == PLAIT_GPT2;
    d->tied = c->tie_embeddings;
    d->hidden = c->hidden;
    d->qk_norm = c->qk_norm;
    d->qk_whole = c->qk_norm_whole;
    d->latent = z.kv_latent > 0;
    d->norms_before = z.norms_before;
    d->norms_after = z.norms_after;
    d->head_dim = (int)z.head_dim;
    d->heads = (int)z.heads;
    d->kv_copies = (int)z.kv_copies;
    d->kv_heads = (int)z.kv_heads;
    d->kv_first = r / d->kv_copies * d->kv_heads;
    d->qkv = (int)z.qkv;
    d->ffn = (int)z.ffn;
    d->up = (int)z.up;
    d->shared = (int)z.shared;
    d->vocab = (int)z.vocab;
    d->vocab_first = r * d->vocab;
    d->vocab_count = c->vocab - d->vocab_first;
    if (d->vocab_count < 0)
        d->vocab_count = 0;
    if (d->vocab_count > d->vocab)
        d->vocab_count = d->vocab;
}

struct plait_model *plait_model_create(const struct plait_job_config *config,
                                       struct plait_mesh *mesh,
                                       struct plait_error *err)
{
    int chunks = plait_model_chunks(&config->parallel);
    struct plait_model *m;

    if (plait_fits_model(config, &mesh->layout, err) < 0)
        return NULL;
    m = calloc(1, sizeof(*m));
    if (!m)
        goto error;
    m->state = calloc(1, sizeof(*m->state));
    if (!m->state)
        goto error;
    m->config = config;
    m->mesh = mesh;
    m->type = plait_model_type(config->train.precision);
    m->chunks = chunks;
    m->state->next_chunk = -1;
    m->family = plait_is_image_model(&config->model)
                    ? &plait_image_family
                    : &plait_transformer_family;
    if (m->family->layout(m) < 0)
        goto error;
    return m;
error:
    plait_model_destroy(m);
    plait_errorf(err, "out of memory for the table of tensors");
    return NULL;
}

static int layout_transformer(struct plait_model *m)
{
    set_dims(&m->state->dims, m->config, m->mesh);
    m->vocab_padded = m->state->dims.vocab * m->state->dims.tp;
    return plait_model_layout(m);
}

static void destroy_transformer(struct plait_model *m)
{
    struct plait_model_state *s = m->state;

    for (int i = 0; i < s->nproducts; i++)
        if (s->matrix[i]->handle)
            m->mesh->ops->weight_destroy(s->matrix[i]->handle);
    for (int i = 0; i < s->nblocks; i++)
        free(s->blocks[i].experts);
    plait_model_release_arena(m);
    plait_model_release_cache(m);
}

void plait_model_destroy(struct plait_model *model)
{
    int saved_errno = errno;

    if (!model)
        return;
    if (model->state) {
        if (model->family)
            model->family->destroy(model);
        free(model->state->chunk_first);
        free(model->state->blocks);
        free(model->state->matrix);
        free(model->state->unmade);
    }
    if (model->weights)
        plait_mesh_free(model->mesh, model->weights);
    if (model->exact)
        plait_mesh_free(model->mesh, model->exact);
    free(model->state);
    free(model->regions);
    free(model->tensors);
    free(model);
    errno = saved_errno;
}

static double flops_per_token(const struct plait_model *model)
{
    const struct plait_model_config *c = &model->config->model;
    double router = (double)c->experts * c->hidden;
    double multiplied = (double)c->vocab * c->hidden +
                        c->layers * (plait_model_met(c) + router) +
                        plait_model_mtp_met(c);
    int layers = c->layers + c->mtp_layers;

    return 6 * multiplied + 12.0 * layers * c->heads *
                                plait_model_score_width(c) * c->seq_len *
                                plait_model_reach(c);
}

const struct plait_family_ops plait_transformer_family = {
    .layout = layout_transformer,
    .reserve = plait_transformer_reserve,
    .boundary = plait_transformer_boundary,
    .load = plait_transformer_load,
    .forward = plait_transformer_forward,
    .backward = plait_transformer_backward,
    .weights_changed = plait_transformer_weights_changed,
    .flops_per_token = flops_per_token,
    .destroy = destroy_transformer,
};
