/* SPDX-License-Identifier: Apache-2.0 */
/* A layer's weight gradients that ZB-H1 has put off. */
#include "runtime/model/operand.h"

/* A deferred weight gradient: dout^T . inp. One of the two (`rows`) is complete
 * here; the other is in the stream and is gathered first. */
struct deferred_gradient {
    const struct plait_matrix *matrix;
    size_t bias;
    struct plait_operand stream, rows;
    bool column; /* the stream is inp; else it is dout */
};

/* Each stream is gathered while the previous product is computed, alternating
 * between two buffers. */
static int run_deferred(const struct plait_work *w,
                        const struct deferred_gradient *p, int n)
{
    struct plait_request *req[2][PLAIT_TP_CHUNKS_MOST];
    void *to[2] = {w->scratch->full, w->scratch->part};
    const void *full[2];

    if (plait_tp_all_gather(&w->tp, p[0].stream.x, to[0], w->stream, &full[0],
                            req[0]) < 0)
        return -1;
    for (int i = 0; i < n; i++) {
        struct plait_operand stream = {.amax = p[i].stream.amax};

        if (plait_tp_wait(&w->tp, req[i % 2]) < 0 ||
            (i + 1 < n &&
             plait_tp_all_gather(&w->tp, p[i + 1].stream.x, to[(i + 1) % 2],
                                 w->stream, &full[(i + 1) % 2],
                                 req[(i + 1) % 2]) < 0))
            return -1;
        stream.x = full[i % 2];
        if (plait_linear_weight(w, p[i].matrix, p[i].bias,
                                p[i].column ? &p[i].rows : &stream,
                                p[i].column ? &stream : &p[i].rows) < 0)
            return -1;
    }
    return 0;
}

int plait_layer_backward_weight(const struct plait_work *w,
                                const struct plait_block *b,
                                const struct plait_activations *a,
                                const struct plait_stash *s)
{
    const struct deferred_gradient all[] = {
        {&b->down,
         b->down_bias,
         {.x = s->ddown},
         plait_operand_at(w, a, PLAIT_AMAX_ACT),
         false},
        {&b->up,
         b->up_bias,
         plait_operand_at(w, a, PLAIT_AMAX_N2),
         {.x = s->dpre},
         true},
        {&b->out,
         b->out_bias,
         {.x = s->dout},
         plait_operand_at(w, a, PLAIT_AMAX_ATT),
         false},
        {&b->qkv,
         b->qkv_bias,
         plait_operand_at(w, a, PLAIT_AMAX_N1),
         {.x = s->dqkv},
         true},
    };
    /* experts defer nothing, latent attention neither */
    int first = b->experts ? 2 : 0, end = w->d->latent ? 2 : 4;

    if (first == end)
        return 0;
    if (plait_layer_again(w, b, a, PLAIT_HALF_WEIGHT) < 0)
        return -1;
    return run_deferred(w, all + first, end - first);
}
