/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/predict/estimate_activations.h"

/* Adds up the table of topology/job/held.h, from which the runtime allocates.
 */

/* The table for both kinds of layers: without experts in a model that has them,
 * and all others. */
struct lists {
    struct plait_held other[PLAIT_HELD_TENSORS], dense[PLAIT_HELD_TENSORS];
};

static void set_lists(const struct plait_rank_sizes *z, struct lists *l)
{
    struct plait_rank_sizes dense = *z;

    if (z->dense > 0)
        plait_rank_sizes_dense(&dense);
    plait_held_list(z, l->other);
    plait_held_list(&dense, l->dense);
}

/* Of these groups, where both kinds of layers have the same place. */
static double wider(const struct lists *l, unsigned groups)
{
    return fmax(plait_held_bytes(l->other, groups),
                plait_held_bytes(l->dense, groups));
}

/* What a slot holds on the chunk of the rank that holds the most: these groups
 * of each of its layers, or `none` where it has no layer, and `head` where it
 * ends with the head. */
static double slot_bytes(const struct plait_shape *s, int rank,
                         const struct lists *l, unsigned groups)
{
    double none = plait_held_bytes(l->other, PLAIT_HELD_SET(INPUT));
    double head = plait_held_bytes(l->other, PLAIT_HELD_SET(DHEAD));
    double other = plait_held_bytes(l->other, groups);
    double dense = plait_held_bytes(l->dense, groups), most = 0;

    for (int i = 0; i < s->v; i++) {
        int count = plait_shape_chunk(s, rank, i);
        int without = plait_shape_chunk_dense(s, rank, i);
        double layers = (count - without) * other + without * dense;
        bool last = rank == s->pp - 1 && i == s->v - 1;

        most = fmax(most, (count ? layers : none) + last * head);
    }
    return most;
}

double plait_activations_offloaded(const struct plait_shape *s,
                                   const struct plait_rank_sizes *z, int rank,
                                   int slots)
{
    struct lists l;

    if (!(s->c->parallel.offload & PLAIT_OFFLOAD_ACTIVATIONS))
        return 0;
    set_lists(z, &l);
    return slots * (double)plait_shape_largest(s, rank) *
           wider(&l, plait_held_kept(s->c->parallel.recompute));
}

/* Bytes of the work space, of which layer and head use the same part, unless
 * the head computes a layer too, which then keeps its own. */
static double scratch_bytes(const struct plait_shape *s, const struct lists *l,
                            bool head)
{
    double work = plait_held_bytes(l->other, PLAIT_HELD_SET(WORK));

    if (head && s->m->mtp_layers)
        work += plait_held_bytes(l->other,
                                 PLAIT_HELD_SET(HEAD) | PLAIT_HELD_SET(MTP) |
                                     plait_held_kept(s->c->parallel.recompute));
    else if (head)
        work = fmax(work, plait_held_bytes(l->other, PLAIT_HELD_SET(HEAD)));
    return plait_held_bytes(l->other, PLAIT_HELD_SET(PASSED)) +
           wider(l, plait_held_again(s->c->parallel.recompute)) + work;
}

double plait_activations_bytes(const struct plait_shape *s,
                               const struct plait_rank_sizes *z, int rank,
                               int slots)
{
    unsigned kept = plait_held_kept(s->c->parallel.recompute), groups = 0;
    struct lists l;
    double sum;

    set_lists(z, &l);
    sum = scratch_bytes(s, &l, rank == s->pp - 1);
    if (!(s->c->parallel.offload & PLAIT_OFFLOAD_ACTIVATIONS))
        groups |= kept;
    else if (plait_shape_layers(s, rank))
        sum += 2 * wider(&l, kept);
    if (s->c->parallel.schedule == PLAIT_SCHEDULE_ZB_H1)
        groups |= PLAIT_HELD_SET(STASH);
    return sum + slots * (slot_bytes(s, rank, &l, groups) +
                          plait_held_bytes(l.other, PLAIT_HELD_SET(BATCH)));
}
