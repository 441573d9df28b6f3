/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CUDA_FP8_H
#define PLAIT_KERNELS_CUDA_FP8_H

#include <stdbool.h>

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* data [rows, cols] of bf16, and where its codes are stored: [rows, cols], and
 * transposed [cols, rows], each padded with zeros. NULL: not wanted. */
struct fp8_tensor {
    const void *data;
    size_t rows, cols;
    bool e4m3; /* else e5m2 */
    unsigned char *codes, *turned;
    float *inverse;       /* device: the factor that turns codes back into
                           * values */
    const unsigned *amax; /* device: the largest magnitude, as bits of an fp32;
                           * NULL: to be computed */
    unsigned *found;      /* device: where it is then stored */
};

/* cuBLASLt needs sides that are multiples of 16 bytes. */
static inline size_t fp8_padded(size_t n)
{
    return (n + 15) / 16 * 16;
}

/* The kernel launches of fp8_amax, and of all codes of t. */
void cuda_fp8_amax(struct plait_queue *q, unsigned *amax, const void *data,
                   size_t n);
void cuda_fp8_round(struct plait_queue *q, const struct fp8_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
