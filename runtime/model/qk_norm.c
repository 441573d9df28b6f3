/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/internal.h"

/* An RMS norm of each head of q and k before they are rotated (Henry et al.,
 * "Query-Key Normalization", arXiv:2010.04245; as in Qwen 3, with a weight for
 * each column of a head, shared by all heads). The heads are copied out of the
 * fused q, k, v for the norm. */

/* The heads of q or of k. */
struct heads {
    int n;
    size_t column; /* of the first one, in the fused rows */
    size_t gamma;
    void *x;     /* [N,n*D] before the norm */
    float *rstd; /* [N,n] */
};

static void describe_heads(const struct plait_work *w,
                           const struct plait_block *b,
                           const struct plait_activations *a,
                           struct heads heads[2])
{
    const struct plait_dims *d = w->d;

    heads[0] = (struct heads){d->heads, 0, b->q_norm, a->q, a->q_rstd};
    heads[1] = (struct heads){d->kv_heads, (size_t)d->heads * d->head_dim,
                              b->k_norm, a->k, a->k_rstd};
}

static int take_out(const struct plait_work *w, const struct heads *h, void *to,
                    const void *fused)
{
    size_t cols = (size_t)h->n * w->d->head_dim;

    return w->ops->copy_2d(
        w->q,
        &(struct plait_copy_2d){.type = w->type,
                                .dst = to,
                                .dst_stride = cols,
                                .src = (const char *)fused +
                                       h->column * plait_dtype_size(w->type),
                                .src_stride = w->d->qkv,
                                .rows = w->shape->N,
                                .cols = cols});
}

static int put_back(const struct plait_work *w, const struct heads *h,
                    void *fused, const void *from)
{
    size_t cols = (size_t)h->n * w->d->head_dim;

    return w->ops->copy_2d(
        w->q, &(struct plait_copy_2d){
                  .type = w->type,
                  .dst = (char *)fused + h->column * plait_dtype_size(w->type),
                  .dst_stride = w->d->qkv,
                  .src = from,
                  .src_stride = cols,
                  .rows = w->shape->N,
                  .cols = cols});
}

int plait_qk_norm_forward(const struct plait_work *w,
                          const struct plait_block *b,
                          const struct plait_activations *a)
{
    void *normed = w->scratch->normed;
    struct heads heads[2];

    describe_heads(w, b, a, heads);
    for (int i = 0; w->d->qk_norm && i < 2; i++) {
        const struct heads *h = &heads[i];
        struct plait_norm_forward norm = {
            .type = w->type,
            .out = normed,
            .rstd = h->rstd,
            .inp = h->x,
            .gamma = plait_weight_at(w, b->region, h->gamma),
            .eps = w->model->config->model.norm_eps,
            .N = w->shape->N * h->n,
            .C = w->d->head_dim};

        if (take_out(w, h, h->x, a->qkv) < 0 ||
            w->ops->norm_forward(w->q, &norm) < 0 ||
            put_back(w, h, a->qkv, normed) < 0)
            return -1;
    }
    return 0;
}

int plait_qk_norm_backward(const struct plait_work *w,
                           const struct plait_block *b,
                           const struct plait_activations *a, void *dqkv)
{
    void *dx = w->scratch->normed;
    struct heads heads[2];

    describe_heads(w, b, a, heads);
    for (int i = 0; w->d->qk_norm && i < 2; i++) {
        const struct heads *h = &heads[i];
        struct plait_norm_backward norm = {
            .type = w->type,
            .dx = dx,
            .dgamma = plait_grad_at(w, b->region, h->gamma),
            .dout = dx,
            .x = h->x,
            .gamma = plait_weight_at(w, b->region, h->gamma),
            .rstd = h->rstd,
            .N = w->shape->N * h->n,
            .C = w->d->head_dim};

        if (take_out(w, h, dx, dqkv) < 0 ||
            w->ops->norm_backward(w->q, &norm) < 0 ||
            put_back(w, h, dqkv, dx) < 0)
            return -1;
    }
    return 0;
}
