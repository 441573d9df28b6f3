/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PARALLEL_SHARD_H
#define PLAIT_RUNTIME_PARALLEL_SHARD_H

#include "runtime/mesh/reduce.h"
#include "runtime/model/model.h"

/* Who owns what of a region. Without ZeRO every rank owns all of every
 * region; with it, the ranks that share the region's weights own one part
 * each, the last one padded so that parts are equal. With shard_group node
 * those on one node do, and their parts have replicas on the others. Where
 * that costs less, sums and gathers over several nodes are made in an
 * intra-node and an inter-node step; the parts of the ranks at one position in
 * all nodes are then neighbours in the region.
 *
 *   zero   weights      gradients    masters, states
 *   0      whole        whole        whole
 *   1      whole        whole        part
 *   2      whole        part         part
 *   3      part         part         part
 *
 * Master weights and the optimizer's states (topology/job/optimizers.h) are
 * where the optimizer steps: on the device, or with offload in the host's
 * memory.
 *
 * Weights are the model's; gradients, masters and states exist only where it
 * is trained. "Whole" buffers lie in one allocation each, in the order of the
 * regions. Where only the part is kept, region->weight and ->grad are NULL
 * except while a block works (zero.c). */
struct plait_shard {
    struct plait_region *region;
    struct plait_comm *comm;     /* the ranks that share it: DP_CP or
                                    EXPERT_DP, or those on this node; CP
                                    where replicas train apart */
    struct plait_comm *replicas; /* the ranks with the same part on other
                                    nodes; NULL where comm is all of them */
    const struct plait_hierarchy *steps; /* NULL: sums and gathers at once */
    int parts;
    size_t part;  /* elements of one part; parts * part >= region->count */
    size_t first; /* of this rank's part, within the region */
    size_t owned; /* elements of the part that are not padding; may be 0 */
    void *weight; /* [part] this rank's, of the compute type */
    /* Only in training: */
    float *grad;   /* [part] this rank's, reduced */
    float *master; /* [part] is weight where the compute type is fp32 and
                      nothing is offloaded */
    float *state[PLAIT_OPTIM_STATES]; /* [part] each; NULL where the optimizer
                                         keeps none, or not in fp32 */
};

struct plait_shards {
    struct plait_model *model;
    int zero;
    int n; /* one per region, in the model's order */
    struct plait_shard *shard;
    float *grads;                      /* whole (zero < 2) or parts; NULL:
                                          the model is not trained */
    float *masters;                    /* NULL where weights serve */
    int nstates;                       /* fp32 arrays per weight */
    float *states;                     /* the first of all shards, then the
                                          second; NULL: there are none */
    size_t grads_bytes;                /* of grads */
    const struct plait_ops *state_ops; /* of masters and states: the */
    struct plait_device *state_dev;    /* model's own, or the host's */
    struct plait_queue *state_q;
};

/* Decides who owns what, has the model allocate its weights and sets
 * region->weight. `model` outlives the shards. NULL with errno. */
struct plait_shards *plait_shards_create(struct plait_model *model,
                                         struct plait_error *err);
/* What training needs beyond the weights: gradients, masters and states (0),
 * on the device or, offloaded, in the host's memory; sets region->grad. */
int plait_shards_add_training(struct plait_shards *shards,
                              struct plait_error *err);
void plait_shards_destroy(struct plait_shards *shards);

/* The local elements [*first, *first + *count) of `tensor`, which lies in the
 * shard's region, that are in this rank's part. false: none are. */
bool plait_shard_slice(const struct plait_shard *shard,
                       const struct plait_tensor *tensor, size_t *first,
                       size_t *count);

/* fp32 from host memory to `n` weights of the compute type on the device. */
int plait_shards_write_weights(struct plait_shards *shards, void *weights,
                               const float *from, size_t n);

/* After all ranks have written their parts of the weights: gather those that
 * the model reads whole, and let it know. Collective. */
int plait_shards_gather_weights(struct plait_shards *shards,
                                struct plait_error *err);

/* The reduction path of the region's gradients to their owners. */
void plait_shard_reduction_path(const struct plait_shard *shard,
                                struct plait_reduction_path *path);

/* A region that is being gathered from all ranks' parts; zeroed: none. */
struct plait_gathering {
    const struct plait_shard *shard; /* with a step to come; else NULL */
    void *whole;
    enum plait_dtype type;
    struct plait_request *req;
};

/* whole[parts * part] of `type` from part[part] of each rank, which may be its
 * own place in `whole`; ready after plait_shard_gathered(), on mesh->q. If it
 * is made in steps, the inter-node one runs until then and the intra-node one
 * follows there. */
int plait_shard_gather(struct plait_mesh *mesh, const struct plait_shard *shard,
                       const void *part, void *whole, enum plait_dtype type,
                       struct plait_gathering *gathering);
int plait_shard_gathered(struct plait_mesh *mesh,
                         struct plait_gathering *gathering);

#endif
