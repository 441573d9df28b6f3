/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_FINITE_H
#define PLAIT_RUNTIME_CHECKPOINT_FINITE_H

#include <stddef.h>

#include "topology/base/error.h"

/* A state that is not finite is neither saved nor loaded: every number computed
 * from it would not be finite either. */

/* The first of x[n] that is not finite; n: none. */
size_t plait_finite_first_bad(const float *x, size_t n);

/* x[n] are elements `first` and on of `name`. -1 with EDOM names the first that
 * is not finite. */
int plait_finite_check(const char *name, size_t first, const float *x, size_t n,
                       struct plait_error *err);

#endif
