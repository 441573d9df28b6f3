/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdlib.h>

#include "bench.h"
#include "kernels/attention.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"
#include "kernels/linear.h"
#include "kernels/xent.h"

/* Shapes of one GPT-2 layer, 4 sequences of 256 tokens. */
enum { B = 4, T = 256, N = B * T, H = 12, C = 768, V = 50304 };

enum op {
    OP_COPY,
    OP_SQUARE,
    OP_QKV,
    OP_QKV_DX,
    OP_QKV_DW,
    OP_UP_GELU,
    OP_DOWN_DX_GELU,
    OP_LAYERNORM,
    OP_LAYERNORM_BACKWARD,
    OP_ATTENTION,
    OP_ATTENTION_BACKWARD,
    OP_XENT_STATS,
    OP_XENT_BACKWARD,
    OP_ADAMW,
    NOPS
};

struct ops_bench {
    const struct plait_ops *ops;
    const char *whose; /* what a row adds to the operation's name */
    struct plait_device *dev;
    struct plait_queue *q;
    enum plait_dtype type;
    size_t size; /* of T */
    struct plait_weight *qkv, *up, *down;
    void *a, *b, *c, *d; /* [N, V] each */
    float *f[4];         /* [V, C] each */
    float *mean, *rstd, *lse;
    int32_t *targets;
};

static void *room(struct ops_bench *o, size_t bytes)
{
    void *p = o->ops->alloc(o->dev, bytes);

    if (p == NULL) {
        fprintf(stderr, "plait-bench: out of memory\n");
        exit(1);
    }
    return p;
}

/* OP_SQUARE .. OP_DOWN_DX_GELU */
static void run_product(struct ops_bench *o, enum op op)
{
    const struct plait_ops *ops = o->ops;
    struct plait_linear l = {.N = N, .inp.x = o->b, .w = o->qkv, .out = o->a};
    struct plait_linear_dinp dinp = {
        .N = N, .dout.x = o->b, .w = o->qkv, .dinp = o->a};
    struct plait_linear_dw dw = {.type = o->type,
                                 .N = N,
                                 .O = 3 * C,
                                 .C = C,
                                 .dout.x = o->a,
                                 .inp.x = o->b,
                                 .dw = o->f[0],
                                 .dbias = o->f[1]};

    switch (op) {
    case OP_SQUARE:
        l.N = 2 * N;
        ops->linear_forward(o->q, &l);
        break;
    case OP_QKV:
        ops->linear_forward(o->q, &l);
        break;
    case OP_QKV_DX:
        ops->linear_backward_input(o->q, &dinp);
        break;
    case OP_QKV_DW:
        ops->linear_backward_weight(o->q, &dw);
        break;
    case OP_UP_GELU:
        l.w = o->up;
        l.bias = o->d;
        l.act = PLAIT_ACT_GELU;
        l.pre = o->c;
        ops->linear_forward(o->q, &l);
        break;
    case OP_DOWN_DX_GELU:
        dinp.w = o->down;
        dinp.act = PLAIT_ACT_GELU;
        dinp.pre = o->c;
        ops->linear_backward_input(o->q, &dinp);
        break;
    default:
        break;
    }
}

/* OP_LAYERNORM, OP_LAYERNORM_BACKWARD */
static void run_norm(struct ops_bench *o, enum op op)
{
    struct plait_norm_forward forward = {.type = o->type,
                                         .out = o->a,
                                         .mean = o->mean,
                                         .rstd = o->rstd,
                                         .sum = o->b,
                                         .inp = o->b,
                                         .residual = o->c,
                                         .gamma = o->d,
                                         .beta = o->d,
                                         .eps = 1e-5f,
                                         .N = N,
                                         .C = C};
    struct plait_norm_backward backward = {.type = o->type,
                                           .dx = o->a,
                                           .accumulate = 1,
                                           .dgamma = o->f[0],
                                           .dbeta = o->f[1],
                                           .dout = o->b,
                                           .x = o->c,
                                           .gamma = o->d,
                                           .mean = o->mean,
                                           .rstd = o->rstd,
                                           .N = N,
                                           .C = C};

    if (op == OP_LAYERNORM)
        o->ops->norm_forward(o->q, &forward);
    else
        o->ops->norm_backward(o->q, &backward);
}

