/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_KERNELS_H
#define PLAIT_KERNELS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One table of operations, three implementations: ref (plain C, the
 * oracle), cpu (fast) and cuda. Callers never see a device header.
 *
 * Words used below
 *   T       the compute type of activations and weights (fp32, bf16, fp16);
 *           every op takes it as `type`. Statistics, losses and parameter
 *           gradients are fp32 always; sums run in fp32 or wider.
 *   N       rows: tokens of a micro-batch on this rank (batch * seq_len)
 *   C, O    columns in and out
 *   +=      the op adds to what is there; = it overwrites
 *   [a,b]   row-major, b contiguous
 * All pointers are device memory of the queue's device unless marked host.
 * Ops on one queue run in order; they return before they are done (on the
 * CPU they are done). 0 or -1 with errno; once an op has failed the queue
 * stays failed (plait_queue_error() says why), so a caller may check at the
 * end of a step. Shapes are the caller's duty; ref and cpu assert some of
 * them. Where it is not said that a result may be an operand, the two do not
 * overlap. What an op may fail with:
 *   EINVAL   the device does not take the value or the size
 *   ENOTSUP  this GPU or its libraries cannot do it (too little shared memory
 *            for a row, no matrix product of this kind)
 *   ENOMEM   no memory for intermediate results
 *   EIO      the device or one of its libraries reported an error
 *   EBUSY    the queue is recorded, and the op cannot be part of a graph */

enum plait_dtype {
    PLAIT_F32,
    PLAIT_BF16_T,
    PLAIT_FP16_T,
    PLAIT_I32,
    PLAIT_F64, /* transfers alone: no op takes it */
    PLAIT_NDTYPES
};

/* Bytes of one element. Inline, for the CUDA module links nothing of the
 * program. */
static inline size_t plait_dtype_size(enum plait_dtype type)
{
    return type == PLAIT_F64                        ? 8
           : type == PLAIT_F32 || type == PLAIT_I32 ? 4
                                                    : 2;
}

const char *plait_dtype_name(enum plait_dtype type); /* "fp32", "bf16", .. */

struct plait_device;      /* one GPU, or this process's cores */
struct plait_queue;       /* a stream of work on a device */
struct plait_event;       /* a point in a queue */
struct plait_weight;      /* a matrix the implementation may keep packed */
struct plait_image_ops;   /* kernels/image.h */
struct plait_product_ops; /* kernels/products.h */
struct plait_graph; /* work that was recorded, to be run again and again */

enum plait_activation { PLAIT_ACT_NONE, PLAIT_ACT_GELU /* tanh form */ };

/* Causal attention over a chunk of queries and a chunk of keys. Query i has
 * global position q_pos + i and sees key j iff k_pos + j <= q_pos + i and,
 * where there are starts, k_pos + j >= starts[i]: the position at which the
 * document that query i belongs to starts. Tiles that no query sees cost
 * nothing.
 *   q, dq     [batch, q_len, q_heads, head_dim], rows q_stride apart
 *   k, v, ..  [batch, k_len, kv_heads, head_dim], rows kv_stride apart
 *   out, dout [batch, q_len, q_heads, head_dim], dense
 *   lse       [batch, q_heads, q_len] fp32: log sum exp of the scores
 * A stride counts elements from one token to the next, so that q, k and v
 * may lie in one fused buffer. Head h of q uses head h / (q_heads/kv_heads)
 * of k and v. A query that sees no key gives out 0 and lse -inf. */
struct plait_attention {
    int batch, q_len, k_len, q_heads, kv_heads, head_dim;
    size_t q_stride, kv_stride;
    int64_t q_pos, k_pos;
    const int32_t *starts; /* [batch, q_len], device: not decreasing within a
                              sequence, none beyond its query's own position;
                              NULL: all 0 */
    float scale;           /* 1/sqrt(head_dim) */
    int overwrite;         /* dq, dk, dv are made anew, not added to */
};

/* How fast rotary positions turn: pair d of a head of D columns by f = theta ^
 * (-2d/D) a position. Where factor is above 1, as Llama 3 is made for longer
 * texts (transformers, rope type "llama3"): with s = (original f / 2 pi - low)
 * / (high - low), kept to 0 .. 1, by f ((1 - s) / factor + s). */
struct plait_rope {
    double theta;
    double factor, low, high;
    int original; /* longest text before */
};

/* Rows that lie group by group, each group with a matrix of its own. How many
 * rows a group has stands where the rows do: on a GPU the host need not know.
 * That of group 0 is given; w, bias, dw and dbias of the next group lie
 * `stride` of their elements behind those of the one before. */
