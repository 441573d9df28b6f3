/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <omp.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"
#include "kernels/linear.h"

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

/* A matrix of n elements. */
struct side {
    struct plait_operand operand;
    size_t n;
};

/* to [n] = the side, rounded to fp8. */
static void rounded(struct plait_queue *q, enum plait_fp8 format, uint16_t *to,
                    struct side side)
{
    const uint16_t *x = side.operand.x;
    const uint32_t *given = side.operand.amax;
    size_t n = side.n;
    uint32_t amax = given != NULL ? *given : largest(q, x, n);
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

/* Rounds both sides of a product, b to e4m3; -1: the queue has failed. */
static int round_both(struct plait_queue *q, uint16_t *to[2],
                      enum plait_fp8 format, struct side a, struct side b)
{
    size_t behind = (a.n + 31) / 32 * 32;

    to[0] = cpu_scratch(q, CPU_SCRATCH_FP8, (behind + b.n) * sizeof(**to));
    if (to[0] == NULL)
        return -1;
    to[1] = to[0] + behind;
    rounded(q, format, to[0], a);
    rounded(q, PLAIT_E4M3, to[1], b);
    return 0;
}

static struct side weight_side(const struct plait_weight *w)
{
    assert(w->type == PLAIT_BF16_T);
    return (struct side){{.x = w->data}, w->O * w->C};
}

static int fp8_forward(struct plait_queue *q, const struct plait_linear *l)
{
    struct plait_weight w = *l->w;
    struct plait_linear r = *l;
    struct side inp = {l->inp, l->N * w.C};
    uint16_t *to[2];

    if (round_both(q, to, PLAIT_E4M3, inp, weight_side(&w)) < 0)
        return -1;
    r.inp.x = to[0];
    w.data = to[1];
    r.w = &w;
    return plait_ops_cpu()->linear_forward(q, &r);
}

static int fp8_backward_input(struct plait_queue *q,
                              const struct plait_linear_dinp *l)
{
    struct plait_weight w = *l->w;
    struct plait_linear_dinp r = *l;
    struct side dout = {l->dout, l->N * w.O};
    uint16_t *to[2];

    if (round_both(q, to, PLAIT_E5M2, dout, weight_side(&w)) < 0)
        return -1;
    r.dout.x = to[0];
    w.data = to[1];
    r.w = &w;
    return plait_ops_cpu()->linear_backward_input(q, &r);
}

static int fp8_backward_weight(struct plait_queue *q,
                               const struct plait_linear_dw *l)
{
    const struct plait_ops *ops = plait_ops_cpu();
    struct plait_linear_dw r = *l;
    struct side dout = {l->dout, l->N * l->O}, inp = {l->inp, l->N * l->C};
    uint16_t *to[2];

    assert(l->type == PLAIT_BF16_T);
    if (round_both(q, to, PLAIT_E5M2, dout, inp) < 0)
        return -1;
    r.dout.x = to[0];
    r.inp.x = to[1];
    r.dbias = NULL; /* sums what was not rounded */
    if (ops->linear_backward_weight(q, &r) < 0)
        return -1;
    if (l->dbias == NULL)
        return 0;
    if (!l->accumulate)
        memset(l->dbias, 0, l->O * sizeof(*l->dbias));
    return ops->bias_backward(q,
                              &(struct plait_bias_backward){.type = l->type,
                                                            .dbias = l->dbias,
                                                            .dout = l->dout.x,
                                                            .N = l->N,
                                                            .O = l->O});
}

void CPU_NAME(cpu_fill_fp8)(struct plait_ops *ops)
{
    ops->fp8_forward = fp8_forward;
    ops->fp8_backward_input = fp8_backward_input;
    ops->fp8_backward_weight = fp8_backward_weight;
    ops->fp8_amax = CPU_NAME(cpu_fp8_amax);
}
