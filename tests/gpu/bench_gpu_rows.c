/* SPDX-License-Identifier: Apache-2.0 */
/* The operations that bench_gpu measures, and at which shapes. */
#include "config.h"

#include <stdlib.h>

#include "bench_gpu.h"
#include "kernels/attention.h"
#include "kernels/linear.h"
#include "kernels/xent.h"

static const enum plait_dtype BF16 = PLAIT_BF16_T;

int bench_run_copy(struct bench *b, const struct bench_shape *s)
{
    (void)s;
    b->bytes = 2.0 * b->size;
    return b->ops->copy(b->q, b->x[0], b->x[1], b->size);
}

int bench_run_linear(struct bench *b, const struct bench_shape *s)
{
    struct plait_linear l = {
        .N = s->N, .inp.x = b->x[1], .w = b->weight, .out = b->x[0]};

    b->flops = 2.0 * s->N * s->O * s->C;
    return b->ops->linear_forward(b->q, &l);
}

static int run_linear_gelu(struct bench *b, const struct bench_shape *s)
{
    struct plait_linear l = {.N = s->N,
                             .inp.x = b->x[1],
                             .w = b->weight,
                             .bias = b->x[4],
                             .act = PLAIT_ACT_GELU,
                             .pre = b->x[3],
                             .out = b->x[0]};

    b->flops = 2.0 * s->N * s->O * s->C;
    return b->ops->linear_forward(b->q, &l);
}

static int run_linear_input(struct bench *b, const struct bench_shape *s)
{
    struct plait_linear_dinp l = {
        .N = s->N, .dout.x = b->x[1], .w = b->weight, .dinp = b->x[0]};

    b->flops = 2.0 * s->N * s->O * s->C;
    return b->ops->linear_backward_input(b->q, &l);
}

static struct plait_linear_dw weight_of(struct bench *b,
                                        const struct bench_shape *s)
{
    return (struct plait_linear_dw){.type = BF16,
                                    .N = s->N,
                                    .O = s->O,
                                    .C = s->C,
                                    .dout.x = b->x[0],
                                    .inp.x = b->x[1],
                                    .dw = b->f[0]};
}

static int run_weight(struct bench *b, const struct bench_shape *s,
                      float *dbias)
{
    struct plait_linear_dw l = weight_of(b, s);

    b->flops = 2.0 * s->N * s->O * s->C;
    l.dbias = dbias;
    return b->ops->linear_backward_weight(b->q, &l);
}

static int run_linear_weight(struct bench *b, const struct bench_shape *s)
{
    return run_weight(b, s, NULL);
}

static int run_linear_weight_bias(struct bench *b, const struct bench_shape *s)
{
    return run_weight(b, s, b->f[1]);
}

static int run_layernorm(struct bench *b, const struct bench_shape *s)
{
    b->bytes = 4.0 * 2 * s->N * s->C;
    return b->ops->norm_forward(
        b->q, &(struct plait_norm_forward){.type = BF16,
                                           .out = b->x[0],
                                           .mean = b->f[0],
                                           .rstd = b->f[1],
                                           .sum = b->x[1],
                                           .inp = b->x[2],
                                           .residual = b->x[3],
                                           .gamma = b->x[4],
                                           .beta = b->x[5],
                                           .eps = 1e-5f,
                                           .N = s->N,
                                           .C = s->C});
}

static int run_layernorm_backward(struct bench *b, const struct bench_shape *s)
{
    b->bytes = 4.0 * 2 * s->N * s->C;
    return b->ops->norm_backward(
        b->q, &(struct plait_norm_backward){.type = BF16,
                                            .dx = b->x[0],
                                            .accumulate = 1,
                                            .dgamma = b->f[0],
                                            .dbeta = b->f[1],
                                            .dout = b->x[1],
                                            .x = b->x[2],
                                            .gamma = b->x[4],
                                            .mean = b->f[2],
                                            .rstd = b->f[3],
                                            .N = s->N,
                                            .C = s->C});
}

