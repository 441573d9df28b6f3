/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_DIRECTION_H
#define PLAIT_RUNTIME_OPTIM_DIRECTION_H

#include <stdint.h>

#include "runtime/optim/optim.h"

/* Optimizers that make a direction of a gradient, which depends on more than
 * an element and a factor, and step along it: the direction takes the place of
 * the gradient, and the update is PLAIT_UPDATE_DIRECTION. Tensors that such an
 * optimizer does not take are stepped by the update of its rule. */
struct plait_direction {
    bool (*takes)(const struct plait_tensor *t);
    /* How many numbers it keeps of each weight of that tensor, in
     * slice->state; what a tensor that it does not take has, the update
     * needs. */
    int (*nstates)(const struct plait_tensor *t);
    /* *own: what else it needs, NULL before. Collective. -1 with *err. */
    int (*create)(struct plait_optim *optim, void **own,
                  struct plait_error *err);
    void (*destroy)(struct plait_optim *optim, void *own);
    /* Gradients, each multiplied by `scale`, become directions; `step` counts
     * from 1. Collective. */
    int (*make)(struct plait_optim *optim, void *own, float scale,
                int64_t step);
    /* What a checkpoint holds of it beside the slices' states: writes them to
     * `pieces` unless that is NULL, and returns how many. */
    int (*pieces)(const struct plait_optim *optim, const void *own,
                  struct plait_optim_piece *pieces);
};

extern const struct plait_direction plait_muon, plait_adafactor, plait_soap;

/* direction.c: all of it that a rule of this kind needs; nothing with any
 * other. Before the step's runs are listed. */
int plait_directions_open(struct plait_optim *optim, struct plait_error *err);
void plait_directions_close(struct plait_optim *optim);
int plait_directions_make(struct plait_optim *optim, float scale, int64_t step);
int plait_directions_pieces(const struct plait_optim *optim,
                            struct plait_optim_piece *pieces);
/* Whether slice i is stepped along a direction. */
bool plait_directions_take(const struct plait_optim *optim, int i);

/* The reduced gradient of a slice, on the device. */
float *plait_optim_slice_grad(const struct plait_optim *optim,
                              const struct plait_optim_slice *slice);

#endif
