/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_MODEL_INTERNAL_H
#define PLAIT_RUNTIME_MODEL_INTERNAL_H

#include "kernels/dropout.h"
#include "kernels/linear.h"
#include "runtime/mesh/tensor_parallel.h"
#include "runtime/model/model.h"
#include "runtime/model/took.h"
#include "topology/job/mup.h"

/* Shared by the files of runtime/model/ only: the blocks of a model and their
 * matrices, activations and work space, and the functions that these files call
 * of each other.
 *
 * Shapes are [rows, columns] of the compute type T unless they say fp32. N:
 * this rank's tokens of a micro-batch; n: rows of the residual stream here, N /
 * tp under sequence parallel; M: rows of the mlp; C: hidden; D: head size; F:
 * mlp width here; E: experts; k: experts that a token chooses. How large each
 * activation and tensor of the work space is, when it exists (else its pointer
 * is NULL) and how long it lives: topology/job/held.h. */

/* The sizes of this rank's shards. */
struct plait_dims {
    int hidden;    /* C */
    int head_dim;  /* D */
    int heads;     /* query heads here */
    int kv_heads;  /* key/value heads here, at least 1 */
    int kv_copies; /* tp ranks that hold the same key/value heads */
    int kv_first;  /* the first of them, counted in the whole model */
    int qkv;       /* columns of the fused q, k, v: (heads + 2 kv_heads) D */
    int ffn;       /* F here */
    int up;        /* columns into the activation: F, or 2 F gated */
    int shared;    /* columns of all shared experts here; 0: none */
    int vocab;     /* rows of the embedding here, padding included */
    int vocab_first;
    int vocab_count; /* rows that are not padding; 0 is possible */
    int tp, tp_rank;
    int experts; /* of the whole model; 0: dense */
    int top_k, ep, ep_rank;
    int expert_first; /* this rank has experts / ep from here on */
    int capacity;     /* most choices of an expert per sequence; 0: no limit */
    bool gated;       /* SwiGLU, RMSNorm, rotary positions: the Llama family */
    bool bias;        /* linears and norms have biases: the GPT-2 family */
    bool qk_norm;
    bool qk_whole; /* it is one norm of all heads */
    bool latent;   /* attention: latent.c */
    bool norms_before, norms_after;
    bool tied;
};

enum plait_block_kind {
    PLAIT_BLOCK_EMBEDDING,
    PLAIT_BLOCK_LAYER,
    PLAIT_BLOCK_MTP, /* right before the head, within whose forward it is
                      * computed: mtp.c */
    PLAIT_BLOCK_HEAD
};

/* A matrix of a product: [O, C] at `offset` of its region. */
struct plait_matrix {
    int region;
    size_t offset;
    size_t O, C;
    int product; /* number of its gradient, as in plait_tensor */
    bool bias;   /* whether it has a bias */
    bool linear; /* computes in the run's precision, fp8 too */
    struct plait_weight *handle; /* created when the region gets its weights */
};

struct plait_expert {
    struct plait_matrix up, down;
    size_t up_bias, down_bias;
};

