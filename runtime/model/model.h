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
 * (global stage c * pp + r). Each block's tensors are adjacent in one flat
 * region per chunk, so that gradient buckets and ZeRO see plain ranges and the
 * optimizer sees plain vectors.
 *
 * The tensor table drives initialisation, sharding, optimizer, checkpoints and
 * resharding. Tensors are named and shaped as in the whole, unsharded model: q,
 * k and v are three tensors, though a block multiplies by them as one fused
 * matrix because their local shards are adjacent. */

struct plait_tensor {
    char name[96]; /* "layers.3.attention.q.weight" */
    int ndim;
    size_t shape[2];       /* whole tensor; vocabulary without padding */
    size_t local_shape[2]; /* this tp rank's shard, padding included */
    size_t local_first;    /* the shard's first row (or column) along tp_axis,
                            * in the whole tensor; in vocabulary shards, rows
                            * beyond shape[0] are padding */
    int tp_axis;           /* 0, 1: split along that axis; -1: replicated */
    int tp_replicas;       /* ranks of the tp group that hold equal shards: tp
                            * if tp_axis < 0, more than 1 for kv heads if
                            * kv_heads < tp, else 1 */
    bool sequence_partial; /* gradient differs over tp (sequence parallel)
                              and must be summed there */
    bool decay;            /* weight decay applies (2-D weights only) */
    bool statistic;        /* no optimizer updates it: running statistics,
                            * whose gradient is what a step adds to them, and
                            * what is balance */
    bool balance;          /* a router's bias: its gradient counts how often
                            * tokens chose each expert, and
                            * plait_optim_balance() moves it by that */
    bool load;             /* balance, but no bias: how often a step chose each
                            * expert, 1 on average; 0 before the first step */
    size_t exact;          /* balance: where it is in model->exact */
    bool expert;           /* belongs to an expert */
    bool tied;             /* on a pipeline end that shares it with the other
                            * end: gradients are summed over the embedding
                            * group, the copy on the last stage is not saved */
    double init_std;       /* normal(0, std); 0: zeros */
    double init_const;     /* used if init_std is 0 */
    double rate, eps;      /* factors of the optimizer's; 1 without mup */
    int layer;             /* -1 for embedding and head */
    size_t peaks;          /* where its layer's heads are in model->peaks */
    int product;           /* number of the matrix product that computes its
                            * gradient, the same for q, k, v and the bias; -1:
                            * backward adds to it */
    int chunk, region;     /* where it is stored */
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
    void *weight; /* [count] of the compute type, device: part of the model's
                   * weights, or under ZeRO 3 a buffer while a block computes.
                   * After writing to it (optimizer, checkpoint, ZeRO), call
                   * plait_model_weights_changed() */
    float *grad;  /* [count] fp32, device; backward adds to it or overwrites it:
                   * plait_model_begin_gradient() */
};

/* One micro-batch of tokens or images on the host. */
struct plait_batch {
    int batch;              /* sequences */
    int seq_len;            /* of the whole sequence, before cp */
    const int32_t *tokens;  /* [batch, seq_len]; NULL: plait_model_load() has
                             * loaded tokens and targets */
    const int32_t *targets; /* [batch, seq_len]; < 0: masked */
    const int32_t *starts;  /* [batch, seq_len] where each token's document
                             * starts in its sequence, as in struct
                             * plait_attention; NULL: at 0 or, if tokens is
                             * NULL, as loaded */
    const float *weights;   /* [batch] factors of the sequences' gradients, not
                             * of their losses; NULL: 1 */
    const float *images;    /* [batch, H, W, C] instead of tokens, with a
                               target each; seq_len is 1 */
    int64_t sample;         /* the number of the first sequence in the run,
                             * which the others follow: on it depends what
                             * dropout drops */
    int index, total;       /* images: the number of this micro-batch in the
                             * step, in the order of the samples, and how many
                             * there are */
    float loss_scale;       /* gradient of each token's loss, usually 1 / (the
                             * step's batch * seq_len) */
    float masked;           /* part of the step's targets that are masked, equal
                             * in all its micro-batches, if gradients are
                             * afterwards multiplied by 1 / (1 - masked): the
                             * gradient of the experts' balance must not be */
};

/* Called during backward as soon as a region's gradient for this
 * micro-batch is complete on the compute queue. */
typedef int (*plait_region_fn)(void *arg, struct plait_region *region,
                               int microbatch);

