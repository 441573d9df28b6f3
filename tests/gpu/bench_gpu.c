/* SPDX-License-Identifier: Apache-2.0 */
/* Every kernel at the shapes of GPT-2 124M and of an 8B Llama block, against
 * what this GPU reaches in a plain copy and in one large matrix product,
 * measured in the same run. Prints Markdown; part of `make bench-gpu`. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

#define BUFFERS 6
#define BUFFER_BYTES ((size_t)2 << 30)
#define ROUNDS 7

struct bench {
    const struct plait_ops *ops;
    struct plait_device *dev;
    struct plait_queue *q;
    struct plait_event *from, *to;
    struct plait_weight *weight;
    char *x[BUFFERS]; /* bf16 values in [-1, 1) */
    float *f[4];      /* fp32, of the same kind */
    int32_t *tokens;
    double *sum;
    double bytes, flops; /* of one run: what has to move, what is computed */
};

struct shape {
    size_t N, C, O; /* rows, columns, columns out */
    int batch, T, heads, kv_heads, D;
};

typedef int op_fn(struct bench *b, const struct shape *s);

static const enum plait_dtype BF16 = PLAIT_BF16_T;

/* -- the operations ----------------------------------------------------------
 */

static int run_copy(struct bench *b, const struct shape *s)
{
    (void)s;
    b->bytes = 2.0 * BUFFER_BYTES;
    return b->ops->copy(b->q, b->x[0], b->x[1], BUFFER_BYTES);
}

static int run_linear(struct bench *b, const struct shape *s)
{
    b->flops = 2.0 * s->N * s->O * s->C;
    return b->ops->linear_forward(b->q, b->x[0], NULL, b->x[1], b->weight, NULL,
                                  PLAIT_ACT_NONE, s->N);
}

static int run_linear_gelu(struct bench *b, const struct shape *s)
{
    b->flops = 2.0 * s->N * s->O * s->C;
    return b->ops->linear_forward(b->q, b->x[0], b->x[3], b->x[1], b->weight,
                                  b->x[4], PLAIT_ACT_GELU, s->N);
}

static int run_linear_input(struct bench *b, const struct shape *s)
{
    b->flops = 2.0 * s->N * s->O * s->C;
    return b->ops->linear_backward_input(b->q, b->x[0], b->x[1], b->weight,
                                         PLAIT_ACT_NONE, NULL, 0, s->N);
}

static int run_linear_weight(struct bench *b, const struct shape *s)
{
    b->flops = 2.0 * s->N * s->O * s->C;
    return b->ops->linear_backward_weight(b->q, BF16, b->f[0], b->f[1], b->x[0],
                                          b->x[1], 0, s->N, s->O, s->C);
}

static int run_layernorm(struct bench *b, const struct shape *s)
{
    b->bytes = 4.0 * 2 * s->N * s->C;
    return b->ops->layernorm_forward(b->q, BF16, b->x[0], b->f[0], b->f[1],
                                     b->x[1], b->x[2], b->x[3], b->x[4],
                                     b->x[5], 1e-5f, s->N, s->C);
}

static int run_layernorm_backward(struct bench *b, const struct shape *s)
{
    b->bytes = 4.0 * 2 * s->N * s->C;
    return b->ops->layernorm_backward(b->q, BF16, b->x[0], b->f[0], b->f[1],
                                      b->x[1], b->x[2], b->x[4], b->f[2],
                                      b->f[3], 1, s->N, s->C);
}

static int run_rmsnorm(struct bench *b, const struct shape *s)
{
    b->bytes = 4.0 * 2 * s->N * s->C;
    return b->ops->rmsnorm_forward(b->q, BF16, b->x[0], b->f[1], b->x[1],
                                   b->x[2], b->x[3], b->x[4], 1e-5f, s->N,
                                   s->C);
}

