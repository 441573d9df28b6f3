/* SPDX-License-Identifier: Apache-2.0 */
/* What positions do to a layer's queries and keys. */
#include "kernels/rope.h"
#include "runtime/model/internal.h"
#include "topology/job/model_size.h"

/* Tokens of a sequence; of a text that grows, those that it may have. */
static int text_length(const struct plait_work *w)
{
    return w->added ? w->model->state->cache.length : w->shape->seq_len;
}

static struct plait_rope_angles angles_of(const struct plait_work *w)
{
    const struct plait_model_config *c = &w->model->config->model;
    bool local = c->rope_theta_window > 0 && plait_model_local(c, w->layer);
    struct plait_rope_angles angles = {.theta = local ? c->rope_theta_window
                                                      : c->rope_theta,
                                       .factor = local ? 1 : c->rope_factor,
                                       .low = c->rope_low_freq_factor,
                                       .high = c->rope_high_freq_factor,
                                       .original = c->rope_original_len};

    if (!(angles.factor > 1) || c->rope_scaling == PLAIT_ROPE_LLAMA3)
        return angles;
    angles.size = plait_model_rope_size(c);
    if (c->rope_scaling == PLAIT_ROPE_LONGROPE) {
        angles.pairs = text_length(w) > c->rope_original_len ? c->rope_long.at
                                                             : c->rope_short.at;
        return angles;
    }
    plait_rope_yarn(&angles, plait_model_rope_columns(c), c->rope_truncate);
    return angles;
}

/* direction -1, the backward, turns back. */
static int rotate(const struct plait_work *w, void *qkv, int direction)
{
    struct plait_rope rope = {
        .type = w->type,
        .stride = w->d->qkv,
        .heads = w->d->heads + w->d->kv_heads,
        .head_dim = w->d->head_dim,
        .columns = plait_model_rope_columns(&w->model->config->model),
        .direction = direction,
        .angles = angles_of(w)};
    struct plait_row_span span;

    for (int i = 0; i < plait_count_spans(w); i++) {
        plait_next_span(w, i, &span);
        rope.x = plait_element_at(w, qkv, span.first * w->d->qkv);
        rope.at = plait_span_positions(w, &span);
        rope.N = span.rows;
        if (w->ops->rope(w->q, &rope) < 0)
            return -1;
    }
    return 0;
}

/* Multiplies queries, or their gradient, by what the model has for their
 * positions. */
static int temper(const struct plait_work *w, void *qkv)
{
    const struct plait_model_config *c = &w->model->config->model;
    struct plait_temper t = {.type = w->type,
                             .stride = w->d->qkv,
                             .C = (size_t)w->d->heads * w->d->head_dim,
                             .floor = c->attention_temperature_floor,
                             .scale = c->attention_temperature};
    struct plait_row_span span;
    int n = c->attention_temperature > 0 ? plait_count_spans(w) : 0;

    for (int i = 0; i < n; i++) {
        plait_next_span(w, i, &span);
        t.x = plait_element_at(w, qkv, span.first * w->d->qkv);
        t.at = plait_span_positions(w, &span);
        t.N = span.rows;
        if (w->ops->temper(w->q, &t) < 0)
            return -1;
    }
    return 0;
}

/* The norms of q's and k's heads that come after the rotation; `normed` NULL:
 * forward. */
static int normalize(const struct plait_work *w,
                     const struct plait_activations *a, void *qkv,
                     const void *normed)
{
    struct plait_head_norm norm = {.type = w->type,
                                   .x = qkv,
                                   .y = normed,
                                   .stride = w->d->qkv,
                                   .heads = w->d->heads + w->d->kv_heads,
                                   .head_dim = w->d->head_dim,
                                   .rstd = a->l2_rstd,
                                   .eps =
                                       (float)w->model->config->model.norm_eps,
                                   .N = w->shape->N};

    return a->l2_rstd ? w->ops->head_norm(w->q, &norm) : 0;
}

static bool is_rotated(const struct plait_work *w)
{
    return plait_model_rotated(&w->model->config->model, w->layer);
}

int plait_attention_place(const struct plait_work *w,
                          const struct plait_activations *a)
{
    if (!is_rotated(w))
        return temper(w, a->qkv);
    return rotate(w, a->qkv, 1) < 0 ? -1 : normalize(w, a, a->qkv, NULL);
}

int plait_attention_place_backward(const struct plait_work *w,
                                   const struct plait_activations *a,
                                   void *dqkv)
{
    if (!is_rotated(w))
        return temper(w, dqkv);
    return normalize(w, a, dqkv, a->qkv) < 0 ? -1 : rotate(w, dqkv, -1);
}
