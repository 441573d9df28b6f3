/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/internal.h"

/* Rows from which on a product is about as fast in two halves. */
#define SPLIT_ROWS 128

/* One transformer layer: x2 = x + attention(norm(x)); x2 + mlp(norm(x2)).
 * The second sum is left to the next block's norm, which makes it on its
 * way. Comments in internal.h say what each buffer is. */

static int reduce(const struct plait_work *w, void **sum,
                  struct plait_request **req)
{
    return plait_tensor_reduce(&w->tp, w->scratch->part, w->scratch->local,
                               w->stream, sum, req);
}

/* The first half of a row-parallel linear's rows, whose sum is on its way
 * while the second half is multiplied; 0 where that does not pay, or where
 * sequence parallelism scatters all rows at once. */
static size_t first_rows(const struct plait_work *w)
{
    size_t half = w->shape->N / 2;

    return w->d->tp > 1 && !w->tp.sequence && half >= SPLIT_ROWS ? half : 0;
}

/* A row-parallel linear; the bias comes in once, through the first rank. */
static int row_linear(const struct plait_work *w,
                      const struct plait_matrix *matrix, size_t bias,
                      const void *inp, const void **out)
{
    size_t n = first_rows(w), size = plait_dtype_size(w->type);
    const char *in = (const char *)inp + n * matrix->C * size;
    char *part = w->scratch->part, *rest = part + n * matrix->O * size;
    struct plait_request *req = NULL;
    const void *b = NULL;
    void *sum;

    if (w->d->bias && w->d->tp_rank == 0)
        b = plait_weight_at(w, matrix->region, bias);
    if (n > 0 &&
        (plait_linear_forward(w, matrix, b, PLAIT_ACT_NONE, part, NULL, inp,
                              n) < 0 ||
         plait_tensor_reduce(&w->tp, part, NULL, n * matrix->O, &sum,
                             &req) < 0))
        return -1;
    if (plait_linear_forward(w, matrix, b, PLAIT_ACT_NONE, rest, NULL, in,
                             w->shape->N - n) < 0 ||
        plait_tensor_reduce(&w->tp, rest, w->scratch->local,
                            w->stream - n * matrix->O, &sum, NULL) < 0)
        return -1;
    *out = n > 0 ? part : sum;
    return plait_comm_wait(&req, w->q);
}

static int spread(const struct plait_work *w, const void *x, const void **full)
{
    return plait_tensor_spread(&w->tp, x, w->scratch->full, w->stream, full,
                               NULL);
}

static int qkv_forward(const struct plait_work *w, const struct plait_block *b,
                       const struct plait_activations *a)
{
    const void *full, *bias = NULL;

    if (w->d->bias)
        bias = plait_weight_at(w, b->region, b->qkv_bias);
    if (spread(w, a->n1, &full) < 0 ||
        plait_linear_forward(w, &b->qkv, bias, PLAIT_ACT_NONE, a->qkv, NULL,
                             full, w->shape->N) < 0)
        return -1;
    return plait_attention_rotate(w, a->qkv);
}

static int up_forward(const struct plait_work *w, const struct plait_block *b,
                      const struct plait_activations *a)
{
    const void *full;

    if (spread(w, a->n2, &full) < 0)
        return -1;
    if (w->d->experts)
        return plait_experts_forward(w, b, a, full);
    if (!w->d->gated)
        return plait_linear_forward(
            w, &b->up, plait_weight_at(w, b->region, b->up_bias),
            PLAIT_ACT_GELU, a->act, a->pre, full, w->shape->N);
    if (plait_linear_forward(w, &b->up, NULL, PLAIT_ACT_NONE, a->pre, NULL,
                             full, w->shape->N) < 0)
        return -1;
    return w->ops->swiglu_forward(w->q, w->type, a->act, a->pre, w->shape->N,
                                  w->d->ffn);
}

