/* SPDX-License-Identifier: Apache-2.0 */
/* The sums of a step (loss, tokens, squares of gradients), read from the device
 * at once or while the next step is queued. */
#include "config.h"

#include <string.h>

#include "kernels/kernels.h"
#include "runtime/train/step_private.h"

int plait_trainer_local_sums(struct plait_trainer *t, double *sums, int n)
{
    struct plait_mesh *mesh = t->mesh;

    if (mesh->ops->to_host(mesh->q, sums, t->loss, n * sizeof(*sums)) < 0)
        return -1;
    if (mesh->coord.at[PLAIT_TP] != 0)
        memset(sums, 0, n * sizeof(*sums));
    return 0;
}

/* The loss comes last: it is ready once the norm is, and costs no wait. */
int plait_trainer_read_sums(struct plait_trainer *t, struct plait_own_sums *own)
{
    if (plait_optim_sum_squares(t->optim, &own->squares) < 0 ||
        plait_gradsync_small(t->sync, &own->part, &own->small) < 0)
        return -1;
    return plait_trainer_local_sums(t, own->loss, 2);
}

int plait_trainer_queue_sums(struct plait_trainer *t,
                             struct plait_own_sums *own)
{
    const struct plait_ops *ops = t->mesh->ops;
    struct plait_queue *q = t->mesh->q;

    if (plait_optim_queue_squares(t->optim, &t->seen[SEEN_SQUARES]) < 0 ||
        plait_gradsync_queue_small(t->sync, &own->part, &t->seen[SEEN_SMALL]) <
            0 ||
        ops->copy_out(q, &t->seen[SEEN_LOSS], t->loss, 2 * sizeof(*t->loss)) <
            0)
        return -1;
    return ops->event_record(t->summed, q);
}

int plait_trainer_take_sums(struct plait_trainer *t, struct plait_own_sums *own)
{
    if (t->mesh->ops->event_sync(t->summed, t->mesh->q) < 0)
        return -1;
    own->squares = t->seen[SEEN_SQUARES];
    own->small = t->seen[SEEN_SMALL];
    for (int i = 0; i < 2; i++)
        own->loss[i] =
            t->mesh->coord.at[PLAIT_TP] == 0 ? t->seen[SEEN_LOSS + i] : 0;
    return 0;
}
