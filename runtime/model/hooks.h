/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_MODEL_HOOKS_H
#define PLAIT_RUNTIME_MODEL_HOOKS_H

#include "runtime/model/internal.h"

/* Call a model's hooks for `n` regions (given by number) of a block; do nothing
 * if there are no hooks. */
int plait_hooks_prefetch(const struct plait_model *model, const int *regions,
                         int n);
int plait_hooks_acquire(const struct plait_model *model, const int *regions,
                        int n, bool gradient);
int plait_hooks_release(const struct plait_model *model, const int *regions,
                        int n);
/* The gradients of these regions are complete for the micro-batch. */
int plait_hooks_ready(const struct plait_model *model, const int *regions,
                      int n, int microbatch);

/* Shows a result to the model's observer, if there is one. */
static inline int plait_show(const struct plait_work *w, const char *what,
                             const void *x, size_t n)
{
    const struct plait_model_observer *by = &w->model->observer;

    return by->see ? by->see(by->arg, by->layer, what, w->type, x, n) : 0;
}

/* The same for a block's weights, or their gradients so far. */
int plait_show_tensors(const struct plait_work *w, const struct plait_block *b,
                       bool gradient);

#endif
