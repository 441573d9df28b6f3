/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/fragments.h"

#include <stdlib.h>

/* Elements that are summed at a time: MPI counts at most 2^31 - 1. */
#define SUM_CHUNK ((size_t)1 << 30)

/* Of the region's tensors, which are of one block. */
static int layer_of(const struct plait_model *model, int region)
{
    for (int i = 0; i < model->ntensors; i++)
        if (model->tensors[i].region == region)
            return model->tensors[i].layer;
    return -1;
}

int plait_fragments_list(const struct plait_shards *shards, int fragments,
                         struct plait_fragment_run **runs)
{
    struct plait_fragment_run *list =
        calloc((size_t)shards->n + 1, sizeof(*list));
    size_t at = 0;
    int n = 0;

    if (!list)
        return -1;
    for (int i = 0; i < shards->n; i++) {
        int layer = layer_of(shards->model, i);
        int fragment = layer < 0 ? 0 : layer % fragments;

        if (n == 0 || list[n - 1].fragment != fragment)
            list[n++] = (struct plait_fragment_run){fragment, at, 0};
        list[n - 1].n += shards->shard[i].part;
        at += shards->shard[i].part;
    }
    *runs = list;
    return n;
}

int plait_fragment_sum(struct plait_comm *dp, struct plait_queue *q, float *x,
                       size_t all)
{
    size_t n;

    if (plait_comm_size(dp) == 1)
        return 0;
    for (size_t at = 0; at < all; at += n) {
        n = all - at < SUM_CHUNK ? all - at : SUM_CHUNK;
        if (plait_comm_all_reduce(
                dp, &(struct plait_buffers){x + at, x + at, n, PLAIT_F32},
                PLAIT_SUM, q, NULL) < 0)
            return -1;
    }
    return 0;
}