struct plait_groups {
    int n;         /* groups */
    size_t rows;   /* all rows: those behind the last group's are of none */
    size_t stride; /* not used where n is 1 */
    const int32_t *count; /* [n] rows of each group, from 0 on, device */
};

/* A tensor of bf16 as products in fp8 take it. What of it is not there each
 * product makes for itself, of these rows alone. */
struct plait_operand {
    const void *x;
    /* Device: the largest magnitude of x, or of what x is some rows of, as the
     * bits of an fp32; NULL: it is not known. */
    const uint32_t *amax;
    const void *codes; /* of fp8_gradient(); NULL: there are none */
};

/* Bytes of the codes of a matrix in both orders of its sides, padded to whole
 * 16, behind their scale. */
static inline size_t plait_fp8_bytes(size_t rows, size_t cols)
{
    size_t codes = (rows + 15) / 16 * 16 * ((cols + 15) / 16 * 16);

    return 256 + 2 * ((codes + 255) / 256 * 256);
}

/* What is told of a GPU. */
struct plait_gpu_facts {
    char name[96];
    char busid[16];      /* "0000:07:00.0" */
    int capability;      /* 89: 8.9 */
    int processors;      /* streaming multiprocessors */
    size_t memory;       /* bytes */
    int driver, api;     /* CUDA's versions, 12040: 12.4 */
    char attention[240]; /* who computes it in 16 bits: "cuDNN 9.19.0", or "own
                            kernels", with the reason where there is one */
};

/* n fp32 numbers of device memory. */
struct plait_floats {
    const float *x;
    size_t n;
};

/* What an update does with a weight w of gradient g = grad_scale * grad,
 * weight decay wd of its run, states s0 and s1 of its run, and the run's
 * factor f:
 *   SGD       d = f (g + wd w);  s0 = momentum s0 + d
 *             w -= lr (nesterov ? d + momentum s0 : s0);  no s0: w -= lr d
 *             (as torch.optim.SGD: weight decay is a part of the gradient)
 *   LARS      the same, but d = lr f (g + wd w), and lr is not applied again:
 *             You, Gitman, Ginsburg (2017, arXiv:1708.03888), algorithm 1
 *   NOVOGRAD  s0 = beta1 s0 + (f g + wd w);  w -= lr s0
 *             Ginsburg et al. (2019, arXiv:1905.11286), algorithm 1
 *   ADAMW     s0 = beta1 s0 + (1-beta1) g;  s1 = beta2 s1 + (1-beta2) g^2
 *             u = s0/(1-beta1^t) / (sqrt(s1/(1-beta2^t)) + eps) + wd w
 *             w -= lr u;  Loshchilov, Hutter (2017, arXiv:1711.05101)
 *   LAMB      w -= lr f u of the s0 and s1 that update_sums() has left there:
 *             You et al. (2019, arXiv:1904.00962), algorithm 2
 *   LION      w -= lr (sign(beta1 s0 + (1-beta1) g) + wd w), then
 *             s0 = beta2 s0 + (1-beta2) g
 *             Chen et al. (2023, arXiv:2302.06675), algorithm 2
 *   DIRECTION w -= lr (f g + wd w): g is what an optimizer has made of the
 *             gradient, such as Muon */
enum plait_update_rule {
    PLAIT_UPDATE_SGD,
    PLAIT_UPDATE_LARS,
    PLAIT_UPDATE_NOVOGRAD,
    PLAIT_UPDATE_ADAMW,
    PLAIT_UPDATE_LAMB,
    PLAIT_UPDATE_LION,
    PLAIT_UPDATE_DIRECTION
};

/* A run of n elements of one tensor (or of neighbours that are treated
 * alike). */
struct plait_update_run {
    float *master;
    float *state[2]; /* s0, s1; NULL where the rule has none */
    const float *grad;
    void *weight; /* of `type`; NULL or master: there is none beside master */
    size_t n;
    uint64_t first; /* of stochastic rounding, below */
    float weight_decay;
    const float *factor; /* f, one number of device memory; NULL: 1 */
    double *sums;        /* [2] of update_sums(), device memory */
};

/* One update of runs of elements, which do not overlap. The new value is also
 * stored to weight as `type` (round to nearest, or stochastically if
 * stochastic: element i of a run draws from seed + first + i, so that it is
 * the same wherever a shard begins). grad_scale is read from device memory so
 * that clipping needs no host round trip; NULL means 1. A grad_scale of NaN
 * or infinity skips the update, and update_sums() too.
 * So may be all else that changes from step to step, for a step that is
 * recorded once: where now is not NULL it stands in place of lr and step. */
