/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_MODEL_HOOKS_H
#define PLAIT_RUNTIME_MODEL_HOOKS_H

#include "runtime/model/model.h"

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

#endif
