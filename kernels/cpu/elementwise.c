/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <omp.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gelu.h"
#include "kernels/cpu/vec.h"

/* One vector of an elementwise op; `n` lanes of it count. */
enum elementwise { OP_ADD, OP_ADD_SCALED, OP_SCALE, OP_GELU, OP_GELU_BACKWARD };

INLINE void one_vector(enum elementwise op, enum plait_dtype type, void *out,
                       const void *a, const void *b, float s, size_t i,
                       size_t n)
{
    vec x = vec_load(type, a, i, n);

    switch (op) {
    case OP_ADD:
        x = x + vec_load(type, b, i, n);
        break;
    case OP_ADD_SCALED:
        x = x + vec_load(type, b, i, n) * s;
        break;
    case OP_SCALE:
        x = x * s;
        break;
    case OP_GELU:
        x = gelu_of(type, x);
        break;
    case OP_GELU_BACKWARD:
        x = x * vec_gelu_slope(vec_load(type, b, i, n));
        break;
    }
    vec_store(type, out, i, n, x);
}

INLINE void vector_span(enum elementwise op, enum plait_dtype type, void *out,
                        const void *a, const void *b, float s, size_t from,
                        size_t to)
{
    size_t i = from;

    for (; i + VLEN <= to; i += VLEN)
        one_vector(op, type, out, a, b, s, i, VLEN);
    if (i < to)
        one_vector(op, type, out, a, b, s, i, to - i);
}

INLINE int elementwise(struct plait_queue *q, enum elementwise op,
                       enum plait_dtype type, void *out, const void *a,
                       const void *b, float s, size_t n)
{
#pragma omp parallel num_threads(cpu_threads(q, n))
    {
        size_t from, to;

        cpu_span(n, omp_get_num_threads(), omp_get_thread_num(), &from, &to);
        if (type == PLAIT_F32)
            vector_span(op, PLAIT_F32, out, a, b, s, from, to);
        else if (type == PLAIT_BF16_T)
            vector_span(op, PLAIT_BF16_T, out, a, b, s, from, to);
        else
            vector_span(op, PLAIT_FP16_T, out, a, b, s, from, to);
    }
    return 0;
}

static int add(struct plait_queue *q, enum plait_dtype type, void *out,
               const void *a, const void *b, size_t n)
{
    return elementwise(q, OP_ADD, type, out, a, b, 0, n);
}

static int add_scaled(struct plait_queue *q, enum plait_dtype type, void *out,
                      const void *a, const void *b, float s, size_t n)
{
    return elementwise(q, OP_ADD_SCALED, type, out, a, b, s, n);
}

static int scale(struct plait_queue *q, enum plait_dtype type, void *x, float s,
                 size_t n)
{
    return elementwise(q, OP_SCALE, type, x, x, NULL, s, n);
}

static int gelu_forward(struct plait_queue *q, enum plait_dtype type, void *out,
                        const void *inp, size_t n)
{
    return elementwise(q, OP_GELU, type, out, inp, NULL, 0, n);
}

static int gelu_backward(struct plait_queue *q, enum plait_dtype type,
                         void *dinp, const void *dout, const void *inp,
                         size_t n)
{
    return elementwise(q, OP_GELU_BACKWARD, type, dinp, dout, inp, 0, n);
}

INLINE void cast_span(enum plait_dtype to, void *dst, enum plait_dtype from,
                      const void *src, size_t i, size_t end)
{
    for (; i + VLEN <= end; i += VLEN)
        vec_store(to, dst, i, VLEN, vec_load(from, src, i, VLEN));
    if (i < end)
        vec_store(to, dst, i, end - i, vec_load(from, src, i, end - i));
}

INLINE void cast_from(enum plait_dtype to, void *dst, enum plait_dtype from,
                      const void *src, size_t i, size_t end)
{
    if (from == PLAIT_F32)
        cast_span(to, dst, PLAIT_F32, src, i, end);
    else if (from == PLAIT_BF16_T)
        cast_span(to, dst, PLAIT_BF16_T, src, i, end);
    else
        cast_span(to, dst, PLAIT_FP16_T, src, i, end);
}

static int cast(struct plait_queue *q, enum plait_dtype to, void *dst,
                enum plait_dtype from, const void *src, size_t n)
{
    assert(to != PLAIT_I32 && from != PLAIT_I32);
#pragma omp parallel num_threads(cpu_threads(q, n))
    {
        size_t i, end;

        cpu_span(n, omp_get_num_threads(), omp_get_thread_num(), &i, &end);
        if (to == PLAIT_F32)
            cast_from(PLAIT_F32, dst, from, src, i, end);
        else if (to == PLAIT_BF16_T)
            cast_from(PLAIT_BF16_T, dst, from, src, i, end);
        else
            cast_from(PLAIT_FP16_T, dst, from, src, i, end);
    }
    return 0;
}

/* -- rows -------------------------------------------------------------- */

#define COLUMNS 512 /* columns whose fp32 sums fit L1 */

/* Sums columns from .. from + n - 1 of all rows, in row order, so that the
 * result does not depend on the number of threads. */
INLINE void column_sums(enum plait_dtype type, float *dbias, const void *dout,
                        size_t N, size_t O, size_t from, size_t n)
{
    float sums[COLUMNS] = {0};

    for (size_t i = 0; i < N; i++)
        for (size_t o = 0; o < n; o += VLEN) {
            size_t lanes = n - o < VLEN ? n - o : VLEN;

            vec_store(PLAIT_F32, sums, o, VLEN,
                      vec_load(PLAIT_F32, sums, o, VLEN) +
                          vec_load(type, dout, i * O + from + o, lanes));
        }
    for (size_t o = 0; o < n; o++)
        dbias[from + o] += sums[o];
}

