/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_OPS_CASES_H
#define PLAIT_TESTS_UNIT_OPS_CASES_H

#include "ops_trial.h"

/* What the cases of all subjects share. The arrays of a case are numbered in
 * the order in which its setup adds them. */

static inline size_t product(const int *shape, int n)
{
    size_t p = 1;

    while (n-- > 0)
        p *= (size_t)*shape++;
    return p;
}

static inline void *real(struct trial *t, size_t n)
{
    return trial_real(t, KIND_T, n, -1, 1);
}

static inline void *real32(struct trial *t, size_t n)
{
    return trial_real(t, KIND_F32, n, -1, 1);
}

#endif
