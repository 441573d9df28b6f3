/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "kernels/ref/ref.h"

/* fp8 emulated in bf16, which holds every value of both formats times a power
 * of two: the operands are rounded, then multiplied as bf16. */

int ref_fp8_amax(struct plait_queue *q, uint32_t *amax, const void *x, size_t n)
{
    const uint16_t *from = x;
    uint32_t most = 0;

    (void)q;
    if (amax == NULL)
        return 0;
    for (size_t i = 0; i < n; i++)
        if ((uint32_t)(from[i] & 0x7fff) << 16 > most)
            most = (uint32_t)(from[i] & 0x7fff) << 16;
    *amax = most;
    return 0;
}

/* A copy of x->x [n] rounded to fp8; the caller frees. NULL: the queue
 * failed. */
static uint16_t *rounded(struct plait_queue *q, enum plait_fp8 format,
                         const struct plait_operand *x, size_t n)
{
    const uint16_t *from = x->x;
    uint16_t *to = malloc(n * sizeof(*to) + 1);
    uint32_t amax;
    float scale;

    if (to == NULL) {
        plait_queue_fail(&q->head, ENOMEM, "fp8: out of memory");
        return NULL;
    }
    ref_fp8_amax(q, &amax, from, n);
    scale = plait_fp8_scale(x->amax != NULL ? *x->amax : amax, format);
    for (size_t i = 0; i < n; i++) {
        uint8_t code =
            plait_fp8_of_f32(plait_f32_of_bf16(from[i]) * scale, format);

        to[i] = plait_bf16_of_f32(plait_f32_of_fp8(code, format) / scale);
    }
    return to;
}

int ref_fp8_forward(struct plait_queue *q, void *out, void *pre,
                    const struct plait_operand *inp, struct plait_weight *w,
                    const void *bias, enum plait_activation act, size_t N)
{
    const struct plait_operand weight = {.x = w->data};
    struct plait_weight r = *w;
    void *x = rounded(q, PLAIT_E4M3, inp, N * w->C);
    void *y = rounded(q, PLAIT_E4M3, &weight, w->O * w->C);
    int rc = -1;

    assert(w->type == PLAIT_BF16_T);
    r.data = y;
    if (x != NULL && y != NULL)
        rc = ref_linear_forward(q, out, pre, x, &r, bias, act, N);
    free(x);
    free(y);
    return rc;
}

int ref_fp8_backward_input(struct plait_queue *q, void *dinp,
                           const struct plait_operand *dout,
                           struct plait_weight *w, enum plait_activation act,
                           const void *pre, int accumulate, size_t N)
{
    const struct plait_operand weight = {.x = w->data};
    struct plait_weight r = *w;
    void *dy = rounded(q, PLAIT_E5M2, dout, N * w->O);
    void *y = rounded(q, PLAIT_E4M3, &weight, w->O * w->C);
    int rc = -1;

    assert(w->type == PLAIT_BF16_T);
    r.data = y;
    if (dy != NULL && y != NULL)
        rc =
            ref_linear_backward_input(q, dinp, dy, &r, act, pre, accumulate, N);
    free(dy);
    free(y);
    return rc;
}

int ref_fp8_backward_weight(struct plait_queue *q, enum plait_dtype type,
                            float *dw, float *dbias,
                            const struct plait_operand *dout,
                            const struct plait_operand *inp, int accumulate,
                            size_t N, size_t O, size_t C)
{
    void *dy = rounded(q, PLAIT_E5M2, dout, N * O);
    void *x = rounded(q, PLAIT_E4M3, inp, N * C);
    int rc = -1;

    assert(type == PLAIT_BF16_T);
    if (dy != NULL && x != NULL)
        rc = ref_linear_backward_weight(q, type, dw, NULL, dy, x, accumulate, N,
                                        O, C);
    free(dy);
    free(x);
    if (rc < 0 || dbias == NULL)
        return rc;
    if (!accumulate)
        memset(dbias, 0, O * sizeof(*dbias));
    return ref_bias_backward(q, type, dbias, dout->x, N, O);
}
