/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/internal.h"

/* The vocabulary is split over the tp group: each rank looks up the tokens of
 * its shard, and the sum over the group has all. Every rank has the positions;
 * only the first adds them. */

int plait_embed_forward(const struct plait_work *w, const struct plait_block *b,
                        void *out)
{
    size_t C = w->d->hidden;
    void *part = w->tp.sequence ? w->scratch->part : out, *sum;
    struct plait_embedding_forward e = {
        .type = w->type,
        .wte = plait_weight_at(w, b->vocab.region, b->vocab.offset),
        .first = w->d->vocab_first,
        .count = w->d->vocab_count,
        .C = C};
    struct plait_row_span span;

    if (!w->d->gated && w->d->tp_rank == 0)
        e.wpe = plait_weight_at(w, b->region, b->position);
    for (int i = 0; i < plait_count_spans(w); i++) {
        plait_next_span(w, i, &span);
        e.out = (char *)part + span.first * C * plait_dtype_size(w->type);
        e.tokens = w->slot->tokens + span.first;
        e.at = plait_span_positions(w, &span);
        e.N = span.rows;
        if (w->ops->embedding_forward(w->q, &e) < 0)
            return -1;
    }
    if (plait_tp_reduce(&w->tp, part, out, w->stream, &sum) < 0)
        return -1;
    if (plait_scale_stream(w, sum, plait_embedding_factor(w)) < 0)
        return -1;
    return plait_drop_forward(w, 0, sum);
}

/* Of all rows of the micro-batch, wherever they stand. */
int plait_embed_next(const struct plait_work *w, const struct plait_block *b,
                     void *out)
{
    void *part = w->tp.sequence ? w->scratch->part : out, *sum;
    const struct plait_embedding_forward e = {
        .type = w->type,
        .out = part,
        .tokens = w->slot->next_tokens,
        .wte = plait_weight_at(w, b->table.region, b->table.offset),
        .first = w->d->vocab_first,
        .count = w->d->vocab_count,
        .at = {.T = w->shape->N},
        .N = w->shape->N,
        .C = w->d->hidden};

    if (w->ops->embedding_forward(w->q, &e) < 0 ||
        plait_tp_reduce(&w->tp, part, out, w->stream, &sum) < 0)
        return -1;
    return plait_scale_stream(w, sum, plait_embedding_factor(w));
}

/* The gradient of a tied table is overwritten by the head's product, and then
 * added to. It has to begin at zero where no such product comes any more: the
 * schedule has all forwards first, heads included, and an earlier backward's
 * gradient was reduced and taken away (ZeRO 2 and 3). */
static int begin_table(const struct plait_work *w,
                       const struct plait_matrix *table, float *dwte)
{
    bool *unmade;

    if (table->product < 0)
        return 0;
    unmade = &w->model->state->unmade[table->product];
    if (!*unmade)
        return 0;
    *unmade = false;
    return w->ops->fill_zero(w->q, dwte, table->O * table->C * sizeof(*dwte));
}

int plait_embed_backward(const struct plait_work *w,
                         const struct plait_block *b, void *dx)
{
    const struct plait_batch_shape *s = w->shape;
    size_t rows = (size_t)s->batch * s->piece_len, C = w->d->hidden;
    struct plait_embedding_backward e = {
        .type = w->type,
        .dwte = plait_grad_at(w, b->vocab.region, b->vocab.offset),
        .first = w->d->vocab_first,
        .count = w->d->vocab_count,
        .N = rows,
        .C = C};
    const void *full;

    if (!w->d->gated)
        e.dwpe = plait_grad_at(w, b->region, b->position);
    if (begin_table(w, &b->vocab, e.dwte) < 0 ||
        plait_drop_forward(w, 0, dx) < 0 ||
        plait_scale_stream(w, dx, plait_embedding_factor(w)) < 0 ||
        plait_tp_all_gather(&w->tp, dx, w->scratch->full, w->stream, &full,
                            NULL) < 0)
        return -1;
    for (int p = 0; p < s->pieces; p++) {
        e.tokens = w->slot->tokens + p * rows;
        e.dout = (const char *)full + p * rows * C * plait_dtype_size(w->type);
        e.at = (struct plait_positions){
            .T = s->piece_len,
            .pos0 = plait_model_piece_pos(w->model, s, p),
            .starts = plait_starts_at(w, p * rows)};
        if (w->ops->embedding_backward(w->q, &e) < 0)
            return -1;
    }
    return 0;
}

int plait_embed_next_backward(const struct plait_work *w,
                              const struct plait_block *b, void *dx)
{
    struct plait_embedding_backward e = {
        .type = w->type,
        .dwte = plait_grad_at(w, b->table.region, b->table.offset),
        .tokens = w->slot->next_tokens,
        .first = w->d->vocab_first,
        .count = w->d->vocab_count,
        .at = {.T = w->shape->N},
        .N = w->shape->N,
        .C = w->d->hidden};

    if (begin_table(w, &b->table, e.dwte) < 0 ||
        plait_scale_stream(w, dx, plait_embedding_factor(w)) < 0 ||
        plait_tp_all_gather(&w->tp, dx, w->scratch->full, w->stream, &e.dout,
                            NULL) < 0)
        return -1;
    return w->ops->embedding_backward(w->q, &e);
}
