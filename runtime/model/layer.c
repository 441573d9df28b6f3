/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/experts.h"
#include "runtime/model/hooks.h"
#include "runtime/model/operand.h"

/* One transformer layer: x2 = x + attention(norm(x)); x2 + mlp(norm(x2)), or
 * where norms come after (norms.c) x2 = x + norm(attention(x)). The second sum
 * is computed by the next block's norm, in the same pass over memory. For the
 * buffers see internal.h.
 *
 * Each linear works chunk by chunk (tensor_parallel.h): while one chunk is
 * computed, the next is gathered or the previous one reduced. */

/* Rows of a chunk. */
static size_t chunk_rows(const struct plait_work *w)
{
    return w->shape->N / w->tp.chunks;
}

/* Chunk i of a matrix of all rows with `columns` columns; NULL stays NULL. */
static void *chunk_at(const struct plait_work *w, const void *p, int i,
                      size_t columns)
{
    if (!p)
        return NULL;
    return (char *)p + i * chunk_rows(w) * columns * plait_dtype_size(w->type);
}

/* Gathers all rows of x to `to`, unless this rank has them already. */
static int gather_rows(const struct plait_work *w, const void *x, void *to,
                       const void **full,
                       struct plait_request *req[PLAIT_TP_CHUNKS_MOST])
{
    return plait_tp_all_gather(&w->tp, x, to, w->stream, full, req);
}

/* Starts the reduction of chunk i of scratch->part, which is complete. */
static int reduce_chunk(const struct plait_work *w, int i,
                        struct plait_request **req)
{
    return plait_tp_reduce_chunk(&w->tp, i, w->scratch->part, w->scratch->local,
                                 w->stream, req);
}

static void *reduced_output(const struct plait_work *w)
{
    return plait_tp_reduce_output(&w->tp, w->scratch->part, w->scratch->local);
}

/* Chunk i of an operand of all rows. */
static struct plait_operand chunk_of(const struct plait_work *w,
                                     const struct plait_operand *all, int i,
                                     size_t columns)
{
    return (struct plait_operand){.x = chunk_at(w, all->x, i, columns),
                                  .amax = all->amax,
                                  .codes =
                                      w->tp.chunks == 1 ? all->codes : NULL};
}

/* A column-parallel linear. l->inp: the rows of the stream. */
static int column_linear(const struct plait_work *w,
                         const struct plait_matrix *matrix,
                         const struct plait_linear *l)
{
    struct plait_request *req[PLAIT_TP_CHUNKS_MOST];
    struct plait_linear all = *l, chunk = *l;

    all.N = w->shape->N;
    chunk.N = chunk_rows(w);
    if (gather_rows(w, l->inp.x, w->scratch->full, &all.inp.x, req) < 0)
        return -1;
    if (all.inp.x == l->inp.x) /* has all rows: nothing to wait for */
        return plait_linear_forward(w, matrix, &all);
    for (int i = 0; i < w->tp.chunks; i++) {
        chunk.inp = chunk_of(w, &all.inp, i, matrix->C);
        chunk.pre = chunk_at(w, l->pre, i, matrix->O);
        chunk.out = chunk_at(w, l->out, i, matrix->O);
        if (plait_comm_wait(&req[i], w->q) < 0 ||
            plait_linear_forward(w, matrix, &chunk) < 0)
            return -1;
    }
    return 0;
}

/* A row-parallel linear. Only the first rank adds the bias, because the results
 * of all ranks are summed. */
static int row_linear(const struct plait_work *w,
                      const struct plait_matrix *matrix, size_t bias,
                      const char *what, const struct plait_operand *inp,
                      const void **out)
{
    struct plait_request *req[PLAIT_TP_CHUNKS_MOST];
    struct plait_linear l = {.N = chunk_rows(w)};

    if (matrix->bias && w->d->tp_rank == 0)
        l.bias = plait_weight_at(w, matrix->region, bias);
    for (int i = 0; i < w->tp.chunks; i++) {
        l.inp = chunk_of(w, inp, i, matrix->C);
        l.out = chunk_at(w, w->scratch->part, i, matrix->O);
        if (plait_linear_forward(w, matrix, &l) < 0 ||
            plait_show(w, what, l.out, chunk_rows(w) * matrix->O) < 0 ||
            reduce_chunk(w, i, &req[i]) < 0)
            return -1;
    }
    *out = reduced_output(w);
    return plait_tp_wait(&w->tp, req);
}