struct plait_update_now {
    uint64_t seed; /* added to that of plait_update */
    float lr;
    float correct1, correct2; /* 1 / (1 - beta1^t), 1 / (1 - beta2^t) */
};

struct plait_update {
    enum plait_update_rule rule;
    float lr, beta1, beta2, eps, momentum;
    int nesterov;
    int64_t step; /* t, from 1 */
    const float *grad_scale;
    int stochastic;
    uint64_t seed;
    const struct plait_update_now *now; /* device memory */
};

/* A run of which each state is kept as codes of a byte, with a scale for each
 * block of PLAIT_MAP_BLOCK elements, counted from the run's first
 * (dynamic_map.h); all 0: the states are 0. */
struct plait_update8_run {
    float *master;
    uint8_t *code[2]; /* of s0, with a sign, and of s1, which has none */
    float *scale[2];
    const float *grad;
    void *weight; /* as in plait_update_run, and so the rest */
    size_t n;
    uint64_t first;
    float weight_decay;
};

struct plait_ops {
    const char *name; /* "ref", "cpu", "cuda" */
    /* 1: a GPU, which works beside the host, in memory of its own; 0: the
     * cores and the memory of the host. */
    int gpu;

    /* -- device, memory, queues, events ------------------------------- */
    /* Of a GPU, by its index among those that this process sees; -1 with
     * ENODEV: there are fewer. NULL: not a table of GPUs. */
    int (*gpu_facts)(int index, struct plait_gpu_facts *facts);
    /* index: which GPU (as CUDA numbers them); ignored on CPUs.
     * threads: OpenMP threads to use, 0: what the process is bound to. */
    struct plait_device *(*device_create)(int index, int threads);
    void (*device_destroy)(struct plait_device *dev);
    /* Whether fp32 matrix products may round their operands to TF32 (10 bits
     * of mantissa); at first they may not. NULL: the device has no TF32. */
    void (*allow_tf32)(struct plait_device *dev, int allow);
    /* Zeroed; aligned to 64 bytes or better. NULL with ENOMEM. */
    void *(*alloc)(struct plait_device *dev, size_t bytes);
    void (*free)(struct plait_device *dev, void *ptr);
    /* Memory of this device that somebody else has made becomes as alloc()'s:
     * zeroed, counted, given back by free(), through release(ptr), once no
     * work uses it. -1: it stays the caller's. NULL: there is no other
     * memory than alloc()'s. */
    int (*adopt)(struct plait_device *dev, void *ptr, size_t bytes,
                 void (*release)(void *ptr));
    /* Bytes in use now and the most at once, of alloc() and adopt() alone. */
    void (*memory)(struct plait_device *dev, size_t *now, size_t *peak);
    /* The host's memory, pinned where the device copies from it and to it by
     * itself; else as the three above, and counted apart from them. */
    void *(*pinned_alloc)(struct plait_device *dev, size_t bytes);
    void (*pinned_free)(struct plait_device *dev, void *ptr);
    void (*pinned_memory)(struct plait_device *dev, size_t *now, size_t *peak);
    /* priority: higher runs first where streams compete. */
    struct plait_queue *(*queue_create)(struct plait_device *dev, int priority);
    void (*queue_destroy)(struct plait_queue *q);
    /* The device's own stream type (cudaStream_t) for a communicator that
     * works on the same device; NULL on CPUs. */
    void *(*queue_native)(struct plait_queue *q);
    int (*queue_sync)(struct plait_queue *q); /* host waits for all work */
    /* timed: for event_elapsed() too, which makes it dearer. */
    struct plait_event *(*event_create)(struct plait_device *dev, int timed);
    void (*event_destroy)(struct plait_event *ev);
    int (*event_record)(struct plait_event *ev, struct plait_queue *q);
    int (*event_wait)(struct plait_event *ev, struct plait_queue *q);
    /* The host waits for what q did before it recorded ev. */
    int (*event_sync)(struct plait_event *ev, struct plait_queue *q);
    /* Seconds between two recorded events (host waits for `to`), both timed;
     * negative where they cannot be told. */
    double (*event_elapsed)(struct plait_event *from, struct plait_event *to);
    /* From begin to end, what is queued on q is recorded and does not run:
     * ops of this queue, and those of others behind an event that q has
     * recorded meanwhile and before one that q waits for; none that waits for
     * a queue or takes or fills host memory (queue_sync, event_sync, to_host,
     * to_device), nor fp8_weight. Whatever an op reads through a pointer is
     * read anew each time the graph runs; numbers stay as they were. Run the
     * same ops once before, so that plans and work space are there. graph_end
     * NULL: this could not be recorded, *why says it; the queue is as it was
     * before graph_begin. All four NULL: the device has no graphs. */
    int (*graph_begin)(struct plait_queue *q);
    struct plait_graph *(*graph_end)(struct plait_queue *q, const char **why);
    int (*graph_run)(struct plait_queue *q, struct plait_graph *graph);
    void (*graph_destroy)(struct plait_graph *graph); /* waits for its runs */
    /* A name, for the device's profiler, of what this thread queues until
     * range_end(); ranges nest. NULL: the device has no such profiler. */
    void (*range_begin)(const char *name);
    void (*range_end)(void);

