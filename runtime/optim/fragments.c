/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/fragments.h"

#include <stdlib.h>

/* Elements that are summed at a time, and of a run: MPI counts at most
 * 2^31 - 1. */
#define SUM_CHUNK ((size_t)1 << 30)

/* Of the region's tensors, which are of one block. */
static int layer_of(const struct plait_model *model, int region)
{
    for (int i = 0; i < model->ntensors; i++)
        if (model->tensors[i].region == region)
            return model->tensors[i].layer;
    return -1;
}

struct list {
    struct plait_fragment_run *runs;
    int n;
    size_t at; /* where the last run ends */
};

static void add_elements(struct list *l, int fragment, size_t left)
{
    size_t n;

    for (; left > 0; left -= n) {
        struct plait_fragment_run *last = l->n ? &l->runs[l->n - 1] : NULL;

        if (!last || last->fragment != fragment || last->n == SUM_CHUNK) {
            last = &l->runs[l->n++];
            *last = (struct plait_fragment_run){fragment, l->at, 0};
        }
        n = left < SUM_CHUNK - last->n ? left : SUM_CHUNK - last->n;
        last->n += n;
        l->at += n;
    }
}

int plait_fragments_list(const struct plait_shards *shards, int fragments,
                         struct plait_fragment_run **runs)
{
    struct list l = {0};
    size_t all = 0;

    for (int i = 0; i < shards->n; i++)
        all += shards->shard[i].part;
    l.runs = calloc((size_t)shards->n + all / SUM_CHUNK + 1, sizeof(*l.runs));
    if (!l.runs)
        return -1;
    for (int i = 0; i < shards->n; i++) {
        int layer = layer_of(shards->model, i);

        add_elements(&l, layer < 0 ? 0 : layer % fragments,
                     shards->shard[i].part);
    }
    *runs = l.runs;
    return l.n;
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