static int qkv_forward(const struct plait_work *w, const struct plait_block *b,
                       const struct plait_activations *a)
{
    struct plait_linear l = {.inp = plait_operand_at(w, a, PLAIT_AMAX_N1),
                             .out = a->qkv};

    if (b->qkv.bias)
        l.bias = plait_weight_at(w, b->region, b->qkv_bias);
    if ((w->d->latent ? plait_latent_forward(w, b, a) < 0
                      : column_linear(w, &b->qkv, &l) < 0) ||
        plait_show(w, "q, k and v", a->qkv, w->shape->N * (size_t)w->d->qkv) <
            0 ||
        plait_qk_norm_forward(w, b, a) < 0)
        return -1;
    return plait_attention_place(w, a);
}

static int up_forward(const struct plait_work *w, const struct plait_block *b,
                      const struct plait_activations *a)
{
    struct plait_linear l = {.inp = plait_operand_at(w, a, PLAIT_AMAX_N2)};
    uint32_t *amax = plait_amax_at(w, a, PLAIT_AMAX_ACT);
    const void *full;

    if (b->experts) {
        if (gather_rows(w, a->n2, w->scratch->full, &full, NULL) < 0)
            return -1;
        return plait_shared_forward(w, b, a, full) < 0
                   ? -1
                   : plait_experts_forward(w, b, a, full);
    }
    l.out = w->d->gated ? a->pre : a->act;
    if (b->up.bias)
        l.bias = plait_weight_at(w, b->region, b->up_bias);
    if (w->d->gated)
        return column_linear(w, &b->up, &l) < 0
                   ? -1
                   : plait_swiglu_forward(w, a, w->shape->N, amax);
    l.act = PLAIT_ACT_GELU;
    l.pre = a->pre;
    if (column_linear(w, &b->up, &l) < 0)
        return -1;
    return plait_amax_find(w, amax, a->act, w->shape->N * a->ffn);
}

static int attention_forward(const struct plait_work *w,
                             const struct plait_block *b,
                             const struct plait_activations *a,
                             const void **out)
{
    struct plait_operand att = plait_operand_at(w, a, PLAIT_AMAX_ATT);
    size_t n = w->shape->N * b->out.C;

    if (qkv_forward(w, b, a) < 0 || plait_attention_forward(w, a) < 0 ||
        plait_sinks_forward(w, b, a) < 0 || plait_latent_cut(w, a) < 0 ||
        plait_show(w, "the attention", att.x, n) < 0 ||
        plait_amax_find(w, plait_amax_at(w, a, PLAIT_AMAX_ATT), att.x, n) < 0)
        return -1;
    if (row_linear(w, &b->out, b->out_bias, "the attention's output", &att,
                   out) < 0 ||
        plait_after_forward(w, b, a, 1, out) < 0)
        return -1;
    return plait_drop_forward(w, 1, (void *)*out);
}

/* The forward except for the last linear. */
static int inner_forward(const struct plait_work *w,
                         const struct plait_block *b,
                         const struct plait_activations *a, const void *x,
                         const void *delta)
{
    size_t stream = w->shape->n * w->d->hidden;
    const void *out;

    if (plait_first_norm(w, b, a, x, delta,
                         plait_amax_at(w, a, PLAIT_AMAX_N1)) < 0 ||
        plait_show(w, "the input", a->x1, stream) < 0 ||
        plait_show(w, "the first norm", a->n1, stream) < 0 ||
        attention_forward(w, b, a, &out) < 0 ||
        plait_second_norm(w, b, a, a->x1, out,
                          plait_amax_at(w, a, PLAIT_AMAX_N2)) < 0 ||
        plait_show(w, "the second norm", a->n2, stream) < 0 ||
        up_forward(w, b, a) < 0)
        return -1;
    return b->experts ? 0
                      : plait_show(w, "the mlp's activations", a->act,
                                   w->shape->N * b->down.C);
}

