/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_LINEAR_H
#define PLAIT_KERNELS_LINEAR_H

#include "kernels/kernels.h"

/* The three products of a linear layer with the weight w [O,C], as they are
 * (linear_*), for grouped rows (grouped_*), and in fp8 (fp8_*). T is the
 * weight's type. Only the products in fp8 read more of an operand than its
 * x. */

/* The layer's output; act() may follow. */
struct plait_linear {
    size_t N;                 /* rows; grouped products take plait_groups' */
    struct plait_operand inp; /* in [N,C] of T */
    struct plait_weight *w;   /* in [O,C] */
    const void *bias;         /* in [O] of T; NULL: none */
    enum plait_activation act;
    void *pre; /* out [N,O] of T: the argument of the activation; NULL: not
                * wanted. Not used without an activation. */
    void *out; /* out [N,O] of T */
};

/* The gradient of its input. */
struct plait_linear_dinp {
    size_t N;                  /* as above */
    struct plait_operand dout; /* in [N,O] of T */
    struct plait_weight *w;    /* in [O,C] */
    enum plait_activation act; /* the one through which the input came */
    const void *pre;           /* in [N,C] of T: the argument of act; NULL: the
                                * input came through none */
    void *dinp;                /* out [N,C] of T; or += */
    int accumulate;            /* dinp is added to; not by grouped products */
};

/* The gradient of its weight and bias. Does not need the weight itself, so that
 * a schedule may defer it. */
struct plait_linear_dw {
    enum plait_dtype type;     /* T, of dout and inp */
    size_t N, O, C;            /* N: as above */
    struct plait_operand dout; /* in [N,O] */
    struct plait_operand inp;  /* in [N,C] */
    float *dw;                 /* out [O,C]; or += */
    float *dbias;              /* out [O]; or +=; NULL: not wanted */
    int accumulate; /* dw and dbias are added to. Without it the old values are
                     * not read, and N 0 gives zeros. */
};

/* The codes of a gradient in fp8, for the products that take it. */
struct plait_fp8_gradient {
    size_t N, O;
    struct plait_operand dout; /* in [N,O] of bf16 */
    void *codes;               /* out, plait_fp8_bytes(N, O) of device memory */
};

#endif
