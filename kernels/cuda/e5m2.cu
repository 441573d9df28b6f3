/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers to and from codes of e5m2. */
#include <cuda_fp8.h>

#include "kernels/cuda/common.cuh"

static const unsigned threads = 256;

static __global__ void encode_kernel(struct plait_e5m2 c)
{
    GRID_LOOP(i, c.n)
    {
        float x = c.x[i];

        c.codes[i] = __nv_cvt_float_to_fp8(
            isfinite(x) ? c.s * x : __uint_as_float(0x7fc00000), __NV_SATFINITE,
            __NV_E5M2);
    }
}

/* A code is the upper half of an fp16 number. */
static __global__ void decode_kernel(struct plait_e5m2 c, float inverse)
{
    GRID_LOOP(i, c.n)
    {
        unsigned short bits = (unsigned short)(c.codes[i] << 8);
        float x = __half2float(__ushort_as_half(bits)) * inverse;

        c.x[i] = c.accumulate ? c.x[i] + x : x;
    }
}

static int encode(struct plait_queue *q, const struct plait_e5m2 *c)
{
    if (cuda_enter(q) != 0)
        return -1;
    if (c->n > 0)
        encode_kernel<<<grid_for(q, c->n, threads), threads, 0, q->stream>>>(
            *c);
    return cuda_leave(q, "e5m2_encode");
}

static int decode(struct plait_queue *q, const struct plait_e5m2 *c)
{
    if (cuda_enter(q) != 0)
        return -1;
    if (c->n > 0)
        decode_kernel<<<grid_for(q, c->n, threads), threads, 0, q->stream>>>(
            *c, 1 / c->s);
    return cuda_leave(q, "e5m2_decode");
}

void cuda_e5m2_ops(struct plait_ops *ops)
{
    ops->e5m2_encode = encode;
    ops->e5m2_decode = decode;
}