static int run_rmsnorm(struct bench *b, const struct bench_shape *s)
{
    b->bytes = 4.0 * 2 * s->N * s->C;
    return b->ops->norm_forward(
        b->q, &(struct plait_norm_forward){.type = BF16,
                                           .out = b->x[0],
                                           .rstd = b->f[1],
                                           .sum = b->x[1],
                                           .inp = b->x[2],
                                           .residual = b->x[3],
                                           .gamma = b->x[4],
                                           .eps = 1e-5f,
                                           .N = s->N,
                                           .C = s->C});
}

static int run_rmsnorm_backward(struct bench *b, const struct bench_shape *s)
{
    b->bytes = 4.0 * 2 * s->N * s->C;
    return b->ops->norm_backward(
        b->q, &(struct plait_norm_backward){.type = BF16,
                                            .dx = b->x[0],
                                            .accumulate = 1,
                                            .dgamma = b->f[0],
                                            .dout = b->x[1],
                                            .x = b->x[2],
                                            .gamma = b->x[4],
                                            .rstd = b->f[3],
                                            .N = s->N,
                                            .C = s->C});
}

static int run_gelu_backward(struct bench *b, const struct bench_shape *s)
{
    b->bytes = 3.0 * 2 * s->N * s->O;
    return b->ops->gelu_backward(
        b->q, &(struct plait_gelu_backward){.type = BF16,
                                            .dinp = b->x[0],
                                            .dout = b->x[1],
                                            .inp = b->x[2],
                                            .n = s->N * s->O});
}

static int run_swiglu(struct bench *b, const struct bench_shape *s)
{
    b->bytes = 3.0 * 2 * s->N * s->O;
    return b->ops->swiglu_forward(b->q,
                                  &(struct plait_swiglu_forward){.type = BF16,
                                                                 .out = b->x[0],
                                                                 .inp = b->x[1],
                                                                 .N = s->N,
                                                                 .F = s->O});
}

static int run_swiglu_backward(struct bench *b, const struct bench_shape *s)
{
    b->bytes = 5.0 * 2 * s->N * s->O;
    return b->ops->swiglu_backward(
        b->q, &(struct plait_swiglu_backward){.type = BF16,
                                              .dinp = b->x[0],
                                              .dout = b->x[1],
                                              .inp = b->x[2],
                                              .N = s->N,
                                              .F = s->O});
}

static int run_bias_backward(struct bench *b, const struct bench_shape *s)
{
    b->bytes = 1.0 * 2 * s->N * s->O;
    return b->ops->bias_backward(b->q,
                                 &(struct plait_bias_backward){.type = BF16,
                                                               .dbias = b->f[0],
                                                               .dout = b->x[0],
                                                               .N = s->N,
                                                               .O = s->O});
}

static int run_rope(struct bench *b, const struct bench_shape *s)
{
    struct plait_rope rope = {.type = BF16,
                              .x = b->x[0],
                              .stride = (size_t)s->heads * s->D,
                              .heads = s->heads,
                              .head_dim = s->D,
                              .direction = 1,
                              .angles = {.theta = 500000},
                              .at = {.T = (size_t)s->T},
                              .N = s->N};

    b->bytes = 2.0 * 2 * s->N * s->heads * s->D;
    return b->ops->rope(b->q, &rope);
}

static int run_embedding(struct bench *b, const struct bench_shape *s)
{
    b->bytes = 2.0 * 2 * s->N * s->C;
    return b->ops->embedding_forward(
        b->q, &(struct plait_embedding_forward){.type = BF16,
                                                .out = b->x[0],
                                                .tokens = b->tokens,
                                                .wte = b->x[1],
                                                .wpe = b->x[2],
                                                .count = 50304,
                                                .at = {.T = (size_t)s->T},
                                                .N = s->N,
                                                .C = s->C});
}

static int run_embedding_backward(struct bench *b, const struct bench_shape *s)
{
    b->bytes = (2.0 + 8) * s->N * s->C;
    return b->ops->embedding_backward(
        b->q, &(struct plait_embedding_backward){.type = BF16,
                                                 .dwte = b->f[0],
                                                 .dwpe = b->f[1],
                                                 .tokens = b->tokens,
                                                 .dout = b->x[0],
                                                 .count = 50304,
                                                 .at = {.T = (size_t)s->T},
                                                 .N = s->N,
                                                 .C = s->C});
}

