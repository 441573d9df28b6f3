/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_GPU_BENCH_GPU_H
#define PLAIT_TESTS_GPU_BENCH_GPU_H

#include "kernels/kernels.h"

#define BUFFERS 6
#define ROUNDS 7 /* at most */
#define GROUPS 128

struct bench_shape;

struct bench {
    const struct plait_ops *ops;
    struct plait_device *dev;
    struct plait_queue *q;
    struct plait_event *from, *to;
    struct plait_weight *weight;
    char *x[BUFFERS]; /* bf16 values in [-1, 1) */
    float *f[4];      /* fp32 values of the same range */
    int32_t *tokens;
    int32_t *counts;                   /* [GROUPS] rows of each expert */
    const struct bench_shape *counted; /* the shape that they belong to */
    double *sum;
    double bytes, flops; /* of one run: bytes moved, operations computed */
    size_t size;         /* of a buffer, bytes */
    size_t tokens_below; /* vocabulary */
    int rounds;          /* timed rounds */
    double round_s;
};

struct bench_shape {
    size_t N, C, O;                   /* rows, columns, columns out */
    int batch, T, heads, kv_heads, D; /* batch: of experts, how many */
};

/* Queues one run and says in b->bytes or b->flops what it has to do; 0 or -1
 * with the queue failed. */
typedef int bench_op(struct bench *b, const struct bench_shape *s);

struct bench_row {
    const char *name;
    bench_op *fn;
    struct bench_shape s;
};

/* The ceilings: a copy of whole buffers, a product. */
int bench_run_copy(struct bench *b, const struct bench_shape *s);
int bench_run_linear(struct bench *b, const struct bench_shape *s);

/* Ends at the first without a function. */
extern const struct bench_row bench_rows[];

#endif
