/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_KERNELS_H
#define PLAIT_KERNELS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/types.h"

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

struct plait_device;      /* one GPU, or this process's cores */
struct plait_queue;       /* a stream of work on a device */
struct plait_event;       /* a point in a queue */
struct plait_weight;      /* a matrix the implementation may keep packed */
struct plait_image_ops;   /* kernels/image.h */
struct plait_product_ops; /* kernels/products.h */
struct plait_average;     /* this and the next three: kernels/moments.h */
struct plait_divide_root;
struct plait_factors;
struct plait_clip;
struct plait_attention_forward; /* these five: kernels/attention.h */
struct plait_attention_backward;
struct plait_attention_merge;
struct plait_attention_sink;
struct plait_attention_sink_gradient;
struct plait_dropout; /* kernels/dropout.h */
struct plait_xent;    /* kernels/xent.h */
struct plait_linear;  /* this and the next three: kernels/linear.h */
struct plait_linear_dinp;
struct plait_linear_dw;
struct plait_fp8_gradient;
struct plait_route; /* this and the next four: kernels/route.h */
struct plait_route_gradient;
struct plait_route_limit;
struct plait_route_sort;
struct plait_rows;
struct plait_graph; /* recorded work that can be run again and again */

enum plait_activation { PLAIT_ACT_NONE, PLAIT_ACT_GELU /* tanh form */ };

/* dst[i] = src[i] in another type, rounded to nearest: fp32, bf16 and fp16 into
 * each other; int32 only to int32. */
struct plait_cast {
    enum plait_dtype to, from;
    void *dst;       /* out: [n] of `to` */
    const void *src; /* in: [n] of `from` */
    size_t n;
};

/* Numbers and their codes in e5m2 (dtype.h), which hold s times each: s is a
 * power of two, so that it changes no mantissa. */
struct plait_e5m2 {
    uint8_t *codes; /* [n] */
    float *x;       /* [n] */
    float s;
    int accumulate; /* +=; decoding alone */
    size_t n;
};

/* dst[i, 0..cols) = src[i, 0..cols) of any type: cuts out and joins column
 * shards. */
struct plait_copy_2d {
    enum plait_dtype type;
    void *dst;         /* out: [rows,cols] */
    size_t dst_stride; /* elements from row to row, at least cols */
    const void *src;   /* in: [rows,cols] */
    size_t src_stride; /* as dst_stride */
    size_t rows, cols;
};

/* Columns of heads from one matrix to another: those of head h begin h heads
 * behind the row's beginning. dst[i, h, 0..cols) = src[i, h, 0..cols). */
struct plait_copy_heads {
    enum plait_dtype type;
    void *dst;         /* out: [rows,heads,cols] of T */
    size_t dst_stride; /* elements from row to row */
    size_t dst_head;   /* and from head to head, at least cols */
    const void *src;   /* in: [rows,heads,cols] of T; NULL: zeros */
    size_t src_stride;
    size_t src_head; /* 0: all heads get the same columns, [rows,cols] */
    size_t rows, heads, cols;
};

/* dst[i, 0..cols) = the sum of src[i, h, 0..cols) over all heads, which is
 * rounded once. */
struct plait_sum_heads {
    enum plait_dtype type;
    void *dst;       /* out: [rows,cols] of T, dense */
    const void *src; /* in: [rows,heads,cols] of T */
    size_t src_stride, src_head;
    size_t rows, heads, cols;
};

/* dst[i, 0..cols) = src[i, 0..cols), or += where `to` is fp32: sums of rounded
 * terms that are rounded once. */
struct plait_cast_2d {
    enum plait_dtype to, from; /* floating-point types */
    void *dst;                 /* out, or in and out: [rows,cols] of `to` */
    size_t dst_stride;         /* elements from row to row, at least cols */
    const void *src;           /* in: [rows,cols] of `from` */
    size_t src_stride;         /* as dst_stride */
    size_t rows, cols;
    int accumulate; /* += */
};

struct plait_add {
    enum plait_dtype type;
    void *out;         /* out: [n] of T; may be a */
    const void *a, *b; /* in: [n] of T */
    float s;           /* used by add_scaled alone */
    size_t n;
};

struct plait_scale {
    enum plait_dtype type;
    void *x; /* in and out: [n] of T */
    float s;
    size_t n;
};

/* dbias[o] += sum_i dout[i,o] */
struct plait_bias_backward {
    enum plait_dtype type;
    float *dbias;     /* [O] += */
    const void *dout; /* in: [N,O] of T */
    size_t N, O;
};

/* out = gelu(inp), the tanh form */
struct plait_gelu_forward {
    enum plait_dtype type;
    void *out;       /* out: [n] of T; may be inp */
    const void *inp; /* in: [n] of T */
    size_t n;
};