static struct plait_xent xent_of(struct bench *b, const struct bench_shape *s)
{
    return (struct plait_xent){.type = BF16,
                               .N = s->N,
                               .stride = s->O,
                               .count = (int32_t)s->O,
                               .logits = b->x[0],
                               .targets = b->tokens,
                               .max = b->f[0],
                               .sum = b->f[1],
                               .target = b->f[2],
                               .scale = 1e-3f,
                               .loss = b->sum};
}

static int run_xent_stats(struct bench *b, const struct bench_shape *s)
{
    struct plait_xent x = xent_of(b, s);

    b->bytes = 1.0 * 2 * s->N * s->O;
    return b->ops->xent_stats(b->q, &x);
}

static int run_xent_backward(struct bench *b, const struct bench_shape *s)
{
    struct plait_xent x = xent_of(b, s);

    b->bytes = 2.0 * 2 * s->N * s->O;
    x.max = x.sum = b->f[3];
    return b->ops->xent_backward(b->q, &x);
}

/* Loss and gradient by one kernel. */
static int run_xent(struct bench *b, const struct bench_shape *s)
{
    struct plait_xent x = xent_of(b, s);

    b->bytes = 2.0 * 2 * s->N * s->O;
    return b->ops->xent(b->q, &x);
}

static int run_add(struct bench *b, const struct bench_shape *s)
{
    b->bytes = 3.0 * 2 * s->N * s->C;
    return b->ops->add(b->q, &(struct plait_add){.type = BF16,
                                                 .out = b->x[0],
                                                 .a = b->x[1],
                                                 .b = b->x[2],
                                                 .n = s->N * s->C});
}

static int run_cast(struct bench *b, const struct bench_shape *s)
{
    b->bytes = 6.0 * s->N;
    return b->ops->cast(b->q, &(struct plait_cast){.to = BF16,
                                                   .from = PLAIT_F32,
                                                   .dst = b->x[0],
                                                   .src = b->f[0],
                                                   .n = s->N});
}

static struct plait_attention attention_of(const struct bench_shape *s)
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
        .overwrite = 1, /* as layers do */
    };

    return a;
}

/* Operations of half of the scores: a causal mask leaves out the other half. */
static double attention_flops(const struct bench_shape *s, int products)
{
    return 1.0 * products * s->batch * s->heads * s->T * s->T * s->D;
}

static int run_attention(struct bench *b, const struct bench_shape *s)
{
    size_t q = (size_t)s->heads * s->D * 2, kv = (size_t)s->kv_heads * s->D * 2;
    struct plait_attention_forward f = {.type = BF16,
                                        .a = attention_of(s),
                                        .out = b->x[0],
                                        .lse = b->f[0],
                                        .Q = b->x[1],
                                        .K = b->x[1] + q,
                                        .V = b->x[1] + q + kv};

    b->flops = attention_flops(s, 2);
    return b->ops->attention_forward(b->q, &f);
}

static int run_attention_cudnn(struct bench *b, const struct bench_shape *s)
{
    int rc;

    setenv("PLAIT_ATTENTION", "cudnn", 1);
    rc = run_attention(b, s);
    setenv("PLAIT_ATTENTION", "own", 1);
    return rc;
}

static int run_attention_backward(struct bench *b, const struct bench_shape *s)
{
    size_t q = (size_t)s->heads * s->D * 2, kv = (size_t)s->kv_heads * s->D * 2;
    struct plait_attention_backward g = {.type = BF16,
                                         .a = attention_of(s),
                                         .dQ = b->x[3],
                                         .dK = b->x[3] + q,
                                         .dV = b->x[3] + q + kv,
                                         .dout = b->x[2],
                                         .out = b->x[0],
                                         .lse = b->f[0],
                                         .Q = b->x[1],
                                         .K = b->x[1] + q,
                                         .V = b->x[1] + q + kv};

    b->flops = attention_flops(s, 5);
    return b->ops->attention_backward(b->q, &g);
}

static int run_attention_backward_cudnn(struct bench *b,
                                        const struct bench_shape *s)
{
    int rc;

    setenv("PLAIT_ATTENTION", "cudnn", 1);
    rc = run_attention_backward(b, s);
    setenv("PLAIT_ATTENTION", "own", 1);
    return rc;
}

