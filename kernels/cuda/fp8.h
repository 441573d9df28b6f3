/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CUDA_FP8_H
#define PLAIT_KERNELS_CUDA_FP8_H

#include <stdbool.h>

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* data [rows, cols] of bf16, and where its codes go: [rows, cols], and turned
 * [cols, rows], each side padded with zeros. NULL: they are not wanted. */
struct fp8_tensor {
    const void *data;
    size_t rows, cols;
    bool e4m3; /* else e5m2 */
    unsigned char *codes, *turned;
    float *inverse;       /* device: what codes must be multiplied by */
    const unsigned *amax; /* device: the largest magnitude, as bits of an fp32;
                             NULL: it is still to be found, */
    unsigned *found;      /* and goes here */
};

/* cuBLASLt wants sides of whole 16 bytes. */
static inline size_t fp8_padded(size_t n)
{
    return (n + 15) / 16 * 16;
}

/* The launches of fp8_amax, and of all codes of t. */
void cuda_fp8_amax(struct plait_queue *q, unsigned *amax, const void *data,
                   size_t n);
void cuda_fp8_round(struct plait_queue *q, const struct fp8_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
