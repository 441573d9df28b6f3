/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_GRADIENTS_H
#define PLAIT_TESTS_UNIT_GRADIENTS_H

/* What the checks of gradients against differences of the forward share. */

#include <stdbool.h>

#include "kernels/dropout.h"
#include "kernels/dtype.h"
#include "kernels/kernels.h"

#define INPUTS_MOST 4
#define FLOATS_MOST 4096

/* The loss is the sum of out * r through the forward op; backward() fills dx[]
 * of each input with dout = r. */
struct check {
    const char *name;
    size_t inputs[INPUTS_MOST]; /* elements of each input, 0: none */
    size_t outputs;
    void (*forward)(float *out);
    void (*backward)(void);
    int shape[8]; /* the last: so many times as large inputs; 0: as drawn */
};

extern const struct plait_ops *ops;
extern struct plait_device *dev;
extern struct plait_queue *q;
extern const int *s; /* shape of the current check */
/* memory that host and device can both access */
extern float (*x)[FLOATS_MOST], (*dx)[FLOATS_MOST], (*stat)[FLOATS_MOST];
extern float *r, *y;
extern uint64_t *keys; /* of sequences */
extern int32_t *tokens;

/* For n numbers, until the end; exits with 99 where there are none. */
void *reserve(size_t bytes);

/* Waits, before the host accesses memory that an op uses. */
void settle(void);

/* A number from -1 to 1. */
float uniform(void);

/* Draws inputs for each check, and compares all gradients of each. */
void run_checks(const struct check *checks, size_t n);

/* How many of the n gradients in dx[1] are not the differences of x[0], but for
 * `slack`; x, r and s are set. */
size_t count_wrong(const struct check *c, size_t n, double slack);

/* ok() of tap.h, which counts in one file alone. */
void __attribute__((format(printf, 2, 3)))
report(bool pass, const char *fmt, ...);

/* The checks of each file. */
void check_layers(void);
void check_norms(void);
void check_tokens(void);
void check_attention(void);
void check_routes(void);

#endif