/* All but the last linear. */
static int inner_forward(const struct plait_work *w,
                         const struct plait_block *b,
                         const struct plait_activations *a, const void *x,
                         const void *delta)
{
    const void *attended;

    if (plait_norm_forward(w, b->region, b->norm1, b->norm1_bias, a->n1,
                           a->mean1, a->rstd1, a->x1, x, delta) < 0 ||
        qkv_forward(w, b, a) < 0 || plait_attention_forward(w, a) < 0 ||
        row_linear(w, &b->out, b->out_bias, a->att, &attended) < 0 ||
        plait_norm_forward(w, b->region, b->norm2, b->norm2_bias, a->n2,
                           a->mean2, a->rstd2, a->x2, a->x1, attended) < 0)
        return -1;
    return up_forward(w, b, a);
}

static int mlp_leave(const struct plait_work *w, const struct plait_block *b,
                     const struct plait_activations *a, const void **out)
{
    void *sum;

    if (!w->d->experts)
        return row_linear(w, &b->down, b->down_bias, a->act, out);
    if (plait_experts_join(w, a, w->scratch->part) < 0 ||
        reduce(w, &sum, NULL) < 0)
        return -1;
    *out = sum;
    return 0;
}

int plait_layer_forward(const struct plait_work *w,
                        const struct plait_block *b,
                        const struct plait_activations *a, const void *x,
                        const void *delta, const void **out,
                        const void **out_delta)
{
    if (inner_forward(w, b, a, x, delta) < 0 ||
        mlp_leave(w, b, a, out_delta) < 0)
        return -1;
    *out = a->x2;
    return 0;
}

int plait_layer_recompute(const struct plait_work *w,
                          const struct plait_block *b,
                          const struct plait_activations *a)
{
    enum plait_recompute r = w->model->config->parallel.recompute;

    if (r == PLAIT_RECOMPUTE_SELECTIVE)
        return plait_attention_forward(w, a);
    if (r == PLAIT_RECOMPUTE_FULL)
        return inner_forward(w, b, a, a->x1, NULL);
    return 0;
}

/* Through a column-parallel linear and the norm before it, onto dx. The
 * linear's input is gathered while the input gradient is made, and the weight
 * gradient is made while the input gradient is being summed. */
static int column_backward(const struct plait_work *w,
                           const struct plait_matrix *matrix, size_t bias,
                           const void *dout, const void *normed,
                           enum plait_phase phase, void **dnormed)
{
    struct plait_request *sum = NULL, *gather = NULL;
    const void *full = NULL;

    if (phase & PLAIT_PHASE_WEIGHT &&
        plait_tensor_spread(&w->tp, normed, w->scratch->full, w->stream, &full,
                            &gather) < 0)
        return -1;
    if (plait_linear_input(w, matrix, PLAIT_ACT_NONE, NULL, w->scratch->part,
                           dout, w->shape->N) < 0 ||
        reduce(w, dnormed, &sum) < 0 || plait_comm_wait(&gather, w->q) < 0)
        return -1;
    if (phase & PLAIT_PHASE_WEIGHT &&
        plait_linear_weight(w, matrix, bias, dout, full) < 0)
        return -1;
    return plait_comm_wait(&sum, w->q);
}

static int keep(const struct plait_work *w, void *to, const void *dx,
                enum plait_phase phase)
{
    if (phase & PLAIT_PHASE_WEIGHT)
        return 0;
    return w->ops->copy(w->q, to, dx, w->shape->n * w->d->hidden *
                                          plait_dtype_size(w->type));
}

/* The gradient of the mlp's input, summed over tp, from that of its output,
 * all rows. */
static int dense_backward(const struct plait_work *w,
                          const struct plait_block *b,
                          const struct plait_activations *a,
                          const struct plait_stash *s, const void *dout,
                          enum plait_phase phase, void **dn2)
{
    void *dact = w->d->gated ? w->scratch->dact : s->dpre;

    if (plait_linear_input(w, &b->down,
                           w->d->gated ? PLAIT_ACT_NONE : PLAIT_ACT_GELU,
                           w->d->gated ? NULL : a->pre, dact, dout,
                           w->shape->N) < 0)
        return -1;
    if (w->d->gated &&
        w->ops->swiglu_backward(w->q, w->type, s->dpre, dact, a->pre,
                                w->shape->N, w->d->ffn) < 0)
        return -1;
    if (phase & PLAIT_PHASE_WEIGHT &&
        plait_linear_weight(w, &b->down, b->down_bias, dout, a->act) < 0)
        return -1;
    return column_backward(w, &b->up, b->up_bias, s->dpre, a->n2, phase, dn2);
}