struct plait_block {
    enum plait_block_kind kind;
    int layer;         /* of BLOCK_MTP the one behind the last; -1 but for these
                        * two */
    int region;        /* its dense tensors */
    int expert_region; /* region of its experts, -1: none */
    /* Offsets within `region`; each kind of block uses its own. */
    size_t norm1, norm1_bias, norm1_after, qkv_bias, out_bias;
    size_t norm2, norm2_bias, norm2_after, up_bias, down_bias;
    size_t q_norm, k_norm, sinks;
    size_t q_latent_norm, kv_latent_norm;
    size_t router_offset; /* added to the router's logits */
    size_t router_bias;   /* its place among gradients: the counts */
    size_t router_exact;  /* where the bias is, in model->exact */
    size_t router_load;   /* the same two of the load, if there is one */
    size_t load_exact;
    size_t peaks;           /* where its heads are in model->peaks */
    size_t norm, norm_bias; /* the head's, or those before it of BLOCK_MTP */
    size_t position;        /* the embedding's */
    size_t token_norm, token_norm_bias, hidden_norm, hidden_norm_bias;
    struct plait_matrix qkv, out, up, down;
    /* instead of qkv, with latent attention */
    struct plait_matrix q_down, kv_down, k_rotary, q_up, kv_up;
    struct plait_matrix shared_up, shared_down; /* beside the experts */
    struct plait_matrix router;   /* with experts, instead of up and down */
    struct plait_expert *experts; /* those of this rank; NULL: an mlp */
    struct plait_matrix join;     /* of BLOCK_MTP, */
    struct plait_matrix table; /* whose tokens are looked up here: that of the
                                * embedding, or a copy of it */
    struct plait_matrix vocab; /* embedding and head; if they are tied on one
                                * rank, both name the same region */
};

/* The part of a micro-batch on this rank. Its tokens are in `pieces` pieces of
 * consecutive positions (1, with context parallel 2), each of all sequences:
 * row (piece * batch + sequence) * piece_len + i. */
struct plait_batch_shape {
    int batch, piece_len, pieces;
    int seq_len; /* of the whole sequence; the last piece may end in padding */
    size_t N;    /* rows: batch * piece_len * pieces */
    size_t n;    /* rows of the residual stream here: N, or N / tp */
};

/* What an mlp of experts keeps of each choice of a token, see experts.c. */
struct plait_routed {
    float *prob, *gate; /* of every expert; of the chosen ones */
    int32_t *expert, *place;
    float *load;    /* [batch,E] */
    void *x;        /* grouped: the input of the experts here */
    void *z;        /* sorted: the experts' outputs */
    int32_t *count; /* rows of each expert here; during routing, choices of each
                     * expert and, last, dropped ones */
    /* Used if the host must know them (plait_experts_counted()): */
    int *rows; /* [ep,E], host: tokens of each ep rank per expert */
    int *here; /* [E/ep], host: their sums for the experts here */
};

/* What a layer's backward needs of its forward. */
struct plait_activations {
    bool fresh;    /* backward follows forward: nothing is computed again */
    void *x1;      /* the layer's input */
    void *n1, *n2; /* normalised; x1 and x2 without norms before */
    void *qkv;     /* rotated if positions are rotary */
    void *q, *k;   /* before their norm, if any */
    float *q_rstd, *k_rstd;
    float *l2_rstd;             /* of heads of q and k after their rotation */
    void *q_latent, *kv_latent; /* of latent attention, */
    void *q_normed, *kv_normed; /* after their norms, */
    float *q_latent_rstd, *kv_latent_rstd;
    void *values;  /* and att without the columns that fill up its heads */
    void *o1, *o2; /* what attention and mlp put out, before norms after them */
    float *o1_rstd, *o2_rstd;
    void *att, *x2;  /* attention's output; the stream after it */
    void *pre, *act; /* argument of the mlp's activation, and its value */
    void *shared_pre, *shared_act; /* of the experts that all tokens take */
    int ffn;                       /* columns of act */
    bool dense; /* of a layer without experts in a model that has them */
    struct plait_routed routed;
    float *mean1, *rstd1, *mean2, *rstd2;
    uint32_t *amax;                  /* operand.h */
    float *lse;                      /* [pieces, batch, heads, piece_len] */
    struct plait_layer_cache *cache; /* NULL unless texts grow */
};

/* What a layer keeps of growing texts. */
struct plait_layer_cache {
    void *kv;    /* [texts, length, 2 kv_heads D], a token's keys and values
                  * side by side */
    float *load; /* [texts, E] choices of each expert so far; NULL unless
                  * experts have a capacity */
};