/* dinp = dout * gelu'(inp) */
struct plait_gelu_backward {
    enum plait_dtype type;
    void *dinp;       /* out: [n] of T; may be dout */
    const void *dout; /* in: [n] of T */
    const void *inp;  /* in: [n] of T */
    size_t n;
};

/* How a gate and what it lets through become one number. */
enum plait_glu {
    PLAIT_GLU_SILU, /* silu(gate) * up (Shazeer 2020) */
    PLAIT_GLU_GELU, /* gelu(gate) * up, in GELU's tanh form */
    /* g sigmoid(1.702 g) (u + 1) with g = min(gate, 7) and u = up, at least -7
     * and at most 7, as in GPT-OSS; what is beyond has no gradient */
    PLAIT_GLU_CLAMPED
};
#define PLAIT_GLU_SLOPE 1.702f
#define PLAIT_GLU_LIMIT 7.0f

struct plait_swiglu_forward {
    enum plait_dtype type;
    void *out;       /* out: [N,F] of T */
    const void *inp; /* in: [N,2F] of T: gate then up in each row */
    size_t N, F;
    enum plait_glu kind;
    uint32_t *amax; /* out: of `out`, see fp8_amax; NULL: not wanted */
};

struct plait_swiglu_backward {
    enum plait_dtype type;
    void *dinp;       /* out: [N,2F] of T, the gradient of inp */
    const void *dout; /* in: [N,F] of T */
    const void *inp;  /* in: [N,2F] of T */
    size_t N, F;
    enum plait_glu kind;
    uint32_t *amax; /* out: of dinp, see fp8_amax; NULL: not wanted */
};

/* A norm of each row: LayerNorm (Ba, Kiros, Hinton 2016), or, where mean is
 * NULL, RMSNorm (Zhang, Sennrich 2019), which has no mean and no beta.
 *   x    = inp; with a residual inp + residual, which is stored to `sum` first
 *          (one pass over memory) and normalised as it was rounded there
 *   rstd = 1 / sqrt(variance of x + eps); RMSNorm: 1 / sqrt(mean of x^2 + eps)
 *   out  = (x - mean) * rstd * (gamma + plus) + beta
 * ENOTSUP where a row of fp32 (backward: two) does not fit into a GPU's shared
 * memory. */
struct plait_norm_forward {
    enum plait_dtype type;
    void *out;            /* out: [N,C] of T */
    float *mean, *rstd;   /* out: [N]; mean NULL: RMSNorm */
    void *sum;            /* out: [N,C] of T; may be inp or residual; not used
                           * without a residual */
    const void *inp;      /* in: [N,C] of T */
    const void *residual; /* in: [N,C] of T; NULL: none */
    const void *gamma;    /* in: [C] of T */
    const void *beta;     /* in: [C] of T; RMSNorm: NULL */
    float eps;
    float plus; /* 1: gamma has what a factor is above 1; else 0 */
    size_t N, C;
    uint32_t *amax; /* out: of `out`, see fp8_amax; NULL: not wanted */
};

struct plait_norm_backward {
    enum plait_dtype type;
    void *dx;          /* out: [N,C] of T, the gradient of x; may be dout unless
                        * accumulate */
    int accumulate;    /* dx +=, where the gradient of the residual's branch is
                        * there already; otherwise = */
    float *dgamma;     /* [C] += */
    float *dbeta;      /* [C] +=; RMSNorm: NULL */
    const void *dout;  /* in: [N,C] of T */
    const void *x;     /* in: [N,C] of T, what the forward normalised */
    const void *gamma; /* in: [C] of T */
    const float *mean, *rstd; /* in: [N], the forward's; mean NULL: RMSNorm */
    float plus; /* 1: gamma has what a factor is above 1; else 0 */
    size_t N, C;
    uint32_t *amax; /* out: of dx, see fp8_amax; NULL: not wanted */
};

/* An RMS norm of rows whose columns are on several ranks: x has those of this
 * one. The sums of its rows, added up over the ranks, times `mean` are means
 * over the whole rows.
 *   sums       of x^2; with dout, of dout * gamma * x
 *   forward    rstd = 1 / sqrt(sum * mean + eps), out = x * rstd * gamma
 *   backward   out = rstd * (dout * gamma - x * rstd^2 * sum * mean) */
struct plait_norm_part {
    enum plait_dtype type;
    void *out;         /* out: [N,C] of T; backward: the gradient of x, may be
                        * dout */
    float *dgamma;     /* [C] +=; backward */
    const void *dout;  /* in: [N,C] of T; NULL: forward */
    const void *x;     /* in: [N,C] of T */
    const void *gamma; /* in: [C] of T */
    float *sums;       /* [N] out, then in */
    float mean, eps;
    float *rstd; /* [N] out; backward: in */
    size_t N, C;
};

/* An RMS norm of each head without weights (Llama 4), in place:
 *   forward    x = x rstd, with rstd = 1 / sqrt(mean x^2 + eps) of each head
 *   backward   x = rstd (x - y mean(x y)), x being the gradient, y what the
 *              forward wrote */
