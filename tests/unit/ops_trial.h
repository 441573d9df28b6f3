/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_OPS_TRIAL_H
#define PLAIT_TESTS_UNIT_OPS_TRIAL_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* Compares implementations of the op table with ref. A trial is a list of
 * arrays with random contents; the op under test runs on a copy of them on each
 * side, and afterwards every array must agree: outputs to rounding, and what
 * follows each array's end unchanged. */

#define TRIAL_ARRAYS 16
#define TRIAL_SIDES 6
#define TRIAL_SHAPES 11
#define TRIAL_SHAPE 10

/* KIND_BF16: compared bit for bit. */
enum trial_kind { KIND_T, KIND_F32, KIND_F64, KIND_I32, KIND_BF16 };

struct trial_array {
    enum trial_kind kind;
    size_t n;   /* elements, without the guard after them */
    void *host; /* the initial contents, guard included */
};

struct trial {
    const struct plait_ops *ref;
    struct plait_queue *ref_queue;
    enum plait_dtype type;
    uint64_t random;  /* state of the generator */
    int gpu;          /* the sides under test are GPUs */
    double tolerance; /* of fp32 results; 0: the usual one */
    /* How many roundings to T the op may make on the way to a result of T,
     * where ref makes one; 0: one. */
    int roundings;
    /* The magnitude of intermediate values that are rounded to T, if larger
     * than the results: of terms that cancel out. 0: not larger. */
    double magnitude;
    int narrays;
    struct trial_array array[TRIAL_ARRAYS];
};

/* One implementation, and its copies of the arrays. */
struct trial_side {
    const struct plait_ops *ops;
    struct plait_device *dev;
    struct plait_queue *q;
    enum plait_dtype type;
    int recording; /* the queue is recording: nothing may wait for it */
    void *p[TRIAL_ARRAYS];
};

struct trial_case {
    const char *name;
    void (*setup)(struct trial *t, const int *shape);
    int (*call)(struct trial_side *s, const int *shape);
    /* ends at the first shape that begins with 0 */
    int shapes[TRIAL_SHAPES][TRIAL_SHAPE];
};

/* By subject; each ends with a NULL name. Cases in fp8 have operands of bf16,
 * those of images fp32. */
extern const struct trial_case trial_moving[], trial_linear[], trial_fp8[],
    trial_layers[], trial_attention[], trial_experts[], trial_moments[],
    trial_optim[], trial_image[];
/* Whether the case waits for a queue, which cannot be recorded in a graph. */
int trial_waits(const struct trial_case *c);

/* Uniform in [low, high). */
double trial_uniform(struct trial *t, double low, double high);

/* Adds an array of uniform values; the result is its host memory. */
void *trial_real(struct trial *t, enum trial_kind kind, size_t n, double low,
                 double high);
/* Whole numbers low .. high - 1. */
int32_t *trial_int(struct trial *t, size_t n, int32_t low, int32_t high);

/* Runs every case in fp32, bf16 and fp16 on each table of a NULL-terminated
 * list of at most TRIAL_SIDES, all for one kind of device, as TAP; the exit
 * status. */
int trial_run_all(const struct plait_ops *const *ops);

#endif
