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

/* plait_drop_word() of the columns from `column` on. */
INLINE uvec vec_drop_word(struct plait_drop_row row, uint32_t column)
{
    uvec word;

    for (uint32_t i = 0; i < VLEN; i++)
        word[i] = i;
    word += row.a + column;
    word = (word ^ word >> 16) * 0x85ebca6bu + row.b;
    word = (word ^ word >> 13) * 0xc2b2ae35u;
    return word ^ word >> 16;
}

/* Drops from x, the columns from `column` on. */
INLINE vec vec_drop(struct drop_row r, uint32_t column, vec x)
{
    uvec word = vec_drop_word(r.row, column);

    return x * vec_select((ivec)(word >= r.threshold), vec_set(r.scale),
                          vec_set(0));
}

#endif