static int run_rmsnorm_backward(struct bench *b, const struct shape *s)
{
    b->bytes = 4.0 * 2 * s->N * s->C;
    return b->ops->rmsnorm_backward(b->q, BF16, b->x[0], b->f[0], b->x[1],
                                    b->x[2], b->x[4], b->f[3], 1, s->N, s->C);
}

static int run_gelu_backward(struct bench *b, const struct shape *s)
{
    b->bytes = 3.0 * 2 * s->N * s->O;
    return b->ops->gelu_backward(b->q, BF16, b->x[0], b->x[1], b->x[2],
                                 s->N * s->O);
}

static int run_swiglu(struct bench *b, const struct shape *s)
{
    b->bytes = 3.0 * 2 * s->N * s->O;
    return b->ops->swiglu_forward(b->q, BF16, b->x[0], b->x[1], s->N, s->O);
}

static int run_swiglu_backward(struct bench *b, const struct shape *s)
{
    b->bytes = 5.0 * 2 * s->N * s->O;
    return b->ops->swiglu_backward(b->q, BF16, b->x[0], b->x[1], b->x[2], s->N,
                                   s->O);
}

static int run_bias_backward(struct bench *b, const struct shape *s)
{
    b->bytes = 1.0 * 2 * s->N * s->O;
    return b->ops->bias_backward(b->q, BF16, b->f[0], b->x[0], s->N, s->O);
}

static int run_rope(struct bench *b, const struct shape *s)
{
    b->bytes = 2.0 * 2 * s->N * s->heads * s->D;
    return b->ops->rope(b->q, BF16, b->x[0], (size_t)s->heads * s->D, s->heads,
                        s->D, 500000, 0, 1, s->N, (size_t)s->T);
}

static int run_embedding(struct bench *b, const struct shape *s)
{
    b->bytes = 2.0 * 2 * s->N * s->C;
    return b->ops->embedding_forward(b->q, BF16, b->x[0], b->tokens, b->x[1],
                                     b->x[2], 0, 50304, 0, s->N, (size_t)s->T,
                                     s->C);
}

static int run_embedding_backward(struct bench *b, const struct shape *s)
{
    b->bytes = (2.0 + 8) * s->N * s->C;
    return b->ops->embedding_backward(b->q, BF16, b->f[0], b->f[1], b->tokens,
                                      b->x[0], 0, 50304, 0, s->N, (size_t)s->T,
                                      s->C);
}

static int run_xent_stats(struct bench *b, const struct shape *s)
{
    b->bytes = 1.0 * 2 * s->N * s->O;
    return b->ops->xent_stats(b->q, BF16, b->f[0], b->f[1], b->f[2], b->x[0],
                              b->tokens, 0, (int32_t)s->O, s->O, s->N);
}

static int run_xent_backward(struct bench *b, const struct shape *s)
{
    b->bytes = 2.0 * 2 * s->N * s->O;
    return b->ops->xent_backward(b->q, BF16, b->sum, b->x[0], b->f[3], b->f[3],
                                 b->f[2], b->tokens, 1e-3f, 0, (int32_t)s->O,
                                 s->O, s->N);
}

/* Both in one. */
static int run_xent(struct bench *b, const struct shape *s)
{
    b->bytes = 2.0 * 2 * s->N * s->O;
    return b->ops->xent(b->q, BF16, b->sum, b->x[0], b->tokens, 1e-3f,
                        (int32_t)s->O, s->O, s->N);
}

static int run_add(struct bench *b, const struct shape *s)
{
    b->bytes = 3.0 * 2 * s->N * s->C;
    return b->ops->add(b->q, BF16, b->x[0], b->x[1], b->x[2], s->N * s->C);
}

static int run_cast(struct bench *b, const struct shape *s)
{
    b->bytes = 6.0 * s->N;
    return b->ops->cast(b->q, BF16, b->x[0], PLAIT_F32, b->f[0], s->N);
}