static int mlp_leave(const struct plait_work *w, const struct plait_block *b,
                     const struct plait_activations *a, const void **out)
{
    struct plait_operand act = plait_operand_at(w, a, PLAIT_AMAX_ACT);
    void *sum;

    if (!b->experts)
        return row_linear(w, &b->down, b->down_bias, "the mlp's output", &act,
                          out) < 0
                   ? -1
                   : plait_after_forward(w, b, a, 2, out);
    if (plait_shared_leave(w, b, a, w->scratch->part) < 0 ||
        plait_experts_join(w, a, w->scratch->part) < 0 ||
        plait_show(w, "the output of the experts", w->scratch->part,
                   w->shape->N * w->d->hidden) < 0 ||
        plait_tp_reduce(&w->tp, w->scratch->part, w->scratch->local, w->stream,
                        &sum) < 0)
        return -1;
    *out = sum;
    return 0;
}

int plait_layer_forward(const struct plait_work *w, const struct plait_block *b,
                        const struct plait_activations *a,
                        struct plait_stream *stream)
{
    if (inner_forward(w, b, a, stream->x, stream->delta) < 0 ||
        mlp_leave(w, b, a, &stream->delta) < 0 ||
        plait_drop_forward(w, 2, (void *)stream->delta) < 0)
        return -1;
    stream->x = a->x2;
    return 0;
}

int plait_layer_again(const struct plait_work *w, const struct plait_block *b,
                      const struct plait_activations *a, enum plait_half half)
{
    const void *out;

    if (a->fresh)
        return 0;
    switch (w->model->config->parallel.recompute) {
    case PLAIT_RECOMPUTE_SELECTIVE:
        return plait_layer_cheap_again(w, b, a, half);
    case PLAIT_RECOMPUTE_FULL:
        if (inner_forward(w, b, a, a->x1, NULL) < 0)
            return -1;
        /* what a norm after the mlp has read */
        return w->d->norms_after && half & PLAIT_HALF_INPUT
                   ? mlp_leave(w, b, a, &out)
                   : 0;
    default:
        return 0;
    }
}

/* Backward of a row-parallel linear. *dout becomes dx with all rows; l->dinp is
 * computed chunk by chunk while the next chunk is gathered. */
static int row_backward(const struct plait_work *w,
                        const struct plait_matrix *matrix,
                        const struct plait_linear_dinp *l, const void *dx,
                        struct plait_operand *dout)
{
    struct plait_request *req[PLAIT_TP_CHUNKS_MOST];
    struct plait_linear_dinp all = *l, chunk = *l;

    *dout = (struct plait_operand){.amax = plait_gradient_amax(w)};
    if (gather_rows(w, dx, w->scratch->full, &dout->x, req) < 0)
        return -1;
    all.N = w->shape->N;
    chunk.N = chunk_rows(w);
    if (dout->x == dx) {
        if (plait_operand_round(w, matrix, dout) < 0)
            return -1;
        all.dout = *dout;
        return plait_linear_input(w, matrix, &all);
    }
    for (int i = 0; i < w->tp.chunks; i++) {
        chunk.dout = chunk_of(w, dout, i, matrix->O);
        chunk.pre = chunk_at(w, l->pre, i, matrix->C);
        chunk.dinp = chunk_at(w, l->dinp, i, matrix->C);
        if (plait_comm_wait(&req[i], w->q) < 0 ||
            plait_linear_input(w, matrix, &chunk) < 0)
            return -1;
    }
    return 0;
}

/* Backward of a column-parallel linear. Its input is gathered while the input
 * gradient is computed, and the weight gradient is computed while the input
 * gradient is summed. */