struct plait_model_hooks {
    /* The next block will need this region's weights. */
    int (*prefetch)(void *arg, struct plait_region *region);
    /* acquire before a block computes (forward or backward): ZeRO 3 gathers
     * here; release after it: ZeRO 3 may free. gradient: the block will add to
     * region->grad, which is in use until grad_ready. */
    int (*acquire)(void *arg, struct plait_region *region, bool gradient);
    int (*release)(void *arg, struct plait_region *region);
    plait_region_fn grad_ready;
    /* Whether acquire has weights to wait for, for which a replay of the pass
     * would not. NULL: never. */
    bool (*awaits)(void *arg);
    /* Waits for transfers that the hooks have started. */
    int (*settle)(void *arg);
    /* Before a pass is captured, when no transfer is under way: keeps what its
     * hooks will change on the host. And restores it, if the pass could not be
     * captured and is to run. */
    void (*keep)(void *arg);
    void (*restore)(void *arg);
    void *arg;
};

/* Sees the inputs and results of a pass in the order of the computation, when a
 * step is repeated to find where a number came from. `layer` is -1 outside of
 * layers; x[n] is on the device. */
struct plait_model_observer {
    int (*see)(void *arg, int layer, const char *what, enum plait_dtype type,
               const void *x, size_t n);
    void *arg;
    int layer; /* set by the model: the current layer */
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
    int64_t statistics;           /* of an image model: elements of running
                                     statistics, which are no parameters */
    size_t nexact;
    float *exact;  /* [nexact] device, whole on each rank: what layers read in
                    * fp32 whatever the compute type is, the routers' biases
                    * and the loads of their experts.
                    * Made with the weights, and 0 */
    size_t npeaks; /* heads of all layers here */
    float *peaks;  /* [npeaks] device: becomes the largest attention logit of
                    * each head in a training pass, where that is larger; not
                    * owned; NULL: unused */
    void *weights; /* device; of all regions, or this rank's shards of them
                    * (ZeRO): plait_model_make_weights() */
    struct plait_model_hooks hooks;
    struct plait_model_observer observer; /* see NULL: none */
    struct plait_model_state *state;      /* private to model/, as the
                                           * following */
    const struct plait_family_ops *family;
    struct plait_image_state *image; /* only image models */
};

/* The compute type of a precision. */
enum plait_dtype plait_model_type(enum plait_precision precision);

/* Lays out tensors and regions; weights are allocated later. Refuses, naming
 * the numbers: heads % tp, layers < pp * virtual, ... */
struct plait_model *plait_model_create(const struct plait_job_config *config,
                                       struct plait_mesh *mesh,
                                       struct plait_error *err);
void plait_model_destroy(struct plait_model *model);

/* Allocates model->weights: `elements` of the compute type on the device,
 * uninitialised, freed with the model. The sharding (runtime/parallel/shard.h)
 * decides how many of each region this rank keeps, and where region->weight
 * points. -1: out of memory. */
int plait_model_make_weights(struct plait_model *model, size_t elements);

/* Initial values of the local elements [first, first + count) of tensor `t`,
 * fp32, in host memory [count]: a function of (seed, tensor name, index in the
 * whole tensor) alone, so that every layout starts from the same model and a
 * shard is made without its neighbours. Padding rows are 0. */
void plait_model_init_tensor(const struct plait_tensor *t, uint64_t seed,
                             size_t first, size_t count, float *out);

/* Call after region->weight (the pointer or its content) has changed. -1 with
 * ENOMEM: the model cannot compute with the region; a pass that begins later
 * fails, and one that is under way must end. */
int plait_model_weights_changed(struct plait_model *model,
                                struct plait_region *region);

/* Activations. `slot` numbers a chunk's micro-batches in flight; reserve
 * `slots` of them before the first step. The chunks of a transformer share a
 * slot's memory: one chunk uses it from its forward to the end of its backward.
 * Each chunk of an image model has its own slots. */
int plait_model_reserve(struct plait_model *model, int slots, int micro_batch,
                        struct plait_error *err);

/* Elements of T of one boundary tensor between two stages:
 * [micro_batch, seq_len / cp / (tp if sequence parallel), hidden]. */
size_t plait_model_boundary(const struct plait_model *model, int micro_batch);

/* Announces what follows the next forward or backward: a forward or backward of
 * this chunk, whose first weights may then be prefetched. chunk -1: not known.
 * Holds for one forward or backward. */
void plait_model_expect(struct plait_model *model, int chunk, bool backward);