struct plait_head_norm {
    enum plait_dtype type;
    void *x;       /* in and out: [N,heads,head_dim] of T */
    const void *y; /* in: the same, of its strides; NULL: forward */
    size_t stride; /* elements from one row to the next */
    int heads, head_dim;
    float *rstd; /* [N,heads] out; backward: in */
    float eps;
    size_t N;
};

/* Where the rows of an array stand: row i is token i % T of its sequence, at
 * position pos0 + i % T - starts[i] of its document. */
struct plait_positions {
    size_t T; /* tokens of a sequence on this rank */
    int64_t pos0;
    const int32_t *starts; /* in: [N], as in attention; NULL: all 0 */
};

/* Token and position embedding:
 *   out[i] = wte[tokens[i] - first] + wpe[position of row i]
 * The first term is 0 for a token outside first .. first + count - 1, which
 * another rank of the tp group has. */
struct plait_embedding_forward {
    enum plait_dtype type;
    void *out;                 /* out: [N,C] of T */
    const int32_t *tokens;     /* in: [N] */
    const void *wte;           /* in: [count,C] of T */
    const void *wpe;           /* in: [positions,C] of T; NULL: none */
    int32_t first, count;      /* the tokens of wte */
    struct plait_positions at; /* the rows' */
    size_t N, C;
};

/* The order of summation is fixed. EINVAL on a GPU for more than 2^31 - 1
 * rows. */
struct plait_embedding_backward {
    enum plait_dtype type;
    float *dwte;               /* [count,C] +=; NULL: not wanted */
    float *dwpe;               /* [positions,C] +=; NULL: not wanted */
    const int32_t *tokens;     /* in: [N] */
    const void *dout;          /* in: [N,C] of T */
    int32_t first, count;      /* the tokens of dwte */
    struct plait_positions at; /* the rows' */
    size_t N, C;
};

/* Queries that are longer the more tokens they may attend to, as Llama 4 has
 * it: row i is multiplied in place by 1 + scale log(1 + floor((p + 1) /
 * floor)), p being its position. The gradient is multiplied by the same. */
struct plait_temper {
    enum plait_dtype type;
    void *x;       /* in and out: [N,C] of T */
    size_t stride; /* elements from one row to the next */
    size_t N, C;
    int floor;
    double scale;
    struct plait_positions at; /* the rows' */
};

enum { PLAIT_ROPE_PAIRS = 128 };

/* Angles of rotary embeddings. Pair d of a head of D columns turns by
 * f = theta^(-2d/D) radians per position. With factor > 1, as Llama 3 extends
 * its context (transformers, rope type "llama3"), by f ((1 - s) / factor + s)
 * instead, where s = (original f / 2 pi - low) / (high - low), at least 0 and
 * at most 1; where original is 0, s = (d - low) / (high - low), as
 * plait_rope_yarn() in kernels/rope.h makes it. With `pairs` by f / pairs[d],
 * whatever the factor (LongRoPE). */
struct plait_rope_angles {
    double theta;
    double factor, low, high;
    int original;        /* context length before the extension */
    double size;         /* by which what is rotated is multiplied; 0: by 1 */
    const double *pairs; /* memory of the host, [D / 2], which is at most
                            PLAIT_ROPE_PAIRS; NULL: none */
};

/* Rotary positions (Su et al. 2021): each pair (d, d + D / 2) of the first D
 * columns of each head is rotated in place by the angle of its row's
 * position. */
struct plait_rope {
    enum plait_dtype type;
    void *x;       /* in and out: [N,heads,head_dim] of T */
    size_t stride; /* elements from one row of x to the next */
    int heads, head_dim;
    int columns;   /* D, even; 0: head_dim */
    int direction; /* 1; -1 rotates back, which is the backward */
    struct plait_rope_angles angles;
    struct plait_positions at; /* the rows' */
    size_t N;
};

/* Rows sorted by group; each group has its own weight. The rows' counts are in
 * device memory, so that on a GPU the host need not know them. The caller
 * passes w, bias, dw and dbias of group 0; those of group i lie i * stride
 * elements (of their type) further on. */
struct plait_groups {
    int n;         /* groups */
    size_t rows;   /* of all groups, and rows after the last group that belong
                    * to none */
    size_t stride; /* not used where n is 1 */
    const int32_t *count; /* device, [n]: rows of each group; group 0 begins at
                           * row 0 */
};

/* A weight as it lies in device memory. */
struct plait_weight_data {
    enum plait_dtype type; /* T */
    size_t O, C;
    const void *data; /* in [O,C] of T */
};

/* A bf16 tensor as an operand of a product in fp8. What is not given (amax,
 * codes), each product computes by itself, from these rows alone. */
