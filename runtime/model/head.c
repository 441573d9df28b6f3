/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/xent.h"
#include "runtime/model/internal.h"
#include "topology/job/mup.h"

/* Final norm, logits, loss. The logits of all rows would be the largest tensor
 * of a small model. So they are computed for a run of rows at a time, turned
 * into their gradient in place and multiplied into the two gradients that need
 * it, and not kept. */

static void *row_at(const struct plait_work *w, const void *x, size_t i)
{
    return (char *)x + i * w->d->hidden * plait_dtype_size(w->type);
}

static void *logits_at(const struct plait_work *w, size_t row)
{
    return (char *)w->scratch->logits +
           row * w->d->vocab * plait_dtype_size(w->type);
}

/* How many of `rows` rows from `row` on have the same loss scale, *scale: those
 * of one sequence if sequences have weights. */
static size_t rows_alike(const struct plait_work *w, size_t row, size_t rows,
                         float *scale)
{
    const struct plait_batch_shape *s = w->shape;
    size_t left = s->piece_len - row % s->piece_len;

    *scale = w->slot->loss_scale;
    if (!w->slot->weights)
        return rows;
    *scale *= w->slot->weights[row / s->piece_len % s->batch];
    return left < rows ? left : rows;
}

/* The loss and the gradient of x, row by row of the same scale, by one of the
 * two operations for it. */
static int
add_losses(const struct plait_work *w, size_t first, const struct plait_xent *x,
           int (*op)(struct plait_queue *, const struct plait_xent *))
{
    struct plait_xent part = *x;

    for (size_t i = 0; i < x->N; i += part.N) {
        part.N = rows_alike(w, first + i, x->N - i, &part.scale);
        part.logits = logits_at(w, i);
        part.targets = x->targets + i;
        part.max = x->max + i;
        part.sum = x->sum + i;
        part.target = x->target + i;
        if (op(w->q, &part) < 0)
            return -1;
    }
    return 0;
}

/* Adds the loss of `rows` rows from `first` on; turns logits into their
 * gradient. */
static int loss_of_rows(const struct plait_work *w, size_t first, size_t rows,
                        double *loss)
{
    const struct plait_dims *d = w->d;
    struct plait_scratch *s = w->scratch;
    struct plait_xent x = {
        .type = w->type,
        .N = rows,
        .stride = d->vocab,
        .first = d->vocab_first,
        .count = d->vocab_count,
        .logits = s->logits,
        .targets = w->slot->targets + first,
        .max = s->max,
        .sum = s->sum,
        .target = s->sum + rows,
        .cap = (float)w->model->config->model.logit_softcap,
        .loss = loss,
    };

    if (d->tp == 1 && w->ops->xent)
        return add_losses(w, first, &x, w->ops->xent);
    if (w->ops->xent_stats(w->q, &x) < 0)
        return -1;
    if (d->tp > 1) {
        if (plait_comm_all_reduce(
                w->tp.group,
                &(struct plait_buffers){x.max, s->allmax, rows, PLAIT_F32},
                PLAIT_MAX, w->q, NULL) < 0 ||
            w->ops->xent_rescale(w->q, &x, s->allmax) < 0 ||
            plait_comm_all_reduce(
                w->tp.group,
                &(struct plait_buffers){x.sum, x.sum, 2 * rows, PLAIT_F32},
                PLAIT_SUM, w->q, NULL) < 0)
            return -1;
        x.max = s->allmax;
    }
    return add_losses(w, first, &x, w->ops->xent_backward);
}

static int logits_of_rows(const struct plait_work *w,
                          const struct plait_block *b, const void *normed,
                          size_t rows)
{
    struct plait_linear l = {.N = rows,
                             .inp.x = normed,
                             .w = b->vocab.handle,
                             .out = w->scratch->logits};
    double cap = w->model->config->model.logit_softcap;

    if (w->ops->linear_forward(w->q, &l) < 0)
        return -1;
    if (!(cap > 0))
        return 0;
    return w->ops->softcap(w->q,
                           &(struct plait_scale){.type = w->type,
                                                 .x = l.out,
                                                 .s = (float)cap,
                                                 .n = rows * w->d->vocab});
}

/* Transfers of the stream over tp: chunks gathered for the logits, and sums of
 * the gradient, of which the first `sums` have been started. */
