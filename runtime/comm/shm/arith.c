/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/comm/shm/arith.h"

#include <stdint.h>
#include <string.h>

#include "kernels/dtype.h"

/* Elements that are reduced at once: their fp32 copies fit in the L1 cache. */
#define BLOCK 2048
#define STRIP 16

void plait_arith_widen(float *to, const void *from, size_t n,
                       enum plait_dtype type)
{
    const uint16_t *h = from;

    switch (type) {
    case PLAIT_BF16_T:
        for (size_t i = 0; i < n; i++)
            to[i] = plait_f32_of_bf16(h[i]);
        break;
    case PLAIT_FP16_T:
        for (size_t i = 0; i < n; i++)
            to[i] = plait_f32_of_fp16(h[i]);
        break;
    default:
        memcpy(to, from, n * sizeof(*to));
    }
}

void plait_arith_narrow(void *to, const float *from, size_t n,
                        enum plait_dtype type)
{
    uint16_t *h = to;

    switch (type) {
    case PLAIT_BF16_T:
        for (size_t i = 0; i < n; i++)
            h[i] = plait_bf16_of_f32(from[i]);
        break;
    case PLAIT_FP16_T:
        for (size_t i = 0; i < n; i++)
            h[i] = plait_fp16_of_f32(from[i]);
        break;
    default:
        memcpy(to, from, n * sizeof(*from));
    }
}

void plait_arith_reduce_floats(float *to, const float *a, const float *b,
                               size_t n, enum plait_reduce op)
{
    size_t strips = op == PLAIT_SUM ? n / STRIP * STRIP : 0;

    for (size_t i = 0; i < strips; i += STRIP) {
        float sum[STRIP];

        for (size_t k = 0; k < STRIP; k++)
            sum[k] = a[i + k] + b[i + k];
        memcpy(to + i, sum, sizeof(sum));
    }
    if (op == PLAIT_SUM)
        for (size_t i = strips; i < n; i++)
            to[i] = a[i] + b[i];
    else
        for (size_t i = 0; i < n; i++)
            to[i] = b[i] > a[i] ? b[i] : a[i];
}

static void reduce_ints(int32_t *to, const int32_t *a, const int32_t *b,
                        size_t n, enum plait_reduce op)
{
    for (size_t i = 0; i < n; i++)
        if (op == PLAIT_SUM)
            to[i] = (int32_t)((uint32_t)a[i] + (uint32_t)b[i]);
        else
            to[i] = a[i] > b[i] ? a[i] : b[i];
}

static void reduce_doubles(double *to, const double *a, const double *b,
                           size_t n, enum plait_reduce op)
{
    for (size_t i = 0; i < n; i++)
        if (op == PLAIT_SUM)
            to[i] = a[i] + b[i];
        else
            to[i] = a[i] > b[i] ? a[i] : b[i];
}

void plait_arith_reduce(void *to, const void *a, const void *b, size_t n,
                        enum plait_dtype type, enum plait_reduce op)
{
    size_t size = plait_dtype_size(type), k;
    float x[BLOCK], y[BLOCK];

    if (type == PLAIT_I32) {
        reduce_ints(to, a, b, n, op);
        return;
    }
    if (type == PLAIT_F64) {
        reduce_doubles(to, a, b, n, op);
        return;
    }
    if (type == PLAIT_F32) {
        plait_arith_reduce_floats(to, a, b, n, op);
        return;
    }
    for (size_t i = 0; i < n; i += k) {
        k = n - i < BLOCK ? n - i : BLOCK;
        plait_arith_widen(x, (const char *)a + i * size, k, type);
        plait_arith_widen(y, (const char *)b + i * size, k, type);
        plait_arith_reduce_floats(x, x, y, k, op);
        plait_arith_narrow((char *)to + i * size, x, k, type);
    }
}