/* What a layer's deferred weight gradients need. */
struct plait_stash {
    void *ddown, *dout; /* gradients of the layer's output, of attention's */
    void *dpre, *dqkv;
};

/* A micro-batch in flight on one chunk. */
struct plait_slot {
    struct plait_batch_shape shape;
    float loss_scale;
    const float *weights; /* [batch] of sequences; NULL: 1 */
    int32_t *tokens, *targets;
    int32_t *next_tokens, *next_targets; /* those of the row behind each row */
    int32_t *starts;                     /* of documents; data.mask_documents */
    bool masked;                         /* whether starts are used */
    int32_t *windows;    /* where each row's sliding window or chunk begins */
    uint64_t *keys;      /* [batch] of sequences, for dropout */
    bool drops;          /* whether they are used: in training */
    uint64_t *keys_here; /* [batch] on the host; NULL: no dropout */
    int32_t *staged;     /* [N] on the host; context parallel, windows */
    struct plait_activations *layer; /* one per layer of the chunk */
    struct plait_stash *stash;       /* the same; NULL unless ZB-H1 */
    char *offloaded; /* pinned host copy of the layers' activations; NULL: they
                      * stay on the device */
    void *dhead;     /* gradient of the head's input */
};

/* What a module that predicts a token further keeps from its forward to its
 * backward, both of which are parts of the head's forward: mtp.c. */
struct plait_mtp {
    void *x, *joined; /* embeddings of the next tokens; [n,2C] the norms of
                       * these and of the stream, or the gradient of that */
    float *token_mean, *token_rstd, *hidden_mean, *hidden_rstd;
    void *hx, *hn; /* input and output of its last norm */
    float *hmean, *hrstd;
    void *dhidden; /* gradient of the stream */
    struct plait_activations layer;
};

/* Work space of the block being computed. */
struct plait_scratch {
    void *full;  /* rows gathered over tp */
    void *part;  /* this rank's term of a sum over tp */
    void *local; /* that sum; part itself unless sequence */
    void *dx;    /* gradient of the residual stream */
    void *dact;  /* only with a gate */
    void *datt;
    void *normed; /* of q or k; only if they have a norm */
    float *sums;  /* of rows over the tp group, for such a norm */
    /* Of latent attention: heads of q, or of k and v, or their gradients; those
     * of a latent; the part of k that all heads share, or its gradient */
    void *up, *dlatent, *rotary;
    void *dout;     /* gradient of what a norm after a half has read */
    void *dropped;  /* gradient of what dropout has read */
    uint32_t *amax; /* operand.h */
    void *codes; /* a gradient's codes in fp8, for both of its products; NULL:
                  * each makes its own */
    struct plait_stash now; /* only dpre, of the mlp's rows, and dqkv */
    /* What is recomputed instead of kept; last, of layers without experts in a
     * model that has them, in the same place. */
    struct plait_activations again[2];
    void *route; /* the router's logits or their gradient */
    float *dgate;
    float *balance; /* plait_experts_set_balance(); NULL: no experts */
    /* Only if experts have a capacity; the last three with cp > 1. */
    int32_t *kept;
    float *runs;            /* [pieces,batch,E] choices of each run here */
    float *all_runs;        /* [cp,...] those of all ranks */
    float *before;          /* choices in the same sequence before each run */
    void *sorted, *grouped; /* rows of experts; sorted only where ep > 1 */
    void *kv[2];            /* keys and values passed around */
    float *dkv[3];          /* their gradients: two being computed, one being
                             * received */
    void *dkv2;             /* what one piece of queries adds to them */
    float *over_keys; /* the output of attention, or the queries' gradient,
                       * over all keys so far */
    void *att2;       /* one piece's attention over one piece of keys */
    float *lse2;
    void *hx, *hn; /* input and output of the head's norm */
    float *hmean, *hrstd;
    void *logits;
    float *max, *allmax, *sum; /* of rows of logits */
    float *replicas;           /* gradient of all kv heads; see region.c */
    struct plait_mtp mtp;      /* only on the stage that ends with the head */
};