/* OP_ATTENTION, OP_ATTENTION_BACKWARD */
static void run_attention(struct ops_bench *o, enum op op)
{
    struct plait_attention a = {.batch = B,
                                .q_len = T,
                                .k_len = T,
                                .q_heads = H,
                                .kv_heads = H,
                                .head_dim = C / H,
                                .q_stride = 3 * C,
                                .kv_stride = 3 * C,
                                .scale = 0.125f,
                                .overwrite = 1};
    size_t width = C * o->size;
    char *x = o->b, *dx = o->d;
    struct plait_attention_forward forward = {.type = o->type,
                                              .a = a,
                                              .out = o->a,
                                              .lse = o->lse,
                                              .Q = x,
                                              .K = x + width,
                                              .V = x + 2 * width};
    struct plait_attention_backward backward = {.type = o->type,
                                                .a = a,
                                                .dQ = dx,
                                                .dK = dx + width,
                                                .dV = dx + 2 * width,
                                                .dout = o->c,
                                                .out = o->a,
                                                .lse = o->lse,
                                                .Q = x,
                                                .K = x + width,
                                                .V = x + 2 * width};

    if (op == OP_ATTENTION)
        o->ops->attention_forward(o->q, &forward);
    else
        o->ops->attention_backward(o->q, &backward);
}

static void run_op(struct ops_bench *o, enum op op)
{
    const struct plait_ops *ops = o->ops;
    enum plait_dtype t = o->type;
    struct plait_update adamw = {.rule = PLAIT_UPDATE_ADAMW,
                                 .type = t,
                                 .lr = 1e-9f,
                                 .beta1 = 0.9f,
                                 .beta2 = 0.95f,
                                 .eps = 1e-8f,
                                 .step = 1};
    struct plait_update_run all = {.master = o->f[0],
                                   .state = {o->f[1], o->f[2]},
                                   .grad = o->f[3],
                                   .weight = t == PLAIT_F32 ? NULL : o->a,
                                   .n = (size_t)V * C};
    double total = 0;
    struct plait_xent loss = {.type = t,
                              .N = N,
                              .stride = V,
                              .count = V,
                              .logits = o->a,
                              .targets = o->targets,
                              .max = o->mean,
                              .sum = o->rstd,
                              .target = o->lse,
                              .scale = 1e-3f,
                              .loss = &total};

    switch (op) {
    case OP_COPY:
        ops->copy(o->q, o->a, o->b, (size_t)N * V * o->size);
        break;
    case OP_LAYERNORM:
    case OP_LAYERNORM_BACKWARD:
        run_norm(o, op);
        break;
    case OP_ATTENTION:
    case OP_ATTENTION_BACKWARD:
        run_attention(o, op);
        break;
    case OP_XENT_STATS:
        ops->xent_stats(o->q, &loss);
        break;
    case OP_XENT_BACKWARD:
        ops->xent_backward(o->q, &loss);
        break;
    case OP_ADAMW:
        ops->update(o->q, &adamw, &all, 1);
        break;
    default:
        run_product(o, op);
        break;
    }
}

/* The operations, or the bytes read and written, that an op cannot avoid. */
struct need {
    const char *name;
    double flops, bytes;
};

static struct need need_of(const struct ops_bench *o, enum op op)
{
    double s = (double)o->size, n = N, pairs = n * (T + 1) / 2 * C;

    switch (op) {
    case OP_COPY:
        return (struct need){"copy of [1024, 50304]", 0, 2 * n * V * s};
    case OP_SQUARE:
        return (struct need){"product 2048 x 2304 x 768", 12 * n * C * C, 0};
    case OP_QKV:
        return (struct need){"q, k, v forward", 6 * n * C * C, 0};
    case OP_QKV_DX:
        return (struct need){"q, k, v dX", 6 * n * C * C, 0};
    case OP_QKV_DW:
        return (struct need){"q, k, v dW and dbias", 6 * n * C * C, 0};
    case OP_UP_GELU:
        return (struct need){"up + bias + GELU", 8 * n * C * C, 0};
    case OP_DOWN_DX_GELU:
        return (struct need){"down dX * GELU'", 8 * n * C * C, 0};
    case OP_LAYERNORM:
        return (struct need){"residual + LayerNorm", 0, 4 * n * C * s};
    case OP_LAYERNORM_BACKWARD:
        return (struct need){"LayerNorm backward", 0, 4 * n * C * s};
    case OP_ATTENTION:
        return (struct need){"attention", 4 * pairs, 0};
    case OP_ATTENTION_BACKWARD:
        return (struct need){"attention backward", 10 * pairs, 0};
    case OP_XENT_STATS:
        return (struct need){"cross-entropy, sums", 0, n * V * s};
    case OP_XENT_BACKWARD:
        return (struct need){"cross-entropy, gradient", 0, 2 * n * V * s};
    default:
        return (struct need){"AdamW + cast, 38.6 M", 0,
                             (28 + (s < 4 ? s : 0)) * V * C};
    }
}

static void fill_random(struct ops_bench *o, void *p, size_t n)
{
    float *x = o->f[0];
    uint32_t r = 1;

    for (size_t i = 0; i < n; i++) {
        r = r * 1664525 + 1013904223;
        x[i] = (float)(r >> 8) * 0x1p-24f - 0.5f;
    }
    o->ops->cast(
        o->q,
        &(struct plait_cast){
            .to = o->type, .from = PLAIT_F32, .dst = p, .src = x, .n = n});
}

