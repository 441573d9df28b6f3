/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "kernels/dtype.h"
#include "ops_trial.h"

/* The arrays of a case are numbered in the order its setup adds them. */

static size_t product(const int *shape, int n)
{
    size_t p = 1;

    while (n-- > 0)
        p *= (size_t)*shape++;
    return p;
}

static void *real(struct trial *t, size_t n)
{
    return trial_real(t, KIND_T, n, -1, 1);
}

static void *real32(struct trial *t, size_t n)
{
    return trial_real(t, KIND_F32, n, -1, 1);
}

/* -- moving and arithmetic: shape {n} or {rows, cols} ------------------ */

static void setup_cast(struct trial *t, const int *s)
{
    trial_real(t, KIND_T, product(s, 1), -4, 4);
    trial_real(t, KIND_F32, product(s, 1), -4, 4);
    real32(t, product(s, 1));
    real(t, product(s, 1));
}

static int call_cast(struct trial_side *d, const int *s)
{
    size_t n = product(s, 1);

    return d->ops->cast(d->q, PLAIT_F32, d->p[2], d->type, d->p[0], n) |
           d->ops->cast(d->q, d->type, d->p[3], PLAIT_F32, d->p[1], n);
}

static void setup_elementwise(struct trial *t, const int *s)
{
    real(t, product(s, 1));
    real(t, product(s, 1));
    real(t, product(s, 1));
}

static int call_add(struct trial_side *d, const int *s)
{
    size_t n = product(s, 1);

    return d->ops->add(d->q, d->type, d->p[2], d->p[0], d->p[1], n) |
           d->ops->add(d->q, d->type, d->p[0], d->p[0], d->p[1], n) |
           d->ops->scale(d->q, d->type, d->p[1], 0.37f, n);
}

static void setup_bias(struct trial *t, const int *s)
{
    real(t, product(s, 2));
    real(t, (size_t)s[1]);
    real32(t, (size_t)s[1]);
}

static int call_bias(struct trial_side *d, const int *s)
{
    size_t N = (size_t)s[0], O = (size_t)s[1];

    return d->ops->bias_backward(d->q, d->type, d->p[2], d->p[0], N, O) |
           d->ops->bias_add(d->q, d->type, d->p[0], d->p[1], N, O);
}

static void setup_sum_squares(struct trial *t, const int *s)
{
    real32(t, product(s, 1));
    trial_real(t, KIND_F64, 1, 0, 1);
}

static int call_sum_squares(struct trial_side *d, const int *s)
{
    return d->ops->sum_squares(d->q, d->p[1], d->p[0], product(s, 1));
}

static void setup_copy_2d(struct trial *t, const int *s)
{
    real(t, (size_t)s[0] * (size_t)(s[1] + 5));
    real(t, (size_t)s[0] * (size_t)(s[1] + 2));
    real(t, (size_t)s[0]);
    real(t, (size_t)s[0]);
}

static int call_copy_2d(struct trial_side *d, const int *s)
{
    size_t rows = (size_t)s[0], cols = (size_t)s[1];
    size_t bytes = rows * plait_dtype_size(d->type);

    return d->ops->copy_2d(d->q, d->type, d->p[1], cols + 2, d->p[0], cols + 5,
                           rows, cols) |
           d->ops->copy(d->q, d->p[2], d->p[0], bytes) |
           d->ops->fill_zero(d->q, d->p[3], bytes);
}

/* Array 0 goes to pinned memory and comes back as array 1, beside the queue
 * of the other ops. */
static void setup_pinned(struct trial *t, const int *s)
{
    real(t, product(s, 1));
    real(t, product(s, 1));
}

