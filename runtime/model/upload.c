/* SPDX-License-Identifier: Apache-2.0 */
/* A micro-batch's tokens, and what follows from where they stand, on their way
 * to the device. */
#include <string.h>

#include "runtime/model/internal.h"
#include "topology/job/model_size.h"

/* Copies the `n` tokens from `pos` on of a sequence of `length`, then padding
 * (NULL: repeats the last token). */
static void copy_piece(int32_t *to, const int32_t *sequence, int64_t length,
                       int64_t pos, int n, const int32_t *padding)
{
    int32_t behind = padding ? *padding : sequence[length - 1];

    for (int i = 0; i < n; i++)
        to[i] = pos + i < length ? sequence[pos + i] : behind;
}

/* Copies this rank's tokens to the device, in the order of its rows; host NULL:
 * they are there already. */
static int upload_tokens(const struct plait_work *w, const int32_t *host,
                         int32_t *to, const int32_t *padding)
{
    const struct plait_batch_shape *s = w->shape;
    int32_t *at = w->slot->staged;

    if (!host)
        return 0;
    if (s->pieces == 1)
        return w->ops->to_device(w->q, to, host, s->N * sizeof(*to));
    for (int p = 0; p < s->pieces; p++) {
        int64_t pos = plait_model_piece_pos(w->model, s, p);

        for (int i = 0; i < s->batch; i++, at += s->piece_len)
            copy_piece(at, host + (int64_t)i * s->seq_len, s->seq_len, pos,
                       s->piece_len, padding);
    }
    return w->ops->to_device(w->q, to, w->slot->staged, s->N * sizeof(*to));
}

/* Of `n` rows from position `pos` on: starts become those of their windows. */
static void begin_windows(int32_t *starts, int64_t pos, int n, int reach)
{
    for (int i = 0; i < n; i++)
        if (pos + i + 1 - reach > starts[i])
            starts[i] = (int32_t)(pos + i + 1 - reach);
}

/* The same of runs of tokens that attention stays in, which begin with their
 * document. */
static void begin_chunks(int32_t *starts, int64_t pos, int n, int chunk)
{
    for (int i = 0; i < n; i++)
        starts[i] += (int32_t)((pos + i - starts[i]) / chunk * chunk);
}

/* Whichever the model has. */
static void begin_reach(const struct plait_work *w, int32_t *starts,
                        int64_t pos, int n)
{
    const struct plait_model_config *c = &w->model->config->model;

    if (c->attention_chunk)
        begin_chunks(starts, pos, n, c->attention_chunk);
    else
        begin_windows(starts, pos, n, c->sliding_window);
}

int plait_upload_inputs(const struct plait_work *w,
                        const struct plait_batch *batch)
{
    static const int32_t none = 0;

    return upload_tokens(w, batch->tokens, w->slot->tokens, &none);
}

int plait_upload_targets(const struct plait_work *w,
                         const struct plait_batch *batch)
{
    static const int32_t none = -1;

    return upload_tokens(w, batch->targets, w->slot->targets, &none);
}

/* Padding belongs to the last document. */
int plait_upload_starts(const struct plait_work *w,
                        const struct plait_batch *batch)
{
    return upload_tokens(w, batch->starts, w->slot->starts, NULL);
}

/* Of the tokens from `pos` on of a sequence: what stands one token further, in
 * the same document; behind it is `behind` (NULL: the last token once more).
 * starts NULL: there is one document. */
static void copy_next(int32_t *to, const int32_t *sequence,
                      const int32_t *starts, const struct plait_row_span *at,
                      const int32_t *behind)
{
    int64_t length = (int64_t)at->T;

    for (size_t i = 0; i < at->rows; i++) {
        int64_t next = at->pos + (int64_t)i + 1;
        int64_t last = next < length ? next - 1 : length - 1;
        bool same =
            next < length && (!starts || starts[next] == starts[next - 1]);

        to[i] = same ? sequence[next] : behind ? *behind : sequence[last];
    }
}

static int upload_shifted(const struct plait_work *w, const int32_t *host,
                          const int32_t *starts, int32_t *to,
                          const int32_t *behind)
{
    const struct plait_batch_shape *s = w->shape;
    int32_t *at = w->slot->staged;

    for (int p = 0; p < s->pieces; p++)
        for (int i = 0; i < s->batch; i++, at += s->piece_len) {
            const struct plait_row_span piece = {
                .rows = (size_t)s->piece_len,
                .T = (size_t)s->seq_len,
                .pos = plait_model_piece_pos(w->model, s, p)};
            int64_t first = (int64_t)i * s->seq_len;

            copy_next(at, host + first, starts ? starts + first : NULL, &piece,
                      behind);
        }
    return w->ops->to_device(w->q, to, w->slot->staged, s->N * sizeof(*to));
}

/* A sequence's last row, and a document's, has no target there: what is beyond
 * the sequence is not known, and documents know nothing of each other. It takes
 * its own token for the next: experts choose and count such a row as any other,
 * and the balance loss has a gradient for its embedding, which must be that of
 * a token that the document has. */
int plait_upload_next(const struct plait_work *w,
                      const struct plait_batch *batch)
{
    static const int32_t none = -1;

    if (!w->slot->next_tokens || !batch->tokens)
        return 0;
    if (upload_shifted(w, batch->tokens, batch->starts, w->slot->next_tokens,
                       NULL) < 0)
        return -1;
    return upload_shifted(w, batch->targets, batch->starts,
                          w->slot->next_targets, &none);
}

/* Of the tokens added to texts. */
static int upload_text_windows(const struct plait_work *w)
{
    int32_t *at = w->slot->staged;

    memset(at, 0, w->shape->N * sizeof(*at));
    for (int i = 0; i < w->added->n; i++) {
        const struct plait_addition *add = &w->added->add[i];

        begin_reach(w, at, add->first, add->count);
        at += add->count;
    }
    return w->ops->to_device(w->q, w->slot->windows, w->slot->staged,
                             w->shape->N * sizeof(*at));
}

/* Where each row's window or chunk begins, which is in no other document than
 * the row. batch->tokens NULL: it is there already. */
int plait_upload_windows(const struct plait_work *w,
                         const struct plait_batch *batch)
{
    const struct plait_batch_shape *s = w->shape;
    int32_t *at = w->slot->staged;

    if (!w->slot->windows || !batch->tokens)
        return 0;
    if (w->added)
        return upload_text_windows(w);
    memset(at, 0, s->N * sizeof(*at));
    for (int p = 0; p < s->pieces; p++) {
        int64_t pos = plait_model_piece_pos(w->model, s, p);

        for (int i = 0; i < s->batch; i++, at += s->piece_len) {
            if (batch->starts)
                copy_piece(at, batch->starts + (int64_t)i * s->seq_len,
                           s->seq_len, pos, s->piece_len, NULL);
            begin_reach(w, at, pos, s->piece_len);
        }
    }
    return w->ops->to_device(w->q, w->slot->windows, w->slot->staged,
                             s->N * sizeof(*at));
}

const int32_t *plait_first_keys(const struct plait_work *w, size_t row)
{
    const struct plait_model_config *c = &w->model->config->model;

    if (plait_model_windowed(c, w->layer) || plait_model_chunked(c, w->layer))
        return w->slot->windows + row;
    return plait_starts_at(w, row);
}
