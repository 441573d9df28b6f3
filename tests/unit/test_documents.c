/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_tables.h"
#include "kernels/attention.h"
#include "model_run.h"

/* Several documents in one sequence, with the start of each: the results equal
 * those of each document as a sequence of its own. */

/* The lengths of each sequence's documents; 0 ends the list. */
enum { T = 203, HEADS = 4, KV_HEADS = 2, D = 24, WIDTH = 8 * D, SEQUENCES = 2 };
static const int lengths[SEQUENCES][8] = {{1, 37, 64, 3, 98}, {130, 73}};

static const struct plait_ops *ops;
static struct plait_device *dev;
static struct plait_queue *q;

static void fill(float *x, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)((seed >> 8) * 0x1p-23 - 1);
    }
}

/* |x - y| over |y| */
static double deviation(const float *x, const float *y, size_t n)
{
    double off = 0, all = 0;

    for (size_t i = 0; i < n; i++) {
        off += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        all += (double)y[i] * y[i];
    }
    return sqrt(off / all);
}

static void set_starts(int32_t *starts, const int *length, int n)
{
    int at = 0;

    for (; *length; at += *length++)
        for (int i = 0; i < *length; i++)
            starts[at + i] = at;
    if (at != n)
        abort();
}

static struct plait_attention describe(int batch, int len,
                                       const int32_t *starts)
{
    struct plait_attention a = {
        .batch = batch,
        .q_len = len,
        .k_len = len,
        .q_heads = HEADS,
        .kv_heads = KV_HEADS,
        .head_dim = D,
        .q_stride = WIDTH,
        .kv_stride = WIDTH,
        .starts = starts,
        .scale = 0.3f,
    };

    return a;
}

/* Inputs and results of attention, one sequence after the other. */
struct buffers {
    float qkv[SEQUENCES * T * WIDTH], dqkv[SEQUENCES * T * WIDTH];
    float out[SEQUENCES * T * HEADS * D], dout[SEQUENCES * T * HEADS * D];
    float lse[SEQUENCES * HEADS * T];
};

/* Forward and backward of `len` tokens, beginning at `row`. */
static void attend(const struct plait_attention *a, struct buffers *b,
                   float *lse, size_t row)
{
    float *x = b->qkv + row * WIDTH, *dx = b->dqkv + row * WIDTH;
    float *out = b->out + row * HEADS * D;
    size_t k = HEADS * D, v = k + KV_HEADS * D;
    struct plait_attention_forward f = {.type = PLAIT_F32,
                                        .a = *a,
                                        .out = out,
                                        .lse = lse,
                                        .Q = x,
                                        .K = x + k,
                                        .V = x + v};
    struct plait_attention_backward g = {.type = PLAIT_F32,
                                         .a = *a,
                                         .dQ = dx,
                                         .dK = dx + k,
                                         .dV = dx + v,
                                         .dout = b->dout + row * HEADS * D,
                                         .out = out,
                                         .lse = lse,
                                         .Q = x,
                                         .K = x + k,
                                         .V = x + v};

    ops->attention_forward(q, &f);
    ops->attention_backward(q, &g);
    ops->queue_sync(q);
}

/* Attention of each document of sequence `s` on its own. */
static void attend_each(struct buffers *b, int s)
{
    static float lse[HEADS * T];
    int at = 0;

    for (const int *n = lengths[s]; *n; at += *n++) {
        struct plait_attention a = describe(1, *n, NULL);

        attend(&a, b, lse, (size_t)(s * T + at));
        for (int h = 0; h < HEADS; h++)
            memcpy(b->lse + (s * HEADS + h) * T + at, lse + h * *n,
                   (size_t)*n * sizeof(*lse));
    }
}