struct head_traffic {
    struct plait_request *gather[PLAIT_TP_CHUNKS_MOST];
    struct plait_request *sum[PLAIT_TP_CHUNKS_MOST];
    int sums;
};

/* Waits until the rows before `end` have been gathered. */
static int wait_for_rows(const struct plait_work *w, struct head_traffic *t,
                         size_t end)
{
    size_t chunk = w->shape->N / w->tp.chunks;

    for (int i = 0; i < w->tp.chunks && i * chunk < end; i++)
        if (plait_comm_wait(&t->gather[i], w->q) < 0)
            return -1;
    return 0;
}

/* The gradients of the rows before `end` are complete: starts the sums of their
 * chunks. */
static int sum_rows(const struct plait_work *w, struct head_traffic *t,
                    size_t end)
{
    size_t chunk = w->shape->N / w->tp.chunks;

    for (; t->sums < w->tp.chunks && (t->sums + 1) * chunk <= end; t->sums++)
        if (plait_tp_reduce_chunk(&w->tp, t->sums, w->scratch->part,
                                  w->scratch->local, w->stream,
                                  &t->sum[t->sums]) < 0)
            return -1;
    return 0;
}

/* Backward of the rows from `first` on, whose logits have become their
 * gradient. The sums start before the weight gradient is computed, to overlap
 * with it. */
static int rows_backward(const struct plait_work *w,
                         const struct plait_block *b, const void *normed,
                         struct head_traffic *t, size_t first, size_t rows)
{
    struct plait_linear_dinp l = {.N = rows,
                                  .dout.x = w->scratch->logits,
                                  .w = b->vocab.handle,
                                  .dinp = row_at(w, w->scratch->part, first)};

    if (w->ops->linear_backward_input(w->q, &l) < 0 ||
        sum_rows(w, t, first + rows) < 0)
        return -1;
    return plait_product_weight(w, &b->vocab, 0, w->scratch->logits, normed,
                                rows);
}

/* Logits are scaled by way of what they are a product of. */
static double logit_factor(const struct plait_work *w)
{
    return 1 / plait_mup_logits(&w->model->config->model);
}

static int final_norm(const struct plait_work *w, const struct plait_block *b,
                      const void *x, const void *delta)
{
    size_t bytes = w->shape->n * w->d->hidden * plait_dtype_size(w->type);
    struct plait_scratch *s = w->scratch;
    struct plait_norm_forward norm = {.out = s->hn,
                                      .mean = s->hmean,
                                      .rstd = s->hrstd,
                                      .sum = s->hx,
                                      .inp = delta ? x : s->hx,
                                      .residual = delta};

    /* Backward reads the norm's input from hx, where the norm stores it only if
     * there is a delta. */
    if (!delta && w->ops->copy(w->q, s->hx, x, bytes) < 0)
        return -1;
    return plait_norm_forward(w, b->region, b->norm, b->norm_bias, &norm);
}

/* All rows of the final norm's output, as the logits are a product of it. */
static int gather_normed(const struct plait_work *w, const void **normed,
                         struct head_traffic *t)
{
    struct plait_scratch *s = w->scratch;

    if (plait_scale_stream(w, s->hn, logit_factor(w)) < 0)
        return -1;
    t->sums = 0;
    return plait_tp_all_gather(&w->tp, s->hn, s->full, w->stream, normed,
                               t->gather);
}

/* Whether another module reads the final norm's output. */
static bool has_module(const struct plait_work *w, const struct plait_block *b)
{
    return b->kind == PLAIT_BLOCK_HEAD &&
           w->model->config->model.mtp_layers > 0;
}

/* From the gradient of the norm's output, without that of the module, to that
 * of its input. */
static int norm_backward(const struct plait_work *w,
                         const struct plait_block *b, void *dnormed)
{
    const struct plait_scratch *s = w->scratch;
    const struct plait_add module = {.type = w->type,
                                     .out = dnormed,
                                     .a = dnormed,
                                     .b = s->mtp.dhidden,
                                     .n = w->shape->n * w->d->hidden};

    if (plait_scale_stream(w, dnormed, logit_factor(w)) < 0 ||
        (has_module(w, b) && w->ops->add(w->q, &module) < 0))
        return -1;
    return plait_norm_backward(
        w, b->region, b->norm, b->norm_bias,
        &(struct plait_norm_backward){.dx = w->slot->dhead,
                                      .dout = dnormed,
                                      .x = s->hx,
                                      .mean = s->hmean,
                                      .rstd = s->hrstd});
}

