/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_MODEL_MODEL_H
#define PLAIT_RUNTIME_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/mesh/mesh.h"
#include "topology/job/job_config.h"
#include "topology/job/stage.h"

/* The part of a model that lives in this process.
 *
 * A model is a list of blocks: embedding, the layers, the head (final norm,
 * logits, loss). A pipeline rank holds `chunks` runs of consecutive blocks
 * (global stage c * pp + r). Each block's tensors lie side by side in one
 * flat region per chunk, so that gradient buckets and ZeRO see plain ranges
 * and the optimizer sees plain vectors.
 *
 * The tensor table drives initialisation, sharding, optimizer, checkpoints
 * and resharding. Tensors are named and shaped as in the whole, unsharded
 * model: q, k and v are three tensors, though a block multiplies by them as
 * one fused matrix because their local shards are neighbours. */

struct plait_tensor {
    char name[96]; /* "layers.3.attention.q.weight" */
    int ndim;
    size_t shape[2];       /* whole tensor; vocabulary without padding */
    size_t local_shape[2]; /* this tp rank's shard, padding included */
    size_t local_first;    /* first row (or column) of the shard along
                              tp_axis, in the whole tensor; of vocabulary
                              shards, rows past shape[0] are padding */
    int tp_axis;           /* 0, 1: split along that axis; -1: replicated */
    int tp_replicas;       /* ranks of the tp group that hold equal shards:
                              tp where tp_axis < 0, more than 1 for kv heads
                              when kv_heads < tp, else 1 */
    bool sequence_partial; /* gradient differs over tp (sequence parallel)
                              and must be summed there */
    bool decay;            /* weight decay applies (2-D weights only) */
    bool statistic;        /* running statistics: no optimizer steps them, their
                              gradient is what a step adds to them */
    bool expert;           /* belongs to one of the ep ranks' experts */
    bool tied;             /* on a pipeline end that shares it with the other
                              end: gradients are summed over the embedding
                              group, the copy on the last stage is not saved */
    double init_std;       /* normal(0, std); 0: zeros */
    double init_const;     /* where init_std is 0 */
    int layer;             /* -1 for embedding and head */
    int product;           /* which matrix product makes its gradient, with q,
                              k, v and the bias one; -1: backward adds to it */
    int chunk, region;     /* where it lives */
    size_t offset;         /* elements from the start of its region */
    size_t count;          /* local elements */
};

/* The tensors of one block that share one data-parallel group. */
struct plait_region {
    int chunk;
    int block;    /* index within the chunk, in forward order */
    bool expert;  /* synchronised over EXPERT_DP instead of DP_CP */
    size_t begin; /* elements from the start of the flat buffers; each
                     region starts on a multiple of 64 elements */
    size_t count; /* elements, padding included (a multiple of 64) */
    void *weight; /* [count] of the compute type, device: a place in the
                     model's weights, or under ZeRO 3 a buffer while a block
                     computes. Whoever writes it (optimizer, checkpoint, ZeRO)
                     calls plait_model_weights_changed() */
    float *grad;  /* [count] fp32, device; backward adds to it, or makes
                     it: plait_model_begin_gradient() */
};

/* One micro-batch of tokens or images on the host. */
struct plait_batch {
    int batch;              /* sequences */
    int seq_len;            /* of the whole sequence, before cp */
    const int32_t *tokens;  /* [batch, seq_len]; NULL: they are there by
                               plait_model_load(), and so are the targets */
    const int32_t *targets; /* [batch, seq_len]; < 0: masked */
    const int32_t *starts;  /* [batch, seq_len] where the document of each
                               token starts in its sequence, as in struct
                               plait_attention; NULL: at 0, or where tokens
                               is NULL, as loaded */
    const float *weights;   /* [batch] factor of each sequence's gradient, not
                               of its loss; NULL: 1 */
    const float *images;    /* [batch, H, W, C] instead of tokens, with a
                               target each; seq_len is 1 */
    int index, total;       /* of images: which micro-batch of the step this
                               is, in the order of the samples, of how many */
    float loss_scale;       /* gradient of each token's loss, normally
                               1 / (the step's batch * seq_len) */
    float masked;           /* share of the step's targets that are masked,
                               where gradients are multiplied by 1 / (1 - it)
                               afterwards: the balance of experts is not to
                               be */
};