static void check_attention(struct buffers *all, struct buffers *each,
                            const int32_t *starts)
{
    struct plait_attention a = describe(SEQUENCES, T, starts);
    double out, lse, grad;

    fill(all->qkv, sizeof(all->qkv) / sizeof(float), 1);
    fill(all->dout, sizeof(all->dout) / sizeof(float), 2);
    memset(all->dqkv, 0, sizeof(all->dqkv));
    memcpy(each, all, sizeof(*each));
    attend(&a, all, all->lse, 0);
    for (int s = 0; s < SEQUENCES; s++)
        attend_each(each, s);
    out = deviation(all->out, each->out, sizeof(all->out) / sizeof(float));
    lse = deviation(all->lse, each->lse, sizeof(all->lse) / sizeof(float));
    grad = deviation(all->dqkv, each->dqkv, sizeof(all->dqkv) / sizeof(float));
    ok(out < 1e-6 && lse < 1e-6 && grad < 1e-6,
       "%s: attention, its sums and gradients are off by %.1e, %.1e, %.1e",
       ops->name, out, lse, grad);
    a.starts = NULL;
    attend(&a, all, all->lse, 0);
    ok(deviation(all->out, each->out, sizeof(all->out) / sizeof(float)) > 0.1,
       "and without starts it is another");
}

/* The queries of the second half with the keys of either half. */
static void check_chunks(struct buffers *all, struct buffers *half,
                         const int32_t *starts)
{
    enum { FIRST = 101, REST = T - FIRST };
    static float out2[REST * HEADS * D], lse2[HEADS * REST];
    size_t k = HEADS * D, v = k + KV_HEADS * D, row = FIRST;
    struct plait_attention a = describe(1, T, starts);
    const float *x = half->qkv + row * WIDTH;
    double off;

    attend(&a, all, all->lse, 0);
    memcpy(half->qkv, all->qkv, sizeof(half->qkv));
    a.starts = starts + FIRST;
    a.q_len = a.k_len = REST;
    a.q_pos = a.k_pos = FIRST;
    ops->attention_forward(q,
                           &(struct plait_attention_forward){.type = PLAIT_F32,
                                                             .a = a,
                                                             .out = half->out,
                                                             .lse = half->lse,
                                                             .Q = x,
                                                             .K = x + k,
                                                             .V = x + v});
    a.k_len = FIRST;
    a.k_pos = 0;
    ops->attention_forward(
        q, &(struct plait_attention_forward){.type = PLAIT_F32,
                                             .a = a,
                                             .out = out2,
                                             .lse = lse2,
                                             .Q = x,
                                             .K = half->qkv + k,
                                             .V = half->qkv + v});
    ops->attention_merge(q, &(struct plait_attention_merge){.type = PLAIT_F32,
                                                            .a = a,
                                                            .out = half->out,
                                                            .lse = half->lse,
                                                            .out2 = out2,
                                                            .lse2 = lse2});
    ops->queue_sync(q);
    off = deviation(half->out, all->out + row * HEADS * D,
                    REST * (size_t)HEADS * D);
    ok(off < 1e-6, "%s: joined from two chunks of keys it is off by %.1e",
       ops->name, off);
}

static void check_rope(struct buffers *all, struct buffers *each,
                       const int32_t *starts)
{
    struct plait_rope rope = {.x = all->qkv,
                              .stride = WIDTH,
                              .heads = HEADS + KV_HEADS,
                              .head_dim = D,
                              .direction = 1,
                              .angles = {.theta = 1e4},
                              .at = {.T = T, .starts = starts},
                              .N = SEQUENCES * T};
    double off;

    fill(all->qkv, sizeof(all->qkv) / sizeof(float), 3);
    memcpy(each->qkv, all->qkv, sizeof(all->qkv));
    ops->rope(q, &rope);
    rope.at.starts = NULL;
    for (int s = 0; s < SEQUENCES; s++) {
        int at = s * T;

        for (const int *n = lengths[s]; *n; at += *n++) {
            rope.x = each->qkv + at * WIDTH;
            rope.at.T = rope.N = (size_t)*n;
            ops->rope(q, &rope);
        }
    }
    ops->queue_sync(q);
    off = deviation(all->qkv, each->qkv, sizeof(all->qkv) / sizeof(float));
    ok(off < 1e-6, "%s: rotary positions are off by %.1e", ops->name, off);
}

