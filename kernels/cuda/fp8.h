/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CUDA_FP8_H
#define PLAIT_KERNELS_CUDA_FP8_H

#include <stdbool.h>

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An operand: data [rows, cols] of bf16, and where its codes go, [rows, cols]
 * or with `transpose` [cols, rows], each side padded with zeros. */
struct fp8_tensor {
    const void *data;
    size_t rows, cols;
    bool e4m3; /* else e5m2 */
    bool transpose;
    bool kept; /* codes and inverse are there, made before */
    unsigned char *codes;
    float *inverse; /* device: what codes must be multiplied by */
    unsigned *amax; /* device: the largest magnitude, as bits of an fp32 */
};

/* cuBLASLt wants sides of whole 16 bytes. */
static inline size_t fp8_padded(size_t n)
{
    return (n + 15) / 16 * 16;
}

void cuda_fp8_round(struct plait_queue *q, const struct fp8_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
