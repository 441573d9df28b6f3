/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_RUN_STATE_H
#define PLAIT_RUNTIME_OPTIM_RUN_STATE_H

#include <stdint.h>

#include "runtime/optim/growth.h"
#include "runtime/optim/noise_scale.h"
#include "runtime/optim/outlier.h"

/* What a run has learned about itself, the same on all ranks; it goes into
 * checkpoints and comes from them. Zeroed: a new run. */
struct plait_run_state {
    int64_t samples; /* sequences so far: the next one's number in the run */
    int64_t skipped; /* steps without an update because of an outlier */
    struct plait_noise_scale noise;
    struct plait_outlier_window losses, norms;
    struct plait_growth growth;
};

/* What one step adds to that. NaN: not known. */
struct plait_observation {
    double noise_scale;    /* sequences */
    double loss_z, norm_z; /* robust z-scores against the steps before */
    bool outlier;          /* one of them is far above the usual */
};

/* Scores a step, whose noise is in the state already, and takes its loss and
 * gradient norm into the windows. Pure. */
void plait_run_state_observe(struct plait_run_state *state, double loss,
                             double norm, struct plait_observation *seen);

#endif
