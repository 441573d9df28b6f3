/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/hooks.h"

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