static void setup(struct ops_bench *o, int threads, enum plait_dtype type)
{
    size_t logits = (size_t)N * V;

    o->type = type;
    o->size = plait_dtype_size(type);
    o->dev = o->ops->device_create(0, threads);
    o->q = o->ops->queue_create(o->dev, 0);
    for (int i = 0; i < 4; i++)
        o->f[i] = room(o, (size_t)V * C * sizeof(float));
    o->a = room(o, logits * o->size);
    o->b = room(o, logits * o->size);
    o->c = room(o, logits * o->size);
    o->d = room(o, logits * o->size);
    fill_random(o, o->a, (size_t)V * C);
    fill_random(o, o->b, (size_t)V * C);
    fill_random(o, o->c, (size_t)V * C);
    fill_random(o, o->d, (size_t)V * C);
    o->mean = room(o, N * sizeof(float));
    o->rstd = room(o, N * sizeof(float));
    o->lse = room(o, (size_t)N * H * sizeof(float));
    o->targets = room(o, N * sizeof(int32_t));
    o->qkv = o->ops->weight_create(
        o->dev, &(struct plait_weight_data){type, 3 * C, C, o->c});
    o->up = o->ops->weight_create(
        o->dev, &(struct plait_weight_data){type, 4 * C, C, o->c});
    o->down = o->ops->weight_create(
        o->dev, &(struct plait_weight_data){type, C, 4 * C, o->c});
}

static void teardown(struct ops_bench *o)
{
    void *all[] = {o->f[0], o->f[1], o->f[2], o->f[3], o->a,   o->b,
                   o->c,    o->d,    o->mean, o->rstd, o->lse, o->targets};

    o->ops->weight_destroy(o->qkv);
    o->ops->weight_destroy(o->up);
    o->ops->weight_destroy(o->down);
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        o->ops->free(o->dev, all[i]);
    o->ops->queue_destroy(o->q);
    o->ops->device_destroy(o->dev);
}

static json_t *op_row(const struct need *n, const struct ops_bench *o,
                      const struct bench_samples *s, double ceiling)
{
    double t = bench_median(s);
    double rate = n->flops > 0 ? n->flops / t : n->bytes / t;
    char name[80];

    snprintf(name, sizeof(name), "%s%s", n->name, o->whose);
    return json_pack("{s:s,s:s,s:f,s:f,s:f,s:f,s:s,s:f}", "op", name, "type",
                     plait_dtype_name(o->type), "seconds", t, "least",
                     bench_least(s), "most", bench_most(s), "rate", rate * 1e-9,
                     "unit", n->flops > 0 ? "GFLOP/s" : "GB/s", "of_ceiling",
                     rate / ceiling);
}

/* The operations before `end`. */
static void one_type(json_t *rows, int threads, int rounds,
                     enum plait_dtype type, struct ops_bench o, enum op end)
{
    struct bench_samples s[NOPS] = {{0}};
    double copy, product;

    setup(&o, threads, type);
    for (int r = 0; r <= rounds; r++)
        for (int op = 0; op < (int)end; op++) {
            double start = bench_now();

            run_op(&o, (enum op)op);
            if (r > 0) /* the first run compiles and touches memory */
                bench_add(&s[op], bench_now() - start);
        }
    copy = need_of(&o, OP_COPY).bytes / bench_median(&s[OP_COPY]);
    product = need_of(&o, OP_SQUARE).flops / bench_median(&s[OP_SQUARE]);
    for (int op = 0; op < (int)end; op++) {
        struct need n = need_of(&o, (enum op)op);

        json_array_append_new(
            rows, op_row(&n, &o, &s[op], n.flops > 0 ? product : copy));
    }
    teardown(&o);
}

/* The products in bf16 by Plait's own code, where the table has oneDNN's: what
 * the table should have is decided by `rate`: of_ceiling divides by the square
 * product of the same code, which differs between both. */
static void own_tiles(json_t *rows, int threads, int rounds)
{
#ifdef HAVE_X86_TILES
    struct plait_ops ops = *plait_ops_cpu();

    if (cpu_isa() != CPU_AMX || !cpu_may_use_tiles())
        return;
    cpu_fill_tiles_amx(&ops);
    one_type(rows, threads, rounds, PLAIT_BF16_T,
             (struct ops_bench){.ops = &ops, .whose = ", own tiles"},
             OP_LAYERNORM);
#else
    (void)rows;
    (void)threads;
    (void)rounds;
#endif
}

void bench_ops(json_t *rows, int threads, int rounds)
{
    struct ops_bench o = {.ops = plait_ops_cpu(), .whose = ""};

    one_type(rows, threads, rounds, PLAIT_F32, o, NOPS);
    one_type(rows, threads, rounds, PLAIT_BF16_T, o, NOPS);
    own_tiles(rows, threads, rounds);
}