    /* -- moving ------------------------------------------------------- */
    int (*copy)(struct plait_queue *q, void *dst, const void *src,
                size_t bytes); /* device to device */
    int (*to_device)(struct plait_queue *q, void *dst, const void *host,
                     size_t bytes); /* host buffer is free on return */
    int (*to_host)(struct plait_queue *q, void *host, const void *src,
                   size_t bytes); /* complete on return */
    /* Between device and pinned memory, in the order of the queue like any
     * op: the pinned side is in use until the queue has come past. */
    int (*copy_out)(struct plait_queue *q, void *pinned, const void *src,
                    size_t bytes);
    int (*copy_in)(struct plait_queue *q, void *dst, const void *pinned,
                   size_t bytes);
    int (*fill_zero)(struct plait_queue *q, void *dst, size_t bytes);
    /* Rounds to nearest. fp32, bf16 and fp16 into each other; int32 only to
     * int32. */
    int (*cast)(struct plait_queue *q, enum plait_dtype to, void *dst,
                enum plait_dtype from, const void *src, size_t n);
    /* dst[i, 0..cols) = src[i, 0..cols), rows of the given strides (elements,
     * at least cols), of any type: to cut and to join column shards. */
    int (*copy_2d)(struct plait_queue *q, enum plait_dtype type, void *dst,
                   size_t dst_stride, const void *src, size_t src_stride,
                   size_t rows, size_t cols);

    /* -- arithmetic --------------------------------------------------- */
    /* out[i] = a[i] + b[i]; out may be a. */
    int (*add)(struct plait_queue *q, enum plait_dtype type, void *out,
               const void *a, const void *b, size_t n);
    /* out[i] = a[i] + s * b[i]; out may be a. */
    int (*add_scaled)(struct plait_queue *q, enum plait_dtype type, void *out,
                      const void *a, const void *b, float s, size_t n);
    /* x[i] *= s */
    int (*scale)(struct plait_queue *q, enum plait_dtype type, void *x, float s,
                 size_t n);
    /* dbias[o] += sum_i dout[i,o]; dbias fp32 */
    int (*bias_backward)(struct plait_queue *q, enum plait_dtype type,
                         float *dbias, const void *dout, size_t N, size_t O);
    /* *result += the sum of the squares of all numbers of all n lists, result
     * one double in device memory. The lists' table is the host's, and free
     * on return. */
    int (*sum_squares)(struct plait_queue *q, double *result,
                       const struct plait_floats *lists, int n);

    /* -- matrix products ---------------------------------------------- */
    /* A handle on w [O,C] of T at `data`, which stays the caller's and must
     * outlive the handle; NULL with ENOMEM. weight_changed() after the data
     * was written, or where it lies elsewhere now. */
    struct plait_weight *(*weight_create)(struct plait_device *dev,
                                          enum plait_dtype type, size_t O,
                                          size_t C, const void *data);
    void (*weight_destroy)(struct plait_weight *w);
    void (*weight_changed)(struct plait_weight *w, const void *data);
    /* out[N,O] = act(inp[N,C] . w^T + bias[O]), all of T; bias may be NULL.
     * With an activation, pre [N,O] (may be NULL) keeps its argument; without
     * one pre is not used. */
    int (*linear_forward)(struct plait_queue *q, void *out, void *pre,
                          const void *inp, struct plait_weight *w,
                          const void *bias, enum plait_activation act,
                          size_t N);
    /* dinp[N,C] = dout[N,O] . w, or += if accumulate. With an activation and
     * pre [N,C] (not NULL) the product is multiplied by act'(pre) before it is
     * stored or added: the backward of a linear whose input came through that
     * activation. */
    int (*linear_backward_input)(struct plait_queue *q, void *dinp,
                                 const void *dout, struct plait_weight *w,
                                 enum plait_activation act, const void *pre,
                                 int accumulate, size_t N);
    /* dw[O,C] = dout^T . inp and dbias[O] = column sums of dout (NULL: none),
     * both fp32; or both += if accumulate. Without it nothing of what is
     * there is read, and N 0 leaves zeros. Needs no weight values, so that a
     * schedule may defer it. */
    int (*linear_backward_weight)(struct plait_queue *q, enum plait_dtype type,
                                  float *dw, float *dbias, const void *dout,
                                  const void *inp, int accumulate, size_t N,
                                  size_t O, size_t C);

