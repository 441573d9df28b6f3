/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/dropout.h"

#include <omp.h>

#include "kernels/cpu/cpu.h"

INLINE void drop_columns(enum plait_dtype type, const struct plait_dropout *d,
                         size_t r)
{
    struct drop_row row = drop_row(d->drops.rate, plait_drop_row_of(d, r));

    for (size_t c = 0; c < d->C; c += VLEN) {
        size_t n = min(VLEN, d->C - c), at = r * d->C + c;

        vec_store(type, d->out, at, n,
                  vec_drop(row, (uint32_t)c, vec_load(type, d->inp, at, n)));
    }
}

static int dropout(struct plait_queue *q, const struct plait_dropout *d)
{
    int threads = cpu_threads(q, d->N * d->C);

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t r = 0; r < d->N; r++) {
        if (d->type == PLAIT_F32)
            drop_columns(PLAIT_F32, d, r);
        else if (d->type == PLAIT_BF16_T)
            drop_columns(PLAIT_BF16_T, d, r);
        else
            drop_columns(PLAIT_FP16_T, d, r);
    }
    return 0;
}

void CPU_NAME(cpu_fill_dropout)(struct plait_ops *ops)
{
    ops->dropout = dropout;
}