static int call_pinned(struct trial_side *d, const int *s)
{
    size_t bytes = product(s, 1) * plait_dtype_size(d->type), now = 0;
    void *pinned = d->ops->pinned_alloc(d->dev, bytes);
    struct plait_queue *q = d->ops->queue_create(d->dev, 0);
    struct plait_event *ev = d->ops->event_create(d->dev);
    int rc = -1;

    d->ops->pinned_memory(d->dev, &now, NULL);
    if (pinned != NULL && q != NULL && ev != NULL && now == bytes)
        rc = d->ops->scale(d->q, d->type, d->p[0], 3, product(s, 1)) |
             d->ops->event_record(ev, d->q) | d->ops->event_wait(ev, q) |
             d->ops->copy_out(q, pinned, d->p[0], bytes) |
             d->ops->copy_in(q, d->p[1], pinned, bytes) |
             d->ops->queue_sync(q);
    d->ops->event_destroy(ev);
    d->ops->queue_destroy(q);
    d->ops->pinned_free(d->dev, pinned);
    d->ops->pinned_memory(d->dev, &now, NULL);
    return now == 0 ? rc : -1;
}

/* -- matrix products: {N, O, C, act, bias, pre or accumulate} ---------- */

static void setup_linear_forward(struct trial *t, const int *s)
{
    size_t N = (size_t)s[0], O = (size_t)s[1], C = (size_t)s[2];

    real(t, N * O);
    real(t, N * O);
    real(t, N * C);
    real(t, O * C);
    real(t, O * C);
    real(t, O);
}

/* Twice, with the weight changed between: a packed copy must follow. */
static int call_linear_forward(struct trial_side *d, const int *s)
{
    size_t N = (size_t)s[0], O = (size_t)s[1], C = (size_t)s[2];
    enum plait_activation act = s[3] ? PLAIT_ACT_GELU : PLAIT_ACT_NONE;
    void *bias = s[4] ? d->p[5] : NULL, *pre = s[5] ? d->p[1] : NULL;
    struct plait_weight *w;
    int rc;

    w = d->ops->weight_create(d->dev, d->type, O, C, d->p[3]);
    if (w == NULL)
        return -1;
    rc = d->ops->linear_forward(d->q, d->p[0], pre, d->p[2], w, bias, act, N);
    d->ops->weight_changed(w, d->p[4]);
    rc |= d->ops->linear_forward(d->q, d->p[0], pre, d->p[2], w, bias, act, N);
    if (!d->recording)
        rc |= d->ops->queue_sync(d->q);
    d->ops->weight_destroy(w);
    return rc;
}

static void setup_linear_input(struct trial *t, const int *s)
{
    size_t N = (size_t)s[0], O = (size_t)s[1], C = (size_t)s[2];

    real(t, N * C);
    real(t, N * O);
    real(t, O * C);
    trial_real(t, KIND_T, N * C, -3, 3);
}

static int call_linear_input(struct trial_side *d, const int *s)
{
    size_t N = (size_t)s[0], O = (size_t)s[1], C = (size_t)s[2];
    enum plait_activation act = s[3] ? PLAIT_ACT_GELU : PLAIT_ACT_NONE;
    struct plait_weight *w;
    int rc;

    w = d->ops->weight_create(d->dev, d->type, O, C, d->p[2]);
    if (w == NULL)
        return -1;
    rc = d->ops->linear_backward_input(d->q, d->p[0], d->p[1], w, act,
                                       s[3] ? d->p[3] : NULL, s[5], N);
    if (!d->recording)
        rc |= d->ops->queue_sync(d->q);
    d->ops->weight_destroy(w);
    return rc;
}

static void setup_linear_weight(struct trial *t, const int *s)
{
    size_t N = (size_t)s[0], O = (size_t)s[1], C = (size_t)s[2];

    real32(t, O * C);
    real32(t, O);
    real(t, N * O);
    real(t, N * C);
}

static int call_linear_weight(struct trial_side *d, const int *s)
{
    return d->ops->linear_backward_weight(
        d->q, d->type, d->p[0], s[4] ? d->p[1] : NULL, d->p[2], d->p[3],
        (size_t)s[0], (size_t)s[1], (size_t)s[2]);
}

/* -- the same in fp8 ----------------------------------------------------- */

/* Magnitudes from 1 down to 2^-24: into the subnormals of both formats. */
static void spread(struct trial *t, uint16_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = plait_bf16_of_f32(plait_f32_of_bf16(x[i]) *
                                 (float)exp2(floor(trial_uniform(t, -23, 1))));
}

