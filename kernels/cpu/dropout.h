/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CPU_DROPOUT_H
#define PLAIT_KERNELS_CPU_DROPOUT_H

#include "kernels/cpu/vec.h"
#include "kernels/dropout.h"

/* A row of dropout and what follows from its rate. */
struct drop_row {
    struct plait_drop_row row;
    uint32_t threshold;
    float scale;
};

INLINE struct drop_row drop_row(float rate, struct plait_drop_row row)
{
    return (struct drop_row){row, plait_drop_threshold(rate),
                             plait_drop_scale(rate)};
}

/* Drops from x, the columns from `column` on: plait_drop_word() of each. */
INLINE vec vec_drop(struct drop_row r, uint32_t column, vec x)
{
    uvec word;

    for (uint32_t i = 0; i < VLEN; i++)
        word[i] = i;
    word += r.row.a + column;
    word = (word ^ word >> 16) * 0x85ebca6bu + r.row.b;
    word = (word ^ word >> 13) * 0xc2b2ae35u;
    word ^= word >> 16;
    return x * vec_select((ivec)(word >= r.threshold), vec_set(r.scale),
                          vec_set(0));
}

#endif
