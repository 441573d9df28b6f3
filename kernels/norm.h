/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_NORM_H
#define PLAIT_KERNELS_NORM_H

#include <stdbool.h>
#include <stddef.h>

/* The shared memory of a block of a norm's backward on GPUs: for each row that
 * it has at a time the sums of the gradients of gamma and, but of an RMSNorm,
 * beta. topology/job/fits_gpu.c says the same of one row before a run;
 * tests/unit/test_fits_gpu.c compares them. */
static inline size_t plait_norm_sums_bytes(size_t rows, size_t columns,
                                           bool rms)
{
    return (rms ? 1 : 2) * rows * columns * sizeof(float);
}

/* The kernel's arrays `shared` and `mosts` take less. */
enum { PLAIT_NORM_BYTES_BESIDE = 256 };

#endif