static void setup_fp8_forward(struct trial *t, const int *s)
{
    size_t N = (size_t)s[0], O = (size_t)s[1], C = (size_t)s[2];

    setup_linear_forward(t, s);
    spread(t, t->array[2].host, N * C / 2);
    spread(t, t->array[4].host, O * C / 2);
}

static void setup_fp8_input(struct trial *t, const int *s)
{
    setup_linear_input(t, s);
    spread(t, t->array[1].host, (size_t)s[0] * (size_t)s[1] / 2);
}

static void setup_fp8_weight(struct trial *t, const int *s)
{
    /* Hopper sums products of fp8 in some 14 bits before it adds the sums in
     * fp32 (DeepSeek-V3, arXiv:2412.19437, 3.3.2). */
    t->tolerance = 0x1p-10;
    setup_linear_weight(t, s);
    spread(t, t->array[2].host, (size_t)s[0] * (size_t)s[1] / 2);
}

/* A side whose linear ops are those in fp8. */
static int in_fp8(int (*call)(struct trial_side *d, const int *s),
                  struct trial_side *d, const int *s)
{
    struct plait_ops ops = *d->ops;
    struct trial_side side = *d;

    ops.linear_forward = d->ops->fp8_forward;
    ops.linear_backward_input = d->ops->fp8_backward_input;
    ops.linear_backward_weight = d->ops->fp8_backward_weight;
    side.ops = &ops;
    return call(&side, s);
}

static int call_fp8_forward(struct trial_side *d, const int *s)
{
    return in_fp8(call_linear_forward, d, s);
}

static int call_fp8_input(struct trial_side *d, const int *s)
{
    return in_fp8(call_linear_input, d, s);
}

static int call_fp8_weight(struct trial_side *d, const int *s)
{
    return in_fp8(call_linear_weight, d, s);
}

/* -- activations: {N, F} ------------------------------------------------ */

static void setup_gelu(struct trial *t, const int *s)
{
    real(t, product(s, 2));
    real(t, product(s, 2));
    trial_real(t, KIND_T, product(s, 2), -12, 12);
}

static int call_gelu(struct trial_side *d, const int *s)
{
    size_t n = product(s, 2);

    return d->ops->gelu_forward(d->q, d->type, d->p[0], d->p[2], n) |
           d->ops->gelu_backward(d->q, d->type, d->p[1], d->p[1], d->p[2], n);
}

static void setup_swiglu(struct trial *t, const int *s)
{
    real(t, product(s, 2));
    real(t, 2 * product(s, 2));
    trial_real(t, KIND_T, 2 * product(s, 2), -8, 8);
    real(t, product(s, 2));
}

static int call_swiglu(struct trial_side *d, const int *s)
{
    size_t N = (size_t)s[0], F = (size_t)s[1];

    return d->ops->swiglu_forward(d->q, d->type, d->p[0], d->p[2], N, F) |
           d->ops->swiglu_backward(d->q, d->type, d->p[1], d->p[3], d->p[2], N,
                                   F);
}

/* -- normalisation: {N, C, residual or accumulate} ---------------------- */

static void setup_norm_forward(struct trial *t, const int *s)
{
    size_t N = (size_t)s[0], C = (size_t)s[1];

    real(t, N * C);
    real32(t, N);
    real32(t, N);
    real(t, N * C);
    trial_real(t, KIND_T, N * C, -1, 3);
    real(t, N * C);
    real(t, C);
    real(t, C);
}

static int call_layernorm_forward(struct trial_side *d, const int *s)
{
    return d->ops->layernorm_forward(
        d->q, d->type, d->p[0], d->p[1], d->p[2], s[2] ? d->p[3] : NULL,
        d->p[4], s[2] ? d->p[5] : NULL, d->p[6], d->p[7], 1e-5f, (size_t)s[0],
        (size_t)s[1]);
}