/* Growing texts: see cache.c. */
struct plait_cache {
    int texts, length;
    struct plait_layer_cache *layer; /* one per layer here */
    void *memory;                    /* memory of all layers */
};

/* Activations in host memory: see offload.c. */
struct plait_offload_state {
    size_t block; /* bytes of a layer's activations; 0: not offloaded */
    char *host;   /* all that may be offloaded, pinned */
    struct plait_queue *q;
    struct plait_event *now, *moved[2];
    /* The two blocks on the device, as they are for each kind of layer */
    struct plait_activations at[2][2];
    char *base[2];     /* where they begin */
    const char *of[2]; /* the host copy of what is in them; NULL:
                        * unused */
    int current;       /* the block of the current layer */
};

struct plait_model_state {
    struct plait_dims dims;
    int stages;       /* pp * chunks */
    int *chunk_first; /* [chunks + 1] first block of each chunk */
    int nblocks;
    struct plait_block *blocks; /* forward order, chunk by chunk */
    int next_chunk;             /* plait_model_expect() */
    bool next_backward;
    int nproducts;
    struct plait_matrix **matrix; /* [nproducts] of the blocks, by the number of
                                   * the product; not of image models */
    bool *unmade; /* [nproducts] gradients that the next product overwrites */
    double took[PLAIT_MODEL_PARTS]; /* seconds since the model was made */
    bool handles_failed;            /* a weight handle could not be made */

    /* After plait_model_reserve(): */
    int nslots;
    size_t rows;              /* N that there is room for */
    size_t batch;             /* sequences that there is room for */
    size_t logit_rows;        /* rows whose logits are computed at once */
    struct plait_slot *slots; /* [chunks][nslots]: chunks share memory */
    struct plait_scratch scratch;
    float balance; /* what scratch.balance was set to; -1: nothing yet */
    struct plait_offload_state offload;
    struct plait_cache cache;
    void *arena;
    int *expert_rows; /* host memory of plait_routed.rows of all layers */
    int nrequests;    /* per exchange of tokens */
    struct plait_request **requests;
    void **stay; /* addresses of rows that stay here: sorted, then grouped */
};

/* params.c: fill in model->tensors, regions, counts and state->blocks.
 * -1 with ENOMEM. */
int plait_model_layout(struct plait_model *model);

/* Of transformers: run.c, arena.c, region.c. */
int plait_transformer_load(struct plait_model *model, int chunk, int slot,
                           const struct plait_batch *batch);
int plait_transformer_forward(struct plait_model *model,
                              const struct plait_forward *f);
int plait_transformer_reserve(struct plait_model *model, int slots,
                              int micro_batch, struct plait_error *err);
/* The same for N rows, of at most `batch` sequences. */
int plait_model_reserve_rows(struct plait_model *model, int slots, int batch,
                             size_t N, struct plait_error *err);
/* cache.c: undoes plait_model_reserve_texts(). */
void plait_model_release_cache(struct plait_model *model);
size_t plait_transformer_boundary(const struct plait_model *model,
                                  int micro_batch);
void plait_transformer_weights_changed(struct plait_model *model,
                                       struct plait_region *region);
/* region.c: updates the handle of a matrix if its weights are in this
 * region. */
void plait_matrix_refresh(struct plait_model *model, struct plait_matrix *w,
                          const struct plait_region *region);

/* arena.c */
void plait_model_release_arena(struct plait_model *model);
/* The shape of a batch; -1 with EINVAL if there is no room for it or, with
 * `train`, its rows are not divisible over the tp group. */
int plait_model_shape(const struct plait_model *model,
                      const struct plait_batch *batch, bool train,
                      struct plait_batch_shape *shape);
/* Position of a piece's first token in the whole sequence. */
int64_t plait_model_piece_pos(const struct plait_model *model,
                              const struct plait_batch_shape *shape, int piece);

