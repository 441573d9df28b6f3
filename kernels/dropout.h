/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_DROPOUT_H
#define PLAIT_KERNELS_DROPOUT_H

#include "kernels/philox.h"
#include "kernels/types.h"

/* Dropout (Srivastava et al., JMLR 2014): an element is multiplied by 0 with
 * probability `rate`, and by 1 / (1 - rate) otherwise. No mask is stored:
 * whether an element is kept is a function of the sequence's key, the token's
 * position in the sequence, the place in the model and the column, so that the
 * backward finds it again, and so does a rank that has other rows or columns.
 * The keys lie in device memory: a graph that is run again reads those of its
 * new sequences. */
struct plait_drops {
    const uint64_t *keys; /* [batch], device: one of each sequence, for this
                           * step; NULL: nothing is dropped */
    uint64_t place;       /* a number of its own for each dropout of the model;
                           * the heads of attention take the numbers from
                           * `place` on */
    float rate;           /* at least 0, below 1 */
};

/* out = dropout of inp; its backward is the same of the gradient. Row r is row
 * first + r of sequences of T rows each, whose positions begin at pos0. */
struct plait_dropout {
    enum plait_dtype type;
    struct plait_drops drops;
    void *out;       /* out: [N,C] of T; may be inp */
    const void *inp; /* in: [N,C] of T */
    size_t N, C;
    size_t first, T;
    int64_t pos0;
};

/* What the random words of a row's columns are made of. */
struct plait_drop_row {
    uint32_t a, b;
};

/* The row at position pos of the sequence with this key. */
PLAIT_RANDOM_INLINE struct plait_drop_row
plait_drop_row(uint64_t key, int64_t pos, uint64_t place)
{
    struct plait_drop_row row;
    uint32_t x[4];

    plait_philox(key, (uint64_t)pos, place, x);
    row.a = x[0];
    row.b = x[1];
    return row;
}

/* The row of a plait_dropout's row r. */
PLAIT_RANDOM_INLINE struct plait_drop_row
plait_drop_row_of(const struct plait_dropout *d, size_t r)
{
    size_t at = d->first + r;

    return plait_drop_row(d->drops.keys[at / d->T],
                          d->pos0 + (int64_t)(at % d->T), d->drops.place);
}

/* The random word of a column: a Philox block each would take longer than what
 * is done with it. This is the finalizer of MurmurHash3 (Appleby), a bijection
 * of the column, with the row's second word added between its products.
 * Columns 448 or 576 apart are correlated by 1.4e-3 at a rate of 0.1: far below
 * what a step's gradients notice, but not 0. kernels/cpu/dropout.h has it for
 * vectors. */
PLAIT_RANDOM_INLINE uint32_t plait_drop_word(struct plait_drop_row row,
                                             uint32_t column)
{
    uint32_t x = row.a + column;

    x = (x ^ x >> 16) * 0x85ebca6b + row.b;
    x = (x ^ x >> 13) * 0xc2b2ae35;
    return x ^ x >> 16;
}

/* Elements whose word is below this are dropped. */
PLAIT_RANDOM_INLINE uint32_t plait_drop_threshold(float rate)
{
    return (uint32_t)((double)rate * 4294967296.0);
}

/* What the others are multiplied by. */
PLAIT_RANDOM_INLINE float plait_drop_scale(float rate)
{
    return (float)(1 / (1 - (double)rate));
}

/* 0 or that scale. */
PLAIT_RANDOM_INLINE float plait_drop_factor(const struct plait_drops *d,
                                            struct plait_drop_row row,
                                            uint32_t column)
{
    return plait_drop_word(row, column) < plait_drop_threshold(d->rate)
               ? 0
               : plait_drop_scale(d->rate);
}

#endif