/* The sum takes the residual's place, as in a residual stream. */
static int call_rmsnorm_forward(struct trial_side *d, const int *s)
{
    void *stream = s[2] ? d->p[5] : NULL;

    return d->ops->rmsnorm_forward(d->q, d->type, d->p[0], d->p[2], stream,
                                   d->p[4], stream, d->p[6], 1e-6f,
                                   (size_t)s[0], (size_t)s[1]);
}

static void setup_norm_backward(struct trial *t, const int *s)
{
    size_t N = (size_t)s[0], C = (size_t)s[1];
    void *x, *gamma;
    float *mean, *rstd;

    real(t, N * C);
    real32(t, C);
    real32(t, C);
    real(t, N * C);
    x = trial_real(t, KIND_T, N * C, -1, 3);
    gamma = real(t, C);
    mean = real32(t, N);
    rstd = trial_real(t, KIND_F32, N, 0.5, 2);
    if (s[3])
        t->ref->layernorm_forward(t->ref_queue, t->type, t->array[0].host,
                                  mean, rstd, NULL, x, NULL, gamma, gamma,
                                  1e-5f, N, C);
}

static int call_layernorm_backward(struct trial_side *d, const int *s)
{
    return d->ops->layernorm_backward(d->q, d->type, d->p[0], d->p[1], d->p[2],
                                      d->p[3], d->p[4], d->p[5], d->p[6],
                                      d->p[7], s[2], (size_t)s[0],
                                      (size_t)s[1]);
}

static int call_rmsnorm_backward(struct trial_side *d, const int *s)
{
    return d->ops->rmsnorm_backward(d->q, d->type, d->p[0], d->p[1], d->p[3],
                                    d->p[4], d->p[5], d->p[7], s[2],
                                    (size_t)s[0], (size_t)s[1]);
}

/* -- embedding {B, T, C, vocabulary, first, count, pos0} ---------------- */

static void setup_embedding(struct trial *t, const int *s)
{
    size_t N = product(s, 2), C = (size_t)s[2];

    real(t, N * C);
    trial_int(t, N, 0, s[3]);
    real(t, (size_t)s[5] * C);
    real(t, (size_t)(s[6] + s[1]) * C);
    real32(t, (size_t)s[5] * C);
    real32(t, (size_t)(s[6] + s[1]) * C);
}

static int call_embedding(struct trial_side *d, const int *s)
{
    size_t N = product(s, 2), T = (size_t)s[1], C = (size_t)s[2];

    return d->ops->embedding_backward(d->q, d->type, d->p[4], d->p[5], d->p[1],
                                      d->p[0], s[4], s[5], s[6], N, T, C) |
           d->ops->embedding_forward(d->q, d->type, d->p[0], d->p[1], d->p[2],
                                     d->p[3], s[4], s[5], s[6], N, T, C);
}

/* -- rope {B, T, heads, head_dim, gap, pos0} ---------------------------- */

static void setup_rope(struct trial *t, const int *s)
{
    real(t, product(s, 2) * (size_t)(s[2] * s[3] + s[4]));
    real(t, product(s, 2) * (size_t)(s[2] * s[3] + s[4]));
}

static int call_rope(struct trial_side *d, const int *s)
{
    size_t stride = (size_t)(s[2] * s[3] + s[4]);
    size_t N = product(s, 2), T = (size_t)s[1];

    return d->ops->rope(d->q, d->type, d->p[0], stride, s[2], s[3], 1e4f, s[5],
                        1, N, T) |
           d->ops->rope(d->q, d->type, d->p[1], stride, s[2], s[3], 5e5f, s[5],
                        -1, N, T);
}

/* -- attention {B, q_len, k_len, q_heads, kv_heads, D, q_pos, k_pos} ---- */

static struct plait_attention attention_of(const int *s)
{
    int fused = (s[3] + 2 * s[4]) * s[5];
    struct plait_attention a = {
        .batch = s[0], .q_len = s[1], .k_len = s[2], .q_heads = s[3],
        .kv_heads = s[4], .head_dim = s[5], .q_stride = (size_t)fused,
        .kv_stride = (size_t)fused, .q_pos = s[6], .k_pos = s[7],
        .scale = 1 / sqrtf((float)s[5]),
    };

    return a;
}