static int run_adamw(struct bench *b, const struct bench_shape *s)
{
    struct plait_update p = {.rule = PLAIT_UPDATE_ADAMW,
                             .type = BF16,
                             .lr = 1e-4f,
                             .beta1 = 0.9f,
                             .beta2 = 0.95f,
                             .eps = 1e-8f,
                             .step = 10,
                             .random_weights = 1};
    struct plait_update_run run = {.master = b->f[0],
                                   .state = {b->f[1], b->f[2]},
                                   .origin.columns = 768,
                                   .grad = b->f[3],
                                   .weight = b->x[0],
                                   .n = s->N};

    b->bytes = (7.0 * 4 + 2) * s->N;
    return b->ops->update(b->q, &p, &run, 1);
}

static int run_adamw_bf16(struct bench *b, const struct bench_shape *s)
{
    struct plait_update p = {.rule = PLAIT_UPDATE_ADAMW,
                             .type = BF16,
                             .states = BF16,
                             .random_states = 1,
                             .lr = 1e-4f,
                             .beta1 = 0.9f,
                             .beta2 = 0.95f,
                             .eps = 1e-8f,
                             .step = 10};
    struct plait_update_run run = {.master = b->f[0],
                                   .state = {b->f[1], b->f[2]},
                                   .origin.columns = 768,
                                   .grad = b->f[3],
                                   .weight = b->x[0],
                                   .n = s->N};

    b->bytes = (3.0 * 4 + 4 * 2 + 2) * s->N;
    return b->ops->update(b->q, &p, &run, 1);
}

static int run_sum_squares(struct bench *b, const struct bench_shape *s)
{
    struct plait_floats list = {b->f[0], s->N};

    b->bytes = 4.0 * s->N;
    return b->ops->sum_squares(b->q, b->sum, &list, 1);
}

/* Gives experts from half to one and a half times the even share of rows. The
 * counts are copied to the device in the first run of a row, which is not
 * timed. */
static int share_rows(struct bench *b, const struct bench_shape *s,
                      struct plait_groups *g)
{
    int32_t counts[GROUPS];
    size_t left = s->N, even = s->N / (size_t)s->batch;

    *g = (struct plait_groups){
        .n = s->batch, .rows = s->N, .stride = s->O * s->C, .count = b->counts};
    b->flops = 2.0 * s->N * s->O * s->C;
    if (b->counted == s)
        return 0;
    for (int i = 0; i < g->n; i++) {
        size_t n = even / 2 + even * (size_t)i / (size_t)g->n;

        counts[i] = (int32_t)(n < left && i + 1 < g->n ? n : left);
        left -= (size_t)counts[i];
    }
    b->counted = s;
    return b->ops->to_device(b->q, b->counts, counts,
                             (size_t)g->n * sizeof(*counts));
}

static int run_experts(struct bench *b, const struct bench_shape *s)
{
    struct plait_groups g;
    struct plait_linear l = {.inp.x = b->x[1], .w = b->weight, .out = b->x[0]};

    return share_rows(b, s, &g) | b->ops->grouped_forward(b->q, &g, &l);
}

static int run_experts_input(struct bench *b, const struct bench_shape *s)
{
    struct plait_groups g;
    struct plait_linear_dinp l = {
        .dout.x = b->x[1], .w = b->weight, .dinp = b->x[0]};

    return share_rows(b, s, &g) | b->ops->grouped_backward_input(b->q, &g, &l);
}

/* Writes fp32 gradients to a buffer of bf16 values, which is large enough and
 * which no later row reads as bf16. */
static int run_experts_weight(struct bench *b, const struct bench_shape *s)
{
    struct plait_groups g;
    struct plait_linear_dw l = weight_of(b, s);

    l.dw = (float *)b->x[3];
    return share_rows(b, s, &g) | b->ops->grouped_backward_weight(b->q, &g, &l);
}

#define GPT2 16384, 768
#define LLAMA 8192, 4096
#define GPT2_HEADS 16, 1024, 12, 12, 64
#define LLAMA_HEADS 1, 8192, 32, 8, 128

