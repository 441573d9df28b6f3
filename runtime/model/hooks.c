/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/hooks.h"

#include <stdio.h>

int plait_hooks_prefetch(const struct plait_model *m, const int *regions, int n)
{
    const struct plait_model_hooks *h = &m->hooks;

    for (int i = 0; i < n && h->prefetch; i++)
        if (h->prefetch(h->arg, &m->regions[regions[i]]) < 0)
            return -1;
    return 0;
}

int plait_hooks_acquire(const struct plait_model *m, const int *regions, int n,
                        bool gradient)
{
    const struct plait_model_hooks *h = &m->hooks;

    for (int i = 0; i < n && h->acquire; i++)
        if (h->acquire(h->arg, &m->regions[regions[i]], gradient) < 0)
            return -1;
    return 0;
}

int plait_hooks_release(const struct plait_model *m, const int *regions, int n)
{
    const struct plait_model_hooks *h = &m->hooks;

    for (int i = 0; i < n && h->release; i++)
        if (h->release(h->arg, &m->regions[regions[i]]) < 0)
            return -1;
    return 0;
}

int plait_hooks_ready(const struct plait_model *m, const int *regions, int n,
                      int microbatch)
{
    const struct plait_model_hooks *h = &m->hooks;

    for (int i = 0; i < n && h->grad_ready; i++)
        if (h->grad_ready(h->arg, &m->regions[regions[i]], microbatch) < 0)
            return -1;
    return 0;
}

int plait_show_tensors(const struct plait_work *w, const struct plait_block *b,
                       bool gradient)
{
    const struct plait_model *m = w->model;
    const struct plait_model_observer *by = &m->observer;
    char what[sizeof(m->tensors->name) + 16];

    for (int i = 0; by->see && i < m->ntensors; i++) {
        const struct plait_tensor *t = &m->tensors[i];
        bool exact = t->balance && !gradient;
        const void *x;

        if (t->region != b->region && t->region != b->expert_region)
            continue;
        /* Not made yet, or reduced and taken away already. */
        if (gradient && (!m->regions[t->region].grad ||
                         (t->product >= 0 && m->state->unmade[t->product])))
            continue;
        x = gradient ? (void *)plait_grad_at(w, t->region, t->offset)
            : exact  ? (void *)(m->exact + t->exact)
                     : plait_weight_at(w, t->region, t->offset);
        snprintf(what, sizeof(what), "%s%s",
                 gradient ? "the gradient of " : "the weight ", t->name);
        if (by->see(by->arg, -1, what, gradient || exact ? PLAIT_F32 : w->type,
                    x, t->count) < 0)
            return -1;
    }
    return 0;
}
