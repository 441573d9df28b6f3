/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/operand.h"

uint32_t *plait_amax_of(const struct plait_work *w, uint32_t *amax)
{
    return w->fp8 ? amax : NULL;
}

uint32_t *plait_amax_at(const struct plait_work *w,
                        const struct plait_activations *a, int which)
{
    bool stream = which == PLAIT_AMAX_N1 || which == PLAIT_AMAX_N2;

    return stream && w->tp.sequence ? NULL : plait_amax_of(w, a->amax + which);
}

uint32_t *plait_gradient_amax(const struct plait_work *w)
{
    return w->tp.sequence ? NULL
                          : plait_amax_of(w, w->scratch->amax + PLAIT_AMAX_DX);
}

int plait_amax_find(const struct plait_work *w, uint32_t *amax, const void *x,
                    size_t n)
{
    return amax ? w->ops->fp8_amax(w->q, amax, x, n) : 0;
}

struct plait_operand plait_operand_at(const struct plait_work *w,
                                      const struct plait_activations *a,
                                      int which)
{
    const void *const x[] = {[PLAIT_AMAX_N1] = a->n1,
                             [PLAIT_AMAX_ATT] =
                                 w->d->latent ? a->values : a->att,
                             [PLAIT_AMAX_N2] = a->n2,
                             [PLAIT_AMAX_ACT] = a->act};

    return (struct plait_operand){.x = x[which],
                                  .amax = plait_amax_at(w, a, which)};
}

int plait_operand_round(const struct plait_work *w,
                        const struct plait_matrix *matrix,
                        struct plait_operand *dout)
{
    struct plait_fp8_gradient g = {.N = w->shape->N,
                                   .O = matrix->O,
                                   .dout = *dout,
                                   .codes = w->scratch->codes};

    if (!w->scratch->codes)
        return 0;
    if (w->ops->fp8_gradient(w->q, &g) < 0)
        return -1;
    dout->codes = w->scratch->codes;
    return 0;
}
