/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CPU_ROWS_PRODUCT_H
#define PLAIT_KERNELS_CPU_ROWS_PRODUCT_H

/* A product of rows and a weight, a linear layer's forward or the gradient of
 * its input: what it computes, and what follows the product while a block of it
 * is in L1. The vectors' kernel and the tiles' have this in common. */
#include "kernels/cpu/gelu.h"
#include "kernels/linear.h"

struct rows_product {
    enum plait_dtype type;
    size_t M, N, K;
    const void *a, *b;
    size_t lda;               /* values from row to row of a */
    int transposed;           /* b is [N,K], not [K,N] */
    const void *bias, *slope; /* multiply by gelu'(slope[i]) */
    void *dst, *pre;
    int gelu, accumulate;
    int prefetch; /* the operands: the next rows of a, the next panels of b */
    size_t rows;  /* per task */
    size_t cols;  /* per task, where that varies */
};

static inline struct rows_product forward_product(const struct plait_linear *l)
{
    const struct plait_weight *w = l->w;

    return (struct rows_product){.type = w->type,
                                 .M = l->N,
                                 .N = w->O,
                                 .K = w->C,
                                 .a = l->inp.x,
                                 .b = w->data,
                                 .transposed = 1,
                                 .bias = l->bias,
                                 .dst = l->out,
                                 .pre = l->pre,
                                 .gelu = l->act == PLAIT_ACT_GELU};
}

static inline struct rows_product
input_product(const struct plait_linear_dinp *l)
{
    const struct plait_weight *w = l->w;

    return (struct rows_product){.type = w->type,
                                 .M = l->N,
                                 .N = w->C,
                                 .K = w->O,
                                 .a = l->dout.x,
                                 .b = w->data,
                                 .dst = l->dinp,
                                 .slope =
                                     l->act == PLAIT_ACT_GELU ? l->pre : NULL,
                                 .accumulate = l->accumulate};
}

/* Rows i .. and columns j .. of the result. */
struct piece {
    size_t i, rows, j, cols;
};

/* What follows the product. */
enum { GELU = 1, SLOPE = 2, ADD = 4 };

/* Finishes a piece, which is summed over all of k: its rows are `wide` values
 * apart, whole vectors. `what` is a constant in all callers. */
INLINE void finish_as(enum plait_dtype type, int what,
                      const struct rows_product *p, const float *sum,
                      size_t wide, struct piece x)
{
    for (size_t c = 0; c < x.cols; c += VLEN) {
        size_t n = min(VLEN, x.cols - c), to = x.i * p->N + x.j + c;
        vec bias = {0};

        if (p->bias != NULL)
            bias = vec_load(type, p->bias, x.j + c, n);
        for (size_t r = 0; r < x.rows; r++, to += p->N) {
            vec y = vec_load(PLAIT_F32, sum, r * wide + c, VLEN) + bias;

            if (what & GELU && p->pre != NULL)
                vec_store(type, p->pre, to, n, y);
            if (what & GELU)
                y = gelu_of(type, y);
            if (what & SLOPE)
                y *= gelu_slope_of(type, vec_load(type, p->slope, to, n));
            if (what & ADD)
                y += vec_load(type, p->dst, to, n);
            vec_store(type, p->dst, to, n, y);
        }
    }
}

INLINE void finish(enum plait_dtype type, const struct rows_product *p,
                   const float *sum, size_t wide, struct piece x)
{
    if (p->gelu)
        finish_as(type, GELU, p, sum, wide, x);
    else if (p->slope != NULL && p->accumulate)
        finish_as(type, SLOPE | ADD, p, sum, wide, x);
    else if (p->slope != NULL)
        finish_as(type, SLOPE, p, sum, wide, x);
    else if (p->accumulate)
        finish_as(type, ADD, p, sum, wide, x);
    else
        finish_as(type, 0, p, sum, wide, x);
}

#endif