const struct bench_row bench_rows[] = {
    {"124M linear, fc", bench_run_linear, {GPT2, 3072, 0, 0, 0, 0, 0}},
    {"124M linear, fc + bias + GELU",
     run_linear_gelu,
     {GPT2, 3072, 0, 0, 0, 0, 0}},
    {"124M linear, fc, dX", run_linear_input, {GPT2, 3072, 0, 0, 0, 0, 0}},
    {"124M linear, fc, dW", run_linear_weight, {GPT2, 3072, 0, 0, 0, 0, 0}},
    {"124M linear, fc, dW + dbias",
     run_linear_weight_bias,
     {GPT2, 3072, 0, 0, 0, 0, 0}},
    {"124M linear, logits", bench_run_linear, {GPT2, 50304, 0, 0, 0, 0, 0}},
    {"124M residual + LayerNorm", run_layernorm, {GPT2, 0, 0, 0, 0, 0, 0}},
    {"124M LayerNorm backward",
     run_layernorm_backward,
     {GPT2, 0, 0, 0, 0, 0, 0}},
    {"124M GELU backward", run_gelu_backward, {GPT2, 3072, 0, 0, 0, 0, 0}},
    {"124M bias backward", run_bias_backward, {GPT2, 3072, 0, 0, 0, 0, 0}},
    {"124M attention", run_attention, {GPT2, 0, GPT2_HEADS}},
    {"124M attention by cuDNN", run_attention_cudnn, {GPT2, 0, GPT2_HEADS}},
    {"124M attention backward", run_attention_backward, {GPT2, 0, GPT2_HEADS}},
    {"124M attention backward by cuDNN",
     run_attention_backward_cudnn,
     {GPT2, 0, GPT2_HEADS}},
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
    {"124M AdamW, moments of bf16",
     run_adamw_bf16,
     {124439808, 0, 0, 0, 0, 0, 0, 0}},
    {"124M AdamW", run_adamw, {124439808, 0, 0, 0, 0, 0, 0, 0}},
    {"124M sum of squares", run_sum_squares, {124439808, 0, 0, 0, 0, 0, 0, 0}},
    {"124M linear, logits, dX", run_linear_input, {GPT2, 50304, 0, 0, 0, 0, 0}},
    {"124M linear, logits, dW",
     run_linear_weight,
     {GPT2, 50304, 0, 0, 0, 0, 0}},
    {"1.5B linear, fc", bench_run_linear, {8192, 1600, 6400, 0, 0, 0, 0, 0}},
    {"1.5B linear, fc, dX",
     run_linear_input,
     {8192, 1600, 6400, 0, 0, 0, 0, 0}},
    {"1.5B linear, fc, dW",
     run_linear_weight,
     {8192, 1600, 6400, 0, 0, 0, 0, 0}},
    {"1.5B linear, fc, dW + dbias",
     run_linear_weight_bias,
     {8192, 1600, 6400, 0, 0, 0, 0, 0}},
    {"8B linear, gate and up", bench_run_linear, {LLAMA, 28672, 0, 0, 0, 0, 0}},
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
    {"8B attention by cuDNN", run_attention_cudnn, {LLAMA, 0, LLAMA_HEADS}},
    {"8B attention backward", run_attention_backward, {LLAMA, 0, LLAMA_HEADS}},
    {"8B attention backward by cuDNN",
     run_attention_backward_cudnn,
     {LLAMA, 0, LLAMA_HEADS}},
    {"128 experts, up", run_experts, {65536, 2048, 1536, 128, 0, 0, 0, 0}},
    {"128 experts, up, dX",
     run_experts_input,
     {65536, 2048, 1536, 128, 0, 0, 0, 0}},
    {"8 experts, up", run_experts, {16384, 4096, 28672, 8, 0, 0, 0, 0}},
    {"8 experts, up, dX",
     run_experts_input,
     {16384, 4096, 28672, 8, 0, 0, 0, 0}},
    {"128 experts, up, dW",
     run_experts_weight,
     {65536, 2048, 1536, 128, 0, 0, 0, 0}},
    {"4 experts, up, dW",
     run_experts_weight,
     {8192, 4096, 28672, 4, 0, 0, 0, 0}},
    {NULL, NULL, {0}},
};