/* Which half of a backward to compute now. */
enum plait_half {
    PLAIT_HALF_INPUT = 1,  /* gradients of inputs, norms */
    PLAIT_HALF_WEIGHT = 2, /* gradients of matrices and their biases */
    PLAIT_HALF_BOTH = 3
};

/* What the plait_model_* functions do for a family of models; see model.h. */
struct plait_family_ops {
    int (*layout)(struct plait_model *model); /* plait_model_layout() */
    int (*reserve)(struct plait_model *model, int slots, int micro_batch,
                   struct plait_error *err);
    size_t (*boundary)(const struct plait_model *model, int micro_batch);
    int (*load)(struct plait_model *model, int chunk, int slot,
                const struct plait_batch *batch);
    int (*forward)(struct plait_model *model, const struct plait_forward *f);
    int (*backward)(struct plait_model *model, const struct plait_backward *b,
                    enum plait_half half);
    void (*weights_changed)(struct plait_model *model,
                            struct plait_region *region);
    double (*flops_per_token)(const struct plait_model *model);
    void (*destroy)(struct plait_model *model); /* all but the tables */
};

/* run.c */
int plait_transformer_backward(struct plait_model *model,
                               const struct plait_backward *b,
                               enum plait_half half);

extern const struct plait_family_ops plait_transformer_family;
extern const struct plait_family_ops plait_image_family; /* image_run.c */

/* A block being computed, and what its functions need. */
struct plait_work {
    struct plait_model *model;
    const struct plait_ops *ops;
    struct plait_queue *q;
    enum plait_dtype type;
    bool fp8; /* the layers' linears use it */
    const struct plait_dims *d;
    struct plait_tensor_parallel tp;
    struct plait_scratch *scratch;
    struct plait_slot *slot;
    const struct plait_batch_shape *shape;
    const struct plait_additions *added; /* NULL unless texts grow */
    int layer;                           /* that is being computed */
    float *peak;   /* [heads] the layer's in model->peaks; NULL: unused */
    size_t stream; /* elements of the residual stream of all tp ranks */
};

/* Rows at consecutive positions: a piece, in which each sequence has T rows, or
 * the tokens added to a text. */
struct plait_row_span {
    size_t first, rows, T;
    int64_t pos;
};

static inline int plait_count_spans(const struct plait_work *w)
{
    return w->added ? w->added->n : w->shape->pieces;
}

/* Span number i; if i > 0, *span must be number i - 1. */
void plait_next_span(const struct plait_work *w, int i,
                     struct plait_row_span *span);

/* Element `i` of an array of the compute type. */
static inline void *plait_element_at(const struct plait_work *w, const void *p,
                                     size_t i)
{
    return (char *)p + i * plait_dtype_size(w->type);
}

/* Weight or gradient at an offset of a region. */
static inline void *plait_weight_at(const struct plait_work *w, int region,
                                    size_t offset)
{
    return (char *)w->model->regions[region].weight +
           offset * plait_dtype_size(w->type);
}

static inline float *plait_grad_at(const struct plait_work *w, int region,
                                   size_t offset)
{
    return w->model->regions[region].grad + offset;
}

/* The document starts of the rows from `row` on; NULL: all 0. */
static inline const int32_t *plait_starts_at(const struct plait_work *w,
                                             size_t row)
{
    return w->slot->masked ? w->slot->starts + row : NULL;
}

/* What the embedding's rows are multiplied by: linear.c says why by less than
 * the model says. */
static inline double plait_embedding_factor(const struct plait_work *w)
{
    const struct plait_model_config *m = &w->model->config->model;

    return plait_model_factor(m->embedding_multiplier) / plait_mup_residual(m);
}

