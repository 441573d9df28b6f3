/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_ROUTE_H
#define PLAIT_KERNELS_ROUTE_H

#include <stdbool.h>

#include "kernels/kernels.h"

/* Which k of E experts work on each of N tokens, and with which weights. Tokens
 * are in runs of `run`, each of one sequence: token i belongs to sequence i /
 * run % sequences. */
struct plait_route {
    enum plait_dtype type; /* T, of logits and dlogits */
    size_t N;
    int E, k;
    size_t run; /* N is divisible by it */
    int sequences;
    float *prob;     /* [N,E]: route_forward out, route_backward in */
    int32_t *expert; /* [N,k]: route_forward out, the others in */
    float *gate;     /* [N,k]: route_forward out, route_backward in; route_limit
                      * sets some to 0 */
    /* The weights of a token's experts are its scores of them, as shares of
     * their sum or as they are, times a factor. Scores are the softmax of the
     * logits or, with a bias, the sigmoid of each, as DeepSeek-V2 and V3 have
     * it (arXiv 2405.04434, 2412.19437). A NaN among a token's scores makes all
     * of its weights NaN, whoever is chosen. */
    const float *bias; /* in [E]: added to the scores that experts are chosen
                        * by, and to no others; NULL: softmax */
    int groups;        /* 2 to 64 equal runs of two or more experts, */
    int top_groups;    /* of which only the best are chosen from: those with the
                        * best expert or, with a bias, with the largest sums of
                        * their two best; groups 0 and 1: from all */
    int whole;         /* 1: weights are the scores as they are */
    float scale;       /* factor of the weights */
    bool each;         /* without a bias: the weights are instead the sigmoids
                        * of the chosen logits, each for itself (Llama 4);
                        * scores are the softmax, for the balance loss alone */
};

/* Added to sums of sigmoids, which may be 0, as the package transformers
 * does. */
#define PLAIT_ROUTE_TINY 1e-20

struct plait_route_gradient {
    void *dlogits;       /* out [N,E] of T */
    const float *dgate;  /* in [N,k] */
    const float *load;   /* in [sequences,E], of route_load */
    float balance;       /* factor of the balance loss's gradient; 0: none */
    const float *factor; /* in: multiplies balance. In device memory, so that a
                          * recorded backward can be run with another one; NULL:
                          * 1 */
};

struct plait_route_limit {
    int32_t *kept;       /* out [N,k] */
    const float *before; /* in [N/run,E]: how often tokens of the same sequence
                          * before each run chose each expert; NULL: never */
    int most;            /* choices of an expert in a sequence */
};

struct plait_route_sort {
    size_t n; /* choices, fewer than 2^31 */
    int E;
    const int32_t *expert; /* in [n], from 0 to E-1 */
    int32_t *place;        /* out [n]: the new position of each choice */
    int32_t *count;        /* out [E]: how often each expert was chosen */
};

/* Rows of C values: a row for each of N tokens, and a row for each of its k
 * choices, in the order of the experts. */
struct plait_rows {
    enum plait_dtype type; /* T, of x, rows, out and dout */
    size_t N;
    int k;
    size_t C;
    const int32_t *place; /* in [N,k]: the row of each choice */
    const float *gate;    /* rows_spread, rows_join in [N,k]; NULL: 1 */
    const void *x;        /* rows_spread in [N,C] */
    const void *rows;     /* rows_join, rows_dot in [., C] */
    const void *dout;     /* rows_dot in [N,C] */
    void *out;            /* out: rows_spread [., C], rows_join [N,C] */
    int accumulate;       /* rows_join: out is added to */
    float *dgate;         /* rows_dot out [N,k] */
};

#endif
