/* SPDX-License-Identifier: Apache-2.0 */
/* Token and position embedding, and rotary positions. */
#include <math.h>

#include "kernels/ref/ref.h"
#include "kernels/rope.h"

/* The position of row i within its document. */
static int64_t position(const struct plait_positions *at, size_t i)
{
    return at->pos0 + (int64_t)(i % at->T) -
           (at->starts != NULL ? at->starts[i] : 0);
}

int ref_embedding_forward(struct plait_queue *q,
                          const struct plait_embedding_forward *e)
{
    size_t C = e->C;

    (void)q;
    for (size_t i = 0; i < e->N; i++) {
        int64_t row = (int64_t)e->tokens[i] - e->first;
        size_t pos = (size_t)position(&e->at, i);

        for (size_t c = 0; c < C; c++) {
            double x = 0;

            if (row >= 0 && row < e->count)
                x = ref_get(e->type, e->wte, (size_t)row * C + c);
            if (e->wpe != NULL)
                x += ref_get(e->type, e->wpe, pos * C + c);
            ref_put(e->type, e->out, i * C + c, x);
        }
    }
    return 0;
}

int ref_embedding_backward(struct plait_queue *q,
                           const struct plait_embedding_backward *e)
{
    size_t C = e->C;

    (void)q;
    for (size_t i = 0; i < e->N; i++) {
        int64_t row = (int64_t)e->tokens[i] - e->first;
        size_t pos = (size_t)position(&e->at, i);

        for (size_t c = 0; c < C; c++) {
            float d = (float)ref_get(e->type, e->dout, i * C + c);

            if (e->dwte != NULL && row >= 0 && row < e->count)
                e->dwte[(size_t)row * C + c] += d;
            if (e->dwpe != NULL)
                e->dwpe[pos * C + c] += d;
        }
    }
    return 0;
}

/* Su et al., "RoFormer", with Llama's half-split layout of the pairs. */
int ref_rope(struct plait_queue *q, const struct plait_rope *r)
{
    int columns = plait_rope_columns(r);
    size_t half = (size_t)columns / 2;
    double size = plait_rope_size(&r->angles);

    (void)q;
    assert(columns % 2 == 0);
    for (size_t i = 0; i < r->N; i++) {
        double pos = (double)position(&r->at, i);

        for (size_t j = 0; j < (size_t)r->heads * half; j++) {
            size_t d = j % half;
            size_t at = i * r->stride + j / half * (size_t)r->head_dim + d;
            double angle =
                r->direction * pos * plait_rope_step(&r->angles, d, columns);
            double a = size * ref_get(r->type, r->x, at);
            double b = size * ref_get(r->type, r->x, at + half);

            ref_put(r->type, r->x, at, a * cos(angle) - b * sin(angle));
            ref_put(r->type, r->x, at + half, a * sin(angle) + b * cos(angle));
        }
    }
    return 0;
}

int ref_temper(struct plait_queue *q, const struct plait_temper *t)
{
    (void)q;
    for (size_t i = 0; i < t->N; i++) {
        double reach = floor((double)(position(&t->at, i) + 1) / t->floor);
        double by = 1 + t->scale * log1p(reach);

        for (size_t c = 0; c < t->C; c++) {
            size_t at = i * t->stride + c;

            ref_put(t->type, t->x, at, by * ref_get(t->type, t->x, at));
        }
    }
    return 0;
}
