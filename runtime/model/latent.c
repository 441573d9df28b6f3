/* SPDX-License-Identifier: Apache-2.0 */
/* Latent attention, as in DeepSeek-V2 and V3 (arXiv:2405.04434, 2412.19437):
 * keys and values are made of a latent that is narrower than they are, and so
 * may queries be; some columns of a key have rotary positions, are made of the
 * stream and are the same in all heads. Attention itself gets full heads, first
 * the columns with rotary positions, then the others; those of v are filled up
 * with zeros to the width of q and k.
 *
 * Under tp each rank has all rows of the latents and the matrices that make
 * them, and its own heads. What flows back into a latent is thus a term of a
 * sum: so are the gradients of those matrices and norms, which params.c has
 * summed with the others' of that kind, and that of the stream, which is summed
 * here. */
#include "runtime/model/internal.h"
#include "topology/job/model_size.h"

/* Of the latents' norms in all models with them, whatever model.norm_eps is. */
#define EPS 1e-6F

/* What leads to the heads of q, or to those of k and v. */
struct latent {
    const struct plait_matrix *down, *up; /* down NULL: no latent */
    size_t gamma;
    void *x, *normed;
    float *rstd;
};

static struct latent latent_q(const struct plait_block *b,
                              const struct plait_activations *a)
{
    return (struct latent){a->q_latent ? &b->q_down : NULL,
                           &b->q_up,
                           b->q_latent_norm,
                           a->q_latent,
                           a->q_normed,
                           a->q_latent_rstd};
}

static struct latent latent_kv(const struct plait_block *b,
                               const struct plait_activations *a)
{
    return (struct latent){&b->kv_down,  &b->kv_up,    b->kv_latent_norm,
                           a->kv_latent, a->kv_normed, a->kv_latent_rstd};
}

/* -- columns of heads ----------------------------------------------------- */

/* Columns of each head of the fused q, k and v. */
struct columns {
    size_t first; /* of the first head, in a fused row */
    size_t count;
};

/* Where q, k and v begin in a fused row, and the columns of a head. */
static size_t start_of(const struct plait_work *w, int which)
{
    return (size_t)which * (size_t)w->d->heads * (size_t)w->d->head_dim;
}

static struct columns rotary_of(const struct plait_work *w, int which)
{
    return (struct columns){start_of(w, which),
                            (size_t)w->model->config->model.mla_rope};
}

static struct columns unturned_of(const struct plait_work *w, int which)
{
    size_t rotary = (size_t)w->model->config->model.mla_rope;

    return (struct columns){start_of(w, which) + rotary,
                            (size_t)w->model->config->model.mla_nope};
}

static struct columns values_of(const struct plait_work *w)
{
    return (struct columns){start_of(w, 2),
                            (size_t)w->model->config->model.mla_value};
}

/* The copy from its target to its source, which may be written at `source`. */
static struct plait_copy_heads reversed(const struct plait_copy_heads *copy,
                                        void *source)
{
    struct plait_copy_heads back = *copy;

    back.dst = source;
    back.dst_stride = copy->src_stride;
    back.dst_head = copy->src_head;
    back.src = copy->dst;
    back.src_stride = copy->dst_stride;
    back.src_head = copy->dst_head;
    return back;
}

/* Copies those columns of the fused rows from `rows` or, with `take`, to them:
 * rows of `stride` elements, in which nothing lies between the heads. */
static int move_heads(const struct plait_work *w, void *fused, struct columns c,
                      void *rows, size_t stride, bool take)
{
    struct plait_copy_heads copy = {.type = w->type,
                                    .dst = plait_element_at(w, fused, c.first),
                                    .dst_stride = (size_t)w->d->qkv,
                                    .dst_head = (size_t)w->d->head_dim,
                                    .src = rows,
                                    .src_stride = stride,
                                    .src_head = c.count,
                                    .rows = w->shape->N,
                                    .heads = (size_t)w->d->heads,
                                    .cols = c.count};

    if (take)
        copy = reversed(&copy, rows);
    return w->ops->copy_heads(w->q, &copy);
}

/* Heads of q, whole. */
static int move_q(const struct plait_work *w, void *fused, bool take)
{
    struct columns all = {0, (size_t)w->d->head_dim};

    return move_heads(w, fused, all, w->scratch->up,
                      (size_t)w->d->heads * all.count, take);
}

