/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_MODEL_EXPERTS_H
#define PLAIT_RUNTIME_MODEL_EXPERTS_H

#include "runtime/model/internal.h"

/* From all rows of the normalised stream to routed.z; then joined
 * to out [N,C], this tp rank's part. */
int plait_experts_forward(const struct plait_work *w,
                          const struct plait_block *b,
                          const struct plait_activations *a, const void *full);
int plait_experts_join(const struct plait_work *w,
                       const struct plait_activations *a, void *out);
/* From all rows of the gradient to this tp rank's part of the input's, in
 * scratch->part; leaves the logits' gradient for the router's weight. */
int plait_experts_backward(const struct plait_work *w,
                           const struct plait_block *b,
                           const struct plait_activations *a, const void *dout);
int plait_experts_router_weight(const struct plait_work *w,
                                const struct plait_block *b, const void *full);

/* Whether the host has the numbers of rows of the experts: messages between ep
 * ranks are as long as they say, and each expert's operands in fp8 have scales
 * of their own. */
static inline bool plait_experts_counted(const struct plait_work *w)
{
    return w->d->ep > 1 || w->fp8;
}

/* The rows that a layer's experts here work on, in the order of the experts;
 * where the host does not know, those of dropped choices too. */
static inline size_t plait_experts_rows(const struct plait_work *w,
                                        const struct plait_routed *r)
{
    size_t n = 0;

    if (!plait_experts_counted(w))
        return w->shape->N * w->d->top_k;
    for (int i = 0; i < w->d->experts / w->d->ep; i++)
        n += r->here[i];
    return n;
}

/* linear.c: the products of one linear of all experts here: `up`, into the
 * activation, which is GELU unless the model is gated, or down, out of it.
 * Shapes are those of the ops; pre may be NULL as there. plait_grouped_input()
 * has no slope with pre NULL. */
int plait_grouped_forward(const struct plait_work *w,
                          const struct plait_block *b,
                          const struct plait_routed *r, bool up, void *out,
                          void *pre, const void *inp);
int plait_grouped_input(const struct plait_work *w, const struct plait_block *b,
                        const struct plait_routed *r, bool up, const void *pre,
                        void *dinp, const void *dout);
int plait_grouped_weight(const struct plait_work *w,
                         const struct plait_block *b,
                         const struct plait_routed *r, bool up,
                         const void *dout, const void *inp);

#endif
