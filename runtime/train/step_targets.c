/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "runtime/train/step_private.h"

/* Which targets of a step count. The gradients are computed as if all did, so
 * that the work of every step is the same, and scaled afterwards. */

double plait_trainer_count(const struct plait_trainer *t,
                           const struct plait_batch *batch, int n)
{
    size_t each =
        (size_t)t->config->train.micro_batch * (size_t)t->config->model.seq_len;
    double count = 0;

    if (plait_is_image_model(&t->config->model))
        return (double)n * each;
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < each; k++)
            count += batch[i].targets[k] >= 0;
    return count;
}

bool plait_trainer_counts(const struct plait_trainer *t)
{
    const int *at = t->mesh->coord.at;

    return at[PLAIT_TP] == 0 && at[PLAIT_CP] == 0 && at[PLAIT_PP] == 0;
}

/* The experts' balance is over all tokens, so the model must know which share
 * of the targets is masked. */
static void set_masked(struct plait_trainer *t, struct plait_batch *batch,
                       double factor)
{
    const struct plait_model_config *m = &t->config->model;

    if (m->experts > 1 && m->experts_balance > 0)
        for (int i = 0; i < t->microbatches; i++)
            batch[i].masked = (float)(1 - 1 / factor);
}

int plait_trainer_weigh(struct plait_trainer *t, bool apart, double full)
{
    int learners = plait_sync_learners(&t->config->sync);
    double *mine = t->counts, *all = t->counts + learners;

    for (int i = 0; i < learners; i++) {
        mine[i] = plait_trainer_count(t, t->batch + i * t->microbatches,
                                      t->microbatches);
        all[i] = plait_trainer_counts(t) ? mine[i] : 0;
    }
    if (plait_comm_host_all_reduce(t->mesh->world, all, learners, PLAIT_SUM) <
        0)
        return -1;
    t->counted = 0;
    for (int i = 0; i < learners; i++) {
        double count = apart ? mine[i] : all[i];

        t->counted += all[i];
        t->factor[i] = count > 0 ? full / count : 1;
        set_masked(t, t->batch + i * t->microbatches, t->factor[i]);
    }
    return 0;
}