/* Called during backward as soon as a region's gradient for this
 * micro-batch is complete on the compute queue. */
typedef int (*plait_region_fn)(void *arg, struct plait_region *region,
                               int microbatch);

struct plait_model_hooks {
    /* The block after the one at work will want this region's weights. */
    int (*prefetch)(void *arg, struct plait_region *region);
    /* Before a block computes (forward, or backward again): ZeRO-3 gathers
     * here. After: it may free. gradient: the block is about to add to
     * region->grad, which stays needed until grad_ready. */
    int (*acquire)(void *arg, struct plait_region *region, bool gradient);
    int (*release)(void *arg, struct plait_region *region);
    plait_region_fn grad_ready;
    /* Transfers that the hooks have started are waited for. */
    int (*settle)(void *arg);
    void *arg;
};

/* Sees what a pass computes with and makes, in the order of the work: for a
 * step that is made again to find out where a number came from. `layer` is -1
 * but in a layer; x[n] is on the device. */
struct plait_model_observer {
    int (*see)(void *arg, int layer, const char *what, enum plait_dtype type,
               const void *x, size_t n);
    void *arg;
    int layer; /* the model's own: the one at work */
};

struct plait_model {
    const struct plait_job_config *config; /* not owned */
    struct plait_mesh *mesh;               /* not owned */
    enum plait_dtype type;                 /* compute type */
    int chunks;                            /* on this rank */
    int vocab_padded;
    int ntensors;
    struct plait_tensor *tensors; /* of this rank, in region order */
    int nregions;
    struct plait_region *regions; /* in forward order per chunk */
    size_t count;                 /* elements of all regions */
    int64_t parameters;           /* of the whole model, no padding,
                                     tied tensors once */
    int64_t statistics;           /* elements that no optimizer steps */
    void *weights; /* device; of all regions, or of this rank's ZeRO parts:
                      plait_model_make_weights() */
    struct plait_model_hooks hooks;
    struct plait_model_observer observer; /* see NULL: none */
    struct plait_model_state *state;      /* private to model/, as the rest */
    const struct plait_family_ops *family;
    struct plait_image_state *image; /* of image models */
};

/* What a model of that precision computes in. */
enum plait_dtype plait_model_type(enum plait_precision precision);

/* Lays out tensors and regions; weights are allocated later. Refuses, naming
 * the numbers: heads % tp, layers < pp * virtual, ... */
struct plait_model *plait_model_create(const struct plait_job_config *config,
                                       struct plait_mesh *mesh,
                                       struct plait_error *err);
void plait_model_destroy(struct plait_model *model);

/* Allocates model->weights: `elements` of the compute type on the device,
 * uninitialised, freed with the model. How many of each region this rank
 * keeps, and where region->weight points, the sharding decides
 * (runtime/parallel/shard.h). -1: out of memory. */
int plait_model_make_weights(struct plait_model *model, size_t elements);

/* Initial values of the local elements [first, first + count) of tensor `t`,
 * fp32, in host memory [count]: a function of (seed, tensor name, index in the
 * whole tensor) alone, so that every layout starts from the same model and a
 * shard is made without its neighbours. Padding rows are 0. */
void plait_model_init_tensor(const struct plait_tensor *t, uint64_t seed,
                             size_t first, size_t count, float *out);

/* Tell the model that region->weight (the pointer or its content) changed. */
void plait_model_weights_changed(struct plait_model *model,
                                 struct plait_region *region);

/* Activations: `slot` is the number of a chunk's micro-batch among those in
 * flight; make room for `slots` of them before the first step. The chunks of a
 * transformer share the memory of a slot: from its forward to the end of its
 * backward one chunk has it. Those of an image model have slots of their own.
 */
int plait_model_reserve(struct plait_model *model, int slots, int micro_batch,
                        struct plait_error *err);

/* Elements of T of one boundary tensor between two stages:
 * [micro_batch, seq_len / cp / (tp if sequence parallel), hidden]. */
size_t plait_model_boundary(const struct plait_model *model, int micro_batch);

/* What follows the next forward or backward: a backward (or forward) of this
 * chunk, so that its first weights may be fetched ahead. chunk -1: nothing
 * that is known of. Holds for one forward or backward. */