struct plait_operand {
    const void *x;
    /* Device: the largest magnitude of x, or of the tensor that x is some rows
     * of, as the bits of an fp32; NULL: not known. */
    const uint32_t *amax;
    const void *codes; /* device, from fp8_gradient(); NULL: none */
};

/* Bytes of the fp8 codes of a matrix: its scale, then the matrix and its
 * transpose, with sides padded to multiples of 16. */
static inline size_t plait_fp8_bytes(size_t rows, size_t cols)
{
    size_t codes = (rows + 15) / 16 * 16 * ((cols + 15) / 16 * 16);

    return 256 + 2 * ((codes + 255) / 256 * 256);
}

/* n fp32 numbers of device memory. */
struct plait_floats {
    const float *x;
    size_t n;
};

/* The rules of an update of a weight w. g = grad_scale * grad; weight decay wd,
 * states s0 and s1 and factor f are those of the run:
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
 *   LAMB      w -= lr f u, with the s0 and s1 that update_sums() stored:
 *             You et al. (2019, arXiv:1904.00962), algorithm 2
 *   LION      w -= lr (sign(beta1 s0 + (1-beta1) g) + wd w), then
 *             s0 = beta2 s0 + (1-beta2) g
 *             Chen et al. (2023, arXiv:2302.06675), algorithm 2
 *   SCHEDULEFREE  w is the average x, s0 how far z leads it; the gradient is of
 *             y = x + (1-beta1) s0, which is also what weight gets:
 *             s1 = beta2 s1 + (1-beta2) g^2
 *             d = s0 - lr (g / (sqrt(s1/(1-beta2^t)) + eps) + wd y)
 *             x += mix d;  s0 = d - mix d
 *             Defazio et al. (2024, arXiv:2405.15682), AdamW
 *   LEAD      weight = y alone; w and the states stay as they are
 *   DIRECTION w -= lr (f g + wd w), where g is a direction that an optimizer
 *             such as Muon has made of the gradient */
enum plait_update_rule {
    PLAIT_UPDATE_SGD,
    PLAIT_UPDATE_LARS,
    PLAIT_UPDATE_NOVOGRAD,
    PLAIT_UPDATE_ADAMW,
    PLAIT_UPDATE_LAMB,
    PLAIT_UPDATE_LION,
    PLAIT_UPDATE_SCHEDULEFREE,
    PLAIT_UPDATE_LEAD,
    PLAIT_UPDATE_DIRECTION
};

/* Where a run begins in its tensor, of which this rank has a shard. */
struct plait_origin {
    uint64_t tensor;    /* a number of its own for each tensor of the model */
    size_t row, column; /* of the shard's first element, in the tensor */
    size_t columns;     /* of the shard */
    size_t first;       /* the run's first element, in the shard */
};

/* A run: n elements of one tensor, or of neighbouring tensors that are updated
 * alike. */
struct plait_update_run {
    float *master;  /* NULL: weight, of bf16, is read and written instead */
    void *state[2]; /* s0, s1, of the update's `states`; NULL where the rule has
                     * none */
    struct plait_origin origin; /* only where something is rounded
                                 * stochastically */
    const float *grad;
    void *weight; /* [n] of T; NULL or master: only master is stored */
    size_t n;
    float weight_decay;
    const float *factor; /* f, one number of device memory; NULL: 1 */
    double *sums;        /* [2] for update_sums(), device memory */
};

/* What changes from step to step, in device memory, for a step that is recorded
 * once and replayed. */
struct plait_update_now {
    uint64_t seed; /* added to that of plait_update */
    float lr;
    float correct1, correct2; /* 1 / (1 - beta1^t), 1 / (1 - beta2^t) */
    float mix;
};

/* One update of runs of elements, which must not overlap. The new value is also
 * stored to weight, rounded to nearest, or stochastically if `random_weights`.
 * grad_scale is read from device memory so that clipping needs no transfer to
 * the host; NULL means 1. If it is NaN or infinite, update() and update_sums()
 * do nothing. `now` (NULL: not used) takes the place of lr, mix and step.
 *
 * States of bf16 are widened, updated and used as fp32, and only what is kept
 * is rounded; but LAMB, whose sums come before, takes its direction from what
 * was kept, and its factor from the same before it was rounded. What is rounded
 * stochastically draws from seed and the run's origin (rounding.h), so that the
 * result does not depend on where a shard begins. */
struct plait_update {
    enum plait_update_rule rule;
    enum plait_dtype type;   /* T, of the runs' weights */
    enum plait_dtype states; /* of their states: PLAIT_F32 or PLAIT_BF16_T */
    /* Whether states or weights that are bf16 are rounded stochastically, not
     * to nearest. update8() takes no random_weights. */
    int random_states, random_weights;
    float lr, beta1, beta2, eps, momentum, mix;
    int nesterov;
    int64_t step; /* t, from 1 */
    const float *grad_scale;
    uint64_t seed;
    const struct plait_update_now *now; /* device memory */
};

