/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_MODEL_HOOKS_H
#define PLAIT_RUNTIME_MODEL_HOOKS_H

#include "runtime/model/internal.h"

/* A model's hooks for the `n` regions, by number, that a block computes
 * with; nothing where there are none. */
int plait_hooks_prefetch(const struct plait_model *model, const int *regions,
                         int n);
int plait_hooks_acquire(const struct plait_model *model, const int *regions,
                        int n, bool gradient);
int plait_hooks_release(const struct plait_model *model, const int *regions,
                        int n);
/* Their gradients of the micro-batch are complete. */
int plait_hooks_ready(const struct plait_model *model, const int *regions,
                      int n, int microbatch);

/* What has been made is shown to the model's observer, if there is one. */
static inline int plait_show(const struct plait_work *w, const char *what,
                             const void *x, size_t n)
{
    const struct plait_model_observer *by = &w->model->observer;

    return by->see ? by->see(by->arg, by->layer, what, w->type, x, n) : 0;
}

/* The same of a block's weights, or of their gradients so far. */
int plait_show_tensors(const struct plait_work *w, const struct plait_block *b,
                       bool gradient);

#endif
