/* SPDX-License-Identifier: Apache-2.0 */
/* The experts that every token takes beside its own: one mlp as wide as all of
 * them, cut over tp like any mlp. Its output is a term of the experts' sum. */
#include "runtime/model/experts.h"

/* What the activation's functions need of a layer. */
static struct plait_activations activation_of(const struct plait_work *w,
                                              const struct plait_activations *a)
{
    return (struct plait_activations){
        .pre = a->shared_pre, .act = a->shared_act, .ffn = w->d->shared};
}

int plait_shared_again(const struct plait_work *w,
                       const struct plait_activations *a)
{
    struct plait_activations mlp = activation_of(w, a);

    return w->d->shared ? plait_swiglu_forward(w, &mlp, w->shape->N, NULL) : 0;
}

int plait_shared_forward(const struct plait_work *w,
                         const struct plait_block *b,
                         const struct plait_activations *a, const void *full)
{
    struct plait_linear up = {
        .N = w->shape->N, .inp.x = full, .out = a->shared_pre};

    if (!w->d->shared)
        return 0;
    return plait_linear_forward(w, &b->shared_up, &up) < 0
               ? -1
               : plait_shared_again(w, a);
}

int plait_shared_leave(const struct plait_work *w, const struct plait_block *b,
                       const struct plait_activations *a, void *out)
{
    struct plait_linear down = {
        .N = w->shape->N, .inp.x = a->shared_act, .out = out};

    return w->d->shared ? plait_linear_forward(w, &b->shared_down, &down) : 0;
}

int plait_shared_backward(const struct plait_work *w,
                          const struct plait_block *b,
                          const struct plait_activations *a, const void *dout)
{
    void *dact = w->scratch->dact, *dpre = w->scratch->now.dpre;
    struct plait_activations mlp = activation_of(w, a);
    struct plait_operand dy = {.x = dout}, act = {.x = a->shared_act};
    struct plait_linear_dinp down = {
        .N = w->shape->N, .dout = dy, .dinp = dact};
    struct plait_linear_dinp up = {.N = w->shape->N,
                                   .dout.x = dpre,
                                   .dinp = w->scratch->part,
                                   .accumulate = 1};

    if (!w->d->shared)
        return 0;
    if (plait_linear_weight(w, &b->shared_down, 0, &dy, &act) < 0 ||
        plait_linear_input(w, &b->shared_down, &down) < 0 ||
        plait_swiglu_backward(w, &mlp, dpre, dact, w->shape->N, NULL) < 0)
        return -1;
    return plait_linear_input(w, &b->shared_up, &up);
}

int plait_shared_weight(const struct plait_work *w, const struct plait_block *b,
                        const void *full)
{
    struct plait_operand dpre = {.x = w->scratch->now.dpre}, x = {.x = full};

    return w->d->shared ? plait_linear_weight(w, &b->shared_up, 0, &dpre, &x)
                        : 0;
}