/* q, k and v lie side by side in one row of a fused buffer; where the two
 * lengths differ it has the rows of the longer one. */
static size_t fused_size(const int *s)
{
    int rows = s[0] * (s[1] > s[2] ? s[1] : s[2]);

    return (size_t)rows * (size_t)((s[3] + 2 * s[4]) * s[5]);
}

static void *column(const struct trial_side *d, void *fused, int elements)
{
    return (char *)fused + (size_t)elements * plait_dtype_size(d->type);
}

static void setup_attention(struct trial *t, const int *s)
{
    size_t dense = (size_t)(s[0] * s[1] * s[3] * s[5]);
    struct plait_attention a = attention_of(s);
    size_t size = plait_dtype_size(t->type);
    char *qkv;
    void *out;
    float *lse;

    out = real(t, dense);
    lse = real32(t, (size_t)(s[0] * s[1] * s[3]));
    qkv = trial_real(t, KIND_T, fused_size(s), -2, 2);
    real(t, dense);
    real(t, fused_size(s));
    t->ref->attention_forward(t->ref_queue, t->type, &a, out, lse, qkv,
                              qkv + (size_t)(s[3] * s[5]) * size,
                              qkv + (size_t)((s[3] + s[4]) * s[5]) * size);
}

static int call_attention_forward(struct trial_side *d, const int *s)
{
    struct plait_attention a = attention_of(s);

    return d->ops->attention_forward(
        d->q, d->type, &a, d->p[0], d->p[1], d->p[2],
        column(d, d->p[2], s[3] * s[5]),
        column(d, d->p[2], (s[3] + s[4]) * s[5]));
}

static int call_attention_backward(struct trial_side *d, const int *s)
{
    struct plait_attention a = attention_of(s);
    int k = s[3] * s[5], v = (s[3] + s[4]) * s[5];

    return d->ops->attention_backward(
        d->q, d->type, &a, d->p[4], column(d, d->p[4], k),
        column(d, d->p[4], v), d->p[3], d->p[0], d->p[1], d->p[2],
        column(d, d->p[2], k), column(d, d->p[2], v));
}

static void setup_merge(struct trial *t, const int *s)
{
    size_t rows = (size_t)(s[0] * s[1] * s[3]);
    float *lse[2];

    real(t, rows * (size_t)s[5]);
    lse[0] = trial_real(t, KIND_F32, rows, -4, 4);
    real(t, rows * (size_t)s[5]);
    lse[1] = trial_real(t, KIND_F32, rows, -4, 4);
    lse[0][0] = lse[1][rows - 1] = -INFINITY; /* saw no key in one chunk */
}

static int call_merge(struct trial_side *d, const int *s)
{
    struct plait_attention a = attention_of(s);

    return d->ops->attention_merge(d->q, d->type, &a, d->p[0], d->p[1],
                                   d->p[2], d->p[3]);
}

/* -- loss {N, stride, first, count, vocabulary} ------------------------- */

static void setup_xent(struct trial *t, const int *s)
{
    size_t N = (size_t)s[0], stride = (size_t)s[1];
    float *max, *sum, *target;
    int32_t *targets;
    void *logits;

    logits = trial_real(t, KIND_T, N * stride, -6, 6);
    targets = trial_int(t, N, 0, s[4]);
    max = real32(t, N);
    sum = real32(t, N);
    target = real32(t, N);
    trial_real(t, KIND_F32, N, 4, 7);
    trial_real(t, KIND_F64, 1, 0, 1);
    targets[N / 2] = -1;
    t->ref->xent_stats(t->ref_queue, t->type, max, sum, target, logits,
                       targets, s[2], s[3], stride, N);
}

static int call_xent_stats(struct trial_side *d, const int *s)
{
    size_t N = (size_t)s[0];

    return d->ops->xent_stats(d->q, d->type, d->p[2], d->p[3], d->p[4],
                              d->p[0], d->p[1], s[2], s[3], (size_t)s[1], N) |
           d->ops->xent_rescale(d->q, d->p[3], d->p[2], d->p[5], N);
}

