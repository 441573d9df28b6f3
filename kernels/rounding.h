/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_ROUNDING_H
#define PLAIT_KERNELS_ROUNDING_H

#include "kernels/dropout.h"
#include "kernels/kernels.h"

/* The random bits by which an update rounds to bf16: a function of a seed, of
 * the tensor, and of the element's row and column in the whole of it, so that
 * they are the same wherever the tensor is cut. They are made as those of
 * dropout are: a Philox block for each row, and a cheaper function of the
 * column. */

/* What the words of a row's columns are made of. */
struct plait_rounding_row {
    struct plait_drop_row states, weights;
};

/* row: in the shard. */
PLAIT_RANDOM_INLINE struct plait_rounding_row
plait_rounding_row(uint64_t seed, const struct plait_origin *o, size_t row)
{
    struct plait_rounding_row r;
    uint32_t x[4];

    plait_philox(seed, o->row + row, o->tensor, x);
    r.states.a = x[0];
    r.states.b = x[1];
    r.weights.a = x[2];
    r.weights.b = x[3];
    return r;
}

/* Of one element: `states` has a half for each of two states, the low one for
 * s0; of `weight` the low half is used. */
struct plait_rounding_words {
    uint32_t states, weight;
};

/* column: in the shard. */
PLAIT_RANDOM_INLINE struct plait_rounding_words
plait_rounding_words(const struct plait_rounding_row *r,
                     const struct plait_origin *o, size_t column)
{
    struct plait_rounding_words words;

    words.states = plait_drop_word(r->states, (uint32_t)(o->column + column));
    words.weight = plait_drop_word(r->weights, (uint32_t)(o->column + column));
    return words;
}

/* The words of element i of a run. */
PLAIT_RANDOM_INLINE struct plait_rounding_words
plait_rounding_words_of(uint64_t seed, const struct plait_origin *o, size_t i)
{
    size_t at = o->first + i;
    struct plait_rounding_row row =
        plait_rounding_row(seed, o, at / o->columns);

    return plait_rounding_words(&row, o, at % o->columns);
}

#endif
