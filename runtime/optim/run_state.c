/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/run_state.h"

void plait_run_state_observe(struct plait_run_state *s, double loss,
                             double norm, struct plait_observation *o)
{
    o->loss_z = plait_outlier_score(&s->losses, loss);
    o->norm_z = plait_outlier_score(&s->norms, norm);
    o->outlier = plait_outlier_is(o->loss_z) || plait_outlier_is(o->norm_z);
    o->noise_scale = plait_noise_scale_value(&s->noise);
    plait_outlier_add(&s->losses, loss);
    plait_outlier_add(&s->norms, norm);
}