/* Where the rows of a span stand, for embeddings and rotary positions. */
static inline struct plait_positions
plait_span_positions(const struct plait_work *w,
                     const struct plait_row_span *span)
{
    return (struct plait_positions){.T = span->T,
                                    .pos0 = span->pos,
                                    .starts = plait_starts_at(w, span->first)};
}

/* upload.c: to the slot, in the order of this rank's rows; nothing where the
 * batch is on the device already. Where sliding windows begin follows from the
 * rows' positions and documents. */
int plait_upload_inputs(const struct plait_work *w,
                        const struct plait_batch *batch);
int plait_upload_targets(const struct plait_work *w,
                         const struct plait_batch *batch);
int plait_upload_starts(const struct plait_work *w,
                        const struct plait_batch *batch);
/* Of model.mtp_layers; nothing where the slot has no room for them. */
int plait_upload_next(const struct plait_work *w,
                      const struct plait_batch *batch);
int plait_upload_windows(const struct plait_work *w,
                         const struct plait_batch *batch);
/* The first key that each row from `row` on may see in the layer being
 * computed: that of its window or its document. */
const int32_t *plait_first_keys(const struct plait_work *w, size_t row);

/* dropout.c */
/* The keys of the batch's sequences, to the slot. */
int plait_upload_keys(const struct plait_work *w,
                      const struct plait_batch *batch);
/* What attention drops in the layer being computed. */
struct plait_drops plait_attention_drops(const struct plait_work *w);
/* Dropout in place of x [n,C]: what attention (half 1) or the mlp (2) adds to
 * the stream, or before the first layer (0) the embedding's output. This and
 * the next do nothing if the model has none, or does not train. */
int plait_drop_forward(const struct plait_work *w, int half, void *x);
/* *dout = the gradient of what was dropped from; dx where there is no
 * dropout. */
int plait_drop_backward(const struct plait_work *w, int half, const void *dx,
                        const void **dout);

/* norms.c */
/* The family's norm, LayerNorm or RMSNorm, of the rows of the stream. The
 * caller fills in which arrays (mean too, which RMSNorm does not use) and, for
 * the backward, whether it accumulates; these functions add the weights at
 * `gamma` and `beta` of the region, the sizes, the type and, unless the caller
 * has set it, eps. */
int plait_norm_forward(const struct plait_work *w, int region, size_t gamma,
                       size_t beta, const struct plait_norm_forward *norm);
int plait_norm_backward(const struct plait_work *w, int region, size_t gamma,
                        size_t beta, const struct plait_norm_backward *norm);
/* The two norms of a layer: of x + delta, which is stored as the norm's input,
 * or of x where delta is NULL. */
int plait_first_norm(const struct plait_work *w, const struct plait_block *b,
                     const struct plait_activations *a, const void *x,
                     const void *delta, uint32_t *amax);
int plait_second_norm(const struct plait_work *w, const struct plait_block *b,
                      const struct plait_activations *a, const void *x,
                      const void *delta, uint32_t *amax);
/* dx += the gradient through the norm before attention (half 1) or the mlp (2),
 * or without one dout itself. */
int plait_before_backward(const struct plait_work *w,
                          const struct plait_block *b,
                          const struct plait_activations *a, int half, void *dx,
                          const void *dout);
/* The norm after attention (half 1) or the mlp (2), if the model has it: of
 * *out, what that half puts out; *out becomes what is added to the stream. */
int plait_after_forward(const struct plait_work *w, const struct plait_block *b,
                        const struct plait_activations *a, int half,
                        const void **out);
/* *dout = the gradient of what that norm has read; dx where there is none. */
int plait_after_backward(const struct plait_work *w,
                         const struct plait_block *b,
                         const struct plait_activations *a, int half,
                         const void *dx, const void **dout);

/* linear.c */
/* Around an op whose time counts for a part of the step. Does nothing on a GPU,
 * which works asynchronously. end_part() returns rc. */
