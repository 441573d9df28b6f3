/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <omp.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

/* fp8 emulated as in ref: operands are rounded to values of fp8 times a power
 * of two, which bf16 holds exactly, and multiplied in bf16. */

/* The largest magnitude of x [n], as the bits of an fp32. */
static uint32_t largest(struct plait_queue *q, const uint16_t *x, size_t n)
{
    uint16_t most = 0;

#pragma omp parallel num_threads(cpu_threads(q, n)) reduction(max : most)
    {
        size_t from, to;

        cpu_span(n, omp_get_num_threads(), omp_get_thread_num(), &from, &to);
        for (size_t i = from; i < to; i++) {
            uint16_t magnitude = x[i] & 0x7fff;

            most = magnitude > most ? magnitude : most;
        }
    }
    return (uint32_t)most << 16;
}

int CPU_NAME(cpu_fp8_amax)(struct plait_queue *q, uint32_t *amax, const void *x,
                           size_t n)
{
    if (amax != NULL)
        *amax = largest(q, x, n);
    return 0;
}

/* The value of plait_fp8_of_f32(x), for |x| <= the largest number, or NaN. For
 * subnormals, adding 1.5 2^23 units rounds to whole units. */
INLINE vec fp8_rounded(vec x, enum plait_fp8 format)
{
    int m = format;
    const vec half = vec_set(
        1.5f * plait_f32_of_bits(
                   (uint32_t)(128 - plait_fp8_bias(format) - m + 23) << 23));
    vec normal = vec_set(
        plait_f32_of_bits((uint32_t)(128 - plait_fp8_bias(format)) << 23));
    uvec u = (uvec)x, magnitude = u & 0x7fffffff;
    uvec near = u + ((UINT32_C(1) << (22 - m)) - 1) + (u >> (23 - m) & 1);
    vec whole = (vec)(near & ~((UINT32_C(1) << (23 - m)) - 1));

    whole = vec_select((vec)magnitude < normal, (x + half) - half, whole);
    return vec_select(x != x, x, whole);
}

INLINE void round_span(enum plait_fp8 format, uint16_t *to, const uint16_t *x,
                       float scale, size_t i, size_t end)
{
    for (; i < end; i += VLEN) {
        size_t n = end - i < VLEN ? end - i : VLEN;
        vec v = vec_load(PLAIT_BF16_T, x, i, n) * scale;

        v = fp8_rounded(v, format) * (1 / scale);
        vec_store(PLAIT_BF16_T, to, i, n, v);
    }
}

/* to [n] = the operand, rounded to fp8. */
static void rounded(struct plait_queue *q, enum plait_fp8 format, uint16_t *to,
                    const struct plait_operand *operand, size_t n)
{
    const uint16_t *x = operand->x;
    uint32_t amax = operand->amax != NULL ? *operand->amax : largest(q, x, n);
    float scale = plait_fp8_scale(amax, format);

#pragma omp parallel num_threads(cpu_threads(q, n))
    {
        size_t from, end;

        cpu_span(n, omp_get_num_threads(), omp_get_thread_num(), &from, &end);
        if (format == PLAIT_E4M3)
            round_span(PLAIT_E4M3, to, x, scale, from, end);
        else
            round_span(PLAIT_E5M2, to, x, scale, from, end);
    }
}

/* Rounds both operands of a product; -1: the queue has failed. */
static int round_both(struct plait_queue *q, enum plait_fp8 format,
                      uint16_t *to[2], const struct plait_operand *a, size_t na,
                      const struct plait_operand *b, size_t nb)
{
    size_t behind = (na + 31) / 32 * 32;

    to[0] = cpu_scratch(q, CPU_SCRATCH_FP8, (behind + nb) * sizeof(**to));
    if (to[0] == NULL)
        return -1;
    to[1] = to[0] + behind;
    rounded(q, format, to[0], a, na);
    rounded(q, PLAIT_E4M3, to[1], b, nb);
    return 0;
}

static int fp8_forward(struct plait_queue *q, void *out, void *pre,
                       const struct plait_operand *inp, struct plait_weight *w,
                       const void *bias, enum plait_activation act, size_t N)
{
    const struct plait_operand weight = {.x = w->data};
    struct plait_weight r = *w;
    uint16_t *to[2];

    assert(w->type == PLAIT_BF16_T);
    if (round_both(q, PLAIT_E4M3, to, inp, N * w->C, &weight, w->O * w->C) < 0)
        return -1;
    r.data = to[1];
    return plait_ops_cpu()->linear_forward(q, out, pre, to[0], &r, bias, act,
                                           N);
}

static int fp8_backward_input(struct plait_queue *q, void *dinp,
                              const struct plait_operand *dout,
                              struct plait_weight *w, enum plait_activation act,
                              const void *pre, int accumulate, size_t N)
{
    const struct plait_operand weight = {.x = w->data};
    struct plait_weight r = *w;
    uint16_t *to[2];

    assert(w->type == PLAIT_BF16_T);
    if (round_both(q, PLAIT_E5M2, to, dout, N * w->O, &weight, w->O * w->C) < 0)
        return -1;
    r.data = to[1];
    return plait_ops_cpu()->linear_backward_input(q, dinp, to[0], &r, act, pre,
                                                  accumulate, N);
}

static int fp8_backward_weight(struct plait_queue *q, enum plait_dtype type,
                               float *dw, float *dbias,
                               const struct plait_operand *dout,
                               const struct plait_operand *inp, int accumulate,
                               size_t N, size_t O, size_t C)
{
    const struct plait_ops *ops = plait_ops_cpu();
    uint16_t *to[2];

    assert(type == PLAIT_BF16_T);
    if (round_both(q, PLAIT_E5M2, to, dout, N * O, inp, N * C) < 0 ||
        ops->linear_backward_weight(q, type, dw, NULL, to[0], to[1], accumulate,
                                    N, O, C) < 0)
        return -1;
    if (dbias != NULL && !accumulate)
        memset(dbias, 0, O * sizeof(*dbias));
    return dbias == NULL ? 0
                         : ops->bias_backward(q, type, dbias, dout->x, N, O);
}

void CPU_NAME(cpu_fill_fp8)(struct plait_ops *ops)
{
    ops->fp8_forward = fp8_forward;
    ops->fp8_backward_input = fp8_backward_input;
    ops->fp8_backward_weight = fp8_backward_weight;
    ops->fp8_amax = CPU_NAME(cpu_fp8_amax);
}