static struct plait_attention attention_of(const struct shape *s)
{
    struct plait_attention a = {
        .batch = s->batch,
        .q_len = s->T,
        .k_len = s->T,
        .q_heads = s->heads,
        .kv_heads = s->kv_heads,
        .head_dim = s->D,
        .q_stride = (size_t)(s->heads + 2 * s->kv_heads) * s->D,
        .kv_stride = (size_t)(s->heads + 2 * s->kv_heads) * s->D,
        .scale = 0.1f,
        .zeroed = 1, /* as in a layer */
    };

    return a;
}

/* Half of the scores, which is what a causal mask leaves. */
static double attention_flops(const struct shape *s, int products)
{
    return 1.0 * products * s->batch * s->heads * s->T * s->T * s->D;
}

static int run_attention(struct bench *b, const struct shape *s)
{
    struct plait_attention a = attention_of(s);
    size_t q = (size_t)s->heads * s->D * 2, kv = (size_t)s->kv_heads * s->D * 2;

    b->flops = attention_flops(s, 2);
    return b->ops->attention_forward(b->q, BF16, &a, b->x[0], b->f[0], b->x[1],
                                     b->x[1] + q, b->x[1] + q + kv);
}

#ifdef HAVE_CUDNN
static int run_attention_cudnn(struct bench *b, const struct shape *s)
{
    int rc;

    setenv("PLAIT_ATTENTION", "cudnn", 1);
    rc = run_attention(b, s);
    setenv("PLAIT_ATTENTION", "own", 1);
    return rc;
}
#endif

static int run_attention_backward(struct bench *b, const struct shape *s)
{
    struct plait_attention a = attention_of(s);
    size_t q = (size_t)s->heads * s->D * 2, kv = (size_t)s->kv_heads * s->D * 2;

    b->flops = attention_flops(s, 5);
    return b->ops->attention_backward(
        b->q, BF16, &a, b->x[3], b->x[3] + q, b->x[3] + q + kv, b->x[2],
        b->x[0], b->f[0], b->x[1], b->x[1] + q, b->x[1] + q + kv);
}

#ifdef HAVE_CUDNN
static int run_attention_backward_cudnn(struct bench *b, const struct shape *s)
{
    int rc;

    setenv("PLAIT_ATTENTION", "cudnn", 1);
    rc = run_attention_backward(b, s);
    setenv("PLAIT_ATTENTION", "own", 1);
    return rc;
}
#endif

static int run_adamw(struct bench *b, const struct shape *s)
{
    struct plait_adamw p = {.lr = 1e-4f,
                            .beta1 = 0.9f,
                            .beta2 = 0.95f,
                            .eps = 1e-8f,
                            .step = 10,
                            .stochastic = 1};

    struct plait_adamw_run run = {.master = b->f[0],
                                  .m = b->f[1],
                                  .v = b->f[2],
                                  .grad = b->f[3],
                                  .weight = b->x[0],
                                  .n = s->N};

    b->bytes = (7.0 * 4 + 2) * s->N;
    return b->ops->adamw(b->q, &p, BF16, &run, 1);
}

static int run_sum_squares(struct bench *b, const struct shape *s)
{
    struct plait_floats list = {b->f[0], s->N};

    b->bytes = 4.0 * s->N;
    return b->ops->sum_squares(b->q, b->sum, &list, 1);
}

/* -- the table ----------------------------------------------------------------
 */

#define GPT2 16384, 768
#define LLAMA 8192, 4096
#define GPT2_HEADS 16, 1024, 12, 12, 64
#define LLAMA_HEADS 1, 8192, 32, 8, 128