/* A run whose states are stored in 8 bits: a code for each element, and a scale
 * for each block of PLAIT_MAP_BLOCK elements, counted from the run's first
 * (dynamic_map.h). All codes and scales 0 mean states of 0. */
struct plait_update8_run {
    float *master;
    uint8_t *code[2]; /* of s0, signed, and of s1, unsigned */
    float *scale[2];
    const float *grad;
    void *weight; /* this and the rest: as in plait_update_run */
    size_t n;
    float weight_decay;
};

struct plait_ops {
    const char *name; /* "ref", "cpu", "cuda" */
    /* 1: a GPU, which runs beside the host and has its own memory; 0: the CPU's
     * cores and memory. */
    int gpu;

    /* -- device, memory, queues, events ------------------------------- */
    /* Describes a GPU, by its index among those that this process sees; -1 with
     * ENODEV: there are fewer. NULL: these ops are not for GPUs. */
    int (*gpu_facts)(int index, struct plait_gpu_facts *facts);
    /* index: which GPU (as CUDA numbers them); ignored on CPUs.
     * threads: OpenMP threads to use, 0: what the process is bound to. */
    struct plait_device *(*device_create)(int index, int threads);
    void (*device_destroy)(struct plait_device *dev);
    /* Whether fp32 matrix products may round their operands to TF32 (10 bits of
     * mantissa); initially not. NULL: the device has no TF32. */
    void (*allow_tf32)(struct plait_device *dev, int allow);
    /* Zeroed; aligned to 64 bytes or better. NULL with ENOMEM. */
    void *(*alloc)(struct plait_device *dev, size_t bytes);
    void (*free)(struct plait_device *dev, void *ptr);
    /* Takes over memory of this device that was allocated otherwise, by the
     * communication library for example. It is then like alloc()'s: zeroed,
     * counted, and freed by free(), which calls release(ptr) once no work uses
     * it. -1: it stays the caller's. NULL: there is no such memory. */
    int (*adopt)(struct plait_device *dev, void *ptr, size_t bytes,
                 void (*release)(void *ptr));
    /* Bytes in use now and their maximum, of alloc() and adopt() together. */
    void (*memory)(struct plait_device *dev, size_t *now, size_t *peak);
    /* Host memory, pinned if the device can copy to and from it by itself;
     * otherwise like the three above, and counted separately. */
    void *(*pinned_alloc)(struct plait_device *dev, size_t bytes);
    void (*pinned_free)(struct plait_device *dev, void *ptr);
    void (*pinned_memory)(struct plait_device *dev, size_t *now, size_t *peak);
    /* Higher priority runs first where streams compete. */
    struct plait_queue *(*queue_create)(struct plait_device *dev, int priority);
    void (*queue_destroy)(struct plait_queue *q);
    /* The device's own stream type (cudaStream_t) for a communicator that
     * works on the same device; NULL on CPUs. */
    void *(*queue_native)(struct plait_queue *q);
    int (*queue_sync)(struct plait_queue *q); /* host waits for all work */
    /* timed: event_elapsed() may use it, which makes the event more
     * expensive. */
    struct plait_event *(*event_create)(struct plait_device *dev, int timed);
    void (*event_destroy)(struct plait_event *ev);
    int (*event_record)(struct plait_event *ev, struct plait_queue *q);
    int (*event_wait)(struct plait_event *ev, struct plait_queue *q);
    /* The host waits for the work that was queued before ev was recorded. */
    int (*event_sync)(struct plait_event *ev, struct plait_queue *q);
    /* Seconds between two recorded events, both timed; the host waits for `to`.
     * Negative if the time cannot be told. */
    double (*event_elapsed)(struct plait_event *from, struct plait_event *to);
    /* Work queued on q from graph_begin to graph_end is recorded and does not
     * run. Recorded are the ops of q, and those of another queue between its
     * wait for an event that q has recorded meanwhile and an event that q waits
     * for in turn. Not allowed: fp8_weight, and what waits for a queue or reads
     * or writes host memory (queue_sync, event_sync, to_host, to_device). What
     * an op reads through a pointer is read anew at each run of the graph;
     * numbers passed by value stay as they were. Run the same ops once before,
     * so that plans and work space exist. graph_end NULL: this could not be
     * recorded, *why says it; the queue is as it was before graph_begin. All
     * four NULL: the device has no graphs. */
    int (*graph_begin)(struct plait_queue *q);
    struct plait_graph *(*graph_end)(struct plait_queue *q, const char **why);
    int (*graph_run)(struct plait_queue *q, struct plait_graph *graph);
    void (*graph_destroy)(struct plait_graph *graph); /* waits for its runs */
    /* Names, for the device's profiler, what this thread queues until
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
    /* Between device and pinned memory, asynchronous: the pinned side is in use
     * until the queue has run the copy. */
    int (*copy_out)(struct plait_queue *q, void *pinned, const void *src,
                    size_t bytes);
    int (*copy_in)(struct plait_queue *q, void *dst, const void *pinned,
                   size_t bytes);
    int (*fill_zero)(struct plait_queue *q, void *dst, size_t bytes);
    int (*cast)(struct plait_queue *q, const struct plait_cast *c);
    int (*cast_2d)(struct plait_queue *q, const struct plait_cast_2d *c);
    /* codes[i] = s x[i], rounded to nearest: the largest number where that is
     * too large; NaN if x[i] is NaN or infinite */
    int (*e5m2_encode)(struct plait_queue *q, const struct plait_e5m2 *c);
    /* x[i] = (+=) codes[i] / s */
    int (*e5m2_decode)(struct plait_queue *q, const struct plait_e5m2 *c);
    int (*copy_2d)(struct plait_queue *q, const struct plait_copy_2d *c);
    int (*copy_heads)(struct plait_queue *q, const struct plait_copy_heads *c);
    int (*sum_heads)(struct plait_queue *q, const struct plait_sum_heads *s);

