/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/growth.h"

#include <math.h>

#include "topology/job/stage.h"

/* Least number of steps between two changes of the batch: about the length of
 * the noise meter's averages. */
#define HOLD 50

int plait_growth_batch(const struct plait_growth *growth,
                       const struct plait_job_config *config, int64_t step)
{
    const struct plait_numbers *list = &config->batch.growth;
    int batch = config->train.global_batch;

    if (list->is_auto && growth->batch)
        return growth->batch;
    for (int i = 0; i < list->n && step >= list->at[2 * i]; i++)
        batch = list->at[2 * i + 1];
    return batch;
}

int plait_growth_unit(const struct plait_job_config *config,
                      const struct plait_layout *layout)
{
    int unit = layout->size[PLAIT_DP] * config->train.micro_batch;

    return plait_model_chunks(&config->parallel) > 1
               ? unit * layout->size[PLAIT_PP]
               : unit;
}

static int follow_noise(int batch, int least, int most, int unit, double noise)
{
    while (2.0 * batch <= noise && 2 * (int64_t)batch <= most)
        batch *= 2;
    while (batch % (2 * (int64_t)unit) == 0 && batch / 2 >= noise &&
           batch / 2 >= least)
        batch /= 2;
    return batch;
}

void plait_growth_follow(struct plait_growth *growth,
                         const struct plait_job_config *c, int unit,
                         double noise_scale)
{
    int batch = plait_growth_batch(growth, c, 0), now;
    int least = c->batch.min ? c->batch.min : c->train.global_batch;

    if (!c->batch.growth.is_auto)
        return;
    growth->batch = batch;
    if (++growth->held < HOLD || isnan(noise_scale))
        return;
    now = follow_noise(batch, least, c->batch.max, unit, noise_scale);
    if (now == batch)
        return;
    growth->batch = now;
    growth->held = 0;
}

int plait_growth_most(const struct plait_job_config *config)
{
    const struct plait_numbers *growth = &config->batch.growth;
    int most = config->train.global_batch;

    if (growth->is_auto)
        return config->batch.max;
    for (int i = 0; i < growth->n; i++)
        if (growth->at[2 * i + 1] > most)
            most = growth->at[2 * i + 1];
    return most;
}
