/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/internal.h"

/* An RMS norm of each head of q and k before they are rotated (Henry et al.,
 * "Query-Key Normalization", arXiv:2010.04245; as in Qwen 3, with a weight for
 * each column of a head, shared by all heads), or one of all heads together (as
 * in OLMo 2, with a weight for each column). The heads are copied out of the
 * fused q, k, v for the norm. Where tp divides the heads of one norm, each rank
 * sums over its columns, and the group adds the sums. */

/* The heads of q or of k. */
struct heads {
    int n;
    size_t column; /* of the first one, in the fused rows */
    size_t gamma;
    void *x;     /* [N,n*D] before the norm */
    float *rstd; /* [N,n], or [N] of a norm of all heads */
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

/* How many norms, and of how many columns here. */
static size_t norms_of(const struct plait_work *w, const struct heads *h)
{
    return w->shape->N * (w->d->qk_whole ? 1 : (size_t)h->n);
}

static size_t width_of(const struct plait_work *w, const struct heads *h)
{
    return (w->d->qk_whole ? (size_t)h->n : 1) * (size_t)w->d->head_dim;
}

/* -- heads on several ranks ----------------------------------------------- */

static struct plait_norm_part part_of(const struct plait_work *w,
                                      const struct plait_block *b,
                                      const struct heads *h)
{
    size_t C = width_of(w, h);

    return (struct plait_norm_part){
        .type = w->type,
        .x = h->x,
        .gamma = plait_weight_at(w, b->region, h->gamma),
        .sums = w->scratch->sums,
        .mean = 1 / ((float)w->d->tp * (float)C),
        .eps = (float)w->model->config->model.norm_eps,
        .rstd = h->rstd,
        .N = w->shape->N,
        .C = C};
}

/* The sums of each row over its columns on all ranks. Columns that several
 * ranks have count once for each: so do they in tp times the columns here, by
 * which the sum is divided. Of their gradients every copy has a part. */
static int sum_parts(const struct plait_work *w,
                     const struct plait_norm_part *p)
{
    float *sums = p->sums;

    if (w->ops->norm_part_sums(w->q, p) < 0)
        return -1;
    return plait_comm_all_reduce(
        w->tp.group, &(struct plait_buffers){sums, sums, p->N, PLAIT_F32},
        PLAIT_SUM, w->q, NULL);
}

static int parts_forward(const struct plait_work *w,
                         const struct plait_block *b, const struct heads *h,
                         void *out)
{
    struct plait_norm_part p = part_of(w, b, h);

    p.out = out;
    return sum_parts(w, &p) < 0 ? -1 : w->ops->norm_part_forward(w->q, &p);
}

static int parts_backward(const struct plait_work *w,
                          const struct plait_block *b, const struct heads *h,
                          void *dx)
{
    struct plait_norm_part p = part_of(w, b, h);

    p.out = dx;
    p.dout = dx;
    p.dgamma = plait_grad_at(w, b->region, h->gamma);
    return sum_parts(w, &p) < 0 ? -1 : w->ops->norm_part_backward(w->q, &p);
}

/* -- one or the other ----------------------------------------------------- */

static int heads_forward(const struct plait_work *w,
                         const struct plait_block *b, const struct heads *h,
                         void *out)
{
    struct plait_norm_forward norm = {
        .type = w->type,
        .out = out,
        .rstd = h->rstd,
        .inp = h->x,
        .gamma = plait_weight_at(w, b->region, h->gamma),
        .eps = (float)w->model->config->model.norm_eps,
        .plus = w->model->config->model.norm_plus_one,
        .N = norms_of(w, h),
        .C = width_of(w, h)};

    return w->scratch->sums ? parts_forward(w, b, h, out)
                            : w->ops->norm_forward(w->q, &norm);
}

static int heads_backward(const struct plait_work *w,
                          const struct plait_block *b, const struct heads *h,
                          void *dx)
{
    struct plait_norm_backward norm = {
        .type = w->type,
        .dx = dx,
        .dgamma = plait_grad_at(w, b->region, h->gamma),
        .dout = dx,
        .x = h->x,
        .gamma = plait_weight_at(w, b->region, h->gamma),
        .rstd = h->rstd,
        .plus = w->model->config->model.norm_plus_one,
        .N = norms_of(w, h),
        .C = width_of(w, h)};

    return w->scratch->sums ? parts_backward(w, b, h, dx)
                            : w->ops->norm_backward(w->q, &norm);
}

int plait_qk_norm_forward(const struct plait_work *w,
                          const struct plait_block *b,
                          const struct plait_activations *a)
{
    void *normed = w->scratch->normed;
    struct heads heads[2];

    describe_heads(w, b, a, heads);
    for (int i = 0; w->d->qk_norm && i < 2; i++)
        if (take_out(w, &heads[i], heads[i].x, a->qkv) < 0 ||
            heads_forward(w, b, &heads[i], normed) < 0 ||
            put_back(w, &heads[i], a->qkv, normed) < 0)
            return -1;
    return 0;
}

int plait_qk_norm_backward(const struct plait_work *w,
                           const struct plait_block *b,
                           const struct plait_activations *a, void *dqkv)
{
    void *dx = w->scratch->normed;
    struct heads heads[2];

    describe_heads(w, b, a, heads);
    for (int i = 0; w->d->qk_norm && i < 2; i++)
        if (take_out(w, &heads[i], dx, dqkv) < 0 ||
            heads_backward(w, b, &heads[i], dx) < 0 ||
            put_back(w, &heads[i], dqkv, dx) < 0)
            return -1;
    return 0;
}