    /* -- arithmetic --------------------------------------------------- */
    /* out[i] = a[i] + b[i] */
    int (*add)(struct plait_queue *q, const struct plait_add *a);
    /* out[i] = a[i] + s * b[i] */
    int (*add_scaled)(struct plait_queue *q, const struct plait_add *a);
    /* x[i] *= s */
    int (*scale)(struct plait_queue *q, const struct plait_scale *s);
    /* x[i] = s tanh(x[i] / s) */
    int (*softcap)(struct plait_queue *q, const struct plait_scale *s);
    int (*dropout)(struct plait_queue *q, const struct plait_dropout *d);
    int (*bias_backward)(struct plait_queue *q,
                         const struct plait_bias_backward *b);
    /* *result += the sum of the squares of all numbers of all n lists; result
     * is a double in device memory. The table `lists` is in host memory and may
     * be freed on return. */
    int (*sum_squares)(struct plait_queue *q, double *result,
                       const struct plait_floats *lists, int n);

    /* -- matrix products ---------------------------------------------- */
    /* A handle on d->data, which stays the caller's and must outlive the
     * handle; NULL with ENOMEM. Call weight_changed() after the data was
     * written or has moved. */
    struct plait_weight *(*weight_create)(struct plait_device *dev,
                                          const struct plait_weight_data *d);
    void (*weight_destroy)(struct plait_weight *w);
    void (*weight_changed)(struct plait_weight *w, const void *data);
    /* out = act(inp . w^T + bias). On CPUs gelu_forward() of pre gives out
     * again to the bit. */
    int (*linear_forward)(struct plait_queue *q, const struct plait_linear *l);
    /* dinp = (+=) dout . w. With an activation and pre the product is
     * multiplied by act'(pre) before it is stored or added. */
    int (*linear_backward_input)(struct plait_queue *q,
                                 const struct plait_linear_dinp *l);
    /* dw = (+=) dout^T . inp and dbias = (+=) the column sums of dout, both
     * fp32. */
    int (*linear_backward_weight)(struct plait_queue *q,
                                  const struct plait_linear_dw *l);

    /* The same three for grouped rows, g->rows in all. For rows of no group
     * out, pre and dinp become 0, and they take no part in dw and dbias; for a
     * group without rows dw and dbias are as with N 0. */
    int (*grouped_forward)(struct plait_queue *q, const struct plait_groups *g,
                           const struct plait_linear *l);
    int (*grouped_backward_input)(struct plait_queue *q,
                                  const struct plait_groups *g,
                                  const struct plait_linear_dinp *l);
    int (*grouped_backward_weight)(struct plait_queue *q,
                                   const struct plait_groups *g,
                                   const struct plait_linear_dw *l);

    /* -- matrix products in fp8 ---------------------------------------- */
    /* The same three where T is bf16, as in Micikevicius et al. (2022,
     * arXiv:2209.05433): the operands are rounded first, inp and w to e4m3,
     * dout to e5m2, each multiplied by a power of two that depends on its
     * largest magnitude (dtype.h). Sums are fp32, and what follows them (bias,
     * activation, +=, dbias) is as above. An operand with a NaN or an infinity
     * makes the whole product NaN. */
    int (*fp8_forward)(struct plait_queue *q, const struct plait_linear *l);
    int (*fp8_backward_input)(struct plait_queue *q,
                              const struct plait_linear_dinp *l);
    int (*fp8_backward_weight)(struct plait_queue *q,
                               const struct plait_linear_dw *l);
    /* *amax = the largest magnitude of x [n] in bf16, for plait_operand. Norms
     * and SwiGLU compute it of what they store if they are given an amax (not
     * NULL, T bf16), which saves a pass over it. */
    int (*fp8_amax)(struct plait_queue *q, uint32_t *amax, const void *x,
                    size_t n);
    /* Rounds dout in one pass for both fp8_backward_input and
     * fp8_backward_weight. NULL: the device does not keep codes. */
    int (*fp8_gradient)(struct plait_queue *q,
                        const struct plait_fp8_gradient *g);
    /* Rounds w now for all fp8_forward and fp8_backward_input until the next
     * weight_changed(); the codes take plait_fp8_bytes() of device memory.
     * Optional: otherwise each product rounds w by itself, to the same values.
     * NULL: the device always does that. */
    int (*fp8_weight)(struct plait_queue *q, struct plait_weight *w);
    /* Whether the device has fp8 products (NULL: no). On CPUs they are
     * emulated: the same values, but no faster. */
    int (*has_fp8)(struct plait_device *dev);

