/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_DIRECTION_H
#define PLAIT_RUNTIME_OPTIM_DIRECTION_H

#include <stdint.h>

#include "runtime/optim/optim.h"

/* Optimizers that make a direction of a gradient, which depends on more than an
 * element and a factor, and step along it: the direction replaces the gradient,
 * and the update is PLAIT_UPDATE_DIRECTION. Tensors that such an optimizer does
 * not take are updated by its rule. */
struct plait_direction {
    bool (*takes)(const struct plait_tensor *t);
    /* How many numbers per weight of that tensor slice->state has. For tensors
     * that it does not take: those that the rule's update needs. */
    int (*nstates)(const struct plait_tensor *t);
    /* *own: its other state, NULL at the call. Local. -1 with *err. */
    int (*create)(struct plait_optim *optim, void **own,
                  struct plait_error *err);
    /* Makes the part of that state that depends on the other ranks; NULL: no
     * part does. Called once all ranks have created theirs. Collective, but it
     * may fail on one rank alone. -1 with *err. */
    int (*open)(struct plait_optim *optim, void *own, struct plait_error *err);
    void (*destroy)(struct plait_optim *optim, void *own);
    /* Replaces gradients, each first multiplied by `scale`, by directions;
     * `step` counts from 1. Collective. */
    int (*make)(struct plait_optim *optim, void *own, float scale,
                int64_t step);
    /* What a checkpoint stores of it besides the slices' states: writes that to
     * `pieces` unless NULL, and returns how many there are. */
    int (*pieces)(const struct plait_optim *optim, const void *own,
                  struct plait_optim_piece *pieces);
    /* Whether ranks with equal slices list different pieces: each matrix's
     * state is with its owner alone. */
    bool divided;
};

extern const struct plait_direction plait_muon, plait_adafactor, plait_soap;

/* direction.c: what an optimizer with directions needs; does nothing for
 * others. Created locally, then opened by all ranks, before the step's runs are
 * listed. */
int plait_directions_create(struct plait_optim *optim, struct plait_error *err);
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