/* Heads of k without what they share, and of v. */
static int move_kv(const struct plait_work *w, void *fused, bool take)
{
    struct columns k = unturned_of(w, 1), v = values_of(w);
    size_t heads = (size_t)w->d->heads, stride = heads * (k.count + v.count);
    void *up = w->scratch->up;

    if (move_heads(w, fused, k, up, stride, take) < 0)
        return -1;
    return move_heads(w, fused, v, plait_element_at(w, up, heads * k.count),
                      stride, take);
}

/* Zeros in the columns of v that fill its heads up: of rows of `stride`
 * elements, whose heads of v begin at column `first`. */
static int fill_up(const struct plait_work *w, void *rows, size_t stride,
                   size_t first)
{
    size_t D = (size_t)w->d->head_dim, v = values_of(w).count;

    return w->ops->copy_heads(
        w->q,
        &(struct plait_copy_heads){.type = w->type,
                                   .dst = plait_element_at(w, rows, first + v),
                                   .dst_stride = stride,
                                   .dst_head = D,
                                   .rows = w->shape->N,
                                   .heads = (size_t)w->d->heads,
                                   .cols = D - v});
}

/* The part of k that is made once, to each of its heads. */
static int share_rotary(const struct plait_work *w, void *fused)
{
    struct columns k = rotary_of(w, 1);

    return w->ops->copy_heads(
        w->q,
        &(struct plait_copy_heads){.type = w->type,
                                   .dst = plait_element_at(w, fused, k.first),
                                   .dst_stride = (size_t)w->d->qkv,
                                   .dst_head = (size_t)w->d->head_dim,
                                   .src = w->scratch->rotary,
                                   .src_stride = k.count,
                                   .rows = w->shape->N,
                                   .heads = (size_t)w->d->heads,
                                   .cols = k.count});
}

static int sum_rotary(const struct plait_work *w, const void *fused)
{
    struct columns k = rotary_of(w, 1);

    return w->ops->sum_heads(
        w->q,
        &(struct plait_sum_heads){.type = w->type,
                                  .dst = w->scratch->rotary,
                                  .src = plait_element_at(w, fused, k.first),
                                  .src_stride = (size_t)w->d->qkv,
                                  .src_head = (size_t)w->d->head_dim,
                                  .rows = w->shape->N,
                                  .heads = (size_t)w->d->heads,
                                  .cols = k.count});
}

/* -- forward -------------------------------------------------------------- */

static int multiply(const struct plait_work *w,
                    const struct plait_matrix *matrix, const void *x, void *out)
{
    struct plait_linear l = {.N = w->shape->N, .inp.x = x, .out = out};

    return plait_linear_forward(w, matrix, &l);
}

static int norm_forward(const struct plait_work *w, const struct plait_block *b,
                        const struct latent *l)
{
    return w->ops->norm_forward(
        w->q, &(struct plait_norm_forward){
                  .type = w->type,
                  .out = l->normed,
                  .rstd = l->rstd,
                  .inp = l->x,
                  .gamma = plait_weight_at(w, b->region, l->gamma),
                  .eps = EPS,
                  .N = w->shape->N,
                  .C = l->down->O});
}

/* From the rows of the stream to scratch->up. */
static int latent_forward(const struct plait_work *w,
                          const struct plait_block *b, const struct latent *l,
                          const void *full)
{
    if (!l->down)
        return multiply(w, l->up, full, w->scratch->up);
    if (multiply(w, l->down, full, l->x) < 0 || norm_forward(w, b, l) < 0)
        return -1;
    return multiply(w, l->up, l->normed, w->scratch->up);
}

int plait_latent_forward(const struct plait_work *w,
                         const struct plait_block *b,
                         const struct plait_activations *a)
{
    struct latent q = latent_q(b, a), kv = latent_kv(b, a);
    const void *full;

    if (plait_tp_all_gather(&w->tp, a->n1, w->scratch->full, w->stream, &full,
                            NULL) < 0 ||
        latent_forward(w, b, &q, full) < 0 || move_q(w, a->qkv, false) < 0 ||
        latent_forward(w, b, &kv, full) < 0 || move_kv(w, a->qkv, false) < 0 ||
        fill_up(w, a->qkv, (size_t)w->d->qkv, start_of(w, 2)) < 0 ||
        multiply(w, &b->k_rotary, full, w->scratch->rotary) < 0)
        return -1;
    return share_rotary(w, a->qkv);
}

/* Heads of attention's output, or of its gradient, `wide` as those of q, and
 * without the columns that fill them up. */
