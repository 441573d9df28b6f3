/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_PREDICT_ESTIMATE_SHAPE_H
#define PLAIT_TOPOLOGY_PREDICT_ESTIMATE_SHAPE_H

#include <math.h>

#include "topology/job/held.h"
#include "topology/job/image_shape.h"
#include "topology/job/model_size.h"
#include "topology/job/stage.h"
#include "topology/job/tensors.h"
#include "topology/predict/estimate.h"
#include "topology/predict/simulate.h"

/* Shared by the files of the estimate. Everything is per GPU; the formulas are
 * in estimate.h. */
struct plait_shape {
    const struct plait_job_config *c;
    const struct plait_model_config *m;
    const struct plait_layout *layout;
    const struct plait_gpu_type *gpu;
    const struct plait_framework_traits *traits;
    int tp, cp, ep, dp, pp;
    int v;                    /* chunks of layers a rank holds */
    struct plait_sides sides; /* not of image models */
    struct plait_sides dense; /* of layers without experts in a model that has
                               * them */
    struct plait_stage_split split;
    int longest;         /* the first rank with the most layers */
    double tokens;       /* of a micro-batch, on one cp rank */
    double element;      /* bytes of an activation */
    double microbatches; /* that a pipeline works through in a step */
    double matrix;       /* weights of one layer that are used for a token */
    double peak;         /* FLOP/s to which MFU relates */
    double linear_peak;  /* of the layers' linears */
    double score_bytes;  /* moved per attention score; 0: fused */
    bool sequence;       /* hidden states are split over tp */
    bool bucketed;       /* gradients are summed during backward passes */
    double crowd; /* threads per core of a node; 1 where ranks share none */
    struct plait_gpu_type rank; /* what `gpu` is where ranks share cores */
    bool worst;                 /* memory is wanted for the worst routing */
};

static inline double plait_align_up(double n, double to)
{
    return ceil(n / to) * to;
}

static inline struct plait_schedule_form
plait_shape_schedule(const struct plait_shape *shape)
{
    return (struct plait_schedule_form){shape->c->parallel.schedule, shape->pp,
                                        shape->v, (int)shape->microbatches};
}

/* plait_estimate() in two parts: first the checks, sizes and memory, then FLOPs
 * and times. A search calls the second part only for layouts that fit. The
 * first part stops looking for the fullest rank as soon as a rank needs more
 * than `enough` bytes, as the layout does not fit then; with INFINITY it finds
 * the fullest rank. */
int plait_shape_begin(struct plait_shape *shape,
                      const struct plait_job_config *config,
                      const struct plait_layout *layout,
                      const struct plait_gpu_type *gpu, double enough,
                      struct plait_estimate *estimate, struct plait_error *err);
void plait_shape_finish(const struct plait_shape *shape,
                        struct plait_estimate *estimate);

/* What computes attention: of Plait on NVIDIA's GPUs, its own kernels or
 * cuDNN's. */
enum plait_attention_by {
    PLAIT_BY_FITTED, /* of other software, or on what Plait has no kernels for
                        or is a CPU: as the type has it */
    PLAIT_BY_CUDNN,
    PLAIT_BY_CHUNKS, /* own kernels where a window hides a part of a chunk */
    PLAIT_BY_BOTH,   /* cuDNN has no backward */
    PLAIT_BY_PEAKS,  /* own kernels' forward, which tells the largest logits */
    PLAIT_BY_OWN
};
enum plait_attention_by
plait_shape_attention_by(const struct plait_shape *shape);

/* Share of the layers that are recomputed where parallel.recompute says so. */
double plait_shape_recomputed(const struct plait_shape *shape);
/* The same share, but 0 unless parallel.recompute has attention computed again
 * (attention_again), or unless it has only a layer's norms and activations
 * computed again (cheap_again). */
double plait_shape_attention_again(const struct plait_shape *shape);
double plait_shape_cheap_again(const struct plait_shape *shape);

/* Layers of pipeline rank `rank`, over all its chunks; of one of them; of the
 * chunk that has the most. */