static const struct row {
    const char *name;
    op_fn *fn;
    struct shape s;
} rows[] = {
    {"124M linear, fc", run_linear, {GPT2, 3072, 0, 0, 0, 0, 0}},
    {"124M linear, fc + bias + GELU",
     run_linear_gelu,
     {GPT2, 3072, 0, 0, 0, 0, 0}},
    {"124M linear, fc, dX", run_linear_input, {GPT2, 3072, 0, 0, 0, 0, 0}},
    {"124M linear, fc, dW + dbias",
     run_linear_weight,
     {GPT2, 3072, 0, 0, 0, 0, 0}},
    {"124M linear, logits", run_linear, {GPT2, 50304, 0, 0, 0, 0, 0}},
    {"124M residual + LayerNorm", run_layernorm, {GPT2, 0, 0, 0, 0, 0, 0}},
    {"124M LayerNorm backward",
     run_layernorm_backward,
     {GPT2, 0, 0, 0, 0, 0, 0}},
    {"124M GELU backward", run_gelu_backward, {GPT2, 3072, 0, 0, 0, 0, 0}},
    {"124M bias backward", run_bias_backward, {GPT2, 3072, 0, 0, 0, 0, 0}},
    {"124M attention", run_attention, {GPT2, 0, GPT2_HEADS}},
#ifdef HAVE_CUDNN
    {"124M attention by cuDNN", run_attention_cudnn, {GPT2, 0, GPT2_HEADS}},
#endif
    {"124M attention backward", run_attention_backward, {GPT2, 0, GPT2_HEADS}},
#ifdef HAVE_CUDNN
    {"124M attention backward by cuDNN",
     run_attention_backward_cudnn,
     {GPT2, 0, GPT2_HEADS}},
#endif
    {"124M embedding", run_embedding, {GPT2, 0, GPT2_HEADS}},
    {"124M embedding backward", run_embedding_backward, {GPT2, 0, GPT2_HEADS}},
    {"124M cross-entropy statistics",
     run_xent_stats,
     {GPT2, 50304, 0, 0, 0, 0, 0}},
    {"124M cross-entropy backward",
     run_xent_backward,
     {GPT2, 50304, 0, 0, 0, 0, 0}},
    {"124M cross-entropy, one pass", run_xent, {GPT2, 50304, 0, 0, 0, 0, 0}},
    {"124M residual sum", run_add, {GPT2, 0, 0, 0, 0, 0, 0}},
    {"124M weights to bf16", run_cast, {124439808, 0, 0, 0, 0, 0, 0, 0}},
    {"124M AdamW", run_adamw, {124439808, 0, 0, 0, 0, 0, 0, 0}},
    {"124M sum of squares", run_sum_squares, {124439808, 0, 0, 0, 0, 0, 0, 0}},
    {"124M linear, logits, dX", run_linear_input, {GPT2, 50304, 0, 0, 0, 0, 0}},
    {"124M linear, logits, dW",
     run_linear_weight,
     {GPT2, 50304, 0, 0, 0, 0, 0}},
    {"1.5B linear, fc", run_linear, {8192, 1600, 6400, 0, 0, 0, 0, 0}},
    {"1.5B linear, fc, dX",
     run_linear_input,
     {8192, 1600, 6400, 0, 0, 0, 0, 0}},
    {"1.5B linear, fc, dW + dbias",
     run_linear_weight,
     {8192, 1600, 6400, 0, 0, 0, 0, 0}},
    {"8B linear, gate and up", run_linear, {LLAMA, 28672, 0, 0, 0, 0, 0}},
    {"8B linear, gate and up, dX",
     run_linear_input,
     {LLAMA, 28672, 0, 0, 0, 0, 0}},
    {"8B linear, gate and up, dW",
     run_linear_weight,
     {LLAMA, 28672, 0, 0, 0, 0, 0}},
    {"8B residual + RMSNorm", run_rmsnorm, {LLAMA, 0, 0, 0, 0, 0, 0}},
    {"8B RMSNorm backward", run_rmsnorm_backward, {LLAMA, 0, 0, 0, 0, 0, 0}},
    {"8B SwiGLU", run_swiglu, {LLAMA, 14336, 0, 0, 0, 0, 0}},
    {"8B SwiGLU backward", run_swiglu_backward, {LLAMA, 14336, 0, 0, 0, 0, 0}},
    {"8B RoPE", run_rope, {LLAMA, 0, LLAMA_HEADS}},
    {"8B attention", run_attention, {LLAMA, 0, LLAMA_HEADS}},
#ifdef HAVE_CUDNN
    {"8B attention by cuDNN", run_attention_cudnn, {LLAMA, 0, LLAMA_HEADS}},
#endif
    {"8B attention backward", run_attention_backward, {LLAMA, 0, LLAMA_HEADS}},
#ifdef HAVE_CUDNN
    {"8B attention backward by cuDNN",
     run_attention_backward_cudnn,
     {LLAMA, 0, LLAMA_HEADS}},
#endif
};

