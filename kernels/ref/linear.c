/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers and their gradients as three loops, summed in double. */
#include <string.h>

#include "kernels/linear.h"
#include "kernels/ref/ref.h"

int ref_linear_forward(struct plait_queue *q, const struct plait_linear *l)
{
    enum plait_dtype type = l->w->type;
    size_t O = l->w->O, C = l->w->C;

    (void)q;
    for (size_t i = 0; i < l->N; i++) {
        for (size_t o = 0; o < O; o++) {
            double sum = l->bias != NULL ? ref_get(type, l->bias, o) : 0;

            for (size_t c = 0; c < C; c++)
                sum += ref_get(type, l->inp.x, i * C + c) *
                       ref_get(type, l->w->data, o * C + c);
            ref_put(type, l->out, i * O + o, sum);
            if (l->act == PLAIT_ACT_NONE)
                continue;
            sum = ref_get(type, l->out, i * O + o);
            if (l->pre != NULL)
                ref_put(type, l->pre, i * O + o, sum);
            ref_put(type, l->out, i * O + o, ref_gelu(sum));
        }
    }
    return 0;
}

int ref_linear_backward_input(struct plait_queue *q,
                              const struct plait_linear_dinp *l)
{
    enum plait_dtype type = l->w->type;
    size_t O = l->w->O, C = l->w->C;

    (void)q;
    for (size_t i = 0; i < l->N; i++) {
        for (size_t c = 0; c < C; c++) {
            double sum = 0;

            for (size_t o = 0; o < O; o++)
                sum += ref_get(type, l->dout.x, i * O + o) *
                       ref_get(type, l->w->data, o * C + c);
            if (l->pre != NULL && l->act == PLAIT_ACT_GELU)
                sum *= ref_gelu_slope(ref_get(type, l->pre, i * C + c));
            if (l->accumulate)
                sum += ref_get(type, l->dinp, i * C + c);
            ref_put(type, l->dinp, i * C + c, sum);
        }
    }
    return 0;
}

int ref_linear_backward_weight(struct plait_queue *q,
                               const struct plait_linear_dw *l)
{
    size_t O = l->O, C = l->C;

    for (size_t o = 0; o < O; o++) {
        for (size_t c = 0; c < C; c++) {
            double sum = l->accumulate ? l->dw[o * C + c] : 0;

            for (size_t i = 0; i < l->N; i++)
                sum += ref_get(l->type, l->dout.x, i * O + o) *
                       ref_get(l->type, l->inp.x, i * C + c);
            l->dw[o * C + c] = (float)sum;
        }
    }
    if (l->dbias == NULL)
        return 0;
    if (!l->accumulate)
        memset(l->dbias, 0, O * sizeof(*l->dbias));
    return ref_bias_backward(q, &(struct plait_bias_backward){.type = l->type,
                                                              .dbias = l->dbias,
                                                              .dout = l->dout.x,
                                                              .N = l->N,
                                                              .O = O});
}