int plait_shape_layers(const struct plait_shape *shape, int rank);
int plait_shape_chunk(const struct plait_shape *shape, int rank, int chunk);
int plait_shape_largest(const struct plait_shape *shape, int rank);
/* How many of them have no experts in a model that has them. */
int plait_shape_dense(const struct plait_shape *shape, int rank);
/* The number of the first layer of a chunk in the model. */
int plait_shape_chunk_first(const struct plait_shape *shape, int rank,
                            int chunk);
int plait_shape_chunk_dense(const struct plait_shape *shape, int rank,
                            int chunk);

/* Weights on a GPU with this many layers, and with the embedding or the
 * head. */
double plait_shape_weights(const struct plait_shape *shape, int layers,
                           int embedding, int head);

/* Weights of a pipeline rank, with the padding of its blocks. */
double plait_shape_rank_weights(const struct plait_shape *shape, int rank);

/* Ranks that ZeRO shards dense weights over; 1 without it. */
double plait_shape_shards(const struct plait_shape *shape);
/* The weights of a GPU whose optimizer state it keeps with ZeRO, of `weights`
 * in all. The share is larger for experts, as fewer ranks have the same
 * ones. */
double plait_shape_sharded(const struct plait_shape *shape, double weights);
/* The share of a GPU's weights that belongs to experts. */
double plait_shape_expert_share(const struct plait_shape *shape);

/* Bytes of a layer's activations of a micro-batch that are offloaded. */
double plait_shape_offloaded(const struct plait_shape *shape);
/* The same for software other than Plait (estimate_foreign.c). */
double plait_shape_foreign_offloaded(const struct plait_shape *shape);

/* Whether a GPU keeps the layers' linears in fp8 too, rounded once a step
 * (fp8_weight() of kernels.h); with ZeRO 3 each product rounds its own. */
bool plait_shape_keeps_codes(const struct plait_shape *shape);

/* Under ZeRO 2 and 3, the most whole gradients of regions of each kind that
 * pipeline rank `rank` holds at once, and of those being summed at once. */
struct plait_zero_count {
    int whole[PLAIT_KINDS], sums[PLAIT_KINDS];
};
void plait_shape_zero(const struct plait_shape *shape, int rank,
                      struct plait_zero_count *count);
/* Layers without experts (dense) or the others whose weights ZeRO 3 has at
 * once: of the layer at work and the next one. */
int plait_shape_gathered(const struct plait_shape *shape, int rank, bool dense);
/* How many more layers' experts than layers with experts. */
int plait_shape_gathered_further(const struct plait_shape *shape, int rank);

/* Bytes that the optimizer of a pipeline rank holds beside
 * plait_optim_state_bytes() of each weight, where its state is not the same for
 * all; may be below 0. */
double plait_shape_uneven_bytes(const struct plait_shape *shape, int rank);

/* Image models: estimate_image.c. */

/* Elements of a block's tensors, its running statistics among them. */
double plait_shape_image_elements(const struct plait_image_piece *piece);
/* Bytes of activations with this many micro-batches in flight. */
double plait_shape_image_activations(const struct plait_shape *shape,
                                     const struct plait_rank_sizes *sizes,
                                     int rank, int slots);
double plait_shape_image_uneven_bytes(const struct plait_shape *shape,
                                      int rank);
/* Of one image: FLOPs of the forward pass; bytes of elementwise traffic in a
 * whole step. Of a layer on average, and of the head. */
struct plait_image_cost {
    double flops, bytes;
};
void plait_shape_image_work(const struct plait_shape *shape,
                            struct plait_image_cost *layer,
                            struct plait_image_cost *head);

/* estimate_memory.c, estimate_time.c: fill in their parts of an estimate. */
void plait_shape_memory(const struct plait_shape *shape, int rank,
                        struct plait_memory *memory);
/* The same for software other than Plait (estimate_foreign.c). */
void plait_shape_foreign_memory(const struct plait_shape *shape, int rank,
                                struct plait_memory *memory);
void plait_shape_time(const struct plait_shape *shape,
                      struct plait_estimate *estimate);

#endif