int plait_head_forward(const struct plait_work *w, const struct plait_block *b,
                       const void *x, const void *delta, double *loss,
                       bool train)
{
    struct plait_scratch *s = w->scratch;
    struct head_traffic t;
    const void *normed;

    if (final_norm(w, b, x, delta) < 0 ||
        (train && has_module(w, b) && plait_mtp_train(w, b, s->hn, loss) < 0) ||
        gather_normed(w, &normed, &t) < 0)
        return -1;
    for (size_t i = 0, rows; i < w->shape->N; i += rows) {
        const void *part = row_at(w, normed, i);

        rows = w->shape->N - i;
        if (rows > w->model->state->logit_rows)
            rows = w->model->state->logit_rows;
        if (wait_for_rows(w, &t, i + rows) < 0 ||
            logits_of_rows(w, b, part, rows) < 0 ||
            loss_of_rows(w, i, rows, loss) < 0)
            return -1;
        if (train && rows_backward(w, b, part, &t, i, rows) < 0)
            return -1;
    }
    if (!train)
        return 0;
    if (plait_tp_wait(&w->tp, t.sum) < 0)
        return -1;
    return norm_backward(w, b,
                         plait_tp_reduce_output(&w->tp, s->part, s->local));
}

/* -- the logits themselves ----------------------------------------------------
 */

/* How many rows of logits are computed at once for the host: the buffer also
 * holds those of all ranks, and their fp32 copy. */
static size_t rows_at_once(const struct plait_work *w)
{
    size_t wide = sizeof(float) / plait_dtype_size(w->type);

    return w->model->state->logit_rows / (1 + w->d->tp * (1 + wide));
}

/* Writes the logits of `rows` rows of x, each to its address in logits. */
static int logits_to_host(const struct plait_work *w,
                          const struct plait_block *b, const void *x,
                          size_t rows, float *const *logits)
{
    size_t V = w->d->vocab, n = rows * V, tp = w->d->tp;
    size_t vocab = w->model->config->model.vocab;
    char *local = w->scratch->logits;
    char *all = local + n * plait_dtype_size(w->type);
    float *wide = (float *)(void *)(all + tp * n * plait_dtype_size(w->type));

    if (logits_of_rows(w, b, x, rows) < 0 ||
        plait_comm_all_gather(w->tp.group,
                              &(struct plait_buffers){local, all, n, w->type},
                              w->q, NULL) < 0 ||
        w->ops->cast(w->q, &(struct plait_cast){.to = PLAIT_F32,
                                                .from = w->type,
                                                .dst = wide,
                                                .src = all,
                                                .n = n * tp}) < 0)
        return -1;
    for (size_t r = 0; r < tp && r * V < vocab; r++)
        for (size_t i = 0; i < rows; i++) {
            size_t count = vocab - r * V < V ? vocab - r * V : V;

            if (w->ops->to_host(w->q, logits[i] + r * V,
                                wide + (r * rows + i) * V,
                                count * sizeof(float)) < 0)
                return -1;
        }
    return 0;
}

int plait_head_logits(const struct plait_work *w, const struct plait_block *b,
                      const void *x, const void *delta, float *logits)
{
    size_t bytes = w->d->hidden * plait_dtype_size(w->type), row = 0, n = 0;
    float *to[16];
    size_t most = rows_at_once(w) < 16 ? rows_at_once(w) : 16;
    struct head_traffic t;
    const void *normed;

    if (final_norm(w, b, x, delta) < 0 || gather_normed(w, &normed, &t) < 0 ||
        wait_for_rows(w, &t, w->shape->N) < 0)
        return -1;
    for (int i = 0; i < w->added->n; i++) {
        const struct plait_addition *add = &w->added->add[i];

        row += add->count;
        if (add->wanted) {
            /* hx, the input of the norm, is not needed any more. */
            if (w->ops->copy(w->q, row_at(w, w->scratch->hx, n),
                             row_at(w, normed, row - 1), bytes) < 0)
                return -1;
            to[n++] = logits + i * (size_t)w->model->config->model.vocab;
        }
        if (n == most || (n > 0 && i == w->added->n - 1)) {
            if (logits_to_host(w, b, w->scratch->hx, n, to) < 0)
                return -1;
            n = 0;
        }
    }
    return 0;
}
