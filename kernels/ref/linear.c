/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kernels/ref/ref.h"

int ref_linear_forward(struct plait_queue *q, void *out, void *pre,
                       const void *inp, struct plait_weight *w,
                       const void *bias, enum plait_activation act, size_t N)
{
    enum plait_dtype type = w->type;
    size_t O = w->O, C = w->C;

    (void)q;
    for (size_t i = 0; i < N; i++) {
        for (size_t o = 0; o < O; o++) {
            double sum = bias != NULL ? ref_get(type, bias, o) : 0;

            for (size_t c = 0; c < C; c++)
                sum += ref_get(type, inp, i * C + c) *
                       ref_get(type, w->data, o * C + c);
            ref_put(type, out, i * O + o, sum);
            if (act == PLAIT_ACT_NONE)
                continue;
            sum = ref_get(type, out, i * O + o);
            if (pre != NULL)
                ref_put(type, pre, i * O + o, sum);
            ref_put(type, out, i * O + o, ref_gelu(sum));
        }
    }
    return 0;
}

int ref_linear_backward_input(struct plait_queue *q, void *dinp,
                              const void *dout, struct plait_weight *w,
                              enum plait_activation act, const void *pre,
                              int accumulate, size_t N)
{
    enum plait_dtype type = w->type;
    size_t O = w->O, C = w->C;

    (void)q;
    for (size_t i = 0; i < N; i++) {
        for (size_t c = 0; c < C; c++) {
            double sum = 0;

            for (size_t o = 0; o < O; o++)
                sum += ref_get(type, dout, i * O + o) *
                       ref_get(type, w->data, o * C + c);
            if (pre != NULL && act == PLAIT_ACT_GELU)
                sum *= ref_gelu_slope(ref_get(type, pre, i * C + c));
            if (accumulate)
                sum += ref_get(type, dinp, i * C + c);
            ref_put(type, dinp, i * C + c, sum);
        }
    }
    return 0;
}

int ref_linear_backward_weight(struct plait_queue *q, enum plait_dtype type,
                               float *dw, float *dbias, const void *dout,
                               const void *inp, int accumulate, size_t N,
                               size_t O, size_t C)
{
    for (size_t o = 0; o < O; o++) {
        for (size_t c = 0; c < C; c++) {
            double sum = accumulate ? dw[o * C + c] : 0;

            for (size_t i = 0; i < N; i++)
                sum += ref_get(type, dout, i * O + o) *
                       ref_get(type, inp, i * C + c);
            dw[o * C + c] = (float)sum;
        }
    }
    if (dbias == NULL)
        return 0;
    if (!accumulate)
        memset(dbias, 0, O * sizeof(*dbias));
    return ref_bias_backward(q, type, dbias, dout, N, O);
}