static void test_ops(const struct plait_ops *table)
{
    static struct buffers all, each;
    static int32_t starts[SEQUENCES * T];

    ops = table;
    dev = ops->device_create(0, 2);
    q = ops->queue_create(dev, 0);
    for (int s = 0; s < SEQUENCES; s++)
        set_starts(starts + s * T, lengths[s], T);
    check_attention(&all, &each, starts);
    check_chunks(&all, &each, starts);
    check_rope(&all, &each, starts);
    ops->queue_destroy(q);
    ops->device_destroy(dev);
}

/* -- a model ------------------------------------------------------------- */

enum { LEN = 48, BATCH = 2 };

static double step(struct run *r, const struct plait_batch *b)
{
    if (plait_model_forward(r->model, &(struct plait_forward){.batch = b,
                                                              .loss = r->loss,
                                                              .train = true}) <
            0 ||
        plait_model_backward(r->model, &(struct plait_backward){0}) < 0)
        give_up("step", NULL);
    return take_loss(r);
}

static void test_model(enum plait_family family, enum plait_recompute recompute)
{
    static const int docs[BATCH][8] = {{17, 1, 20, 10}, {48}};
    static int32_t tokens[BATCH * LEN], targets[BATCH * LEN];
    static int32_t starts[BATCH * LEN];
    struct plait_job_config config;
    struct run r = {0};
    struct plait_batch b, one;
    double loss, separate = 0, plain;
    float *want;

    small_config(&config, family);
    config.model.layers = 2;
    config.model.seq_len = LEN;
    config.parallel.recompute = recompute;
    config.data.mask_documents = true;
    place(&r.mesh, 1, 0, 1, 0);
    open_device(&r, plait_ops_cpu());
    open_model(&r, &config, 1);
    b = make_batch(&config, tokens, targets);
    for (int s = 0; s < BATCH; s++)
        set_starts(starts + s * LEN, docs[s], LEN);
    clear_grads(&r);
    for (int s = 0, at = 0; s < BATCH; s++)
        for (const int *n = docs[s]; *n; at += *n++) {
            one = b;
            one.batch = 1;
            one.seq_len = *n;
            one.tokens = tokens + at;
            one.targets = targets + at;
            separate += step(&r, &one);
        }
    want = malloc(r.model->count * sizeof(*want));
    memcpy(want, r.grads, r.model->count * sizeof(*want));
    clear_grads(&r);
    plain = step(&r, &b);
    b.starts = starts;
    clear_grads(&r);
    loss = step(&r, &b);
    ok(fabs(loss - separate) < 1e-6 * separate &&
           fabs(plain - separate) > 1e-3 * separate,
       "family %d: loss %.6f, of separate sequences %.6f, unmasked %.6f",
       family, loss, separate, plain);
    ok(deviation(r.grads, want, r.model->count) < 1e-6,
       "and its gradient is off by %.1e",
       deviation(r.grads, want, r.model->count));
    free(want);
    close_run(&r);
}

int main(void)
{
    const struct plait_ops *cpu[CPU_TABLES + 1];

    test_ops(plait_ops_ref());
    list_cpu_tables(cpu);
    for (int i = 0; cpu[i]; i++)
        test_ops(cpu[i]);
    test_model(PLAIT_GPT2, PLAIT_RECOMPUTE_NONE);
    test_model(PLAIT_GPT2, PLAIT_RECOMPUTE_FULL);
    test_model(PLAIT_LLAMA, PLAIT_RECOMPUTE_NONE);
    test_model(RICH_LLAMA, PLAIT_RECOMPUTE_SELECTIVE);
    return done_testing();
}