static int column_backward(const struct plait_work *w,
                           const struct plait_matrix *matrix, size_t bias,
                           struct plait_operand *dout,
                           const struct plait_operand *normed,
                           enum plait_half half, void **dnormed)
{
    struct plait_request *gather[PLAIT_TP_CHUNKS_MOST];
    struct plait_request *sum[PLAIT_TP_CHUNKS_MOST];
    struct plait_operand full = *normed;

    if (half & PLAIT_HALF_WEIGHT &&
        gather_rows(w, normed->x, w->scratch->full, &full.x, gather) < 0)
        return -1;
    if (w->tp.chunks == 1 && plait_operand_round(w, matrix, dout) < 0)
        return -1;
    for (int i = 0; i < w->tp.chunks; i++) {
        struct plait_linear_dinp l = {
            .N = chunk_rows(w),
            .dout = chunk_of(w, dout, i, matrix->O),
            .dinp = chunk_at(w, w->scratch->part, i, matrix->C)};

        if (plait_linear_input(w, matrix, &l) < 0 ||
            reduce_chunk(w, i, &sum[i]) < 0)
            return -1;
    }
    if (half & PLAIT_HALF_WEIGHT &&
        (plait_tp_wait(&w->tp, gather) < 0 ||
         plait_linear_weight(w, matrix, bias, dout, &full) < 0))
        return -1;
    *dnormed = reduced_output(w);
    return plait_tp_wait(&w->tp, sum);
}

static int keep_gradient(const struct plait_work *w, void *to, const void *dx,
                         enum plait_half half)
{
    if (half & PLAIT_HALF_WEIGHT)
        return 0;
    return w->ops->copy(w->q, to, dx,
                        w->shape->n * w->d->hidden * plait_dtype_size(w->type));
}

/* From the gradient of the mlp's output to that of its input, summed over
 * tp. */
static int dense_backward(const struct plait_work *w,
                          const struct plait_block *b,
                          const struct plait_activations *a,
                          const struct plait_stash *s, const void *dx,
                          enum plait_half half, void **dn2)
{
    bool gated = w->d->gated;
    uint32_t *amax = plait_amax_of(w, w->scratch->amax + PLAIT_AMAX_DPRE);
    struct plait_operand act = plait_operand_at(w, a, PLAIT_AMAX_ACT);
    struct plait_operand normed = plait_operand_at(w, a, PLAIT_AMAX_N2);
    struct plait_operand dpre = {.x = s->dpre, .amax = gated ? amax : NULL};
    struct plait_linear_dinp down = {
        .act = gated ? PLAIT_ACT_NONE : PLAIT_ACT_GELU,
        .pre = gated ? NULL : a->pre,
        .dinp = gated ? w->scratch->dact : s->dpre};
    struct plait_operand dout;

    if (row_backward(w, &b->down, &down, dx, &dout) < 0)
        return -1;
    if (gated && plait_swiglu_backward(w, a, s->dpre, w->scratch->dact,
                                       w->shape->N, amax) < 0)
        return -1;
    if (half & PLAIT_HALF_WEIGHT &&
        plait_linear_weight(w, &b->down, b->down_bias, &dout, &act) < 0)
        return -1;
    return column_backward(w, &b->up, b->up_bias, &dpre, &normed, half, dn2);
}

/* The same for experts, whose weight gradients are never deferred: the memory
 * for their rows would outweigh the gain. */
static int sparse_backward(const struct plait_work *w,
                           const struct plait_block *b,
                           const struct plait_activations *a, const void *dx,
                           void **dn2)
{
    struct plait_request *req[PLAIT_TP_CHUNKS_MOST];
    const void *full;

    if (gather_rows(w, dx, w->scratch->full, &full, NULL) < 0 ||
        plait_experts_backward(w, b, a, full) < 0 ||
        plait_shared_backward(w, b, a, full) < 0)
        return -1;
    if (plait_experts_scale_input(w) &&
        (gather_rows(w, a->n2, w->scratch->full, &full, NULL) < 0 ||
         plait_experts_input_backward(w, b, a, full) < 0))
        return -1;
    for (int i = 0; i < w->tp.chunks; i++)
        if (reduce_chunk(w, i, &req[i]) < 0)
            return -1;
    if ((!plait_experts_scale_input(w) &&
         gather_rows(w, a->n2, w->scratch->full, &full, NULL) < 0) ||
        plait_experts_router_weight(w, b, full) < 0 ||
        plait_shared_weight(w, b, full) < 0)
        return -1;
    *dn2 = reduced_output(w);
    return plait_tp_wait(&w->tp, req);
}