static int call_xent_backward(struct trial_side *d, const int *s)
{
    return d->ops->xent_backward(d->q, d->type, d->p[6], d->p[0], d->p[2],
                                 d->p[3], d->p[4], d->p[1], 0.125f, s[2], s[3],
                                 (size_t)s[1], (size_t)s[0]);
}

/* -- experts {tokens, experts, choices, C, run, sequences} --------------- */

static void whole_numbers(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(i % 5);
}

static void setup_route(struct trial *t, const int *s)
{
    size_t N = (size_t)s[0], E = (size_t)s[1], k = (size_t)s[2];

    trial_real(t, KIND_T, N * E, -3, 3);
    real32(t, N * E);
    trial_int(t, N * k, 0, s[1]);
    real32(t, N * k);
    trial_real(t, KIND_F32, (size_t)s[5] * E, 0, 4);
    real32(t, N * k);
    real(t, N * E);
    trial_int(t, N * k, 0, 1);
    trial_int(t, E + 1, 0, 1);
    trial_int(t, N * k, 0, 1);
    trial_real(t, KIND_F32, N / (size_t)s[4] * E, 0, 0);
    whole_numbers(t->array[10].host, N / (size_t)s[4] * E);
}

static int call_route(struct trial_side *d, const int *s)
{
    size_t N = (size_t)s[0], run = (size_t)s[4];
    void *const *p = d->p;

    return d->ops->route_forward(d->q, d->type, p[1], p[2], p[3], p[0], N,
                                 s[1], s[2]) |
           d->ops->route_load(d->q, p[4], p[2], run, s[5], N, s[1], s[2]) |
           d->ops->route_backward(d->q, d->type, p[6], p[5], p[1], p[2], p[3],
                                  p[4], 0.3f, run, s[5], N, s[1], s[2]) |
           d->ops->route_limit(d->q, p[9], p[3], p[2], NULL, run, N, s[1],
                               s[2], 3) |
           d->ops->route_limit(d->q, p[9], p[3], p[2], p[10], run, N, s[1],
                               s[2], 4) |
           d->ops->route_sort(d->q, p[7], p[8], p[9], N * (size_t)s[2],
                              s[1] + 1);
}

static void setup_rows(struct trial *t, const int *s)
{
    size_t N = (size_t)s[0], n = N * (size_t)s[2], C = (size_t)s[3];
    int32_t *expert, *place, *count;

    real(t, N * C);
    expert = trial_int(t, n, 0, s[1]);
    place = trial_int(t, n, 0, 1);
    count = trial_int(t, (size_t)s[1], 0, 1);
    real32(t, n);
    real(t, n * C);
    real(t, n * C);
    real(t, N * C);
    real(t, N * C);
    real32(t, n);
    t->ref->route_sort(t->ref_queue, place, count, expert, n, s[1]);
}

static int call_rows(struct trial_side *d, const int *s)
{
    size_t N = (size_t)s[0], C = (size_t)s[3];
    void *const *p = d->p;

    return d->ops->rows_spread(d->q, d->type, p[5], p[0], p[2], p[4], N, s[2],
                               C) |
           d->ops->rows_spread(d->q, d->type, p[6], p[0], p[2], NULL, N, s[2],
                               C) |
           d->ops->rows_join(d->q, d->type, p[7], p[6], p[2], p[4], N, s[2],
                             C) |
           d->ops->rows_join(d->q, d->type, p[8], p[6], p[2], NULL, N, s[2],
                             C) |
           d->ops->rows_dot(d->q, d->type, p[9], p[0], p[5], p[2], N, s[2], C);
}

/* -- optimizer {n, stochastic, with grad_scale, with now} --------------- */

static void setup_adamw(struct trial *t, const int *s)
{
    size_t n = product(s, 1);
    struct plait_adamw_now *now;

    real32(t, n);
    trial_real(t, KIND_F32, n, -0.1, 0.1);
    trial_real(t, KIND_F32, n, 0, 0.01);
    real32(t, n);
    real(t, n);
    trial_real(t, KIND_F32, 1, 0.1, 1);
    now = trial_real(t, KIND_F32, sizeof(*now) / sizeof(float), 0, 0);
    *now = (struct plait_adamw_now){
        .seed = 57, .lr = 2e-2f, .correct1 = 3.7f, .correct2 = 7.0f};
}