    /* -- activations -------------------------------------------------- */
    int (*gelu_forward)(struct plait_queue *q,
                        const struct plait_gelu_forward *g);
    int (*gelu_backward)(struct plait_queue *q,
                         const struct plait_gelu_backward *g);
    int (*swiglu_forward)(struct plait_queue *q,
                          const struct plait_swiglu_forward *s);
    int (*swiglu_backward)(struct plait_queue *q,
                           const struct plait_swiglu_backward *s);

    /* -- normalisation ------------------------------------------------ */
    int (*norm_forward)(struct plait_queue *q,
                        const struct plait_norm_forward *n);
    int (*norm_backward)(struct plait_queue *q,
                         const struct plait_norm_backward *n);
    int (*norm_part_sums)(struct plait_queue *q,
                          const struct plait_norm_part *p);
    int (*norm_part_forward)(struct plait_queue *q,
                             const struct plait_norm_part *p);
    int (*norm_part_backward)(struct plait_queue *q,
                              const struct plait_norm_part *p);

    int (*head_norm)(struct plait_queue *q, const struct plait_head_norm *n);

    /* -- embedding and positions -------------------------------------- */
    int (*embedding_forward)(struct plait_queue *q,
                             const struct plait_embedding_forward *e);
    int (*embedding_backward)(struct plait_queue *q,
                              const struct plait_embedding_backward *e);
    int (*rope)(struct plait_queue *q, const struct plait_rope *r);
    int (*temper)(struct plait_queue *q, const struct plait_temper *t);

    /* -- attention ---------------------------------------------------- */
    /* out = softmax(scale Q K^T) V and lse, see struct plait_attention. EINVAL
     * on a GPU for head_dim above 256. */
    int (*attention_forward)(struct plait_queue *q,
                             const struct plait_attention_forward *f);
    /* dQ, dK, dV += the gradients, so that ring attention can add chunk by
     * chunk; with overwrite =, and the old values are not read. */
    int (*attention_backward)(struct plait_queue *q,
                              const struct plait_attention_backward *g);
    /* Joins two partial results of one softmax (ring attention): lse' =
     * log(e^lse + e^lse2), out' = the weighted sum; in place, and in fp32, as
     * roundings to T would add up over the ring. */
    int (*attention_merge)(struct plait_queue *q,
                           const struct plait_attention_merge *m);
    int (*attention_sink)(struct plait_queue *q,
                          const struct plait_attention_sink *s);
    int (*attention_sink_backward)(
        struct plait_queue *q, const struct plait_attention_sink_gradient *s);

    /* -- loss: softmax cross-entropy over a vocabulary shard ------------ */
    /* max[i] = largest logit of row i, sum[i] = sum exp(x - max), target[i] =
     * the target's logit, or 0 if another rank has it or the row is masked. A
     * NaN among the logits shows in sum; whether in max is open. */
    int (*xent_stats)(struct plait_queue *q, const struct plait_xent *x);
    /* After max was reduced over the ranks to allmax [N]: sum *= exp(max -
     * allmax). */
    int (*xent_rescale)(struct plait_queue *q, const struct plait_xent *x,
                        const float *allmax);
    /* *loss += sum_i (max + log sum - target), one double on the device, and
     * logits = (softmax - onehot) * scale in place, padding columns 0. max, sum
     * and target are those of the whole vocabulary. */
    int (*xent_backward)(struct plait_queue *q, const struct plait_xent *x);
    /* xent_stats and xent_backward in one, for a rank that has the whole
     * vocabulary: first is 0. NULL: it would be no faster on this device. */
    int (*xent)(struct plait_queue *q, const struct plait_xent *x);