/* Copies what the chunk needs of a batch, tokens or targets, to the device
 * ahead of its forward. */
int plait_model_load(struct plait_model *model, int chunk, int slot,
                     const struct plait_batch *batch);

/* A chunk's forward of one micro-batch. */
struct plait_forward {
    int chunk, slot;
    const struct plait_batch *batch;
    const void *in; /* device, boundary shape; NULL on the first stage */
    void *out;      /* the same; NULL on the last stage */
    double *loss;   /* device: the last stage adds the micro-batch's summed
                     * token loss, every tp rank the same; image models also add
                     * to loss[1] the number of images whose largest output is
                     * at the label */
    bool train;     /* false: nothing is kept for backward */
};

/* The last stage leaves the gradient of the logits for backward. */
int plait_model_forward(struct plait_model *model,
                        const struct plait_forward *f);

/* A chunk's backward of one micro-batch. */
struct plait_backward {
    int chunk, slot, microbatch;
    const void *dout; /* device, boundary shape; NULL on the last stage */
    void *din;        /* the same; NULL on the first stage */
};

/* The head runs backward within forward, so that the logits need not be kept:
 * with `train`, forward of the last stage already adds to the gradients of the
 * head (and of a tied embedding on the same rank). Their grad_ready still comes
 * in backward.
 * Gradients are added to region->grad; hooks.grad_ready is called block by
 * block, last first. */
int plait_model_backward(struct plait_model *model,
                         const struct plait_backward *b);
/* The same in two halves, for ZB-H1: input gradients first, keeping what the
 * weight gradients need; then the weight gradients, without dout and din. */
int plait_model_backward_input(struct plait_model *model,
                               const struct plait_backward *b);
int plait_model_backward_weight(struct plait_model *model,
                                const struct plait_backward *b);

/* Starts a new sum in region->grad, whatever it contains: what backward only
 * adds to becomes 0, the rest is overwritten by the first product that computes
 * it. Without this call backward adds to all of it. */
int plait_model_begin_gradient(struct plait_model *model,
                               struct plait_region *region);
/* Completes the sum: what no product has overwritten since begin_gradient() (an
 * expert that no token chose) becomes 0, and parts that the ranks of the tp
 * group hold are summed there: norms under sequence parallel, key/value heads
 * that several ranks share. The owner of the gradients calls it once per step
 * and region, after the region's last micro-batch and before the reduction over
 * data parallel ranks. Collective over the tp group, ordered on mesh->q. */
int plait_model_complete_gradient(struct plait_model *model,
                                  struct plait_region *region);

/* -- growing texts: forward only ----------------------------------------
 * Keys and values of all tokens of some texts are cached, so that a pass
 * computes only the new tokens. Each rank of a context parallel group computes
 * all of them: one more token is too little work to divide. Transformers
 * only. */

/* The tokens that a pass adds to a text: at positions `first` .. first + count
 * - 1. `first` is the text's length so far, or 0 to begin it anew. */
struct plait_addition {
    int text, first, count;
    bool wanted; /* the logits after its last token are wanted */
};

struct plait_additions {
    int n;
    const struct plait_addition *add; /* [n], each for a different text */
    const int32_t *tokens;            /* of all additions, one after the
                                       * other */
};

/* Instead of plait_model_reserve(): room for `texts` texts of up to `length`
 * tokens, to which a pass adds at most `rows` in all. The model must have one
 * chunk. */
int plait_model_reserve_texts(struct plait_model *model, int texts, int length,
                              int rows, struct plait_error *err);
/* Bytes of the keys and values that this rank keeps for them. */
size_t plait_model_cache_bytes(const struct plait_model *model, int texts,
                               int length);

/* One pass. `in` and `out` are [tokens, hidden] of T, NULL at the ends as in
 * struct plait_forward. On the last stage the rows that are wanted are written
 * to `logits`, host memory [n, vocab] fp32. Collective over the tp and ep
 * groups; -1 with EINVAL if there is no room. */
int plait_model_extend(struct plait_model *model,
                       const struct plait_additions *added, const void *in,
                       void *out, float *logits);

/* Floating-point operations of forward and backward per token, for MFU: 6 *
 * parameters that multiply + 12 * layers * heads * head_dim * seq_len (the
 * convention of full attention, PaLM appendix B); with windows, of the share of
 * the sequence that they reach. */
double plait_model_flops_per_token(const struct plait_model *model);
/* How many of these a causal mask lets be left out. */
double plait_model_flops_masked(const struct plait_model *model);

#endif
