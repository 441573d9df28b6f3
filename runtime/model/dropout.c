/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout of the stream: of the embedding's output, and of what attention and
 * mlp add. That of attention's probabilities is in kernels/attention.h.
 *
 * What is dropped follows from the seed, the sample's number in the run, the
 * token's position, the place in the model and the column, and from nothing
 * that a layout changes; a backward and a forward that is made again find the
 * same. The seed and the sample's number become a key of each sequence, which
 * goes to the device with the tokens: so a captured graph has no part of it. */
#include "kernels/philox.h"
#include "runtime/model/operand.h"
#include "topology/base/hash.h"

/* The places of a layer; of the embedding, whose layer is -1, BRANCH. Attention
 * takes a number for each head from PROBABILITIES on. */
enum { BRANCH, BRANCH_OF_MLP, PROBABILITIES };

static struct plait_drops drops_at(const struct plait_work *w, int place,
                                   double rate)
{
    return (struct plait_drops){
        .keys = rate > 0 && w->slot->drops ? w->slot->keys : NULL,
        .place = (uint64_t)(w->layer + 1) << 32 | (uint64_t)place,
        .rate = (float)rate};
}

int plait_upload_keys(const struct plait_work *w,
                      const struct plait_batch *batch)
{
    uint64_t *keys = w->slot->keys_here;
    uint64_t name = plait_hash_text(PLAIT_HASH_START, "dropout");
    uint32_t x[4];

    if (!w->slot->keys || !batch->tokens)
        return 0;
    for (int i = 0; i < batch->batch; i++) {
        plait_philox(w->model->config->train.seed,
                     (uint64_t)(batch->sample + i), name, x);
        keys[i] = (uint64_t)x[1] << 32 | x[0];
    }
    return w->ops->to_device(w->q, w->slot->keys, keys,
                             (size_t)batch->batch * sizeof(*keys));
}

struct plait_drops plait_attention_drops(const struct plait_work *w)
{
    struct plait_drops drops =
        drops_at(w, PROBABILITIES, w->model->config->model.attention_dropout);

    drops.place += (uint64_t)w->d->tp_rank * w->d->heads;
    return drops;
}

/* Rows of the stream at consecutive rows of all tp ranks' stream, where the
 * first is row `row`; here it is row `at`. Cut where a piece ends. */
static int drop_run(const struct plait_work *w, struct plait_dropout d,
                    size_t row, size_t at, size_t rows)
{
    const struct plait_batch_shape *s = w->shape;
    size_t piece = (size_t)s->batch * s->piece_len;
    char *out = d.out;
    const char *inp = d.inp;

    for (size_t end = row + rows; row < end; row += d.N, at += d.N) {
        size_t i = row / piece, room = (i + 1) * piece - row;
        size_t bytes = at * d.C * plait_dtype_size(w->type);

        d.out = out + bytes;
        d.inp = inp + bytes;
        d.N = end - row < room ? end - row : room;
        d.first = row - i * piece;
        d.pos0 = plait_model_piece_pos(w->model, s, (int)i);
        if (w->ops->dropout(w->q, &d) < 0)
            return -1;
    }
    return 0;
}

/* out = dropout of inp, all rows of the stream that are here: those of
 * runtime/mesh/tensor_parallel.h. */
static int drop_stream(const struct plait_work *w,
                       const struct plait_drops *drops, void *out,
                       const void *inp)
{
    struct plait_dropout d = {.type = w->type,
                              .drops = *drops,
                              .out = out,
                              .inp = inp,
                              .C = w->d->hidden,
                              .T = w->shape->piece_len};
    size_t here = w->shape->n / w->tp.chunks, all = w->shape->N / w->tp.chunks;

    if (!w->tp.sequence)
        return drop_run(w, d, 0, 0, w->shape->N);
    for (int i = 0; i < w->tp.chunks; i++)
        if (drop_run(w, d, i * all + w->d->tp_rank * here, i * here, here) < 0)
            return -1;
    return 0;
}

/* Of the embedding, and of half 1 or 2 of a layer. */
static struct plait_drops stream_drops(const struct plait_work *w, int half)
{
    return drops_at(w, half == 2 ? BRANCH_OF_MLP : BRANCH,
                    w->model->config->model.dropout);
}

int plait_drop_forward(const struct plait_work *w, int half, void *x)
{
    struct plait_drops drops = stream_drops(w, half);

    return drops.keys ? drop_stream(w, &drops, x, x) : 0;
}

int plait_drop_backward(const struct plait_work *w, int half, const void *dx,
                        const void **dout)
{
    struct plait_drops drops = stream_drops(w, half);
    void *dropped = w->scratch->dropped;

    *dout = dx;
    if (!drops.keys)
        return 0;
    *dout = dropped;
    if (drop_stream(w, &drops, dropped, dx) < 0)
        return -1;
    return plait_amax_find(w, plait_gradient_amax(w), dropped,
                           w->shape->n * w->d->hidden);
}