double plait_begin_part(const struct plait_work *w);
int plait_end_part(const struct plait_work *w, enum plait_model_part part,
                   double start, int rc);
/* x *= factor, of as many numbers as the rows of the stream have here. */
int plait_scale_stream(const struct plait_work *w, void *x, double factor);
/* SwiGLU from a->pre to a->act, and dpre from dact; `rows` rows. amax: as in
 * the op. */
int plait_swiglu_forward(const struct plait_work *w,
                         const struct plait_activations *a, size_t rows,
                         uint32_t *amax);
int plait_swiglu_backward(const struct plait_work *w,
                          const struct plait_activations *a, void *dpre,
                          const void *dact, size_t rows, uint32_t *amax);
/* The layers' linears, in the run's precision. The weight is the matrix, not
 * l->w. */
int plait_linear_forward(const struct plait_work *w,
                         const struct plait_matrix *matrix,
                         const struct plait_linear *l);
int plait_linear_input(const struct plait_work *w,
                       const struct plait_matrix *matrix,
                       const struct plait_linear_dinp *l);
/* dW += dout^T . inp, and dbias if the matrix has one (bias: its offset); = if
 * no product has written them since plait_model_begin_gradient(). */
int plait_linear_weight(const struct plait_work *w,
                        const struct plait_matrix *matrix, size_t bias,
                        const struct plait_operand *dout,
                        const struct plait_operand *inp);

/* The same of `rows` rows and never in fp8: for head and router. */
int plait_product_weight(const struct plait_work *w,
                         const struct plait_matrix *matrix, size_t bias,
                         const void *dout, const void *inp, size_t rows);

/* qk_norm.c: the norms of q's and k's heads, in place in a->qkv, and their
 * backward in dqkv; nothing if the model has none. */
int plait_qk_norm_forward(const struct plait_work *w,
                          const struct plait_block *b,
                          const struct plait_activations *a);
int plait_qk_norm_backward(const struct plait_work *w,
                           const struct plait_block *b,
                           const struct plait_activations *a, void *dqkv);

/* latent.c, of models with latent attention: from a->n1 to a->qkv, not yet
 * rotated; back from dqkv to *dn1, the gradient of n1, which is summed over tp,
 * and the gradients of all weights on the way. */
int plait_latent_forward(const struct plait_work *w,
                         const struct plait_block *b,
                         const struct plait_activations *a);
int plait_latent_backward(const struct plait_work *w,
                          const struct plait_block *b,
                          const struct plait_activations *a, void *dqkv,
                          void **dn1);
/* These do nothing in other models. a->values, from a->att; back from the
 * gradient in scratch->up to datt; and what selective recompute does not keep
 * of all this. */
int plait_latent_cut(const struct plait_work *w,
                     const struct plait_activations *a);
int plait_latent_widen(const struct plait_work *w, void *datt);
int plait_latent_again(const struct plait_work *w, const struct plait_block *b,
                       const struct plait_activations *a);

/* rotate.c: from q, k and v to what attention reads. q and k, which are
 * adjacent, are turned to their positions and, if the model has such norms,
 * normalised; in layers without rotary positions q may be multiplied instead.
 * All in place. Backward from dqkv, before the gradient of the norms' weights,
 * with a->qkv. */
int plait_attention_place(const struct plait_work *w,
                          const struct plait_activations *a);
int plait_attention_place_backward(const struct plait_work *w,
                                   const struct plait_activations *a,
                                   void *dqkv);
/* From a->qkv to att and lse; backward to dqkv (where it also undoes the
 * rotation). */
int plait_attention_forward(const struct plait_work *w,
                            const struct plait_activations *a);
int plait_attention_backward(const struct plait_work *w,
                             const struct plait_activations *a, void *dqkv,
                             const void *datt);

/* sinks.c: what follows the former and goes before the latter, in models with
 * attention sinks. */
int plait_sinks_forward(const struct plait_work *w, const struct plait_block *b,
                        const struct plait_activations *a);
