/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_MOMENTS_H
#define PLAIT_KERNELS_MOMENTS_H

#include "kernels/kernels.h"

/* Moments of gradients; all arrays are fp32. */

struct plait_average {
    size_t n;
    float scale;    /* of x */
    float weight;   /* of the new value */
    const float *x; /* in [n] */
    float *y;       /* [n]: the average so far; in and out */
};

struct plait_divide_root {
    size_t n;
    float scale;
    float least;    /* a smaller v counts as this */
    float eps;      /* is added to the root */
    const float *v; /* in [n] */
    float *x;       /* [n]: in and out */
};

/* n elements of a matrix of C columns, from its element `first` on, and the
 * matrix's factors (Adafactor). */
struct plait_factors {
    size_t first, n, C;
    float scale, eps;  /* factor_divide */
    const float *mean; /* factor_divide in [1]: of rows */
    float *rows;       /* [the matrix's rows]: factor_sums +=, factor_divide
                        * in */
    float *cols;       /* [C]: likewise */
    float *x;          /* [n]: factor_sums in, factor_divide in and out */
};

/* The factor of the gradients for clipping. */
struct plait_clip {
    const double *sum_squares; /* in: of the gradients before they are
                                * multiplied by `factor` */
    double factor;
    double clip;  /* bounds the norm after that; 0: no bound */
    float *norm;  /* out */
    float *scale; /* out: the factor, NaN if the norm is not finite */
};

#endif