    /* The same three of groups of rows, g->rows in all. Rows of no group give
     * 0 (out, pre and dinp) and take no part in dw and dbias; a group without
     * rows has dw and dbias as N 0 has. */
    int (*grouped_forward)(struct plait_queue *q, const struct plait_groups *g,
                           void *out, void *pre, const void *inp,
                           struct plait_weight *w, const void *bias,
                           enum plait_activation act);
    int (*grouped_backward_input)(struct plait_queue *q,
                                  const struct plait_groups *g, void *dinp,
                                  const void *dout, struct plait_weight *w,
                                  enum plait_activation act, const void *pre);
    int (*grouped_backward_weight)(struct plait_queue *q, enum plait_dtype type,
                                   const struct plait_groups *g, float *dw,
                                   float *dbias, const void *dout,
                                   const void *inp, int accumulate, size_t O,
                                   size_t C);

    /* -- matrix products in fp8 ---------------------------------------- */
    /* The same three where T is bf16, as in Micikevicius et al. (2022,
     * arXiv:2209.05433): what is multiplied is rounded first, inp and w to
     * e4m3, dout to e5m2, each multiplied by a power of two that its largest
     * magnitude decides (dtype.h); sums in fp32 and what follows them (bias,
     * activation, +=, dbias) as above. An operand with a NaN or an infinity
     * makes the whole product NaN. */
    int (*fp8_forward)(struct plait_queue *q, void *out, void *pre,
                       const struct plait_operand *inp, struct plait_weight *w,
                       const void *bias, enum plait_activation act, size_t N);
    int (*fp8_backward_input)(struct plait_queue *q, void *dinp,
                              const struct plait_operand *dout,
                              struct plait_weight *w, enum plait_activation act,
                              const void *pre, int accumulate, size_t N);
    int (*fp8_backward_weight)(struct plait_queue *q, enum plait_dtype type,
                               float *dw, float *dbias,
                               const struct plait_operand *dout,
                               const struct plait_operand *inp, int accumulate,
                               size_t N, size_t O, size_t C);
    /* *amax = the largest magnitude of x [n] of bf16, as plait_operand has it.
     * Norms and SwiGLU find that of what they store, where they are given
     * an amax (not NULL, T bf16), so that no pass of its own reads it. */
    int (*fp8_amax)(struct plait_queue *q, uint32_t *amax, const void *x,
                    size_t n);
    /* codes [plait_fp8_bytes(N, O)] of device memory = those of dout [N,O] as
     * both fp8_backward_input and fp8_backward_weight take it, from one pass
     * over it. NULL: the device keeps none. */
    int (*fp8_gradient)(struct plait_queue *q, void *codes,
                        const struct plait_operand *dout, size_t N, size_t O);
    /* Rounds w now, once for all fp8_forward and fp8_backward_input to come
     * until weight_changed(): its codes are kept beside it, plait_fp8_bytes()
     * of device memory. Optional: what was not rounded so each product rounds
     * by itself, to the same values. NULL: the device always does. */
    int (*fp8_weight)(struct plait_queue *q, struct plait_weight *w);
    /* Whether the device has them (NULL: it has not). On CPUs they are
     * emulated: the same values, no faster. */
    int (*has_fp8)(struct plait_device *dev);

    /* -- activations -------------------------------------------------- */
    /* out = gelu(inp), the tanh form; out may be inp. */
    int (*gelu_forward)(struct plait_queue *q, enum plait_dtype type, void *out,
                        const void *inp, size_t n);
    /* dinp = dout * gelu'(inp); dinp may be dout. */
    int (*gelu_backward)(struct plait_queue *q, enum plait_dtype type,
                         void *dinp, const void *dout, const void *inp,
                         size_t n);
    /* inp [N,2F]: gate then up in each row; out[N,F] = silu(gate) * up */
    int (*swiglu_forward)(struct plait_queue *q, enum plait_dtype type,
                          void *out, const void *inp, size_t N, size_t F,
                          uint32_t *amax);
    /* dinp [N,2F] = the gradient of inp, from dout [N,F] */
    int (*swiglu_backward)(struct plait_queue *q, enum plait_dtype type,
                           void *dinp, const void *dout, const void *inp,
                           size_t N, size_t F, uint32_t *amax);