static int mlp_backward(const struct plait_work *w, const struct plait_block *b,
                        const struct plait_activations *a,
                        const struct plait_stash *s, void *dx,
                        enum plait_half half)
{
    const void *dropped, *dout;
    void *dn2;
    int rc;

    if (plait_drop_backward(w, 2, dx, &dropped) < 0 ||
        plait_after_backward(w, b, a, 2, dropped, &dout) < 0 ||
        (!b->experts && keep_gradient(w, s->ddown, dout, half) < 0))
        return -1;
    if (b->experts)
        rc = sparse_backward(w, b, a, dout, &dn2);
    else
        rc = dense_backward(w, b, a, s, dout, half, &dn2);
    if (rc < 0)
        return -1;
    return plait_before_backward(w, b, a, 2, dx, dn2);
}

static int attention_backward(const struct plait_work *w,
                              const struct plait_block *b,
                              const struct plait_activations *a,
                              const struct plait_stash *s, void *dx,
                              enum plait_half half)
{
    struct plait_operand att = plait_operand_at(w, a, PLAIT_AMAX_ATT);
    struct plait_operand normed = plait_operand_at(w, a, PLAIT_AMAX_N1);
    bool latent = w->d->latent; /* nothing of which is deferred */
    void *datt = w->scratch->datt, *dn1;
    void *fused = latent ? w->scratch->now.dqkv : s->dqkv;
    struct plait_operand dqkv = {.x = fused}, dout;
    struct plait_linear_dinp out = {.dinp = latent ? w->scratch->up : datt};
    const void *dropped, *dhalf;

    if (latent)
        half = PLAIT_HALF_BOTH;
    if (plait_drop_backward(w, 1, dx, &dropped) < 0 ||
        plait_after_backward(w, b, a, 1, dropped, &dhalf) < 0 ||
        keep_gradient(w, s->dout, dhalf, half) < 0 ||
        row_backward(w, &b->out, &out, dhalf, &dout) < 0)
        return -1;
    if (half & PLAIT_HALF_WEIGHT &&
        plait_linear_weight(w, &b->out, b->out_bias, &dout, &att) < 0)
        return -1;
    if (plait_latent_widen(w, datt) < 0 ||
        plait_sinks_backward(w, b, a, datt) < 0 ||
        plait_attention_backward(w, a, fused, datt) < 0 ||
        plait_qk_norm_backward(w, b, a, fused) < 0)
        return -1;
    if (latent ? plait_latent_backward(w, b, a, fused, &dn1) < 0
               : column_backward(w, &b->qkv, b->qkv_bias, &dqkv, &normed, half,
                                 &dn1) < 0)
        return -1;
    return plait_before_backward(w, b, a, 1, dx, dn1);
}

int plait_layer_backward(const struct plait_work *w,
                         const struct plait_block *b,
                         const struct plait_activations *a,
                         const struct plait_stash *stash, void *dx,
                         enum plait_half half)
{
    size_t stream = w->shape->n * w->d->hidden;

    if (plait_show(w, "the gradient of the output", dx, stream) < 0 ||
        plait_layer_again(w, b, a, half) < 0 ||
        mlp_backward(w, b, a, stash, dx, half) < 0 ||
        plait_show(w, "the gradient of the mlp's input", dx, stream) < 0 ||
        attention_backward(w, b, a, stash, dx, half) < 0)
        return -1;
    return plait_show(w, "the gradient of the input", dx, stream);
}