static int bias_backward(struct plait_queue *q, enum plait_dtype type,
                         float *dbias, const void *dout, size_t N, size_t O)
{
    size_t width = O / (size_t)q->dev->threads / 64 * 64;
    int threads = cpu_threads(q, N * O);

    if (width > COLUMNS)
        width = COLUMNS;
    if (width < 64)
        width = 64;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t from = 0; from < O; from += width) {
        size_t n = O - from < width ? O - from : width;

        if (type == PLAIT_F32)
            column_sums(PLAIT_F32, dbias, dout, N, O, from, n);
        else if (type == PLAIT_BF16_T)
            column_sums(PLAIT_BF16_T, dbias, dout, N, O, from, n);
        else
            column_sums(PLAIT_FP16_T, dbias, dout, N, O, from, n);
    }
    return 0;
}

INLINE void swiglu_forward_row(enum plait_dtype type, void *out,
                               const void *inp, size_t i, size_t F)
{
    for (size_t f = 0; f < F; f += VLEN) {
        size_t n = F - f < VLEN ? F - f : VLEN;
        vec gate = vec_load(type, inp, i * 2 * F + f, n);
        vec up = vec_load(type, inp, i * 2 * F + F + f, n);

        vec_store(type, out, i * F + f, n, gate * vec_sigmoid(gate) * up);
    }
}

INLINE void swiglu_backward_row(enum plait_dtype type, void *dinp,
                                const void *dout, const void *inp, size_t i,
                                size_t F)
{
    for (size_t f = 0; f < F; f += VLEN) {
        size_t n = F - f < VLEN ? F - f : VLEN, at = i * 2 * F + f;
        vec gate = vec_load(type, inp, at, n);
        vec up = vec_load(type, inp, at + F, n);
        vec d = vec_load(type, dout, i * F + f, n);
        vec s = vec_sigmoid(gate);

        vec_store(type, dinp, at, n, d * up * s * (1.0f + gate * (1.0f - s)));
        vec_store(type, dinp, at + F, n, d * gate * s);
    }
}

static int swiglu_forward(struct plait_queue *q, enum plait_dtype type,
                          void *out, const void *inp, size_t N, size_t F,
                          uint32_t *amax)
{
    int threads = cpu_threads(q, N * F);

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < N; i++) {
        if (type == PLAIT_F32)
            swiglu_forward_row(PLAIT_F32, out, inp, i, F);
        else if (type == PLAIT_BF16_T)
            swiglu_forward_row(PLAIT_BF16_T, out, inp, i, F);
        else
            swiglu_forward_row(PLAIT_FP16_T, out, inp, i, F);
    }
    return CPU_NAME(cpu_fp8_amax)(q, amax, out, N * F);
}

static int swiglu_backward(struct plait_queue *q, enum plait_dtype type,
                           void *dinp, const void *dout, const void *inp,
                           size_t N, size_t F, uint32_t *amax)
{
    int threads = cpu_threads(q, N * F);

#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < N; i++) {
        if (type == PLAIT_F32)
            swiglu_backward_row(PLAIT_F32, dinp, dout, inp, i, F);
        else if (type == PLAIT_BF16_T)
            swiglu_backward_row(PLAIT_BF16_T, dinp, dout, inp, i, F);
        else
            swiglu_backward_row(PLAIT_FP16_T, dinp, dout, inp, i, F);
    }
    return CPU_NAME(cpu_fp8_amax)(q, amax, dinp, 2 * N * F);
}

/* -- moving ------------------------------------------------------------ */

static int copy(struct plait_queue *q, void *dst, const void *src, size_t bytes)
{
    char *to = dst;
    const char *from = src;

    if (bytes == 0 || dst == src)
        return 0;
#pragma omp parallel num_threads(cpu_threads(q, bytes / 4))
    {
        size_t i, end;

        cpu_span(bytes, omp_get_num_threads(), omp_get_thread_num(), &i, &end);
        memcpy(to + i, from + i, end - i);
    }
    return 0;
}

static int fill_zero(struct plait_queue *q, void *dst, size_t bytes)
{
    char *to = dst;

    if (bytes == 0)
        return 0;
#pragma omp parallel num_threads(cpu_threads(q, bytes / 4))
    {
        size_t i, end;

        cpu_span(bytes, omp_get_num_threads(), omp_get_thread_num(), &i, &end);
        memset(to + i, 0, end - i);
    }
    return 0;
}

static int copy_2d(struct plait_queue *q, enum plait_dtype type, void *dst,
                   size_t dst_stride, const void *src, size_t src_stride,
                   size_t rows, size_t cols)
{
    size_t size = plait_dtype_size(type);
    const char *from = src;
    char *to = dst;
    int threads = cpu_threads(q, rows * cols);

    assert(dst_stride >= cols && src_stride >= cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < rows; i++)
        memcpy(to + i * dst_stride * size, from + i * src_stride * size,
               cols * size);
    return 0;
}

void CPU_NAME(cpu_fill_elementwise)(struct plait_ops *ops)
{
    ops->add = add;
    ops->add_scaled = add_scaled;
    ops->scale = scale;
    ops->cast = cast;
    ops->gelu_forward = gelu_forward;
    ops->gelu_backward = gelu_backward;
    ops->swiglu_forward = swiglu_forward;
    ops->swiglu_backward = swiglu_backward;
    ops->bias_backward = bias_backward;
    ops->copy = copy;
    ops->copy_2d = copy_2d;
    ops->to_device = copy;
    ops->to_host = copy;
    ops->copy_out = copy;
    ops->copy_in = copy;
    ops->fill_zero = fill_zero;
}
