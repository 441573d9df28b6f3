/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout of rows, whose mask each thread makes of the row's key. */
#include "kernels/dropout.h"

#include "kernels/cuda/common.cuh"

static const unsigned threads = 256;

/* What follows from the rate: plait_drop_threshold() and plait_drop_scale(). */
struct drop_rate {
    uint32_t threshold;
    float scale;
};

/* A thread has V columns of a row at a time. */
template <typename T, int V>
static __global__ void dropout_kernel(struct plait_dropout d,
                                      struct drop_rate rate)
{
    size_t groups = d.C / V;

    GRID_LOOP(i, d.N * groups)
    {
        size_t r = i / groups, c = i % groups * V, at = r * d.C + c;
        struct plait_drop_row row = plait_drop_row_of(&d, r);
        float x[V];

        load_values<T, V>(x, (const T *)d.inp + at);
        for (int j = 0; j < V; j++)
            x[j] *= plait_drop_word(row, (uint32_t)(c + j)) < rate.threshold
                        ? 0
                        : rate.scale;
        store_values<T, V>((T *)d.out + at, x);
    }
}

static int dropout(struct plait_queue *q, const struct plait_dropout *d)
{
    struct drop_rate rate = {plait_drop_threshold(d->drops.rate),
                             plait_drop_scale(d->drops.rate)};
    size_t n = d->N * d->C;

    return cuda_launch(q, "dropout", d->type, n, [&](auto zero) {
        typedef decltype(zero) T;
        constexpr int V = pack<T>::n;

        if (d->C % V == 0 && aligned16(d->out) && aligned16(d->inp))
            dropout_kernel<T, V>
                <<<grid_for(q, n / V, threads), threads, 0, q->stream>>>(*d,
                                                                         rate);
        else
            dropout_kernel<T, 1>
                <<<grid_for(q, n, threads), threads, 0, q->stream>>>(*d, rate);
    });
}

void cuda_dropout_ops(struct plait_ops *ops)
{
    ops->dropout = dropout;
}