/* -- measuring ----------------------------------------------------------------
 */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Seconds of one run: the median of rounds of about 20 ms; *spread is the
 * distance of the quartiles over it. Negative: the op failed. */
static double measure(struct bench *b, op_fn *fn, const struct shape *s,
                      double *spread)
{
    double t[ROUNDS], once;
    int n;

    for (int i = 0; i < 3; i++) {
        b->ops->event_record(b->from, b->q);
        if (fn(b, s) < 0)
            return -1;
        b->ops->event_record(b->to, b->q);
    }
    once = b->ops->event_elapsed(b->from, b->to);
    n = once > 0 && once < 0.02 ? (int)(0.02 / once) : 1;
    for (int r = 0; r < ROUNDS; r++) {
        b->ops->event_record(b->from, b->q);
        for (int i = 0; i < n; i++)
            if (fn(b, s) < 0)
                return -1;
        b->ops->event_record(b->to, b->q);
        t[r] = b->ops->event_elapsed(b->from, b->to) / n;
    }
    qsort(t, ROUNDS, sizeof(*t), by_value);
    *spread = (t[ROUNDS * 3 / 4] - t[ROUNDS / 4]) / t[ROUNDS / 2];
    return t[ROUNDS / 2];
}

static double run_row(struct bench *b, const struct row *row, double *spread)
{
    const struct shape *s = &row->s;
    double t;

    b->bytes = b->flops = 0;
    if (s->O > 0)
        b->weight = b->ops->weight_create(b->dev, BF16, s->O, s->C, b->x[2]);
    t = measure(b, row->fn, s, spread);
    b->ops->weight_destroy(b->weight);
    b->weight = NULL;
    return t;
}

static int print_row(struct bench *b, const struct row *row, double bandwidth,
                     double speed)
{
    double spread = 0, t = run_row(b, row, &spread), rate, ceiling;
    int compute = b->flops > 0;

    if (!(t > 0)) {
        fprintf(stderr, "bench_gpu: %s: %s\n", row->name,
                plait_queue_error(b->q));
        return -1;
    }
    rate = (compute ? b->flops : b->bytes) / t;
    ceiling = compute ? speed : bandwidth;
    printf("| %s | %.1f | %.1f %% | %.1f %s | %.0f %% |\n", row->name, t * 1e6,
           spread * 100, rate * (compute ? 1e-12 : 1e-9),
           compute ? "TFLOP/s" : "GB/s", rate / ceiling * 100);
    fflush(stdout);
    return 0;
}

/* -- set-up -------------------------------------------------------------------
 */

/* Random bits make other power, and so other clocks, than zeros do. */
static int fill(struct bench *b, void *dst, size_t bytes, int fp32)
{
    static uint16_t half[1 << 20];
    static float single[1 << 19];
    const void *src = fp32 ? (const void *)single : half;
    uint32_t x = 12345;

    for (size_t i = 0; i < 1 << 20; i++) {
        float v;
        uint32_t bits;

        x = x * 1664525 + 1013904223;
        v = (float)(x >> 8) / (1 << 23) - 1;
        memcpy(&bits, &v, 4);
        half[i] = (uint16_t)(bits >> 16);
        if (i < 1 << 19)
            single[i] = v + 2; /* positive: also variances and sums */
    }
    for (size_t at = 0; at < bytes; at += sizeof(half))
        if (b->ops->to_device(b->q, (char *)dst + at, src,
                              bytes - at < sizeof(half) ? bytes - at
                                                        : sizeof(half)) < 0)
            return -1;
    return 0;
}