    /* -- normalisation ------------------------------------------------ */
    /* Where residual is not NULL: sum = inp + residual is stored to `sum`
     * [N,C] first and normalised instead of inp (one pass over memory);
     * sum may be inp or residual.
     * mean, rstd = 1 / sqrt(variance + eps): [N] fp32; gamma, beta [C] of T;
     * out[N,C] = (x - mean) * rstd * gamma + beta. ENOTSUP where a row of fp32
     * (backward: two) does not fit into a GPU's shared memory. */
    int (*layernorm_forward)(struct plait_queue *q, enum plait_dtype type,
                             void *out, float *mean, float *rstd, void *sum,
                             const void *inp, const void *residual,
                             const void *gamma, const void *beta, float eps,
                             size_t N, size_t C, uint32_t *amax);
    /* x is what was normalised. dx = the gradient, += if accumulate (the
     * residual branch meets it there); without accumulate dx may be dout.
     * dgamma, dbeta [C] fp32 +=. */
    int (*layernorm_backward)(struct plait_queue *q, enum plait_dtype type,
                              void *dx, float *dgamma, float *dbeta,
                              const void *dout, const void *x,
                              const void *gamma, const float *mean,
                              const float *rstd, int accumulate, size_t N,
                              size_t C, uint32_t *amax);
    /* The same without mean and beta: out = x * rstd * gamma, with rstd =
     * 1 / sqrt(the mean of x^2 + eps). */
    int (*rmsnorm_forward)(struct plait_queue *q, enum plait_dtype type,
                           void *out, float *rstd, void *sum, const void *inp,
                           const void *residual, const void *gamma, float eps,
                           size_t N, size_t C, uint32_t *amax);
    int (*rmsnorm_backward)(struct plait_queue *q, enum plait_dtype type,
                            void *dx, float *dgamma, const void *dout,
                            const void *x, const void *gamma, const float *rstd,
                            int accumulate, size_t N, size_t C, uint32_t *amax);

    /* -- embedding and positions -------------------------------------- */
    /* out[N,C] = wte[token - first] (0 where the token lies outside
     * [first, first+count): another rank of the tp group has it) +
     * wpe[pos0 + i % T - starts[i]] (wpe NULL: none). tokens [N] int32; row i
     * is token i % T of its sequence, and starts [N], as in attention, let
     * positions begin at 0 in each document; NULL: all 0. */
    int (*embedding_forward)(struct plait_queue *q, enum plait_dtype type,
                             void *out, const int32_t *tokens, const void *wte,
                             const void *wpe, int32_t first, int32_t count,
                             int64_t pos0, const int32_t *starts, size_t N,
                             size_t T, size_t C);
    /* dwte [count,C], dwpe fp32 +=; either may be NULL. The order of the sums
     * is fixed. EINVAL on a GPU for more than 2^31 - 1 rows. */
    int (*embedding_backward)(struct plait_queue *q, enum plait_dtype type,
                              float *dwte, float *dwpe, const int32_t *tokens,
                              const void *dout, int32_t first, int32_t count,
                              int64_t pos0, const int32_t *starts, size_t N,
                              size_t T, size_t C);
    /* Rotate pairs (d, d + D/2) of each head in place by the angle
     * pos * f, f as in struct plait_rope, pos = pos0 + i % T - starts[i]; -1
     * rotates back, which is the backward. x [N, heads, D], rows `stride`
     * apart; D = head_dim is even. */
    int (*rope)(struct plait_queue *q, enum plait_dtype type, void *x,
                size_t stride, int heads, int head_dim,
                const struct plait_rope *rope, int64_t pos0,
                const int32_t *starts, int direction, size_t N, size_t T);

    /* -- attention ---------------------------------------------------- */
    /* out = softmax(scale Q K^T) V and lse, as struct plait_attention says.
     * EINVAL on a GPU for heads of more than 256. */
    int (*attention_forward)(struct plait_queue *q, enum plait_dtype type,
                             const struct plait_attention *a, void *out,
                             float *lse, const void *Q, const void *K,
                             const void *V);
    /* dQ, dK, dV += (of T, strides as Q, K, V; one rounding a call), so that
     * ring attention can add chunk by chunk; or = with a->overwrite, which
     * reads nothing of what is there. out and lse are those of the whole
     * softmax, over all chunks. */
    int (*attention_backward)(struct plait_queue *q, enum plait_dtype type,
                              const struct plait_attention *a, void *dQ,
                              void *dK, void *dV, const void *dout,
                              const void *out, const float *lse, const void *Q,
                              const void *K, const void *V);
    /* Join two partial results of one softmax (ring attention):
     * lse' = log(e^lse + e^lse2), out' = the weighted sum; in place. */
    int (*attention_merge)(struct plait_queue *q, enum plait_dtype type,
                           const struct plait_attention *a, void *out,
                           float *lse, const void *out2, const float *lse2);