static struct plait_copy_heads cut_of(const struct plait_work *w, void *wide,
                                      void *values)
{
    size_t D = (size_t)w->d->head_dim, v = values_of(w).count;
    size_t heads = (size_t)w->d->heads;

    return (struct plait_copy_heads){.type = w->type,
                                     .dst = values,
                                     .dst_stride = heads * v,
                                     .dst_head = v,
                                     .src = wide,
                                     .src_stride = heads * D,
                                     .src_head = D,
                                     .rows = w->shape->N,
                                     .heads = heads,
                                     .cols = v};
}

int plait_latent_cut(const struct plait_work *w,
                     const struct plait_activations *a)
{
    struct plait_copy_heads cut = cut_of(w, a->att, a->values);

    return w->d->latent ? w->ops->copy_heads(w->q, &cut) : 0;
}

int plait_latent_again(const struct plait_work *w, const struct plait_block *b,
                       const struct plait_activations *a)
{
    struct latent q = latent_q(b, a), kv = latent_kv(b, a);

    if (!w->d->latent)
        return 0;
    if ((q.down && norm_forward(w, b, &q) < 0) || norm_forward(w, b, &kv) < 0)
        return -1;
    return plait_latent_cut(w, a);
}

/* -- backward ------------------------------------------------------------- */

int plait_latent_widen(const struct plait_work *w, void *datt)
{
    struct plait_copy_heads cut = cut_of(w, datt, w->scratch->up);
    struct plait_copy_heads wide = reversed(&cut, datt);

    if (!w->d->latent)
        return 0;
    if (w->ops->copy_heads(w->q, &wide) < 0)
        return -1;
    return fill_up(w, datt, wide.dst_stride, 0);
}

/* The gradient of a matrix that has read x, and of x: to or, with `more`, added
 * to dx. */
static int back(const struct plait_work *w, const struct plait_matrix *matrix,
                const void *x, const void *dout, void *dx, bool more)
{
    struct plait_operand dy = {.x = dout}, inp = {.x = x};
    struct plait_linear_dinp l = {
        .N = w->shape->N, .dout = dy, .dinp = dx, .accumulate = more};

    if (plait_linear_weight(w, matrix, 0, &dy, &inp) < 0)
        return -1;
    return plait_linear_input(w, matrix, &l);
}

static int norm_backward(const struct plait_work *w,
                         const struct plait_block *b, const struct latent *l,
                         void *dx)
{
    return w->ops->norm_backward(
        w->q, &(struct plait_norm_backward){
                  .type = w->type,
                  .dx = dx,
                  .dgamma = plait_grad_at(w, b->region, l->gamma),
                  .dout = dx,
                  .x = l->x,
                  .gamma = plait_weight_at(w, b->region, l->gamma),
                  .rstd = l->rstd,
                  .N = w->shape->N,
                  .C = l->down->O});
}

/* From scratch->up to scratch->part, the gradient of the stream's rows. */
static int latent_backward(const struct plait_work *w,
                           const struct plait_block *b, const struct latent *l,
                           const void *full, bool more)
{
    void *up = w->scratch->up, *part = w->scratch->part;
    void *dlatent = w->scratch->dlatent;

    if (!l->down)
        return back(w, l->up, full, up, part, more);
    if (back(w, l->up, l->normed, up, dlatent, false) < 0 ||
        norm_backward(w, b, l, dlatent) < 0)
        return -1;
    return back(w, l->down, full, dlatent, part, more);
}

int plait_latent_backward(const struct plait_work *w,
                          const struct plait_block *b,
                          const struct plait_activations *a, void *dqkv,
                          void **dn1)
{
    struct latent q = latent_q(b, a), kv = latent_kv(b, a);
    struct plait_scratch *s = w->scratch;
    const void *full;

    if (plait_tp_all_gather(&w->tp, a->n1, s->full, w->stream, &full, NULL) <
            0 ||
        move_q(w, dqkv, true) < 0 ||
        latent_backward(w, b, &q, full, false) < 0 ||
        move_kv(w, dqkv, true) < 0 ||
        latent_backward(w, b, &kv, full, true) < 0 || sum_rotary(w, dqkv) < 0 ||
        back(w, &b->k_rotary, full, s->rotary, s->part, true) < 0)
        return -1;
    return plait_tp_reduce(&w->tp, s->part, s->local, w->stream, dn1);
}