static int fill_tokens(struct bench *b)
{
    static int32_t t[1 << 17];
    uint32_t x = 1;

    for (size_t i = 0; i < 1 << 17; i++) {
        x = x * 1664525 + 1013904223;
        t[i] = (int32_t)((x >> 8) % 50304);
    }
    return b->ops->to_device(b->q, b->tokens, t, sizeof(t));
}

static int open_bench(struct bench *b)
{
    int rc = 0;

    b->dev = b->ops->device_create(0, 0);
    b->q = b->dev != NULL ? b->ops->queue_create(b->dev, 0) : NULL;
    if (b->q == NULL)
        return -1;
    b->from = b->ops->event_create(b->dev);
    b->to = b->ops->event_create(b->dev);
    b->tokens = b->ops->alloc(b->dev, sizeof(int32_t) << 17);
    b->sum = b->ops->alloc(b->dev, sizeof(double));
    for (int i = 0; i < BUFFERS; i++) {
        b->x[i] = b->ops->alloc(b->dev, BUFFER_BYTES);
        if (b->x[i] == NULL || fill(b, b->x[i], BUFFER_BYTES, 0) < 0)
            return -1;
    }
    for (int i = 0; i < 4; i++) {
        b->f[i] = b->ops->alloc(b->dev, BUFFER_BYTES / 2);
        if (b->f[i] == NULL || fill(b, b->f[i], BUFFER_BYTES / 2, 1) < 0)
            return -1;
    }
    if (b->from == NULL || b->to == NULL || b->tokens == NULL || b->sum == NULL)
        return -1;
    rc |= fill_tokens(b);
    return rc | b->ops->queue_sync(b->q);
}

static void close_bench(struct bench *b)
{
    for (int i = 0; i < BUFFERS; i++)
        b->ops->free(b->dev, b->x[i]);
    for (int i = 0; i < 4; i++)
        b->ops->free(b->dev, b->f[i]);
    b->ops->free(b->dev, b->tokens);
    b->ops->free(b->dev, b->sum);
    b->ops->event_destroy(b->from);
    b->ops->event_destroy(b->to);
    b->ops->queue_destroy(b->q);
    b->ops->device_destroy(b->dev);
}

int main(void)
{
    static const struct row copy = {"copy", run_copy, {0}};
    static const struct row large = {
        "product", run_linear, {8192, 8192, 8192, 0, 0, 0, 0, 0}};
    struct bench b = {0};
    const char *why = NULL;
    double spread, bandwidth, speed;
    int rc = 0;

    b.ops = plait_ops_cuda(&why);
    if (b.ops == NULL) {
        fprintf(stderr, "bench_gpu: %s\n", why);
        return 1;
    }
    if (open_bench(&b) != 0) {
        fprintf(stderr, "bench_gpu: no GPU with 16 GiB of free memory\n");
        return 1;
    }
    bandwidth = run_row(&b, &copy, &spread);
    bandwidth = b.bytes / bandwidth;
    speed = run_row(&b, &large, &spread);
    speed = b.flops / speed;
    printf("Ceilings measured here: copy %.0f GB/s, bf16 product of 8192 "
           "cubed %.0f TFLOP/s.\n\n",
           bandwidth * 1e-9, speed * 1e-12);
    printf("| kernel, bf16 | median us | spread | rate | of ceiling |\n"
           "|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows) && rc == 0; i++)
        rc = print_row(&b, &rows[i], bandwidth, speed);
    close_bench(&b);
    return rc != 0;
}
