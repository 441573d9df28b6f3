/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/experts.h"
#include "runtime/model/internal.h"

/* Selective recompute: what takes no matrix product is not kept. It is a third
 * of a layer's activations and about 1 % of its time. */

int plait_layer_cheap_again(const struct plait_work *w,
                            const struct plait_block *b,
                            const struct plait_activations *a,
                            enum plait_half half)
{
    size_t rows = b->experts ? plait_experts_rows(w, &a->routed) : w->shape->N;

    /* Only weight gradients need it, and those of experts and of latent
     * attention are never deferred. */
    if (!(half & PLAIT_HALF_WEIGHT) && !b->experts && !w->d->latent)
        return 0;
    if (plait_first_norm(w, b, a, a->x1, NULL, NULL) < 0 ||
        plait_second_norm(w, b, a, a->x2, NULL, NULL) < 0 ||
        plait_latent_again(w, b, a) < 0)
        return -1;
    if (b->experts && plait_shared_again(w, a) < 0)
        return -1;
    if (w->d->gated)
        return plait_swiglu_forward(w, a, rows, NULL);
    return w->ops->gelu_forward(
        w->q,
        &(struct plait_gelu_forward){
            .type = w->type, .out = a->act, .inp = a->pre, .n = rows * a->ffn});
}
