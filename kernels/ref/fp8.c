/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "kernels/linear.h"
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

int ref_fp8_forward(struct plait_queue *q, const struct plait_linear *l)
{
    const struct plait_operand weight = {.x = l->w->data};
    struct plait_weight w = *l->w;
    struct plait_linear r = *l;
    void *x = rounded(q, PLAIT_E4M3, &l->inp, l->N * w.C);
    void *y = rounded(q, PLAIT_E4M3, &weight, w.O * w.C);
    int rc = -1;

    assert(w.type == PLAIT_BF16_T);
    w.data = y;
    r.w = &w;
    r.inp.x = x;
    if (x != NULL && y != NULL)
        rc = ref_linear_forward(q, &r);
    free(x);
    free(y);
    return rc;
}

int ref_fp8_backward_input(struct plait_queue *q,
                           const struct plait_linear_dinp *l)
{
    const struct plait_operand weight = {.x = l->w->data};
    struct plait_weight w = *l->w;
    struct plait_linear_dinp r = *l;
    void *dy = rounded(q, PLAIT_E5M2, &l->dout, l->N * w.O);
    void *y = rounded(q, PLAIT_E4M3, &weight, w.O * w.C);
    int rc = -1;

    assert(w.type == PLAIT_BF16_T);
    w.data = y;
    r.w = &w;
    r.dout.x = dy;
    if (dy != NULL && y != NULL)
        rc = ref_linear_backward_input(q, &r);
    free(dy);
    free(y);
    return rc;
}

int ref_fp8_backward_weight(struct plait_queue *q,
                            const struct plait_linear_dw *l)
{
    struct plait_linear_dw r = *l;
    void *dy = rounded(q, PLAIT_E5M2, &l->dout, l->N * l->O);
    void *x = rounded(q, PLAIT_E4M3, &l->inp, l->N * l->C);
    int rc = -1;

    assert(l->type == PLAIT_BF16_T);
    r.dout.x = dy;
    r.inp.x = x;
    r.dbias = NULL; /* sums what was not rounded */
    if (dy != NULL && x != NULL)
        rc = ref_linear_backward_weight(q, &r);
    free(dy);
    free(x);
    if (rc < 0 || l->dbias == NULL)
        return rc;
    if (!l->accumulate)
        memset(l->dbias, 0, l->O * sizeof(*l->dbias));
    return ref_bias_backward(q, &(struct plait_bias_backward){.type = l->type,
                                                              .dbias = l->dbias,
                                                              .dout = l->dout.x,
                                                              .N = l->N,
                                                              .O = l->O});
}