int plait_sinks_backward(const struct plait_work *w,
                         const struct plait_block *b,
                         const struct plait_activations *a, const void *datt);

/* The stream between two blocks: x, and what must still be added to it. */
struct plait_stream {
    const void *x, *delta; /* delta NULL: x is the x1 of the layer it enters */
};

/* layer.c: from the stream of the block before to that of the next. */
int plait_layer_forward(const struct plait_work *w, const struct plait_block *b,
                        const struct plait_activations *a,
                        struct plait_stream *stream);
/* What the layer does not keep is computed again, for this half of the
 * backward. */
int plait_layer_again(const struct plait_work *w, const struct plait_block *b,
                      const struct plait_activations *a, enum plait_half half);
/* recompute.c: from what a layer keeps anyway, the outputs of its norms and of
 * its mlp's activation, as far as this half of the backward needs them. */
int plait_layer_cheap_again(const struct plait_work *w,
                            const struct plait_block *b,
                            const struct plait_activations *a,
                            enum plait_half half);
/* Replaces dx [n,C], the gradient of the output, by that of the input. */
int plait_layer_backward(const struct plait_work *w,
                         const struct plait_block *b,
                         const struct plait_activations *a,
                         const struct plait_stash *stash, void *dx,
                         enum plait_half half);
/* deferred.c */
int plait_layer_backward_weight(const struct plait_work *w,
                                const struct plait_block *b,
                                const struct plait_activations *a,
                                const struct plait_stash *stash);

/* offload.c: these do nothing if activations are not offloaded.
 * Creates queue, events and host memory for `blocks` layers in flight of
 * offload.block bytes; -1: out of memory. */
int plait_offload_open(struct plait_model *model, size_t blocks);
void plait_offload_close(struct plait_model *model);
/* Before a layer's forward: gives slot->layer[nth] a block on the device. After
 * it: copies the block to the host. Without `train` it is not kept. */
int plait_offload_take(const struct plait_work *w, int nth, bool train);
int plait_offload_put(const struct plait_work *w, int nth);
/* Before a layer's backward: waits until slot->layer[nth] is on the device
 * again, and starts to fetch the layer before it. */
int plait_offload_get(const struct plait_work *w, int nth);

/* embed.c: out [n,C]; dx too. */
int plait_embed_forward(const struct plait_work *w, const struct plait_block *b,
                        void *out);
int plait_embed_backward(const struct plait_work *w,
                         const struct plait_block *b, void *dx);
/* The same for the embeddings of next_tokens in b->table, without positions and
 * dropout. */
int plait_embed_next(const struct plait_work *w, const struct plait_block *b,
                     void *out);
int plait_embed_next_backward(const struct plait_work *w,
                              const struct plait_block *b, void *dx);

/* mtp.c: forward and backward of the module before head block `head`. hidden
 * [n,C]: the output of the final norm, whose gradient goes to
 * scratch->mtp.dhidden; loss[1] += the loss. */
int plait_mtp_train(const struct plait_work *w, const struct plait_block *head,
                    const void *hidden, double *loss);

/* head.c: x + delta is the input. With `train` also the whole backward, of the
 * module that predicts a token further too: the gradient of the input goes to
 * slot->dhead. */
int plait_head_forward(const struct plait_work *w, const struct plait_block *b,
                       const void *x, const void *delta, double *loss,
                       bool train);
/* Writes the logits that w->added wants to host memory. */
int plait_head_logits(const struct plait_work *w, const struct plait_block *b,
                      const void *x, const void *delta, float *logits);

/* In how many chunks rows are transferred over tp (chunks.c). */
int plait_choose_chunks(const struct plait_work *w);

/* Whether chunk and slot exist and the weights have their handles; -1 with
 * EINVAL or ENOMEM. */
int plait_model_check_work(const struct plait_model *model, int chunk,
                           int slot);

#endif