    /* -- experts, see kernels/route.h ----------------------------------- */
    /* prob = softmax of logits [N,E]; expert = the numbers of the k largest
     * logits, largest first, of equal ones the lower number first; gate = their
     * probabilities divided by the sum of these k. With a bias: prob =
     * sigmoid, chosen by prob + bias, gates times scale. */
    int (*route_forward)(struct plait_queue *q, const struct plait_route *r,
                         const void *logits);
    /* load[s,e] += how often tokens of sequence s chose expert e. */
    int (*route_load)(struct plait_queue *q, const struct plait_route *r,
                      float *load);
    /* dlogits = the gradient of the logits, from dgate and from the gradient
     * balance * *factor * load[s,e] of each prob. */
    int (*route_backward)(struct plait_queue *q, const struct plait_route *r,
                          const struct plait_route_gradient *g);
    /* Keeps the first `most` choices of an expert in a sequence: kept = expert,
     * or E for a choice beyond that, whose gate becomes 0. */
    int (*route_limit)(struct plait_queue *q, const struct plait_route *r,
                       const struct plait_route_limit *limit);
    /* Sorts choices by expert, stably. */
    int (*route_sort)(struct plait_queue *q, const struct plait_route_sort *s);
    /* out[place[i,j], :] = x[i, :] * gate[i,j]; other rows of out stay as they
     * were. */
    int (*rows_spread)(struct plait_queue *q, const struct plait_rows *r);
    /* out[i, :] = sum over j of rows[place[i,j], :] * gate[i,j], or += */
    int (*rows_join)(struct plait_queue *q, const struct plait_rows *r);
    /* dgate[i,j] = dout[i, :] . rows[place[i,j], :] */
    int (*rows_dot)(struct plait_queue *q, const struct plait_rows *r);

    /* -- moments of gradients, fp32 ------------------------------------ */
    /* y[i] += weight (scale x[i] - y[i]) */
    int (*average)(struct plait_queue *q, const struct plait_average *a);
    /* y[i] += weight ((scale x[i])^2 - y[i]) */
    int (*average_squares)(struct plait_queue *q,
                           const struct plait_average *a);
    /* x[i] = scale x[i] / (sqrt(max(v[i], least)) + eps) */
    int (*divide_root)(struct plait_queue *q,
                       const struct plait_divide_root *d);
    /* rows[i], cols[j] += the sums of the squares of x in row i and column j of
     * the matrix. */
    int (*factor_sums)(struct plait_queue *q, const struct plait_factors *f);
    /* Multiplies x by scale and divides it by the root of max(rows[i] cols[j] /
     * max(mean[0], eps), eps^2). */
    int (*factor_divide)(struct plait_queue *q, const struct plait_factors *f);

    /* -- optimizer ---------------------------------------------------- */
    /* The table of runs is in host memory and may be freed on return. */
    int (*update)(struct plait_queue *q, const struct plait_update *p,
                  const struct plait_update_run *runs, int nruns);
    /* The norms that a factor is computed from: sums[0] += |w|^2 over each
     * run's masters, and sums[1] += |grad|^2, without grad_scale. With LAMB the
     * states advance to this step, as in ADAMW, and sums[1] += |u|^2. Each run
     * has its own sums. */
    int (*update_sums)(struct plait_queue *q, const struct plait_update *p,
                       const struct plait_update_run *runs, int nruns);
    /* ADAMW, whatever p->rule says: the states are decoded, updated, used and
     * encoded again; Dettmers et al. (2021, arXiv:2110.02861). */
    int (*update8)(struct plait_queue *q, const struct plait_update *p,
                   const struct plait_update8_run *runs, int nruns);
    /* norm = sqrt(sum_squares) factor, scale = min(1, clip / (norm + 1e-6))
     * factor; NaN, whatever clip is, if the norm is not finite, so that
     * update() skips the step. */
    int (*clip_scale)(struct plait_queue *q, const struct plait_clip *c);

    /* Convolutions and other ops of image models. */
    const struct plait_image_ops *image;
    /* The choice of algorithms for matrix products; NULL: there is no
     * choice. */
    const struct plait_product_ops *products;
};

/* The implementations. ref and cpu are always there; cuda is a module that is
 * loaded on first use: NULL with errno ENODEV (no GPU), EIO (a GPU that cannot
 * be used) or ENOSYS (built without CUDA), and *why (may be NULL) is a sentence
 * that says so. */
const struct plait_ops *plait_ops_ref(void);
const struct plait_ops *plait_ops_cpu(void);
const struct plait_ops *plait_ops_cuda(const char **why);
/* Whether this program was built with CUDA: the same for all ranks. */
int plait_cuda_configured(void);
/* The instruction set that cpu uses: "base", "avx2", "avx512", "avx512bf16",
 * "amx" or "amxown", on Arm "neon" or "sve"; the best of this processor, or
 * what PLAIT_CPU_ISA names. NULL with errno EINVAL if this processor lacks that
 * or it does not exist, and *why (may be NULL) is a sentence that says so. */
const char *plait_cpu_isa(const char **why);

/* Why a queue failed: a sentence, or NULL if it has not. */
const char *plait_queue_error(const struct plait_queue *q);
/* A sentence for the log about the first op that could not use the
 * implementation it was configured for and used another, or NULL. The results
 * are correct either way. */
const char *plait_queue_remark(const struct plait_queue *q);

#ifdef __cplusplus
}
#endif
#endif
