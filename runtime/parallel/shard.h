/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_PARALLEL_SHARD_H
#define PLAIT_PARALLEL_SHARD_H

#include "runtime/model/model.h"

/* Who owns what of a region. Without ZeRO every rank owns all of every
 * region; with it, the ranks that share the region's weights own one part
 * each, the last one padded so that parts are equal. With shard_group node
 * those on one node do, and their parts have replicas on the others.
 *
 *   zero   weights      gradients    master, m, v
 *   0      whole        whole        whole
 *   1      whole        whole        part
 *   2      whole        part         part
 *   3      part         part         part
 *
 * Master weights and moments are where the optimizer steps: on the device, or
 * with offload in the host's memory.
 *
 * "Whole" buffers lie in one allocation each, in the order of the regions.
 * Where only the part is kept, region->weight or ->grad is NULL but while a
 * block works (zero.c). */
struct plait_shard {
    struct plait_region *region;
    struct plait_comm *comm; /* who shares it: DP_CP or EXPERT_DP, or its
                                ranks on this node */
    struct plait_comm *replicas; /* who has the same part on other nodes;
                                    NULL where comm is all of the group */
    int parts;
    size_t part;   /* elements of one part; parts * part >= region->count */
    size_t first;  /* of this rank's part, within the region */
    size_t owned;  /* elements of the part that are not padding; may be 0 */
    void *weight;  /* [part] this rank's, of the compute type */
    float *grad;   /* [part] this rank's, reduced */
    float *master; /* [part] is weight where the compute type is fp32 and
                      nothing is offloaded */
    float *m, *v;  /* [part] */
};

struct plait_shards {
    struct plait_model *model;
    int zero;
    int n;                     /* one per region, in the model's order */
    struct plait_shard *shard;
    void *weights;             /* whole (zero < 3) or parts */
    float *grads;              /* whole (zero < 2) or parts */
    float *masters;            /* NULL where weights serve */
    float *moments;            /* m of all shards, then v */
    size_t grads_bytes;        /* of grads */
    const struct plait_ops *state_ops; /* of masters and moments: the */
    struct plait_device *state_dev;    /* model's own, or the host's */
    struct plait_queue *state_q;
};

/* Allocates all of it on the model's device and sets region->weight and
 * ->grad. */
struct plait_shards *plait_shards_create(struct plait_model *model,
                                         struct plait_error *err);
void plait_shards_destroy(struct plait_shards *shards);

#endif
