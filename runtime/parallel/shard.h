/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_PARALLEL_SHARD_H
#define PLAIT_PARALLEL_SHARD_H

#include "runtime/model/model.h"
#include "runtime/parallel/reduce.h"

/* Who owns what of a region. Without ZeRO every rank owns all of every
 * region; with it, the ranks that share the region's weights own one part
 * each, the last one padded so that parts are equal. With shard_group node
 * those on one node do, and their parts have replicas on the others. Where
 * that costs less, sums and gathers over ranks of several nodes are made in
 * steps, in each node and across; a node's parts are then apart, each rank's
 * on all nodes together.
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
    struct plait_comm *comm;     /* who shares it: DP_CP or EXPERT_DP, or its
                                    ranks on this node */
    struct plait_comm *replicas; /* who has the same part on other nodes;
                                    NULL where comm is all of the group */
    const struct plait_nodewise *steps; /* NULL: sums and gathers at once */
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
    int n; /* one per region, in the model's order */
    struct plait_shard *shard;
    void *weights;                     /* whole (zero < 3) or parts */
    float *grads;                      /* whole (zero < 2) or parts */
    float *masters;                    /* NULL where weights serve */
    float *moments;                    /* m of all shards, then v */
    size_t grads_bytes;                /* of grads */
    const struct plait_ops *state_ops; /* of masters and moments: the */
    struct plait_device *state_dev;    /* model's own, or the host's */
    struct plait_queue *state_q;
};

/* Allocates all of it on the model's device and sets region->weight and
 * ->grad. */
struct plait_shards *plait_shards_create(struct plait_model *model,
                                         struct plait_error *err);
void plait_shards_destroy(struct plait_shards *shards);

/* The way of the region's gradients to their owners. */
void plait_shard_route(const struct plait_shard *shard,
                       struct plait_route *route);

/* A region being put together from everybody's parts; zeroed: none. */
struct plait_gathering {
    const struct plait_shard *shard; /* with a step to come; else NULL */
    void *whole;
    enum plait_dtype type;
    struct plait_request *req;
};

/* whole[parts * part] of `type` from part[part] of each rank, which may stand
 * in its place there; ready after wait(), on par->q. Where it is made in
 * steps the one across nodes is under way meanwhile, the other one follows in
 * wait(). */
int plait_shard_gather(struct plait_parallel *par,
                       const struct plait_shard *shard, const void *part,
                       void *whole, enum plait_dtype type,
                       struct plait_gathering *gathering);
int plait_shard_gathered(struct plait_parallel *par,
                         struct plait_gathering *gathering);

#endif