static int call_adamw(struct trial_side *d, const int *s)
{
    struct plait_adamw p = {
        .lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f,
        .weight_decay = 0.1f, .step = 3, .stochastic = s[1], .seed = 42,
        .grad_scale = s[2] ? d->p[5] : NULL,
        .now = s[3] ? d->p[6] : NULL,
    };

    return d->ops->adamw(d->q, &p, d->p[0], d->p[1], d->p[2], d->p[3], d->type,
                         d->p[4], product(s, 1));
}

static void setup_clip(struct trial *t, const int *s)
{
    double *sum = trial_real(t, KIND_F64, 1, 1, 50);

    real32(t, 1);
    real32(t, 1);
    if (s[1])
        *sum = 0;
}

static int call_clip(struct trial_side *d, const int *s)
{
    return d->ops->clip_scale(d->q, d->p[1], d->p[2], d->p[0],
                              s[2] ? 1.0f : 0.0f);
}

const struct trial_case trial_cases[] = {
    {"cast", setup_cast, call_cast, {{1}, {1000}, {70001}}},
    {"add, scale", setup_elementwise, call_add, {{1}, {1003}, {66000}}},
    {"bias_add, bias_backward", setup_bias, call_bias, {{7, 5}, {130, 257}}},
    {"sum_squares", setup_sum_squares, call_sum_squares, {{1}, {100003}}},
    {"copy_2d, copy, fill_zero", setup_copy_2d, call_copy_2d, {{33, 17}}},
    {"copy_out, copy_in", setup_pinned, call_pinned, {{1}, {70001}}},
    {"linear_forward",
     setup_linear_forward,
     call_linear_forward,
     {{1, 1, 1, 0, 0, 0},
      {5, 7, 3, 1, 1, 1},
      {33, 70, 45, 1, 1, 0},
      {67, 129, 96, 1, 0, 1},
      {130, 64, 257, 0, 1, 0},
      {133, 230, 402, 1, 1, 1}}},
    {"linear_backward_input",
     setup_linear_input,
     call_linear_input,
     {{1, 1, 1, 0, 0, 0},
      {5, 7, 3, 1, 0, 1},
      {33, 70, 45, 1, 0, 0},
      {67, 129, 96, 0, 0, 1},
      {130, 64, 257, 0, 0, 0},
      {133, 402, 230, 1, 0, 0}}},
    {"linear_backward_weight",
     setup_linear_weight,
     call_linear_weight,
     {{1, 1, 1, 0, 1},
      {5, 7, 3, 0, 0},
      {67, 129, 96, 0, 1},
      {130, 64, 257, 0, 1},
      {2101, 70, 100, 0, 1}}},
    {"gelu", setup_gelu, call_gelu, {{40, 1}, {37, 53}}},
    {"swiglu", setup_swiglu, call_swiglu, {{1, 1}, {37, 53}}},
    {"layernorm_forward",
     setup_norm_forward,
     call_layernorm_forward,
     {{1, 2, 0}, {13, 47, 1}, {33, 768, 0}, {9, 257, 1}}},
    {"layernorm_backward",
     setup_norm_backward,
     call_layernorm_backward,
     {{1, 5, 0, 1}, {13, 47, 1, 1}, {65, 768, 0, 1}, {70, 257, 1, 1}}},
    {"rmsnorm_forward",
     setup_norm_forward,
     call_rmsnorm_forward,
     {{1, 2, 0}, {13, 47, 1}, {33, 768, 0}, {9, 257, 1}}},
    {"rmsnorm_backward",
     setup_norm_backward,
     call_rmsnorm_backward,
     {{1, 2, 0, 0}, {13, 47, 1, 0}, {65, 768, 0, 0}, {70, 257, 1, 0}}},
    {"embedding",
     setup_embedding,
     call_embedding,
     {{1, 1, 1, 3, 0, 3, 0}, {3, 17, 45, 40, 0, 40, 0},
      {2, 33, 64, 100, 50, 25, 33}}},
    {"rope",
     setup_rope,
     call_rope,
     {{1, 1, 1, 2, 0, 0}, {2, 17, 3, 16, 0, 0}, {3, 9, 2, 64, 40, 9}}},
    {"attention_forward",
     setup_attention,
     call_attention_forward,
     {{1, 1, 1, 1, 1, 8, 0, 0},
      {2, 37, 37, 3, 3, 16, 0, 0},
      {1, 150, 150, 2, 2, 64, 0, 0},
      {2, 20, 33, 4, 2, 24, 40, 20},
      {1, 65, 65, 6, 1, 40, 0, 30},
      {1, 67, 66, 2, 1, 7, 3, 0},
      {1, 70, 200, 2, 1, 128, 130, 0}}},
    {"attention_backward",
     setup_attention,
     call_attention_backward,
     {{1, 1, 1, 1, 1, 8, 0, 0},
      {2, 37, 37, 3, 3, 16, 0, 0},
      {1, 150, 150, 2, 2, 64, 0, 0},
      {2, 20, 33, 4, 2, 24, 40, 20},
      {1, 65, 65, 6, 1, 40, 0, 30},
      {1, 67, 66, 2, 1, 7, 3, 0},
      {1, 70, 200, 2, 1, 128, 130, 0}}},
    {"attention_merge", setup_merge, call_merge, {{2, 19, 19, 3, 3, 24, 0, 0}}},
    {"xent_stats",
     setup_xent,
     call_xent_stats,
     {{1, 2, 0, 2, 2}, {9, 300, 0, 257, 257}, {33, 1024, 500, 999, 1499}}},
    {"xent_backward",
     setup_xent,
     call_xent_backward,
     {{1, 2, 0, 2, 2}, {9, 300, 0, 257, 257}, {33, 1024, 0, 1000, 1000}}},
    {"route_forward, load, backward, limit, sort",
     setup_route,
     call_route,
     {{1, 2, 1, 0, 1, 1}, {48, 8, 2, 0, 8, 3}, {700, 5, 5, 0, 350, 2}}},
    {"rows_spread, join, dot",
     setup_rows,
     call_rows,
     {{1, 2, 1, 1}, {48, 8, 2, 37}, {90, 4, 3, 768}}},
    {"adamw",
     setup_adamw,
     call_adamw,
     {{1, 0, 0, 0},
      {1001, 0, 1, 0},
      {70003, 1, 1, 0},
      {5000, 1, 0, 1},
      {3001, 0, 1, 1}}},
    {"clip_scale", setup_clip, call_clip, {{1, 0, 1}, {1, 0, 0}, {1, 1, 1}}},
    {NULL, NULL, NULL, {{0}}},
};

