/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_SHM_ARITH_H
#define PLAIT_RUNTIME_COMM_SHM_ARITH_H

#include <stddef.h>

#include "runtime/comm/comm.h"

/* Reductions in host memory, of any type unless the name says floats. */

/* Convert n floats of the type to fp32, and back. */
void plait_arith_widen(float *to, const void *from, size_t n,
                       enum plait_dtype type);
void plait_arith_narrow(void *to, const float *from, size_t n,
                        enum plait_dtype type);
/* to[i] = a[i] and b[i] reduced; `to` may be a or b. Sums are made in strips of
 * fixed length, which every compiler vectorizes. */
void plait_arith_reduce_floats(float *to, const float *a, const float *b,
                               size_t n, enum plait_reduce op);
/* to[i] = a[i] and b[i] reduced. 16-bit floats are reduced in fp32, then
 * rounded. `to` may be a or b. */
void plait_arith_reduce(void *to, const void *a, const void *b, size_t n,
                        enum plait_dtype type, enum plait_reduce op);

#endif