    /* -- loss: softmax cross-entropy over a vocabulary shard ------------ */
    /* logits [N, stride] of T, columns 0 .. count-1 are vocabulary first ..
     * first+count-1 (columns beyond are padding and take no part).
     * max[i] = largest logit, sum[i] = sum exp(x - max), target[i] = the
     * target's logit, or 0 where another rank has it or the row is masked
     * (targets[i] < 0). fp32 [N] each. A NaN among the logits shows in sum,
     * not in max. */
    int (*xent_stats)(struct plait_queue *q, enum plait_dtype type, float *max,
                      float *sum, float *target, const void *logits,
                      const int32_t *targets, int32_t first, int32_t count,
                      size_t stride, size_t N);
    /* After max was reduced over the ranks: sum *= exp(max - allmax). */
    int (*xent_rescale)(struct plait_queue *q, float *sum, const float *max,
                        const float *allmax, size_t N);
    /* *loss += sum_i (max + log sum - target), one double on the device,
     * and logits = (softmax - onehot) * scale in place, padding columns 0;
     * max, sum and target are those of the whole vocabulary.
     * targets[i] < 0: the row is masked (no loss, gradient 0). */
    int (*xent_backward)(struct plait_queue *q, enum plait_dtype type,
                         double *loss, void *logits, const float *max,
                         const float *sum, const float *target,
                         const int32_t *targets, float scale, int32_t first,
                         int32_t count, size_t stride, size_t N);
    /* xent_stats and xent_backward in one, where one rank has the whole
     * vocabulary. NULL: the device is no faster so. */
    int (*xent)(struct plait_queue *q, enum plait_dtype type, double *loss,
                void *logits, const int32_t *targets, float scale,
                int32_t count, size_t stride, size_t N);

    /* -- experts: which of E experts works on which token --------------- */
    /* prob [N,E] = softmax of logits [N,E]; expert [N,k] = those of the k
     * largest logits, largest first, the lower number where equal; gate [N,k]
     * = their probabilities over the sum of them. */
    int (*route_forward)(struct plait_queue *q, enum plait_dtype type,
                         float *prob, int32_t *expert, float *gate,
                         const void *logits, size_t N, int E, int k);
    /* load[s,e] += choices of expert e by the tokens of sequence s. Row i is
     * of sequence i / run % sequences. */
    int (*route_load)(struct plait_queue *q, float *load, const int32_t *expert,
                      size_t run, int sequences, size_t N, int E, int k);
    /* dlogits [N,E] = from dgate [N,k], and from the gradient balance *
     * load[s,e] of each prob (balance 0: none). */
    int (*route_backward)(struct plait_queue *q, enum plait_dtype type,
                          void *dlogits, const float *dgate, const float *prob,
                          const int32_t *expert, const float *gate,
                          const float *load, float balance, size_t run,
                          int sequences, size_t N, int E, int k);
    /* No more than `most` choices of an expert in a sequence, the first ones:
     * kept [N,k] = expert, but E where the choice is beyond that, and its
     * gate is then 0. Rows are runs of `run` tokens; before[N/run,E]: choices
     * by the tokens of the same sequence before each run, NULL: none. N is
     * divisible by run. */
    int (*route_limit)(struct plait_queue *q, int32_t *kept, float *gate,
                       const int32_t *expert, const float *before, size_t run,
                       size_t N, int E, int k, int most);
    /* Sort n < 2^31 choices (0 .. E-1) by expert, keeping their order:
     * place[i] = the position of choice i, count[e] = how many chose e. */
    int (*route_sort)(struct plait_queue *q, int32_t *place, int32_t *count,
                      const int32_t *expert, size_t n, int E);
    /* out[place[i k + j], :] = x[i, :] * gate[i,j] (NULL: 1); x [N,C]; other
     * rows of out stay as they were. */
    int (*rows_spread)(struct plait_queue *q, enum plait_dtype type, void *out,
                       const void *x, const int32_t *place, const float *gate,
                       size_t N, int k, size_t C);
    /* out[i, :] = sum over j of rows[place[i k + j], :] * gate[i,j] (or 1) */
    int (*rows_join)(struct plait_queue *q, enum plait_dtype type, void *out,
                     const void *rows, const int32_t *place, const float *gate,
                     size_t N, int k, size_t C);
    /* dgate[i,j] = dout[i, :] . rows[place[i k + j], :] */
    int (*rows_dot)(struct plait_queue *q, enum plait_dtype type, float *dgate,
                    const void *dout, const void *rows, const int32_t *place,
                    size_t N, int k, size_t C);