const struct trial_case trial_bf16_cases[] = {
    {"fp8_forward",
     setup_fp8_forward,
     call_fp8_forward,
     {{1, 1, 1, 0, 0, 0},
      {5, 7, 3, 1, 1, 1},
      {33, 70, 45, 1, 1, 0},
      {64, 128, 96, 1, 0, 1},
      {130, 64, 257, 0, 1, 0},
      {133, 230, 402, 1, 1, 1}}},
    {"fp8_backward_input",
     setup_fp8_input,
     call_fp8_input,
     {{1, 1, 1, 0, 0, 0},
      {5, 7, 3, 1, 0, 1},
      {33, 70, 45, 1, 0, 0},
      {64, 128, 96, 0, 0, 1},
      {64, 96, 128, 1, 0, 0},
      {133, 402, 230, 1, 0, 1}}},
    {"fp8_backward_weight",
     setup_fp8_weight,
     call_fp8_weight,
     {{1, 1, 1, 0, 1},
      {5, 7, 3, 0, 0},
      {64, 128, 96, 0, 1},
      {130, 64, 257, 0, 1},
      {2101, 70, 100, 0, 1}}},
    {NULL, NULL, NULL, {{0}}},
};

int trial_waits(const struct trial_case *c)
{
    return c->call == call_pinned;
}
