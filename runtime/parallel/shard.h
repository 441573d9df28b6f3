/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_PARALLEL_SHARD_H
#define PLAIT_RUNTIME_PARALLEL_SHARD_H

#include "runtime/mesh/reduce.h"
#include "runtime/model/model.h"

/* Which part of a region a rank owns. Without ZeRO every rank owns all of every
 * region; with it, the ranks that share the region's weights own one part
 * each, the last one padded so that parts are equal. With shard_group node only
 * the ranks of one node divide a region, and the other nodes have replicas of
 * the parts. Where that costs less, sums and gathers over several nodes are
 * made in an intra-node and an inter-node step; then the parts of the ranks
 * that have the same position in their nodes are neighbours in the region.
 *
 *   zero   weights      gradients    masters, states
 *   0      whole        whole        whole
 *   1      whole        whole        part
 *   2      whole        part         part
 *   3      part         part         part
 *
 * Master weights and the optimizer's states (topology/job/optimizers.h) are
 * where the optimizer runs: on the device or, with offload, in the host's
 * memory.
 *
 * The model owns the weights; gradients, masters and states exist only where it
 * is trained. "Whole" buffers are one allocation each, in the order of the
 * regions. Where only the part is kept, region->weight and ->grad are NULL
 * except while a block uses them (zero.c). */
struct plait_shard {
    struct plait_region *region;
    struct plait_comm *comm;     /* the ranks that share the region: DP_CP or
                                    EXPERT_DP, or those of them on this node;
                                    CP where replicas train apart */
    struct plait_comm *replicas; /* the ranks with the same part on other
                                    nodes; NULL where comm has all */
    const struct plait_hierarchy *steps; /* NULL: in one step */
    int parts;
    size_t part;  /* elements of one part; parts * part >= region->count */
    size_t first; /* of this rank's part, within the region */
    size_t owned; /* elements of this rank's part without padding; may be 0 */
    void *weight; /* [part] of this rank, of the compute type */
    /* Only in training: */
    float *grad;   /* [part] of this rank, reduced */
    float *master; /* [part] the same as weight where the compute type is
                      fp32 and nothing is offloaded; NULL: weight has none
                      (optim.masters) */
    void *state[PLAIT_OPTIM_STATES]; /* [part] each, of the shards'
                                        state_type; NULL where the optimizer
                                        keeps none, or keeps codes */
};

/* A gather of a whole region under way; zeroed: none. */
struct plait_gathering {
    bool begun;
    const struct plait_shard *shard; /* NULL: no second step follows */
    void *whole;
    enum plait_dtype type;
    struct plait_request *req;
};

struct plait_shards {
    struct plait_model *model;
    int zero;
    int n; /* one per region, in the model's order */
    struct plait_shard *shard;
    struct plait_gathering *gathering; /* [n] of new weights: ZeRO 1 and 2 */
    float *grads;                      /* whole (zero < 2) or parts; NULL:
                                          the model is not trained */
    float *masters;                    /* NULL: the weights serve as masters,
                                          or have none */
    int nstates;                       /* arrays per weight */
    enum plait_dtype state_type;       /* theirs: PLAIT_F32 or PLAIT_BF16_T */
    char *states;                      /* the first state of all shards, then
                                          the second; NULL: none */
    size_t grads_bytes;                /* of grads */
    const struct plait_ops *state_ops; /* where masters and states are: */
    struct plait_device *state_dev;    /* the model's device or the host */
    struct plait_queue *state_q;
};

/* Divides the regions, makes the model allocate its weights and sets
 * region->weight. `model` must outlive the shards. NULL with errno. */
struct plait_shards *plait_shards_create(struct plait_model *model,
                                         struct plait_error *err);
/* Allocates what training needs beyond the weights: gradients, masters and
 * zeroed states, on the device or, offloaded, in the host's memory. Sets
 * region->grad. */
int plait_shards_add_training(struct plait_shards *shards,
                              struct plait_error *err);
void plait_shards_destroy(struct plait_shards *shards);

/* Which local elements of `tensor`, a tensor of the shard's region, are in this
 * rank's part: [*first, *first + *count). False: none. */
bool plait_shard_slice(const struct plait_shard *shard,
                       const struct plait_tensor *tensor, size_t *first,
                       size_t *count);

/* Converts fp32 weights in host memory to `n` weights of this type on the
 * device. */
int plait_shards_write_weights(struct plait_shards *shards, void *weights,
                               enum plait_dtype type, const float *from,
                               size_t n);

/* After all ranks have written their parts: gathers the weights that the model
 * reads whole, and tells it that they changed. Collective. */
int plait_shards_gather_weights(struct plait_shards *shards,
                                struct plait_error *err);

/* The same region by region, so that weights arrive while the next step
 * computes. Collective; they do nothing for regions that are not gathered:
 * without ZeRO, with ZeRO 3, and where a rank has a region alone.
 *
 * Once this rank's part is written on mesh->q: begins to gather region i. Until
 * it is waited for the part must not be written, nor the rest be read. */
int plait_shards_begin_gather(struct plait_shards *shards, int i);
/* If region i is being gathered, mesh->q waits for it. await also tells the
 * model that the weights changed, which no graph can record. */
int plait_shards_finish_gather(struct plait_shards *shards, int i);
int plait_shards_await(struct plait_shards *shards, int i);
/* Makes all weights whole, for whoever writes them, or reads them outside of a
 * pass. */
int plait_shards_await_all(struct plait_shards *shards);
/* Whether region i is one that is gathered; whether any is under way. */
bool plait_shards_gathers(const struct plait_shards *shards, int i);
bool plait_shards_gathering(const struct plait_shards *shards);

/* The path that sums the region's gradients to the owners of its parts. */
void plait_shard_reduction_path(const struct plait_shard *shard,
                                struct plait_reduction_path *path);

/* Fills whole[parts * part] of `type` from the part[part] of each rank, which
 * may be its own place in `whole`. Complete on mesh->q after
 * plait_shard_gathered(). Of two steps the inter-node one comes first; where
 * the host makes the transfers, the other one starts in plait_shard_gathered().
 */
int plait_shard_gather(struct plait_mesh *mesh, const struct plait_shard *shard,
                       const void *part, void *whole, enum plait_dtype type,
                       struct plait_gathering *gathering);
int plait_shard_gathered(struct plait_mesh *mesh,
                         struct plait_gathering *gathering);

#endif