    /* -- moments of gradients, fp32 ------------------------------------ */
    /* y[i] += weight (scale x[i] - y[i]) */
    int (*average)(struct plait_queue *q, float *y, const float *x, float scale,
                   float weight, size_t n);
    /* y[i] += weight ((scale x[i])^2 - y[i]) */
    int (*average_squares)(struct plait_queue *q, float *y, const float *x,
                           float scale, float weight, size_t n);
    /* x[i] = scale x[i] / (sqrt(max(v[i], least)) + eps) */
    int (*divide_root)(struct plait_queue *q, float *x, const float *v,
                       float scale, float least, float eps, size_t n);
    /* x[n] are the elements from `first` on of a matrix of C columns.
     * rows[i], cols[j] += the sums of their squares in row i and column j of
     * that matrix. */
    int (*factor_sums)(struct plait_queue *q, float *rows, float *cols,
                       const float *x, size_t first, size_t n, size_t C);
    /* The same elements, each multiplied by scale and divided by the root of
     * max(rows[i] cols[j] / max(mean[0], eps), eps^2). */
    int (*factor_divide)(struct plait_queue *q, float *x, const float *rows,
                         const float *cols, const float *mean, float scale,
                         float eps, size_t first, size_t n, size_t C);

    /* -- optimizer ---------------------------------------------------- */
    /* The runs' table is the host's, and free on return. */
    int (*update)(struct plait_queue *q, const struct plait_update *p,
                  enum plait_dtype type, const struct plait_update_run *runs,
                  int nruns);
    /* What a factor is made of: sums[0] += |w|^2 over each run's masters, and
     * sums[1] += |grad|^2, not multiplied by grad_scale. With LAMB s0 and s1
     * become those of this step, as in ADAMW, and sums[1] += |u|^2. Each run
     * has sums of its own. */
    int (*update_sums)(struct plait_queue *q, const struct plait_update *p,
                       const struct plait_update_run *runs, int nruns);
    /* ADAMW, whatever p->rule: the states are decoded, stepped, used and
     * encoded again; Dettmers et al. (2021, arXiv:2110.02861). */
    int (*update8)(struct plait_queue *q, const struct plait_update *p,
                   enum plait_dtype type, const struct plait_update8_run *runs,
                   int nruns);
    /* What gradients are to be multiplied by, of which sum_squares[0] is the
     * sum of squares, where `factor` makes them what they stand for and clip
     * bounds their norm then (0: nothing does): norm[0] = sqrt(sum_squares[0])
     * factor, scale[0] = min(1, clip / (norm[0] + 1e-6)) factor; NaN, whatever
     * clip is, where the norm is not finite, so that update() skips the
     * step. */
    int (*clip_scale)(struct plait_queue *q, float *scale, float *norm,
                      const double *sum_squares, double clip, double factor);

    /* Convolutions and what else images take. */
    const struct plait_image_ops *image;
    /* Which algorithms matrix products take; NULL: there is no choice. */
    const struct plait_product_ops *products;
};

/* The implementations. ref and cpu are always there; cuda is a module that
 * is loaded on first use: NULL with errno ENODEV (no GPU), EIO (there is one,
 * which cannot be used) or ENOSYS (built without), *why (may be NULL) says it
 * in a sentence. */
const struct plait_ops *plait_ops_ref(void);
const struct plait_ops *plait_ops_cpu(void);
const struct plait_ops *plait_ops_cuda(const char **why);
/* Whether this program was built with it: the same for all ranks. */
int plait_cuda_configured(void);
/* The instructions that cpu computes with: "base", "avx2", "avx512",
 * "avx512bf16" or "amx"; the best of this processor, or what PLAIT_CPU_ISA
 * names. NULL with errno EINVAL where that is nothing this processor has, *why
 * (may be NULL) says it in a sentence. */
const char *plait_cpu_isa(const char **why);

/* Ranges where the device has them, else nothing. ops may be NULL. */
static inline void plait_range_begin(const struct plait_ops *ops,
                                     const char *name)
{
    if (ops != NULL && ops->range_begin != NULL)
        ops->range_begin(name);
}

static inline void plait_range_end(const struct plait_ops *ops)
{
    if (ops != NULL && ops->range_end != NULL)
        ops->range_end();
}

/* Why a queue failed: a sentence, or NULL if it has not. */
const char *plait_queue_error(const struct plait_queue *q);
/* A sentence for the log about the first op that could not use the
 * implementation it was configured for and used another, or NULL. The results
 * are right all the same. */
const char *plait_queue_remark(const struct plait_queue *q);

#ifdef __cplusplus
}
#endif
#endif