/* The same of experts, whose weight gradients are never put off: keeping
 * their rows would cost more than it wins. */
static int sparse_backward(const struct plait_work *w,
                           const struct plait_block *b,
                           const struct plait_activations *a, const void *dout,
                           void **dn2)
{
    struct plait_request *req;
    const void *full;

    if (plait_experts_backward(w, b, a, dout) < 0 ||
        reduce(w, dn2, &req) < 0 || spread(w, a->n2, &full) < 0 ||
        plait_experts_router_weight(w, b, full) < 0)
        return -1;
    return plait_comm_wait(&req, w->q);
}

static int mlp_backward(const struct plait_work *w,
                        const struct plait_block *b,
                        const struct plait_activations *a,
                        const struct plait_stash *s, void *dx,
                        enum plait_phase phase)
{
    const void *dout;
    void *dn2;
    int rc;

    if (keep(w, s->ddown, dx, phase) < 0 || spread(w, dx, &dout) < 0)
        return -1;
    if (w->d->experts)
        rc = sparse_backward(w, b, a, dout, &dn2);
    else
        rc = dense_backward(w, b, a, s, dout, phase, &dn2);
    if (rc < 0)
        return -1;
    return plait_norm_backward(w, b->region, b->norm2, b->norm2_bias, dx, dn2,
                               a->x2, a->mean2, a->rstd2, true);
}

static int attention_backward(const struct plait_work *w,
                              const struct plait_block *b,
                              const struct plait_activations *a,
                              const struct plait_stash *s, void *dx,
                              enum plait_phase phase)
{
    void *datt = w->scratch->datt, *dn1;
    const void *dout;

    if (keep(w, s->dout, dx, phase) < 0 || spread(w, dx, &dout) < 0 ||
        plait_linear_input(w, &b->out, PLAIT_ACT_NONE, NULL, datt, dout,
                           w->shape->N) < 0)
        return -1;
    if (phase & PLAIT_PHASE_WEIGHT &&
        plait_linear_weight(w, &b->out, b->out_bias, dout, a->att) < 0)
        return -1;
    if (plait_attention_backward(w, a, s->dqkv, datt) < 0 ||
        column_backward(w, &b->qkv, b->qkv_bias, s->dqkv, a->n1, phase,
                        &dn1) < 0)
        return -1;
    return plait_norm_backward(w, b->region, b->norm1, b->norm1_bias, dx, dn1,
                               a->x1, a->mean1, a->rstd1, true);
}

int plait_layer_backward(const struct plait_work *w,
                         const struct plait_block *b,
                         const struct plait_activations *a,
                         const struct plait_stash *stash, void *dx,
                         enum plait_phase phase)
{
    if (plait_layer_recompute(w, b, a) < 0 ||
        mlp_backward(w, b, a, stash, dx, phase) < 0)
        return -1;
    return attention_backward(w, b, a, stash, dx, phase);
}

static int mlp_backward_weight(const struct plait_work *w,
                               const struct plait_block *b,
                               const struct plait_activations *a,
                               const struct plait_stash *s)
{
    const void *full;

    if (w->d->experts)
        return 0; /* not put off */
    if (spread(w, s->ddown, &full) < 0 ||
        plait_linear_weight(w, &b->down, b->down_bias, full, a->act) < 0 ||
        spread(w, a->n2, &full) < 0)
        return -1;
    return plait_linear_weight(w, &b->up, b->up_bias, s->dpre, full);
}

int plait_layer_backward_weight(const struct plait_work *w,
                                const struct plait_block *b,
                                const struct plait_activations *a,
                                const struct plait_stash *s)
{
    const void *full;

    if (plait_layer_recompute(w, b, a) < 0 ||
        mlp_backward_weight(w, b, a, s) < 0 ||
        spread(w, s->dout, &full) < 0 ||
        plait_linear_weight(w, &b->out, b->out_bias, full, a->att) < 0 ||
        spread(w, a->n1, &full) < 0)
        return -1;
    return plait_linear_weight(w, &b->qkv, b->qkv_bias, s->dqkv, full);
}