void plait_model_expect(struct plait_model *model, int chunk, bool backward);

/* Bring what the chunk needs of a batch, tokens or targets, to the device
 * ahead of its forward. */
int plait_model_load(struct plait_model *model, int chunk, int slot,
                     const struct plait_batch *batch);

/* Run a chunk forward for one micro-batch. `in` (device, boundary shape) is
 * NULL on the first stage; `out` is NULL on the last, which instead adds the
 * micro-batch's summed token loss to *loss (device, double; every tp rank
 * adds the same; image models also add to loss[1] how many images have their
 * largest output at the label) and leaves the gradient of the logits for
 * backward. With `train` false nothing is kept for backward. */
int plait_model_forward(struct plait_model *model, int chunk, int slot,
                        const struct plait_batch *batch, const void *in,
                        void *out, double *loss, bool train);

/* The head runs backward as part of forward, because that spares keeping the
 * logits: with `train` true, forward of the last stage already adds to the
 * gradients of the head (and of a tied embedding on the same rank). Their
 * grad_ready still comes in backward.
 * dout NULL on the last stage, din NULL on the first. Gradients are added to
 * region->grad; hooks.grad_ready is called block by block, last first. */
int plait_model_backward(struct plait_model *model, int chunk, int slot,
                         int microbatch, const void *dout, void *din);
/* The same in two halves, for ZB-H1: input gradients first, keeping what the
 * weight gradients need; then the weight gradients. */
int plait_model_backward_input(struct plait_model *model, int chunk, int slot,
                               int microbatch, const void *dout, void *din);
int plait_model_backward_weight(struct plait_model *model, int chunk, int slot,
                                int microbatch);

/* From here on region->grad is a new sum, whatever stands there: what backward
 * only adds to becomes 0, the rest is overwritten by the first product that
 * makes it. Without this call backward adds to all of it. */
int plait_model_begin_gradient(struct plait_model *model,
                               struct plait_region *region);
/* The sum is to be complete: what no product has overwritten since
 * begin_gradient() (an expert that no token chose) becomes 0; and what each
 * rank of the tp group has a part of is summed there: norms under sequence
 * parallel, key/value heads that several ranks share. The owner of the
 * gradients calls it once per step and region, after the region's last
 * micro-batch and before the reduction over data parallel ranks. Collective
 * over the tp group, ordered on mesh->q. */
int plait_model_complete_gradient(struct plait_model *model,
                                  struct plait_region *region);

/* -- texts that grow: forward alone ---------------------------------------
 * The keys and values of all tokens of some texts are kept, so that a pass
 * computes with the new ones alone. Each rank of a context parallel group has
 * all of them: a token more is no work to divide. Of transformers. */

/* The tokens of a text that a pass adds: at `first` and the `count` - 1
 * positions behind it: where the text ends, or 0, where it begins anew. */
struct plait_addition {
    int text, first, count;
    bool wanted; /* the logits after its last token */
};

struct plait_additions {
    int n;
    const struct plait_addition *add; /* [n], each of another text */
    const int32_t *tokens;            /* of all of them, one after the other */
};

/* In place of plait_model_reserve(): room for `texts` texts of up to `length`
 * tokens, of which a pass adds at most `rows`. Of a model in one chunk. */
int plait_model_reserve_texts(struct plait_model *model, int texts, int length,
                              int rows, struct plait_error *err);
/* Bytes of keys and values that it keeps for them here. */
size_t plait_model_cache_bytes(const struct plait_model *model, int texts,
                               int length);

/* One pass. `in` and `out` are [tokens, hidden] of T, NULL at the ends as in
 * plait_model_forward(). On the last stage `logits`, host memory [n, vocab]
 * fp32, get rows that are wanted. Collective over the tp and ep groups; -1
 * with EINVAL for what there is no room for. */
int plait_model_extend(struct plait_model *model,
                       const struct plait_additions *added, const void *in,
                       void *out, float *logits);

/* Floating-point operations of forward and backward per token, for MFU:
 * 6 * parameters that multiply + 12 * layers * heads * head_dim * seq_len (the
 * full attention convention, PaLM appendix B). */
double plait_model_flops_per_token(const struct plait_model *model);

#endif
