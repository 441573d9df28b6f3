/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "runtime/model/internal.h"

/* Element `i` of an array of the compute type. */
static void *at(const struct plait_work *w, const void *p, size_t i)
{
    return (char *)p + i * plait_dtype_size(w->type);
}

static struct plait_attention describe(const struct plait_work *w)
{
    const struct plait_dims *d = w->d;
    struct plait_attention a = {
        .batch = w->shape->batch,
        .q_len = w->shape->piece_len,
        .k_len = w->shape->piece_len,
        .q_heads = d->heads,
        .kv_heads = d->kv_heads,
        .head_dim = d->head_dim,
        .q_stride = d->qkv,
        .kv_stride = d->qkv,
        .scale = 1 / sqrtf(d->head_dim),
    };

    return a;
}

/* Turn q and k, which are neighbours, to their positions or back. */
static int rotate(const struct plait_work *w, void *qkv, int direction)
{
    const struct plait_shape *s = w->shape;
    size_t rows = (size_t)s->batch * s->piece_len;
    float theta = w->model->config->model.rope_theta;

    for (int p = 0; w->d->gated && p < s->pieces; p++) {
        int64_t pos = plait_model_piece_pos(w->model, s, p);

        if (w->ops->rope(w->q, w->type, at(w, qkv, p * rows * w->d->qkv),
                         w->d->qkv, w->d->heads + w->d->kv_heads,
                         w->d->head_dim, theta, pos, direction, rows,
                         s->piece_len) < 0)
            return -1;
    }
    return 0;
}

int plait_attention_rotate(const struct plait_work *w, void *qkv)
{
    return rotate(w, qkv, 1);
}

int plait_attention_forward(const struct plait_work *w,
                            const struct plait_activations *a)
{
    struct plait_attention s = describe(w);
    size_t k = (size_t)w->d->heads * w->d->head_dim;
    size_t v = k + (size_t)w->d->kv_heads * w->d->head_dim;

    return w->ops->attention_forward(w->q, w->type, &s, a->att, a->lse,
                                     a->qkv, at(w, a->qkv, k),
                                     at(w, a->qkv, v));
}

int plait_attention_backward(const struct plait_work *w,
                             const struct plait_activations *a, void *dqkv,
                             const void *datt)
{
    struct plait_attention s = describe(w);
    size_t k = (size_t)w->d->heads * w->d->head_dim;
    size_t v = k + (size_t)w->d->kv_heads * w->d->head_dim;
    size_t bytes = w->shape->N * w->d->qkv * plait_dtype_size(w->type);

    if (w->ops->fill_zero(w->q, dqkv, bytes) < 0 ||
        w->ops->attention_backward(w->q, w->type, &s, dqkv, at(w, dqkv, k),
                                   at(w, dqkv, v), datt, a->att, a->lse,
                                   a->qkv, at(w, a->qkv, k),
                                   at(w, a->qkv, v)) < 0)
        return -1;
    return rotate(w, dqkv, -1);
}
