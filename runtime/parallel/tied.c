/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/kernels.h"
#include "runtime/parallel/tied.h"

/* The first and the last stage divide their regions differently, so a sharded
 * tied tensor is gathered whole before it is summed between the two. */
static int sum_sharded(struct plait_mesh *mesh, const struct plait_shard *s,
                       const struct plait_tensor *t, float *whole)
{
    struct plait_gathering g;

    if (plait_shard_gather(mesh, s, s->grad, whole, PLAIT_F32, &g) < 0 ||
        plait_shard_gathered(mesh, &g) < 0)
        return -1;
    if (plait_comm_all_reduce(mesh->embedding,
                              &(struct plait_buffers){whole + t->offset,
                                                      whole + t->offset,
                                                      t->count, PLAIT_F32},
                              PLAIT_SUM, mesh->q, NULL) < 0)
        return -1;
    return mesh->ops->copy(mesh->q, s->grad, whole + s->first,
                           s->part * sizeof(float));
}

int plait_tied_sum(struct plait_shards *shards, float *scratch)
{
    const struct plait_model *model = shards->model;
    struct plait_mesh *mesh = model->mesh;

    for (int i = 0; mesh->embedding && i < model->ntensors; i++) {
        const struct plait_tensor *t = &model->tensors[i];
        const struct plait_shard *s = &shards->shard[t->region];
        int rc;

        if (!t->tied)
            continue;
        if (s->parts > 1)
            rc = sum_sharded(mesh, s, t, scratch);
        else
            rc = plait_comm_all_reduce(
                mesh->embedding,
                &(struct plait_buffers){s->grad + t->offset,
                                        s->grad + t->offset, t->count,
                                        PLAIT_F32},
                PLAIT_SUM, mesh->q, NULL);
        if (rc < 0)
            return -1;
    }
    return 0;
}
