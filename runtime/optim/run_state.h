/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_RUN_STATE_H
#define PLAIT_RUNTIME_OPTIM_RUN_STATE_H

#include <stdint.h>

#include "runtime/optim/growth.h"
#include "runtime/optim/noise_scale.h"
#include "runtime/optim/outlier.h"

/* What a run has measured of itself, the same on all ranks; saved in
 * checkpoints. Zeroed for a new run. */
struct plait_run_state {
    int64_t samples; /* sequences so far: the number of the next one in the
                      * run */
    int64_t skipped; /* steps without an update because of an outlier */
    struct plait_noise_scale noise;
    struct plait_outlier_window losses, norms;
    struct plait_growth growth;
};

/* The measurements of one step. NaN: not known. */
struct plait_observation {
    double noise_scale;    /* sequences */
    double loss_z, norm_z; /* robust z-scores against the previous steps */
    bool outlier;          /* one of them is far above the usual */
};

/* Scores a step, whose noise must be in the state already, and adds its loss
 * and gradient norm to the windows. Pure. */
void plait_run_state_observe(struct plait_run_state *state, double loss,
                             double norm, struct plait_observation *seen);

#endif
