/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/predict/estimate_activations.h"

/* Adds up the table of topology/job/held.h, from which the runtime allocates.
 */

/* What a slot holds on the chunk of the rank that holds the most: `layer` for
 * each of its layers, or `none` where it has no layer, and `head` where it ends
 * with the head. */
static double slot_bytes(const struct plait_shape *s, int rank, double layer,
                         double none, double head)
{
    double most = 0;

    for (int i = 0; i < s->v; i++) {
        int count = plait_shape_chunk(s, rank, i);
        bool last = rank == s->pp - 1 && i == s->v - 1;

        most = fmax(most, (count ? count * layer : none) + last * head);
    }
    return most;
}

double plait_activations_offloaded(const struct plait_shape *s,
                                   const struct plait_rank_sizes *z, int rank,
                                   int slots)
{
    struct plait_held held[PLAIT_HELD_TENSORS];
    unsigned kept = plait_held_kept(s->c->parallel.recompute);

    if (!(s->c->parallel.offload & PLAIT_OFFLOAD_ACTIVATIONS))
        return 0;
    plait_held_list(z, held);
    return slots * slot_bytes(s, rank, plait_held_bytes(held, kept), 0, 0);
}

/* Bytes of the work space, of which layer and head use the same part. */
static double scratch_bytes(const struct plait_shape *s,
                            const struct plait_held *held, bool head)
{
    unsigned again = plait_held_again(s->c->parallel.recompute);
    double work = plait_held_bytes(held, PLAIT_HELD_SET(WORK));

    if (head)
        work = fmax(work, plait_held_bytes(held, PLAIT_HELD_SET(HEAD)));
    return plait_held_bytes(held, PLAIT_HELD_SET(PASSED) | again) + work;
}

double plait_activations_bytes(const struct plait_shape *s,
                               const struct plait_rank_sizes *z, int rank,
                               int slots)
{
    struct plait_held held[PLAIT_HELD_TENSORS];
    double kept, sum, layer = 0, slot;

    plait_held_list(z, held);
    kept = plait_held_bytes(held, plait_held_kept(s->c->parallel.recompute));
    sum = scratch_bytes(s, held, rank == s->pp - 1);
    if (!(s->c->parallel.offload & PLAIT_OFFLOAD_ACTIVATIONS))
        layer += kept;
    else if (plait_shape_layers(s, rank))
        sum += 2 * kept;
    if (s->c->parallel.schedule == PLAIT_SCHEDULE_ZB_H1)
        layer += plait_held_bytes(held, PLAIT_HELD_SET(STASH));
    slot = slot_bytes(s, rank, layer,
                      plait_held_bytes(held, PLAIT_HELD_SET(INPUT)),
                      plait_held_bytes(held, PLAIT_HELD_SET(DHEAD)));
    slot += plait_held_bytes(held, PLAIT_HELD_SET(BATCH));
    return sum + slots * slot;
}
